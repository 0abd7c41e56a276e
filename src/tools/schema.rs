//! A small validator for the part of JSON Schema that tool arguments need, with the coercion table.
//!
//! Coercions: `"5"` to 5 and `"yes"` to true where a number or boolean is wanted, a scalar to a list
//! where a list is wanted, null to absent. A string stays a string.

use serde_json::{Map, Value};

use super::json::kind;

const KEYWORDS: [&str; 15] = [
    "type",
    "properties",
    "required",
    "enum",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "items",
    "additionalProperties",
    "description",
    "title",
    "default",
];
const TYPES: [&str; 6] = ["object", "array", "string", "integer", "number", "boolean"];

/// Refuses a schema that `validate` would not hold in full.
pub fn check(schema: &Value) -> Result<(), String> {
    let Some(top) = schema.as_object() else {
        return Err("its schema is not an object".to_string());
    };
    if top.get("type").and_then(Value::as_str) != Some("object") {
        return Err("its schema must have type: object".to_string());
    }
    check_at(top, "schema")
}

fn check_at(schema: &Map<String, Value>, at: &str) -> Result<(), String> {
    for key in schema.keys() {
        if !KEYWORDS.contains(&key.as_str()) {
            return Err(format!(
                "{at} uses {key}, which Wharf does not check; it knows {}",
                KEYWORDS.join(", ")
            ));
        }
    }
    match schema.get("type").map(Value::as_str) {
        None => {}
        Some(Some(name)) if TYPES.contains(&name) => {}
        Some(_) => {
            return Err(format!(
                "the type of {at} must be one of {}",
                TYPES.join(", ")
            ));
        }
    }
    let shapes = [
        (
            "properties",
            Value::is_object as fn(&Value) -> bool,
            "an object",
        ),
        ("required", is_texts, "a list of names"),
        ("enum", Value::is_array, "a list"),
        ("items", Value::is_object, "an object"),
        ("additionalProperties", Value::is_boolean, "true or false"),
        ("minimum", Value::is_number, "a number"),
        ("maximum", Value::is_number, "a number"),
        ("minLength", Value::is_u64, "a whole number"),
        ("maxLength", Value::is_u64, "a whole number"),
        ("minItems", Value::is_u64, "a whole number"),
        ("maxItems", Value::is_u64, "a whole number"),
    ];
    for (key, fits, wanted) in shapes {
        if schema.get(key).is_some_and(|v| !fits(v)) {
            return Err(format!("{key} of {at} must be {wanted}"));
        }
    }
    for (name, inner) in schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let Some(inner) = inner.as_object() else {
            return Err(format!("{at}.{name} is not an object"));
        };
        check_at(inner, &format!("{at}.{name}"))?;
    }
    match schema.get("items").and_then(Value::as_object) {
        Some(items) => check_at(items, &format!("{at}[]")),
        None => Ok(()),
    }
}

fn is_texts(value: &Value) -> bool {
    value
        .as_array()
        .is_some_and(|l| l.iter().all(Value::is_string))
}

/// Coerces by the table, then checks; the error names the place and what was expected.
pub fn validate(schema: &Value, value: &mut Value) -> Result<(), String> {
    value_at(schema, value, "")
}

fn value_at(schema: &Value, value: &mut Value, at: &str) -> Result<(), String> {
    let wanted = schema.get("type").and_then(Value::as_str);
    if let Some(wanted) = wanted {
        coerce(wanted, value);
        if !is(wanted, value) {
            return Err(format!(
                "{} must be {}, not {}",
                place(at),
                article(wanted),
                kind(value)
            ));
        }
    }
    if let Some(allowed) = schema.get("enum").and_then(Value::as_array)
        && !allowed.contains(value)
    {
        let names: Vec<String> = allowed.iter().map(Value::to_string).collect();
        return Err(format!("{} must be one of {}", place(at), names.join(", ")));
    }
    bounds(schema, value, at)?;
    match value {
        Value::Object(map) => object_at(schema, map, at),
        Value::Array(list) => list_at(schema, list, at),
        _ => Ok(()),
    }
}

fn object_at(schema: &Value, map: &mut Map<String, Value>, at: &str) -> Result<(), String> {
    let none = Map::new();
    let properties = schema
        .get("properties")
        .and_then(Value::as_object)
        .unwrap_or(&none);
    map.retain(|key, value| !(value.is_null() && properties.contains_key(key)));
    for (key, inner) in properties {
        if let (None, Some(default)) = (map.get(key), inner.get("default")) {
            map.insert(key.clone(), default.clone());
        }
    }
    for name in schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let name = name.as_str().unwrap_or_default();
        if !map.contains_key(name) {
            return Err(format!("{} is missing", place(&join(at, name))));
        }
    }
    let closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
    for (key, value) in map.iter_mut() {
        match properties.get(key) {
            Some(inner) => value_at(inner, value, &join(at, key))?,
            None if closed => {
                let known: Vec<&str> = properties.keys().map(String::as_str).collect();
                let known = if known.is_empty() {
                    "none".to_string()
                } else {
                    known.join(", ")
                };
                return Err(format!(
                    "{} is not known; known are {known}",
                    place(&join(at, key))
                ));
            }
            None => {}
        }
    }
    Ok(())
}

fn list_at(schema: &Value, list: &mut [Value], at: &str) -> Result<(), String> {
    let Some(items) = schema.get("items") else {
        return Ok(());
    };
    for (index, item) in list.iter_mut().enumerate() {
        value_at(items, item, &format!("{at}[{index}]"))?;
    }
    Ok(())
}

fn bounds(schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    let (measure, low, high, what) = match value {
        Value::Number(n) => (n.as_f64(), "minimum", "maximum", ""),
        Value::String(s) => (
            Some(s.chars().count() as f64),
            "minLength",
            "maxLength",
            " characters",
        ),
        Value::Array(l) => (Some(l.len() as f64), "minItems", "maxItems", " items"),
        _ => return Ok(()),
    };
    let Some(measure) = measure else {
        return Ok(());
    };
    if let Some(low) = schema.get(low).and_then(Value::as_f64)
        && measure < low
    {
        return Err(format!("{} must be at least {low}{what}", place(at)));
    }
    if let Some(high) = schema.get(high).and_then(Value::as_f64)
        && measure > high
    {
        return Err(format!("{} must be at most {high}{what}", place(at)));
    }
    Ok(())
}

fn coerce(wanted: &str, value: &mut Value) {
    let better = match (wanted, &*value) {
        ("integer", Value::String(s)) => s.trim().parse::<i64>().ok().map(Value::from),
        ("integer", Value::Number(n)) => n.as_f64().and_then(whole).filter(|_| n.is_f64()),
        ("number", Value::String(s)) => s
            .trim()
            .parse::<f64>()
            .ok()
            .filter(|f| f.is_finite())
            .map(Value::from),
        ("boolean", Value::String(s)) => match s.trim().to_ascii_lowercase().as_str() {
            "true" | "yes" => Some(Value::Bool(true)),
            "false" | "no" => Some(Value::Bool(false)),
            _ => None,
        },
        ("array", Value::String(_) | Value::Number(_) | Value::Bool(_)) => {
            Some(Value::Array(vec![value.clone()]))
        }
        _ => None,
    };
    if let Some(better) = better {
        *value = better;
    }
}

/// 5.0 as 5; None where there is a fraction or no room.
fn whole(number: f64) -> Option<Value> {
    let fits = number.fract() == 0.0 && number.abs() < 9e15;
    fits.then_some(Value::from(number as i64))
}

fn is(wanted: &str, value: &Value) -> bool {
    match wanted {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        _ => false,
    }
}

fn article(wanted: &str) -> &'static str {
    match wanted {
        "object" => "an object",
        "array" => "a list",
        "string" => "a string",
        "integer" => "a whole number",
        "number" => "a number",
        _ => "a boolean",
    }
}

fn join(at: &str, name: &str) -> String {
    if at.is_empty() {
        name.to_string()
    } else {
        format!("{at}.{name}")
    }
}

fn place(at: &str) -> String {
    if at.is_empty() {
        "the arguments".to_string()
    } else {
        super::clip::line(at, 120)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn checked(schema: &Value, mut value: Value) -> Result<Value, String> {
        validate(schema, &mut value).map(|()| value)
    }

    fn one(inner: Value) -> Value {
        json!({"type": "object", "properties": {"a": inner}, "additionalProperties": false})
    }

    #[test]
    fn coercion_follows_the_table_and_nothing_else() {
        let cases = [
            ("integer", json!("5"), Ok(json!(5))),
            ("integer", json!(5.0), Ok(json!(5))),
            ("integer", json!("5x"), Err(())),
            ("boolean", json!("yes"), Ok(json!(true))),
            ("boolean", json!("False"), Ok(json!(false))),
            ("boolean", json!(1), Err(())),
            ("array", json!("x"), Ok(json!(["x"]))),
            ("array", json!({}), Err(())),
            ("string", json!(5), Err(())),
            ("string", json!("5"), Ok(json!("5"))),
        ];
        for (wanted, given, expected) in cases {
            let got = checked(&one(json!({"type": wanted})), json!({"a": given}));
            let got = got.map(|v| v["a"].clone()).map_err(|_| ());
            assert_eq!(got, expected, "{wanted} from {given}");
        }
    }

    #[test]
    fn null_means_absent_and_a_default_fills_it() {
        let schema = one(json!({"type": "integer", "default": 7}));
        assert_eq!(checked(&schema, json!({"a": null})), Ok(json!({"a": 7})));
        let mut required = one(json!({"type": "integer"}));
        required["required"] = json!(["a"]);
        assert_eq!(
            checked(&required, json!({"a": null})),
            Err("a is missing".into())
        );
    }

    #[test]
    fn errors_name_their_place() {
        let schema = json!({"type": "object", "properties": {"l": {"type": "array", "maxItems": 2, "items":
            {"type": "object", "properties": {"s": {"enum": ["x", "y"]}}, "required": ["s"], "additionalProperties": false}}}});
        let cases = [
            (
                json!({"l": [{"s": "z"}]}),
                "l[0].s must be one of \"x\", \"y\"",
            ),
            (json!({"l": [{"s": "x"}, {}]}), "l[1].s is missing"),
            (
                json!({"l": [{"s": "x", "t": 1}]}),
                "l[0].t is not known; known are s",
            ),
            (json!({"l": [1, 2, 3]}), "l must be at most 2 items"),
            (json!({"l": [1]}), "l[0] must be an object, not a number"),
        ];
        for (value, expected) in cases {
            assert_eq!(checked(&schema, value), Err(expected.to_string()));
        }
    }

    #[test]
    fn a_schema_beyond_the_validator_is_refused_by_name() {
        let with = |inner: Value| check(&one(inner));
        assert!(with(json!({"oneOf": []})).unwrap_err().contains("oneOf"));
        assert!(
            with(json!({"type": ["string", "null"]}))
                .unwrap_err()
                .contains("type of schema.a")
        );
        assert!(
            with(json!({"type": "array", "items": {"pattern": "x"}}))
                .unwrap_err()
                .contains("pattern")
        );
        assert!(check(&json!({"type": "string"})).is_err());
        assert_eq!(
            with(json!({"type": "string", "enum": ["a"], "description": "d"})),
            Ok(())
        );
    }
}
