//! Values that no line may hold, wherever a model or a command wrote them.

use serde_json::Value;

const MASK: &str = "[secret]";

/// Characters of an encoded form that is looked for: a shorter one would stand in ordinary text.
const SHORTEST: usize = 10;

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
            forms.extend(encoded(secret.as_bytes()));
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

/// What a value looks like in base64 wherever it stands in what is encoded, and in an address. Of
/// base64 the letters that others share are left out; what is too short then is no form of its own.
fn encoded(secret: &[u8]) -> Vec<String> {
    let mut forms = Vec::new();
    for before in 0..3 {
        let bytes = [&[0; 3][..before], secret].concat();
        let whole = bytes.len() / 3 * 4;
        let from = [0, 2, 3][before];
        for letters in [PLAIN, FOR_ADDRESSES] {
            let text = base64(&bytes, letters);
            forms.extend(text.get(from..whole).map(str::to_owned));
        }
    }
    let percent = |byte: &u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(*byte).to_string()
        }
        byte => format!("%{byte:02X}"),
    };
    forms.push(secret.iter().map(percent).collect());
    forms.retain(|form| form.len() >= SHORTEST);
    forms
}

const PLAIN: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const FOR_ADDRESSES: &[u8; 64] =
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Without padding.
fn base64(bytes: &[u8], letters: &[u8; 64]) -> String {
    let mut out = String::new();
    for part in bytes.chunks(3) {
        let of = |at: usize| u32::from(part.get(at).copied().unwrap_or_default());
        let bits = of(0) << 16 | of(1) << 8 | of(2);
        for place in 0..=part.len() {
            let letter = bits >> (18 - 6 * place) & 63;
            out.push(char::from(letters[letter as usize]));
        }
    }
    out
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
    fn a_secret_goes_in_its_encoded_forms_too() {
        let mask = Mask::new(&["tvly-canary/+of=now?".to_owned()]);
        for text in [
            // The value alone, behind one and behind two other characters, and with more after it.
            "dHZseS1jYW5hcnkvK29mPW5vdz8=",
            "eDp0dmx5LWNhbmFyeS8rb2Y9bm93Pw==",
            "eHg6dHZseS1jYW5hcnkvK29mPW5vdz86eA==",
            "https://h/?key=tvly-canary%2F%2Bof%3Dnow%3F",
        ] {
            let shown = mask.text(text);
            assert!(shown.contains(MASK), "{text}: {shown}");
            for part in ["canary", "YW5hcn", "FuYXJ5", "hbmFye"] {
                assert!(!shown.contains(part), "{text}: {shown}");
            }
        }
        let ordinary = "a canary of now, Y2FuYXJ5 and tvly";
        assert_eq!(mask.text(ordinary), ordinary);
    }

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
