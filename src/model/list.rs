//! The models that a server says it has.

use std::time::Duration;

use serde_json::Value;

use super::client::headers;
use super::http::Http;
use super::{Error, Limits, Provider, StatusKind, price, secret, stream};

/// How long a list may take in all.
const LIMIT: Duration = Duration::from_secs(20);
/// Models of one server that are kept.
const MOST: usize = 2000;

/// One model of a server.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Listed {
    /// As a plan names it, after `PROVIDER/`.
    pub id: String,
    /// Tokens, as the server says; else as it is known of the name.
    pub context_window: Option<u64>,
    /// US dollars a million tokens, where the name is known and the provider is its vendor.
    pub price: Option<super::Price>,
}

/// What came of asking a server for its models.
#[derive(Clone, Debug)]
pub enum Models {
    Are(Vec<Listed>),
    /// The server has no list: it may still answer.
    Untold(Error),
}

/// Asks for the list once. `Err`: the server could not be asked, or refused.
pub async fn models(provider: &Provider) -> Result<Models, Error> {
    let limits = Limits {
        total: LIMIT,
        first_byte: LIMIT,
        ..Limits::default()
    };
    let key = provider.api_key.as_ref().filter(|key| !key.is_empty());
    let asked = ask(provider, limits).await;
    let asked = asked.map_err(|error| match key {
        Some(key) => secret::masked_error(error, std::slice::from_ref(key)),
        None => error,
    });
    match asked {
        Ok(value) => Ok(read(provider, &value)),
        Err(error) if has_none(&error) => Ok(Models::Untold(error)),
        Err(error) => Err(error),
    }
}

async fn ask(provider: &Provider, limits: Limits) -> Result<Value, Error> {
    let key = provider.api_key.as_ref().filter(|key| !key.is_empty());
    let headers = headers(provider.kind, provider.profile()?, key)?;
    let address = provider.kind.list_address(provider.base_url.trim());
    let http = Http::open(&address, headers, limits)?;
    stream::whole(http.get().await?, usize::MAX).await
}

/// A server that answers and has nothing at the list's place.
fn has_none(error: &Error) -> bool {
    match error {
        Error::Status { status, kind, .. } => {
            *kind == StatusKind::Refused && matches!(status, 404 | 405 | 501)
        }
        _ => false,
    }
}

fn read(provider: &Provider, value: &Value) -> Models {
    let list = ["data", "models"]
        .iter()
        .find_map(|key| value[key].as_array());
    let Some(list) = list else {
        return Models::Untold(Error::Cut {
            url: provider.base_url.clone(),
            reason: "its answer holds no list".to_owned(),
        });
    };
    let is_vendor = matches!(provider.name.as_str(), "openai" | "anthropic");
    let mut out: Vec<Listed> = list
        .iter()
        .filter_map(|one| {
            let named = ["id", "model", "name"]
                .iter()
                .find_map(|key| one[key].as_str());
            let id = named.or_else(|| one.as_str())?.to_owned();
            let known = price::known(&id);
            Some(Listed {
                context_window: window(one)
                    .or(provider.context_window)
                    .or(known.map(|known| known.context_window)),
                price: provider
                    .price
                    .or(known.filter(|_| is_vendor).map(|known| known.price)),
                id,
            })
        })
        .take(MOST)
        .collect();
    out.sort_by(|a, b| a.id.cmp(&b.id));
    Models::Are(out)
}

/// The window, where a server tells it: vLLM, OpenRouter, Anthropic, llama.cpp, LiteLLM.
fn window(one: &Value) -> Option<u64> {
    let places = [
        &one["max_model_len"],
        &one["context_length"],
        &one["max_input_tokens"],
        &one["context_window"],
        &one["meta"]["n_ctx"],
        &one["meta"]["n_ctx_train"],
    ];
    places
        .into_iter()
        .find_map(Value::as_u64)
        .filter(|&n| n > 0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_of_many_servers_are_read() {
        let provider = Provider::openai(Some("http://h/v1".into()), None);
        let of = |value: Value| match read(&provider, &value) {
            Models::Are(list) => Some(list),
            Models::Untold(_) => None,
        };
        let list = of(json!({"object": "list", "data": [
            {"id": "zeta", "max_model_len": 8192}, {"id": "gpt-4o"}, {"name": "alpha", "meta": {"n_ctx_train": 4096}}, {"x": 1},
        ]}))
        .unwrap();
        let seen: Vec<_> = list
            .iter()
            .map(|m| (m.id.as_str(), m.context_window))
            .collect();
        assert_eq!(
            seen,
            [
                ("alpha", Some(4096)),
                ("gpt-4o", Some(128_000)),
                ("zeta", Some(8192))
            ]
        );
        assert!(list[1].price.is_some() && list[2].price.is_none());
        assert_eq!(of(json!({"data": []})), Some(vec![]));
        assert_eq!(of(json!({"ok": true})), None);
    }
}
