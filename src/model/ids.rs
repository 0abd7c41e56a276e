//! Ids of tool calls: unique in their conversation and fit for every server.

use std::collections::HashSet;

use sha2::{Digest as _, Sha256};

use super::{Call, Message};

/// The length servers take at most.
const LONGEST: usize = 64;

/// Replaces ids that are missing, odd, or taken by `earlier` or by a call before; `call_<n>` counts
/// the conversation's calls, so the same answers always give the same ids. True when one was replaced.
pub fn settle(calls: &mut [Call], earlier: &[Message]) -> bool {
    let mut taken: HashSet<String> = HashSet::new();
    for message in earlier {
        if let Message::Assistant { calls, .. } = message {
            taken.extend(calls.iter().map(|call| call.id.clone()));
        }
    }
    let mut replaced = false;
    for (number, call) in (taken.len() + 1..).zip(calls) {
        if !is_fit(&call.id) || taken.contains(&call.id) {
            replaced = true;
            call.id = (number..)
                .map(|n| format!("call_{n}"))
                .find(|id| !taken.contains(id))
                .unwrap_or_default();
        }
        taken.insert(call.id.clone());
    }
    replaced
}

/// Nine letters and digits that stand for an id at servers that take no others; the same for the same.
pub fn short(id: &str) -> String {
    let digest = Sha256::digest(id.as_bytes());
    let text: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    text[..9].to_owned()
}

/// True for `[a-zA-Z0-9_-]{1,64}`, the form every server takes for ids and tool names.
pub fn is_fit(text: &str) -> bool {
    (1..=LONGEST).contains(&text.len()) && text.bytes().all(plain)
}

/// The nearest fit name: a model may call a tool by a name that no server takes back.
pub fn fit_name(name: &str) -> String {
    if is_fit(name) {
        return name.to_owned();
    }
    let keep = |c: char| {
        if c.is_ascii() && plain(c as u8) {
            c
        } else {
            '_'
        }
    };
    let fit: String = name.trim().chars().take(LONGEST).map(keep).collect();
    if fit.is_empty() {
        "unnamed".to_owned()
    } else {
        fit
    }
}

fn plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(id: &str) -> Call {
        Call {
            id: id.into(),
            name: "bash".into(),
            arguments: "{}".into(),
        }
    }

    #[test]
    fn missing_repeated_and_odd_ids_are_replaced() {
        let earlier = [Message::Assistant {
            text: String::new(),
            calls: vec![call("bash:0"), call("call_4")],
            native: None,
        }];
        let mut calls = [
            call(""),
            call("call_4"),
            call("ok-1"),
            call("ok-1"),
            call("bash:1"),
        ];
        assert!(settle(&mut calls, &earlier));
        let ids: Vec<_> = calls.iter().map(|call| call.id.as_str()).collect();
        assert_eq!(ids, ["call_3", "call_5", "ok-1", "call_6", "call_7"]);
        assert!(!settle(&mut [call("fine")], &earlier));
    }

    #[test]
    fn names_become_fit() {
        assert_eq!(fit_name("functions.bash"), "functions_bash");
        assert_eq!(fit_name("bash "), "bash");
        assert_eq!(fit_name(""), "unnamed");
        assert!(is_fit(&fit_name(&"é".repeat(200))));
    }
}
