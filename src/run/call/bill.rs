//! What a model call may cost, and what it did: pure.

use crate::model::{Error, Price, Request, Usage};
use crate::run::call::pot::Amount;

/// The most that this request can cost: nothing cached, the whole reply limit used.
pub(in crate::run) fn worst(request: &Request, price: Option<Price>) -> Amount {
    let input = estimate(request);
    let cost = price.map_or(0.0, |p| {
        (input as f64 * p.input + request.reply_tokens as f64 * p.output) / 1e6
    });
    Amount {
        tokens: (input + request.reply_tokens) as f64,
        cost_usd: cost,
    }
}

/// What an answered call cost, cached input at its price weight.
pub(in crate::run) fn used(usage: Usage, price: Option<Price>) -> Amount {
    let fresh = usage.input.saturating_sub(usage.cached) as f64;
    let (cached, output) = (usage.cached as f64, usage.output as f64);
    match price {
        Some(price) => {
            let weight = if price.input > 0.0 {
                price.cached_input / price.input
            } else {
                1.0
            };
            Amount {
                tokens: fresh + cached * weight + output,
                cost_usd: (fresh * price.input
                    + cached * price.cached_input
                    + output * price.output)
                    / 1e6,
            }
        }
        None => Amount {
            tokens: fresh + cached + output,
            cost_usd: 0.0,
        },
    }
}

/// What a failed attempt may have cost: a server that read the request and then fell silent or
/// broke off may bill what it read; one that refused or was never reached bills nothing.
pub(in crate::run) fn failed(error: &Error, request: &Request, price: Option<Price>) -> Amount {
    match error {
        Error::Timeout { .. } | Error::Cut { .. } => {
            let input = estimate(request) as f64;
            let cost = price.map_or(0.0, |p| input * p.input / 1e6);
            Amount {
                tokens: input,
                cost_usd: cost,
            }
        }
        Error::Connect { .. }
        | Error::Status { .. }
        | Error::NotRecorded { .. }
        | Error::Setup { .. } => Amount::default(),
    }
}

/// True when a server counted so little of a long request that it cannot have read all of it. No text is
/// three times as dense as the rule of thumb has it.
pub(in crate::run) fn cut(usage: Usage, request: &Request) -> bool {
    const LONG: u64 = 6_000;
    let sent = estimate(request);
    !usage.estimated && usage.input > 0 && sent > LONG && usage.input < sent / 3
}

/// Four bytes a token, the rule of thumb for text and code; what the server reports replaces it.
pub(in crate::run) fn estimate(request: &Request) -> u64 {
    let text: usize = request
        .messages
        .iter()
        .map(|message| serde_json::to_string(message).map_or(0, |text| text.len()))
        .sum();
    let tools: usize = request
        .tools
        .iter()
        .map(|t| t.description.len() + t.schema.to_string().len())
        .sum();
    ((text + tools) / 4) as u64
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::{Key, Message};

    const PRICE: Price = Price {
        input: 10.0,
        cached_input: 1.0,
        output: 100.0,
    };

    fn request() -> Request {
        Request {
            key: Key {
                round: 1,
                subtask: "a".into(),
                role: "coder".into(),
                call: 1,
            },
            messages: vec![Message::User {
                text: "x".repeat(4000),
            }],
            tools: Vec::new(),
            reply_tokens: 500,
            temperature: None,
            effort: None,
        }
    }

    #[test]
    fn cached_input_counts_at_its_price_weight() {
        let usage = Usage {
            input: 1000,
            cached: 800,
            output: 10,
            estimated: false,
        };
        let priced = used(usage, Some(PRICE));
        assert!((priced.tokens - 290.0).abs() < 1e-9, "{priced:?}");
        assert!((priced.cost_usd - 0.0038).abs() < 1e-9, "{priced:?}");
        assert!((used(usage, None).tokens - 1010.0).abs() < 1e-9);
    }

    #[test]
    fn what_a_silent_server_read_is_spent_and_a_refusal_is_not() {
        let url = || "http://127.0.0.1/v1".to_owned();
        let timeout = Error::Timeout {
            url: url(),
            limit: Duration::from_secs(1),
        };
        let spent = failed(&timeout, &request(), Some(PRICE));
        assert!(spent.tokens >= 1000.0 && spent.cost_usd > 0.0, "{spent:?}");
        assert!(spent.tokens < worst(&request(), Some(PRICE)).tokens);
        let connect = Error::Connect {
            url: url(),
            reason: "refused".into(),
        };
        assert_eq!(failed(&connect, &request(), Some(PRICE)), Amount::default());
    }
}
