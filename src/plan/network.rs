//! The `network` key of a sandbox: none, all of it, or the hosts of a list.

use serde_json::{Map, Value, json};

use super::error::{Error, suggest};
use super::host::{self, Allowed};
use super::inject::{self, Inject};
use super::units;
use super::yaml::At;

/// Bytes of all connections of a sandbox, where the plan names none.
const BYTES: u64 = 1 << 30;
/// Connections at once, where the plan names none; and the most it can name.
const CONNECTIONS: usize = 64;
const MOST_CONNECTIONS: usize = 256;
const KEYS: [&str; 5] = ["allow", "private", "bytes", "connections", "inject"];
/// What agents can reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Network {
    None,
    Full,
    Allow(Reach),
}

/// The hosts that can be reached, and how much.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Never empty.
    pub allow: Vec<Allowed>,
    /// Names may lead to private and loopback addresses.
    pub private: bool,
    /// Bytes both ways together, over all connections of one sandbox.
    pub bytes: u64,
    pub connections: usize,
    pub inject: Vec<Inject>,
}

/// Reads the key's value.
pub(super) fn read(at: &At<'_>, value: &Value) -> Result<Network, Error> {
    let hint = "write `none`, `full` or `{allow: [host]}`";
    match value {
        Value::String(word) if word == "none" => Ok(Network::None),
        Value::String(word) if word == "full" => Ok(Network::Full),
        Value::String(word) => Err(at.value_fault(format!("`{word}` is no value of `{at}`"), hint)),
        Value::Object(keys) => reach(at, keys).map(Network::Allow),
        Value::Array(_) => {
            let message = format!("`{at}` is a list");
            Err(at.value_fault(message, "write `{allow: [host]}`"))
        }
        _ => Err(at.value_fault(format!("`{at}` must be a word or a map"), hint)),
    }
}

fn reach(at: &At<'_>, keys: &Map<String, Value>) -> Result<Reach, Error> {
    known(at, keys, &KEYS)?;
    let allow_at = at.key("allow");
    let allow = list(&allow_at, get(keys, "allow"))?
        .iter()
        .enumerate()
        .map(|(i, entry)| {
            let at = allow_at.item(i);
            host::read(&at, string(&at, entry)?)
        })
        .collect::<Result<Vec<Allowed>, Error>>()?;
    if allow.is_empty() {
        let message = format!("`{at}` allows no host");
        return Err(at.value_fault(message, "name hosts in `allow`, or write `network: none`"));
    }
    let connections = get(keys, "connections");
    let inject = inject::read(&at.key("inject"), get(keys, "inject"), &allow)?;
    Ok(Reach {
        allow,
        private: boolean(&at.key("private"), get(keys, "private"), false)?,
        bytes: bytes(&at.key("bytes"), get(keys, "bytes"))?,
        connections: connections.map_or(Ok(CONNECTIONS), |value| {
            count(&at.key("connections"), value)
        })?,
        inject,
    })
}

pub(super) fn known(at: &At<'_>, keys: &Map<String, Value>, known: &[&str]) -> Result<(), Error> {
    match keys.keys().find(|key| !known.contains(&key.as_str())) {
        Some(key) => {
            let hint = suggest(key, known.iter().copied());
            Err(at.key(key).key_fault(format!("unknown key `{key}`"), hint))
        }
        None => Ok(()),
    }
}

/// A key's value; a null one is as good as none.
pub(super) fn get<'a>(keys: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    keys.get(key).filter(|value| !value.is_null())
}

pub(super) fn list<'a>(at: &At<'_>, value: Option<&'a Value>) -> Result<&'a [Value], Error> {
    match value {
        None => Ok(&[]),
        Some(Value::Array(items)) => Ok(items),
        Some(_) => {
            let message = format!("`{at}` must be a list");
            Err(at.value_fault(message, "write `[a, b]`, or one item a line after `- `"))
        }
    }
}

pub(super) fn string<'a>(at: &At<'_>, value: &'a Value) -> Result<&'a str, Error> {
    let text = value.as_str().filter(|text| !text.is_empty());
    text.ok_or_else(|| at.value_fault(format!("`{at}` must be text"), "write it in quotes"))
}

pub(super) fn boolean(at: &At<'_>, value: Option<&Value>, usual: bool) -> Result<bool, Error> {
    match value {
        None => Ok(usual),
        Some(Value::Bool(value)) => Ok(*value),
        Some(_) => {
            let message = format!("`{at}` must be true or false");
            Err(at.value_fault(message, "write true or false"))
        }
    }
}

fn bytes(at: &At<'_>, value: Option<&Value>) -> Result<u64, Error> {
    let text = match value {
        None => return Ok(BYTES),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    units::size(&text)
        .map_err(|hint| at.value_fault(format!("`{text}` is no size for `{at}`"), hint))
}

fn count(at: &At<'_>, value: &Value) -> Result<usize, Error> {
    let number = value.as_u64().and_then(|n| usize::try_from(n).ok());
    number
        .filter(|n| (1..=MOST_CONNECTIONS).contains(n))
        .ok_or_else(|| {
            let message = format!("`{at}` must be a number from 1 to {MOST_CONNECTIONS}");
            at.value_fault(message, format!("write a number such as {CONNECTIONS}"))
        })
}

impl Network {
    /// As the key's value is written.
    pub(super) fn written(&self) -> Value {
        let reach = match self {
            Network::None => return json!("none"),
            Network::Full => return json!("full"),
            Network::Allow(reach) => reach,
        };
        let hosts: Vec<String> = reach.allow.iter().map(ToString::to_string).collect();
        let mut keys = Map::new();
        keys.insert("allow".to_owned(), json!(hosts));
        if reach.private {
            keys.insert("private".to_owned(), json!(true));
        }
        if reach.bytes != BYTES {
            keys.insert("bytes".to_owned(), json!(units::show_size(reach.bytes)));
        }
        if reach.connections != CONNECTIONS {
            keys.insert("connections".to_owned(), json!(reach.connections));
        }
        if !reach.inject.is_empty() {
            let entries: Vec<Value> = reach.inject.iter().map(Inject::written).collect();
            keys.insert("inject".to_owned(), json!(entries));
        }
        Value::Object(keys)
    }
}
