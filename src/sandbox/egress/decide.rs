//! Who may be reached: pure, before any look-up.

use std::net::IpAddr;

use wharf_toolbox::http;
use wharf_toolbox::message::{Form, Reach, Why};

use super::policy::{Host, Inject, Policy, Rule};

/// What a connection may do, as far as it can be told before the host's address is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// In small letters; addresses of version 6 without brackets.
    pub host: String,
    /// The host, where it is an address that the operator wrote down.
    pub address: Option<IpAddr>,
    /// The port that was asked for.
    pub port: u16,
    /// The port that is dialled: another one where a request is carried on over TLS.
    pub dialled: u16,
    /// Wharf speaks TLS.
    pub tls: bool,
    /// The name may lead to private and loopback addresses.
    pub private: bool,
    /// What is added to the request.
    pub inject: Vec<Inject>,
}

/// Why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub why: Why,
    /// What the program inside is told.
    pub reason: String,
    /// What the operator is told on top: addresses that are nobody's business inside.
    pub detail: String,
}

impl Refusal {
    pub(super) fn forbidden(reason: impl Into<String>) -> Self {
        Self {
            why: Why::Forbidden,
            reason: reason.into(),
            detail: String::new(),
        }
    }

    pub(super) fn unreachable(reason: impl Into<String>) -> Self {
        Self {
            why: Why::Unreachable,
            reason: reason.into(),
            detail: String::new(),
        }
    }

    pub(super) fn because(self, detail: impl Into<String>) -> Self {
        Self {
            detail: detail.into(),
            ..self
        }
    }

    /// The whole reason.
    pub(super) fn whole(&self) -> String {
        match self.detail.as_str() {
            "" => self.reason.clone(),
            detail => format!("{} ({detail})", self.reason),
        }
    }
}

/// Decides by the policy alone whether a host may be looked up and dialled.
pub fn decide(policy: &Policy, reach: &Reach) -> Result<Grant, Refusal> {
    let (host, address) = place(&reach.host)
        .ok_or_else(|| Refusal::forbidden("what was asked for is no host name"))?;
    let inject: Vec<Inject> = match reach.form {
        Form::Request => policy
            .inject
            .iter()
            .filter(|own| own.host == host && answers(own, reach.port))
            .cloned()
            .collect(),
        Form::Tunnel => Vec::new(),
    };
    let (dialled, tls) = inject
        .first()
        .map_or((reach.port, false), |own| (own.port, own.tls));
    let allowed = policy
        .rules
        .iter()
        .any(|rule| matches(rule, &host, address) && rule.opens(dialled));
    if !allowed || reach.port == 0 {
        return Err(Refusal::forbidden(format!(
            "{host}:{dialled} is not on the plan's list of hosts"
        )));
    }
    Ok(Grant {
        host,
        address,
        port: reach.port,
        dialled,
        tls,
        private: policy.private,
        inject,
    })
}

/// A host's name, or an address with its usual spelling. A name whose last part is a number is none:
/// look-ups read `127.1` and `2130706433` as addresses that no rule was asked about.
pub(super) fn place(host: &str) -> Option<(String, Option<IpAddr>)> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Some((address.to_string(), Some(address)));
    }
    let name = http::name(host)?;
    let last = name.rsplit('.').next()?;
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits(last) || last.starts_with("0x");
    (!number).then_some((name, None))
}

fn matches(rule: &Rule, host: &str, address: Option<IpAddr>) -> bool {
    match &rule.host {
        Host::Address(own) => address == Some(*own),
        Host::Name(name) => address.is_none() && name == host,
        Host::Below(name) => {
            let above = host
                .strip_suffix(name)
                .and_then(|rest| rest.strip_suffix('.'));
            address.is_none() && above.is_some_and(|above| !above.is_empty())
        }
    }
}

/// A request for `http://host/` is meant for the server's TLS port where Wharf is to speak TLS.
fn answers(own: &Inject, port: u16) -> bool {
    own.port == port || (own.tls && own.port == 443 && port == 80)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn policy(rules: &[(Host, Option<u16>)]) -> Policy {
        Policy {
            rules: rules
                .iter()
                .map(|(host, port)| Rule {
                    host: host.clone(),
                    port: *port,
                })
                .collect(),
            ..Policy::default()
        }
    }

    fn name(text: &str) -> Host {
        Host::Name(text.into())
    }

    fn below(text: &str) -> Host {
        Host::Below(text.into())
    }

    fn asked(policy: &Policy, host: &str, port: u16) -> Result<Grant, Refusal> {
        let reach = Reach {
            host: host.into(),
            port,
            form: Form::Tunnel,
        };
        decide(policy, &reach)
    }

    #[test]
    fn the_table() {
        let policy = policy(&[
            (name("a.example"), None),
            (below("b.example"), None),
            (name("c.example"), Some(8443)),
            (below("d.example"), Some(22)),
            (Host::Address("10.0.0.7".parse().unwrap()), Some(5432)),
            (Host::Address("2001:db8::1".parse().unwrap()), None),
        ]);
        for (host, port, allowed) in [
            ("a.example", 80, true),
            ("a.example", 443, true),
            ("A.Example.", 443, true),
            ("a.example", 22, false),
            ("a.example", 0, false),
            ("x.a.example", 443, false),
            ("aa.example", 443, false),
            ("a.example.evil", 443, false),
            ("b.example", 443, false),
            ("x.b.example", 443, true),
            ("x.y.b.example", 80, true),
            ("xb.example", 443, false),
            (".b.example", 443, false),
            ("c.example", 8443, true),
            ("c.example", 443, false),
            ("x.d.example", 22, true),
            ("x.d.example", 443, false),
            ("10.0.0.7", 5432, true),
            ("10.0.0.7", 443, false),
            ("10.0.0.8", 5432, false),
            ("2001:db8:0::1", 443, true),
            ("10.7", 5432, false),
            ("0xa000007", 5432, false),
            ("167772167", 5432, false),
            ("a.example\0", 443, false),
            ("", 443, false),
            ("*", 443, false),
        ] {
            assert_eq!(asked(&policy, host, port).is_ok(), allowed, "{host}:{port}");
        }
    }

    #[test]
    fn an_address_is_reached_only_where_it_is_written_down() {
        let policy = policy(&[(below("example"), None), (name("example"), None)]);
        for host in ["127.0.0.1", "8.8.8.8", "::1"] {
            assert!(asked(&policy, host, 80).is_err(), "{host}");
        }
    }

    #[test]
    fn a_credential_goes_to_its_own_server_only() {
        let own = Inject {
            host: "api.example".into(),
            port: 443,
            tls: true,
            header: "Authorization".into(),
            prefix: "Bearer ".into(),
            env: "TOKEN".into(),
        };
        let policy = Policy {
            inject: vec![own.clone()],
            ..policy(&[(name("api.example"), None), (name("b.example"), None)])
        };
        let request = |host: &str, port, form| {
            let host = host.into();
            decide(&policy, &Reach { host, port, form }).unwrap()
        };
        let grant = request("api.example", 80, Form::Request);
        assert_eq!(
            (grant.dialled, grant.tls, grant.inject),
            (443, true, vec![own])
        );
        let grant = request("api.example", 80, Form::Tunnel);
        assert_eq!(
            (grant.dialled, grant.tls, grant.inject),
            (80, false, vec![])
        );
        let grant = request("b.example", 80, Form::Request);
        assert_eq!(
            (grant.dialled, grant.tls, grant.inject),
            (80, false, vec![])
        );
    }

    proptest! {
        #[test]
        fn nothing_is_allowed_by_an_empty_list(host in "\\PC{0,40}", port: u16) {
            prop_assert!(asked(&Policy::default(), &host, port).is_err());
        }

        #[test]
        fn what_is_granted_is_named_by_a_rule(host in "[a-z0-9.:x*-]{0,24}", port in 1u16..1000) {
            let policy = policy(&[(name("a.b"), None), (below("a.b"), Some(7))]);
            if let Ok(grant) = asked(&policy, &host, port) {
                let exact = grant.host == "a.b" && (port == 80 || port == 443);
                let under = grant.host.ends_with(".a.b") && port == 7;
                prop_assert!(exact || under, "{host}:{port}");
                prop_assert!(grant.host.parse::<IpAddr>().is_err());
            }
        }

        #[test]
        fn a_name_is_never_a_spelling_of_an_address(host in "[0-9a-fx.]{1,16}") {
            if let Some((name, None)) = place(&host) {
                // Numbers in any base end a name that a resolver would take for an address.
                let last = name.rsplit('.').next().unwrap();
                prop_assert!(last.parse::<u64>().is_err() && !last.starts_with("0x"), "{name}");
            }
        }
    }
}
