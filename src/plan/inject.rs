//! Headers that Wharf adds to what agents ask of one server, as a plan names them.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use wharf_toolbox::http;

use super::check::env_name;
use super::error::Error;
use super::host::{self, Allowed};
use super::network::{boolean, get, known, list, string};
use super::yaml::At;

const KEYS: [&str; 5] = ["host", "header", "env", "prefix", "tls"];
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

/// Reads the list; what stands in it is added to requests for hosts of `allow` only.
pub(super) fn read(
    at: &At<'_>,
    value: Option<&Value>,
    allow: &[Allowed],
) -> Result<Vec<Inject>, Error> {
    let mut inject = Vec::new();
    for (i, value) in list(at, value)?.iter().enumerate() {
        inject.push(entry(&at.item(i), value, allow)?);
    }
    unambiguous(at, &inject)?;
    Ok(inject)
}

/// Reads one entry, for a host that `allow` holds.
fn entry(at: &At<'_>, value: &Value, allow: &[Allowed]) -> Result<Inject, Error> {
    let Value::Object(keys) = value else {
        let hint = "write {host: api.example.org, header: Authorization, env: NAME}";
        return Err(at.value_fault(format!("`{at}` must be a map"), hint));
    };
    known(at, keys, &KEYS)?;
    let needed = |key: &str| match get(keys, key) {
        Some(value) => string(&at.key(key), value),
        None => {
            let message = format!("the key `{key}` is missing");
            Err(at.value_fault(message, format!("add `{key}:` here")))
        }
    };
    let tls = boolean(&at.key("tls"), get(keys, "tls"), true)?;
    let host_at = at.key("host");
    let place = host::read(&host_at, needed("host")?)?;
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
        prefix: prefix(&at.key("prefix"), get(keys, "prefix"))?,
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

impl Inject {
    pub(super) fn written(&self) -> Value {
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
