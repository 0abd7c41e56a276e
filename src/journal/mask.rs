//! Values that no line may hold, wherever a model or a command wrote them.

use serde_json::Value;

const MASK: &str = "[secret]";

/// Keys whose values are words of our own: names, ids and hashes that other lines refer to.
const OURS: [&str; 17] = [
    "type", "id", "run", "role", "subtask", "commit", "tree", "snapshot", "start", "base", "ours",
    "theirs", "kind", "status", "stop", "call_id", "finish",
];

/// Known secrets, each in the forms it takes inside a line.
#[derive(Clone, Default)]
pub struct Mask {
    /// Longest first, so that a secret inside another leaves no rest of it.
    forms: Vec<String>,
}

impl Mask {
    /// Of these values.
    pub fn new(secrets: &[String]) -> Self {
        let mut forms = Vec::new();
        for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
            // Arguments are a text of JSON inside a text of JSON.
            let mut form = secret.clone();
            for _ in 0..3 {
                let next = escaped(&form);
                forms.push(form);
                form = next;
            }
        }
        forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
        forms.dedup();
        Self { forms }
    }

    /// True when a line's text holds one of them.
    pub fn hits(&self, text: &str) -> bool {
        self.forms.iter().any(|form| text.contains(form.as_str()))
    }

    /// The text without them.
    pub fn text(&self, text: &str) -> String {
        let mut out = text.to_owned();
        for form in &self.forms {
            if out.contains(form.as_str()) {
                out = out.replace(form.as_str(), MASK);
            }
        }
        out
    }

    /// Masks every text of an event but the words that other lines refer to.
    pub fn value(&self, value: &mut Value) {
        match value {
            Value::String(text) if self.hits(text) => *text = self.text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(fields) => {
                for (key, field) in fields.iter_mut() {
                    if !(field.is_string() && OURS.contains(&key.as_str())) {
                        self.value(field);
                    }
                }
            }
            _ => {}
        }
    }
}

fn escaped(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_secret_goes_in_every_form_and_our_own_words_stay() {
        let mask = Mask::new(&["pass\"word1".to_owned(), "snapshot".to_owned()]);
        let arguments = json!({"command": "echo pass\"word1"}).to_string();
        let mut event = json!({"type": "snapshot", "snapshot": "abc",
            "results": [{"text": "pass\"word1", "arguments": arguments}]});
        mask.value(&mut event);
        assert_eq!(event["type"], "snapshot");
        assert_eq!(event["snapshot"], "abc");
        let text = event.to_string();
        assert!(!text.contains("word1"), "{text}");
        let inner = event["results"][0]["arguments"].as_str().unwrap();
        let inner: Value = serde_json::from_str(inner).unwrap();
        assert_eq!(inner["command"], "echo [secret]");
    }
}
