//! What a model call may cost, and what it did: pure.

use crate::model::{Price, Request, Usage};
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

/// What an attempt cost, cached input at its price weight.
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
    use super::*;

    const PRICE: Price = Price {
        input: 10.0,
        cached_input: 1.0,
        output: 100.0,
    };

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
}
