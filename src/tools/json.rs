//! Argument text to a JSON object, strictly: a parse error names its place, a double key is refused.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// The object that the text holds; nothing at all and `null` mean no arguments.
pub fn object(text: &str) -> Result<Map<String, Value>, String> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(Map::new());
    }
    match serde_json::from_str::<Strict>(text) {
        Ok(Strict(Value::Object(map))) => Ok(map),
        Ok(Strict(Value::Null)) => Ok(Map::new()),
        Ok(Strict(other)) => Err(format!("they must be a JSON object, not {}", kind(&other))),
        Err(error) => Err(format!(
            "they are not valid JSON: {error}; send the whole call again"
        )),
    }
}

/// What a value is, in a word with its article.
pub fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Strict)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_string()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Strict(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some((key, Strict(value))) = entries.next_entry::<String, Strict>()? {
            if map.contains_key(&key) {
                return Err(de::Error::custom(format!("the key {key:?} stands twice")));
            }
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_and_null_are_no_arguments() {
        for text in ["", " ", "null", " null\n", "{}"] {
            assert_eq!(object(text), Ok(Map::new()), "{text:?}");
        }
    }

    #[test]
    fn malformed_text_is_an_error_with_its_place_and_never_empty_arguments() {
        let broken = [
            "{\"command\":\"a\nb\"}",
            "{\"command\":\"grep \\d\"}",
            "{\"command\":\"x\"}}",
            "{'command':'x'}",
            "{\"command\":\"x\",}",
            "{\"command\":\"rm -rf build",
            "{\"command\":\"echo a\",\"command\":\"echo b\"}",
            "{\"a\":{\"b\":1,\"b\":2}}",
        ];
        for text in broken {
            let error = object(text).unwrap_err();
            assert!(
                error.contains("line 1 column") || error.contains("line 2 column"),
                "{text}: {error}"
            );
        }
        assert!(object("[]").unwrap_err().contains("not a list"));
        assert!(object("\"{}\"").unwrap_err().contains("not a string"));
    }

    #[test]
    fn every_kind_of_value_comes_through() {
        let text = r#"{"a":[1,-2,2.5,true,null,"x"],"b":{"c":18446744073709551615}}"#;
        let plain: Value = serde_json::from_str(text).unwrap();
        assert_eq!(Value::Object(object(text).unwrap()), plain);
    }
}
