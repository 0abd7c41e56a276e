//! Tool calls put together from their pieces.

use serde_json::Value;

use super::super::Call;

/// Whether a piece is part of a stream or stands whole in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Delta,
    Whole,
}

/// The calls of one answer so far.
#[derive(Debug, Default)]
pub struct Calls {
    parts: Vec<Part>,
    /// The single `function_call` of old servers; some send it beside `tool_calls`.
    legacy: Option<Part>,
}

#[derive(Debug, Default)]
struct Part {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
    /// What a server hangs on a call and wants back with it (`extra_content`: Google's signature of the
    /// thought behind it).
    extra: Option<Value>,
}

impl Calls {
    /// Takes one element of `tool_calls`.
    pub fn add(&mut self, piece: &Value, origin: Origin) {
        let at = match origin {
            Origin::Whole => None,
            Origin::Delta => self.place(piece),
        };
        let at = at.unwrap_or_else(|| {
            self.parts.push(Part {
                index: piece["index"].as_u64(),
                ..Part::default()
            });
            self.parts.len() - 1
        });
        let part = &mut self.parts[at];
        if let Some(id) = piece["id"].as_str().filter(|_| part.id.is_empty()) {
            id.clone_into(&mut part.id);
        }
        if let Some(extra) = piece.get("extra_content").filter(|extra| extra.is_object()) {
            part.extra = Some(extra.clone());
        }
        part.take(function(piece));
    }

    /// What hangs on each call, in the order of the calls; empty where nothing hangs on any.
    pub fn extras(&self) -> Vec<Option<Value>> {
        if self.parts.iter().all(|part| part.extra.is_none()) {
            return Vec::new();
        }
        self.parts.iter().map(|part| part.extra.clone()).collect()
    }

    /// Bytes of names and arguments so far.
    pub fn written(&self) -> usize {
        let parts = self.parts.iter().chain(&self.legacy);
        parts
            .map(|part| part.name.len() + part.arguments.len())
            .sum()
    }

    /// Takes a `function_call`.
    pub fn add_legacy(&mut self, piece: &Value) {
        if piece.is_object() {
            self.legacy.get_or_insert_default().take(piece);
        }
    }

    /// The calls, and whether the last one's arguments are not whole JSON.
    pub fn whole(mut self) -> (Vec<Call>, bool) {
        if self.parts.is_empty() {
            self.parts.extend(self.legacy.take());
        }
        let broken = self.parts.last().is_some_and(|part| !part.is_whole());
        let calls = self.parts.into_iter().map(Part::call).collect();
        (calls, broken)
    }

    /// The part that a streamed piece continues; None when it begins a new one.
    fn place(&self, piece: &Value) -> Option<usize> {
        let index = piece["index"].as_u64();
        let id = piece["id"].as_str().unwrap_or_default();
        let function = function(piece);
        let named = function["name"]
            .as_str()
            .is_some_and(|name| !name.is_empty());
        let says = !function["arguments"].is_null() && function["arguments"] != "";
        let at = match index {
            Some(_) => self.parts.iter().rposition(|part| part.index == index)?,
            None if !id.is_empty() => self.parts.iter().rposition(|part| part.id == id)?,
            None => self.parts.len().checked_sub(1)?,
        };
        let part = &self.parts[at];
        // A repeated id and name are no new call while the arguments are still being written.
        let same_id = id.is_empty() || part.id.is_empty() || id == part.id;
        let begins = named && says && part.is_written();
        let begins = begins && !(index.is_some() && same_id);
        (!begins).then_some(at)
    }
}

impl Part {
    fn take(&mut self, function: &Value) {
        if let Some(name) = function["name"].as_str() {
            // Servers repeat the name in full, or let it grow; none sends it in pieces.
            if self.name.is_empty() || name.starts_with(&self.name) {
                name.clone_into(&mut self.name);
            }
        }
        match &function["arguments"] {
            Value::Null => {}
            Value::String(text) => self.arguments.push_str(text),
            whole => self.arguments = whole.to_string(),
        }
    }

    /// The arguments are a JSON object.
    fn is_written(&self) -> bool {
        self.arguments.trim_end().ends_with('}') && self.is_whole()
    }

    fn is_whole(&self) -> bool {
        self.arguments.trim().is_empty()
            || serde_json::from_str::<serde::de::IgnoredAny>(&self.arguments).is_ok()
    }

    fn call(self) -> Call {
        let none = matches!(self.arguments.trim(), "" | "null");
        Call {
            id: self.id,
            name: self.name,
            arguments: if none {
                "{}".to_owned()
            } else {
                self.arguments
            },
        }
    }
}

/// Where name and arguments stand: in `function`, or beside the id.
fn function(piece: &Value) -> &Value {
    match &piece["function"] {
        Value::Object(_) => &piece["function"],
        _ => piece,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(pieces: &[&str], origin: Origin) -> Vec<(String, String, String)> {
        let mut calls = Calls::default();
        for piece in pieces {
            calls.add(&serde_json::from_str(piece).unwrap(), origin);
        }
        let (calls, _) = calls.whole();
        calls
            .into_iter()
            .map(|c| (c.id, c.name, c.arguments))
            .collect()
    }

    fn call(id: &str, name: &str, arguments: &str) -> (String, String, String) {
        (id.into(), name.into(), arguments.into())
    }

    #[test]
    fn interleaved_pieces_by_index() {
        let out = calls(
            &[
                r#"{"index":0,"id":"a","function":{"name":"bash","arguments":""}}"#,
                r#"{"index":1,"id":"b","function":{"name":"grep","arguments":"{\"p\""}}"#,
                r#"{"index":0,"function":{"arguments":"{\"c\":"}}"#,
                r#"{"index":1,"function":{"arguments":":1}"}}"#,
                r#"{"index":0,"function":{"arguments":"2}"}}"#,
            ],
            Origin::Delta,
        );
        assert_eq!(
            out,
            [
                call("a", "bash", r#"{"c":2}"#),
                call("b", "grep", r#"{"p":1}"#)
            ]
        );
    }

    #[test]
    fn id_and_name_repeated_in_full() {
        let piece = |text: &str| {
            format!(
                r#"{{"index":0,"id":"a","type":"function","function":{{"name":"bash","arguments":{text:?}}}}}"#
            )
        };
        let pieces = [
            piece(""),
            piece("{"),
            piece("\"c\":{}"),
            piece("}"),
            piece(" "),
        ];
        let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
        assert_eq!(
            calls(&pieces, Origin::Delta),
            [call("a", "bash", r#"{"c":{}} "#)]
        );
    }

    #[test]
    fn index_missing() {
        let out = calls(
            &[
                r#"{"id":"a","function":{"name":"bash","arguments":"{\"c\":"}}"#,
                r#"{"function":{"arguments":"1}"}}"#,
                r#"{"id":"b","function":{"name":"bash","arguments":"{}"}}"#,
                r#"{"function":{"name":"bash","arguments":{"c":3}}}"#,
                r#"{"id":"b","function":{"name":"bash","arguments":"{\"c\":4}"}}"#,
            ],
            Origin::Delta,
        );
        let wanted = [
            call("a", "bash", r#"{"c":1}"#),
            call("b", "bash", "{}"),
            call("", "bash", r#"{"c":3}"#),
            call("b", "bash", r#"{"c":4}"#),
        ];
        assert_eq!(out, wanted);
    }

    #[test]
    fn one_index_for_all_calls() {
        let out = calls(
            &[
                r#"{"index":0,"id":"a","function":{"name":"bash","arguments":"{\"c\":1}"}}"#,
                r#"{"index":0,"id":"b","function":{"name":"bash","arguments":"{\"c\":2}"}}"#,
            ],
            Origin::Delta,
        );
        assert_eq!(
            out,
            [
                call("a", "bash", r#"{"c":1}"#),
                call("b", "bash", r#"{"c":2}"#)
            ]
        );
    }

    #[test]
    fn arguments_in_every_shape() {
        let shapes = [
            (r#""""#, "{}"),
            ("null", "{}"),
            (r#""null""#, "{}"),
            (r#"" ""#, "{}"),
            (r#""[]""#, "[]"),
            (r#"{"c":1}"#, r#"{"c":1}"#),
            (r#""{'c':1}""#, "{'c':1}"),
        ];
        for (shape, wanted) in shapes {
            let piece = format!(r#"{{"id":"a","function":{{"name":"bash","arguments":{shape}}}}}"#);
            for origin in [Origin::Delta, Origin::Whole] {
                assert_eq!(
                    calls(&[&piece], origin),
                    [call("a", "bash", wanted)],
                    "{shape}"
                );
            }
        }
        let absent = r#"{"id":"a","function":{"name":"bash"}}"#;
        assert_eq!(calls(&[absent, absent], Origin::Whole).len(), 2);
    }

    #[test]
    fn the_legacy_call_counts_only_alone() {
        let legacy = serde_json::json!({"name": "bash", "arguments": "{}"});
        let mut alone = Calls::default();
        alone.add_legacy(&legacy);
        assert_eq!(alone.whole().0.len(), 1);
        let mut beside = Calls::default();
        beside.add(
            &serde_json::json!({"id": "a", "function": legacy}),
            Origin::Delta,
        );
        beside.add_legacy(&legacy);
        assert_eq!(beside.whole().0[0].id, "a");
    }
}
