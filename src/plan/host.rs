//! A host that a plan lists: a name, the names below one, or an address.

use std::fmt;
use std::net::IpAddr;

use wharf_toolbox::http;

use super::error::Error;
use super::yaml::At;

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

/// Reads `host`, `*.host`, an address, each with or without `:port`.
pub(super) fn read(at: &At<'_>, text: &str) -> Result<Allowed, Error> {
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

impl Host {
    /// The host, where it is one.
    pub(super) fn single(&self) -> Option<String> {
        match self {
            Host::Name(name) => Some(name.clone()),
            Host::Address(address) => Some(address.to_string()),
            Host::Below(_) => None,
        }
    }
}

impl Allowed {
    pub(super) fn covers(&self, host: &Host, port: u16) -> bool {
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
