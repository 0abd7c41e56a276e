//! Context windows and prices of well-known models, from `prices.json` beside this file.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{About, Error, Meter, Model, Price, Reply, Request};

/// What is known of a model by its name.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct Known {
    pub context_window: u64,
    /// US dollars a million tokens.
    pub price: Price,
}

#[derive(Deserialize)]
struct File {
    models: BTreeMap<String, Known>,
}

static MODELS: LazyLock<BTreeMap<String, Known>> = LazyLock::new(|| {
    let file: Result<File, _> = serde_json::from_str(include_str!("prices.json"));
    file.map(|file| file.models).unwrap_or_default()
});

/// Looks up the name itself or the name before its date (`-2025-01-31`, `-20250131`, `-latest`).
/// None: not known; nothing is guessed from a similar name.
pub fn known(model: &str) -> Option<Known> {
    let name = model.to_ascii_lowercase();
    let found = MODELS.get(name.as_str()).or_else(|| {
        MODELS.iter().find_map(|(family, known)| {
            let rest = name.strip_prefix(family.as_str())?.strip_prefix('-')?;
            is_version(rest).then_some(known)
        })
    });
    found.copied()
}

/// A model at another price than it knows of itself.
pub fn at(model: Arc<dyn Model>, price: Price) -> Arc<dyn Model> {
    Arc::new(Priced { model, price })
}

struct Priced {
    model: Arc<dyn Model>,
    price: Price,
}

impl Model for Priced {
    fn attempt<'a>(
        &'a self,
        request: &'a Request,
        meter: Meter,
    ) -> BoxFuture<'a, Result<Reply, Error>> {
        self.model.attempt(request, meter)
    }

    fn parameters(&self, request: &Request) -> Map<String, Value> {
        self.model.parameters(request)
    }

    fn about(&self) -> About {
        About {
            price: Some(self.price),
            ..self.model.about()
        }
    }
}

/// A date without its words, or `latest`.
fn is_version(text: &str) -> bool {
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    let dated = digits == 8 && text.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    dated || text == "latest"
}

impl Price {
    /// US dollars for a usage.
    pub fn cost(&self, usage: &super::Usage) -> f64 {
        let fresh = usage.input.saturating_sub(usage.cached);
        let dollars = fresh as f64 * self.input
            + usage.cached as f64 * self.cached_input
            + usage.output as f64 * self.output;
        dollars / 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Usage;

    #[test]
    fn the_file_is_sound() {
        assert!(MODELS.len() > 10);
        for (name, known) in MODELS.iter() {
            let price = known.price;
            assert!(known.context_window >= 100_000, "{name}");
            assert!(
                price.cached_input <= price.input && price.input < price.output,
                "{name}"
            );
        }
    }

    #[test]
    fn only_the_name_or_its_dated_form_is_known() {
        assert!(known("gpt-4o").is_some());
        assert_eq!(known("gpt-4o-2024-08-06"), known("gpt-4o"));
        assert_eq!(
            known("claude-sonnet-4-5-20250929"),
            known("claude-sonnet-4-5")
        );
        assert_ne!(known("gpt-4o-mini"), known("gpt-4o"));
        assert_eq!(known("gpt-4o-realtime"), None);
        assert_eq!(known("gpt-5.9"), None);
        assert_eq!(known("smol"), None);
    }

    #[test]
    fn cached_input_counts_at_its_own_price() {
        let price = Price {
            input: 10.0,
            cached_input: 1.0,
            output: 100.0,
        };
        let usage = Usage {
            input: 3_000_000,
            cached: 1_000_000,
            output: 10_000,
            estimated: false,
        };
        assert!((price.cost(&usage) - 22.0).abs() < 1e-9);
    }

    #[tokio::test]
    async fn a_given_price_stands_for_the_known_one_and_nothing_else_changes() {
        let line = crate::model::recording::cassette_line(
            &crate::model::Key {
                round: 1,
                subtask: "a".into(),
                role: "coder".into(),
                call: 1,
            },
            None,
            &serde_json::json!({"text": "hi"}),
        );
        let recording = crate::model::Recording::parse("tape", &line).unwrap();
        let own: Arc<dyn Model> = Arc::new(crate::model::Replay::new(recording));
        let price = Price {
            input: 3.0,
            cached_input: 1.0,
            output: 9.0,
        };
        let name = own.about().name;
        let priced = at(own, price);
        assert_eq!(
            (priced.about().name, priced.about().price),
            (name, Some(price))
        );
    }
}
