//! Whom a sandbox may reach, in plain data, and who is told of every decision.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;

/// Variables that are set inside, with `PORT` in them; each also in small letters. ALL_PROXY names
/// the same proxy as the others: some clients fail on `socks5h://` where a library is missing.
pub const VARIABLES: [(&str, &str); 8] = [
    ("HTTP_PROXY", "http://127.0.0.1:3128"),
    ("HTTPS_PROXY", "http://127.0.0.1:3128"),
    ("ALL_PROXY", "http://127.0.0.1:3128"),
    ("NO_PROXY", "localhost,127.0.0.1,::1"),
    ("http_proxy", "http://127.0.0.1:3128"),
    ("https_proxy", "http://127.0.0.1:3128"),
    ("all_proxy", "http://127.0.0.1:3128"),
    ("no_proxy", "localhost,127.0.0.1,::1"),
];

/// Who may be reached, and how much.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Policy {
    /// One of them must match.
    pub rules: Vec<Rule>,
    /// Names may lead to private and loopback addresses.
    pub private: bool,
    /// Bytes both ways together, over all connections of one sandbox.
    pub bytes: u64,
    /// Connections of one sandbox at the same time.
    pub connections: usize,
    /// What is added to requests.
    pub inject: Vec<Inject>,
    /// Is told.
    pub listener: Listener,
}

/// A host that may be reached.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rule {
    pub host: Host,
    /// None: 80 and 443.
    pub port: Option<u16>,
}

/// A host as a rule names it; names are in small letters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    Name(String),
    /// Every name below this one, and not this one.
    Below(String),
    Address(IpAddr),
}

/// A header that Wharf adds to the HTTP requests for one server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Inject {
    /// A name in small letters, or an address.
    pub host: String,
    /// Of the server.
    pub port: u16,
    /// Wharf speaks TLS to it, though the program inside speaks plain HTTP to the proxy.
    pub tls: bool,
    pub header: String,
    /// Stands before the value.
    pub prefix: String,
    /// The name of the credential.
    pub env: String,
}

/// A value that must not be seen. Printing it shows only that there is one.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential(Arc<str>);

/// Receives decisions; must return at once.
pub trait Sink: Send + Sync {
    fn tell(&self, decision: Decision);
}

/// Who is told of decisions. It is no part of what is allowed: two policies that differ in it alone
/// are equal.
#[derive(Clone, Default)]
pub struct Listener(Option<Arc<dyn Sink>>);

/// What was decided about one connection, or became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Counts the connections of a sandbox from 1.
    pub connection: u64,
    pub host: String,
    pub port: u16,
    pub step: Step,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Connected to this address; headers that are added, by name.
    Allowed {
        address: String,
        injected: Vec<String>,
    },
    Refused {
        reason: String,
    },
    /// Over; bytes that went out and came in.
    Ended {
        sent: u64,
        received: u64,
        milliseconds: u64,
        how: String,
    },
    /// So many further connections were not told one by one.
    Unlisted {
        allowed: u64,
        refused: u64,
        sent: u64,
        received: u64,
    },
}

impl Rule {
    /// True for the ports that it opens.
    pub fn opens(&self, port: u16) -> bool {
        match self.port {
            Some(own) => own == port,
            None => port == 80 || port == 443,
        }
    }
}

impl Credential {
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// The value, for the one place that sends it.
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}

impl Listener {
    pub fn new(sink: Arc<dyn Sink>) -> Self {
        Self(Some(sink))
    }

    pub(super) fn tell(&self, decision: Decision) {
        if let Some(sink) = &self.0 {
            sink.tell(decision);
        }
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() {
            "listener"
        } else {
            "nobody"
        })
    }
}

impl PartialEq for Listener {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Listener {}

impl Hash for Listener {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl fmt::Display for Rule {
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
