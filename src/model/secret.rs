//! Values that must not be seen: kept out of debug output, requests and error texts.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::{Map, Value};

use super::{About, Error, Message, Meter, Model, Reply, Request};

/// Shorter values are not looked for: they would stand in ordinary text.
const SHORTEST: usize = 8;
const MASK: &str = "[secret]";

/// A key or password. Printing it in any form shows only that there is one.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Surrounding white space is no part of a key.
    pub fn new(text: &str) -> Self {
        Self(text.trim().to_owned())
    }

    /// The value itself, for the one place that needs it.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// True when there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

/// `text` with every known secret replaced, as itself and as it stands inside a JSON string.
pub fn mask(text: &str, secrets: &[Secret]) -> String {
    let mut out = text.to_owned();
    for secret in secrets.iter().map(Secret::reveal) {
        if secret.len() < SHORTEST {
            continue;
        }
        let quoted = Value::from(secret).to_string();
        let escaped = &quoted[1..quoted.len() - 1];
        for form in [secret, escaped] {
            if out.contains(form) {
                out = out.replace(form, MASK);
            }
        }
    }
    out
}

/// `model` behind a mask: known secrets leave neither in a request nor in an error.
pub fn masked(model: Arc<dyn Model>, secrets: Vec<Secret>) -> Arc<dyn Model> {
    Arc::new(Masked { model, secrets })
}

struct Masked {
    model: Arc<dyn Model>,
    secrets: Vec<Secret>,
}

impl Model for Masked {
    fn attempt<'a>(
        &'a self,
        request: &'a Request,
        meter: Meter,
    ) -> BoxFuture<'a, Result<Reply, Error>> {
        Box::pin(async move {
            let request = masked_request(request, &self.secrets);
            let answer = self.model.attempt(&request, meter).await;
            answer.map_err(|error| masked_error(error, &self.secrets))
        })
    }

    fn parameters(&self, request: &Request) -> Map<String, Value> {
        self.model.parameters(request)
    }

    fn about(&self) -> About {
        self.model.about()
    }
}

fn masked_request(request: &Request, secrets: &[Secret]) -> Request {
    let mut out = request.clone();
    let hide = |text: &mut String| *text = mask(text, secrets);
    for message in &mut out.messages {
        match message {
            Message::System { text } | Message::User { text } | Message::Tool { text, .. } => {
                hide(text);
            }
            Message::Assistant {
                text,
                calls,
                native,
            } => {
                hide(text);
                calls.iter_mut().for_each(|call| hide(&mut call.arguments));
                if let Some(native) = native {
                    masked_value(native, secrets);
                }
            }
        }
    }
    for tool in &mut out.tools {
        hide(&mut tool.description);
    }
    out
}

fn masked_value(value: &mut Value, secrets: &[Secret]) {
    match value {
        Value::String(text) => *text = mask(text, secrets),
        Value::Array(items) => items
            .iter_mut()
            .for_each(|item| masked_value(item, secrets)),
        Value::Object(map) => map
            .values_mut()
            .for_each(|item| masked_value(item, secrets)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// `error` without known secrets.
pub(super) fn masked_error(mut error: Error, secrets: &[Secret]) -> Error {
    let text = match &mut error {
        Error::Connect { reason, .. } | Error::Cut { reason, .. } => reason,
        Error::Status { message, .. } => message,
        Error::Setup { what, .. } => what,
        Error::Timeout { .. } | Error::NotRecorded { .. } => return error,
    };
    *text = mask(text, secrets);
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_never_prints() {
        let secret = Secret::new(" sk-very-secret\n");
        assert_eq!(secret.reveal(), "sk-very-secret");
        assert_eq!(
            format!("{secret} {secret:?} {:?}", Some(&secret)),
            "[secret] [secret] Some([secret])"
        );
    }

    #[test]
    fn known_values_are_masked_in_every_form() {
        let secrets = [
            Secret::new("pass\"word\\1"),
            Secret::new("short"),
            Secret::new("plainsecret"),
        ];
        assert_eq!(
            mask(
                r#"a pass"word\1 b {"x":"pass\"word\\1"} short plainsecrets"#,
                &secrets
            ),
            r#"a [secret] b {"x":"[secret]"} short [secret]s"#
        );
    }
}
