//! The `network` key of a sandbox: none, all of it, or the hosts of a list.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use serde_json::{Map, Value, json};
use wharf_toolbox::http;

use super::check::env_name;
use super::error::{Error, suggest};
use super::units;
use super::yaml::At;

/// Bytes of all connections of a sandbox, where the plan names none.
const BYTES: u64 = 1 << 30;
/// Connections at once, where the plan names none; and the most it can name.
const CONNECTIONS: usize = 64;
const MOST_CONNECTIONS: usize = 256;
const KEYS: [&str; 5] = ["allow", "private", "bytes", "connections", "inject"];
const INJECT_KEYS: [&str; 5] = ["host", "header", "env", "prefix", "tls"];
/// Headers that say what a request is; adding one would make another request of it.
const NEVER: [&str; 12] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "upgrade",
    "te",
    "trailer",
    "expect",
    "keep-alive",
    "proxy-connection",
    "proxy-authorization",
    "proxy-authenticate",
];

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

/// One host of the list; written `host`, `*.host` or with `:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowed {
    pub host: Host,
    /// None: 80 and 443.
    pub port: Option<u16>,
}

/// A host as a list names it; names are in small letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    Name(String),
    /// Every name below this one, and not this one.
    Below(String),
    Address(IpAddr),
}

/// A header that Wharf adds to requests for one server, and that is never inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inject {
    /// A name in small letters, or an address; one that the list allows.
    pub host: String,
    pub port: u16,
    /// Wharf speaks TLS to it.
    pub tls: bool,
    pub header: String,
    /// Stands before the value.
    pub prefix: String,
    /// The variable of Wharf's own environment that holds the value.
    pub env: String,
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
    let allow = list(&allow_at, keys.get("allow"))?
        .iter()
        .enumerate()
        .map(|(i, entry)| {
            let at = allow_at.item(i);
            allowed(&at, string(&at, entry)?)
        })
        .collect::<Result<Vec<Allowed>, Error>>()?;
    if allow.is_empty() {
        let message = format!("`{at}` allows no host");
        return Err(at.value_fault(message, "name hosts in `allow`, or write `network: none`"));
    }
    let connections = keys.get("connections");
    let inject_at = at.key("inject");
    let mut inject = Vec::new();
    for (i, entry) in list(&inject_at, keys.get("inject"))?.iter().enumerate() {
        inject.push(injected(&inject_at.item(i), entry, &allow)?);
    }
    unambiguous(&inject_at, &inject)?;
    Ok(Reach {
        allow,
        private: boolean(&at.key("private"), keys.get("private"), false)?,
        bytes: bytes(&at.key("bytes"), keys.get("bytes"))?,
        connections: connections.map_or(Ok(CONNECTIONS), |value| {
            count(&at.key("connections"), value)
        })?,
        inject,
    })
}

fn known(at: &At<'_>, keys: &Map<String, Value>, known: &[&str]) -> Result<(), Error> {
    match keys.keys().find(|key| !known.contains(&key.as_str())) {
        Some(key) => {
            let hint = suggest(key, known.iter().copied());
            Err(at.key(key).key_fault(format!("unknown key `{key}`"), hint))
        }
        None => Ok(()),
    }
}

fn list<'a>(at: &At<'_>, value: Option<&'a Value>) -> Result<&'a [Value], Error> {
    match value {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(items)) => Ok(items),
        Some(_) => {
            let message = format!("`{at}` must be a list");
            Err(at.value_fault(message, "write `[a, b]`, or one item a line after `- `"))
        }
    }
}

fn string<'a>(at: &At<'_>, value: &'a Value) -> Result<&'a str, Error> {
    let text = value.as_str().filter(|text| !text.is_empty());
    text.ok_or_else(|| at.value_fault(format!("`{at}` must be text"), "write it in quotes"))
}

fn boolean(at: &At<'_>, value: Option<&Value>, usual: bool) -> Result<bool, Error> {
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

/// Reads `host`, `*.host`, an address, each with or without `:port`.
fn allowed(at: &At<'_>, text: &str) -> Result<Allowed, Error> {
    let fault = |hint: &str| Err(at.value_fault(format!("`{text}` names no host"), hint));
    if text.contains('/') {
        return fault("write only the host, without `https://` and without a path");
    }
    if text == "*" {
        return fault("`network: full` opens the whole network");
    }
    let (below, rest) = match text.strip_prefix("*.") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (host, port) = match rest.parse::<std::net::Ipv6Addr>() {
        Ok(address) => (address.to_string(), None),
        Err(_) => match http::authority(rest) {
            Some(place) => (place.host, place.port),
            None => return fault(HOST_HINT),
        },
    };
    let last = host.rsplit('.').next().unwrap_or_default();
    let number = last.bytes().all(|byte| byte.is_ascii_digit()) || last.starts_with("0x");
    match host.parse::<IpAddr>() {
        Ok(_) if below => fault(HOST_HINT),
        Ok(address) if is_never_one_host(address) => {
            fault("multicast, unspecified and IPv4 addresses inside IPv6 ones cannot be reached")
        }
        Ok(address) => Ok(Allowed {
            host: Host::Address(address),
            port,
        }),
        Err(_) if number => fault("an address has four numbers, such as `10.0.0.7`"),
        Err(_) if below => Ok(Allowed {
            host: Host::Below(host),
            port,
        }),
        Err(_) => Ok(Allowed {
            host: Host::Name(host),
            port,
        }),
    }
}

const HOST_HINT: &str = "write `example.org`, `*.example.org`, `example.org:8443` or an address; other letters as `xn--…`";

fn is_never_one_host(address: IpAddr) -> bool {
    let mapped = match address {
        IpAddr::V6(six) => six.to_ipv4_mapped().is_some(),
        IpAddr::V4(four) => four.is_broadcast(),
    };
    mapped || address.is_multicast() || address.is_unspecified()
}

fn injected(at: &At<'_>, value: &Value, allow: &[Allowed]) -> Result<Inject, Error> {
    let Value::Object(keys) = value else {
        let hint = "write {host: api.example.org, header: Authorization, env: NAME}";
        return Err(at.value_fault(format!("`{at}` must be a map"), hint));
    };
    known(at, keys, &INJECT_KEYS)?;
    let needed = |key: &str| match keys.get(key) {
        Some(value) => string(&at.key(key), value),
        None => {
            let message = format!("the key `{key}` is missing");
            Err(at.value_fault(message, format!("add `{key}:` here")))
        }
    };
    let tls = boolean(&at.key("tls"), keys.get("tls"), true)?;
    let host_at = at.key("host");
    let place = allowed(&host_at, needed("host")?)?;
    let port = place.port.unwrap_or(if tls { 443 } else { 80 });
    let Some(host) = place.host.single() else {
        let hint = "name each host that shall get the credential";
        return Err(host_at.value_fault("a credential for many hosts at once", hint));
    };
    if !allow
        .iter()
        .any(|allowed| allowed.covers(&place.host, port))
    {
        let message = format!("`{host}:{port}` is not in `allow`");
        return Err(
            host_at.value_fault(message, "add it there: what is not allowed is not reached")
        );
    }
    let env = needed("env")?;
    env_name(&at.key("env"), env).map_err(|_| {
        at.key("env").value_fault(
            format!("`{env}` is no name of a variable"),
            "use letters, digits and _, first a letter",
        )
    })?;
    Ok(Inject {
        host,
        port,
        tls,
        header: header(&at.key("header"), needed("header")?)?,
        prefix: prefix(&at.key("prefix"), keys.get("prefix"))?,
        env: env.to_owned(),
    })
}

fn header(at: &At<'_>, name: &str) -> Result<String, Error> {
    if !http::is_token(name.as_bytes()) {
        let message = format!("`{name}` is no name of a header");
        return Err(at.value_fault(message, "write one such as `Authorization`"));
    }
    if NEVER.contains(&name.to_ascii_lowercase().as_str()) {
        let message = format!("`{name}` cannot be added: it says what a request is");
        return Err(at.value_fault(message, "write one such as `Authorization`"));
    }
    Ok(name.to_owned())
}

fn prefix(at: &At<'_>, value: Option<&Value>) -> Result<String, Error> {
    let Some(value) = value else {
        return Ok(String::new());
    };
    let text = value.as_str().unwrap_or_default();
    let plain = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    match value.is_string() && plain {
        true => Ok(text.to_owned()),
        false => Err(at.value_fault(
            format!("`{at}` must be plain text"),
            "write one such as \"Bearer \"",
        )),
    }
}

/// One server is spoken to in one way, and gets a header once.
fn unambiguous(at: &At<'_>, inject: &[Inject]) -> Result<(), Error> {
    let mut seen = BTreeSet::new();
    for (i, own) in inject.iter().enumerate() {
        let place = (own.host.as_str(), own.port);
        let other = |before: &&Inject| place == (before.host.as_str(), before.port);
        if inject[..i]
            .iter()
            .find(other)
            .is_some_and(|before| before.tls != own.tls)
        {
            let message = format!(
                "`{}:{}` is spoken to with TLS and without",
                own.host, own.port
            );
            return Err(at
                .item(i)
                .value_fault(message, "write `tls` alike for one server"));
        }
        if !seen.insert((place, own.header.to_ascii_lowercase())) {
            let message = format!("`{}` is added twice for `{}`", own.header, own.host);
            return Err(at.item(i).value_fault(message, "keep one of them"));
        }
    }
    Ok(())
}

impl Host {
    /// The host, where it is one.
    fn single(&self) -> Option<String> {
        match self {
            Host::Name(name) => Some(name.clone()),
            Host::Address(address) => Some(address.to_string()),
            Host::Below(_) => None,
        }
    }
}

impl Allowed {
    fn covers(&self, host: &Host, port: u16) -> bool {
        let of_port = match self.port {
            Some(own) => own == port,
            None => port == 80 || port == 443,
        };
        let of_host = match (&self.host, host) {
            (Host::Below(above), Host::Name(name)) => name
                .strip_suffix(above)
                .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
            (own, host) => own == host,
        };
        of_host && of_port
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Name(name) => f.write_str(name)?,
            Host::Below(name) => write!(f, "*.{name}")?,
            Host::Address(IpAddr::V6(address)) => write!(f, "[{address}]")?,
            Host::Address(address) => write!(f, "{address}")?,
        }
        match self.port {
            Some(port) => write!(f, ":{port}"),
            None => Ok(()),
        }
    }
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

impl Inject {
    fn written(&self) -> Value {
        let host = match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        };
        let mut keys = Map::new();
        keys.insert("host".to_owned(), json!(host));
        keys.insert("header".to_owned(), json!(self.header));
        keys.insert("env".to_owned(), json!(self.env));
        if !self.prefix.is_empty() {
            keys.insert("prefix".to_owned(), json!(self.prefix));
        }
        if !self.tls {
            keys.insert("tls".to_owned(), json!(false));
        }
        Value::Object(keys)
    }

    /// How an agent asks for it, in plain HTTP.
    pub fn address(&self) -> String {
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        match (self.tls, self.port) {
            (true, 443) | (false, 80) => format!("http://{host}/"),
            (_, port) => format!("http://{host}:{port}/"),
        }
    }
}
