//! One HTTP request on its way out: read strictly, written anew with what Wharf adds, cut off at its
//! end. So nothing that the program inside says can reach the server beside the one checked request.

use wharf_toolbox::http::{self, Head};

use super::body::Body;
use super::decide::Grant;
use super::first::same_host;
use super::policy::Credential;

/// Headers that are between the program and the proxy (RFC 9110, section 7.6.1).
const OWN: [&str; 8] = [
    "connection",
    "proxy-connection",
    "proxy-authorization",
    "keep-alive",
    "te",
    "trailer",
    "upgrade",
    "host",
];
/// Headers that no `Connection` may name, since the request would mean another one without them.
const KEPT: [&str; 4] = [
    "host",
    "content-length",
    "transfer-encoding",
    "authorization",
];

/// A header that Wharf adds: its name and its whole value.
pub(super) struct Added {
    pub name: String,
    pub prefix: String,
    pub value: Credential,
}

/// Takes the bytes of a request and gives those for the server.
pub(super) struct Request {
    grant: Grant,
    added: Vec<Added>,
    state: State,
}

enum State {
    Head(Vec<u8>),
    Body(Body),
}

impl Request {
    /// A request that has not begun.
    pub fn new(grant: Grant, added: Vec<Added>) -> Request {
        Request {
            grant,
            added,
            state: State::Head(Vec::new()),
        }
    }

    /// The bytes that may go to the server; an error says why nothing more may.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<u8>, String> {
        let (mut out, rest) = match &mut self.state {
            State::Head(held) => {
                held.extend_from_slice(bytes);
                let held = std::mem::take(held);
                let Some(head) = http::head(&held)? else {
                    self.state = State::Head(held);
                    return Ok(Vec::new());
                };
                self.state = State::Body(Body::of(&head)?);
                (self.rewrite(&head)?, held[head.length..].to_vec())
            }
            State::Body(_) => (Vec::new(), bytes.to_vec()),
        };
        if let State::Body(body) = &mut self.state {
            let taken = body.take(&rest)?;
            out.extend_from_slice(&rest[..taken]);
        }
        Ok(out)
    }

    fn rewrite(&self, head: &Head) -> Result<Vec<u8>, String> {
        let (place, path) = head.absolute()?;
        let asked = (place.host.as_str(), place.port.unwrap_or(80));
        if asked != (self.grant.host.as_str(), self.grant.port) {
            return Err("a request for another server than was asked for".to_owned());
        }
        same_host(head, &self.grant.host, self.grant.port)?;
        if head.method == "TRACE" && !self.added.is_empty() {
            return Err("TRACE would show the credentials".to_owned());
        }
        let named = named(head)?;
        let mut out = format!(
            "{} {path} HTTP/1.{}\r\nHost: {}\r\n",
            head.method,
            head.minor,
            self.authority()
        )
        .into_bytes();
        for (name, value) in &head.headers {
            let lower = name.to_ascii_lowercase();
            let ours = self
                .added
                .iter()
                .any(|added| added.name.eq_ignore_ascii_case(name));
            if ours || OWN.contains(&lower.as_str()) || named.contains(&lower) {
                continue;
            }
            line(&mut out, name, value);
        }
        for added in &self.added {
            let value = format!("{}{}", added.prefix, added.value.reveal());
            if value.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
                return Err(format!("the credential for {} is no header", added.name));
            }
            line(&mut out, &added.name, value.as_bytes());
        }
        out.extend_from_slice(b"Connection: close\r\n\r\n");
        Ok(out)
    }

    /// The server as its own requests name it.
    fn authority(&self) -> String {
        let host = match self.grant.host.contains(':') {
            true => format!("[{}]", self.grant.host),
            false => self.grant.host.clone(),
        };
        let usual = if self.grant.tls { 443 } else { 80 };
        match self.grant.dialled {
            port if port == usual => host,
            port => format!("{host}:{port}"),
        }
    }
}

fn line(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// What `Connection` names as meant for the proxy.
fn named(head: &Head) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for value in head.all("connection") {
        let text = std::str::from_utf8(value).map_err(|_| "a Connection that is no text")?;
        names.extend(text.split(',').map(|name| name.trim().to_ascii_lowercase()));
    }
    match names.iter().find(|name| KEPT.contains(&name.as_str())) {
        Some(name) => Err(format!("a Connection that names {name}")),
        None => Ok(names),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn grant(tls: bool) -> Grant {
        Grant {
            host: "api.example".into(),
            address: None,
            port: 80,
            dialled: if tls { 443 } else { 80 },
            tls,
            private: false,
            inject: Vec::new(),
        }
    }

    fn added() -> Vec<Added> {
        vec![Added {
            name: "Authorization".into(),
            prefix: "Bearer ".into(),
            value: Credential::new("canary"),
        }]
    }

    fn sent(text: &str) -> Result<String, String> {
        let mut request = Request::new(grant(true), added());
        let out = request.push(text.as_bytes())?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn a_request_is_written_anew_with_what_is_added() {
        let text = "POST http://api.example/v1?q HTTP/1.1\r\nHost: api.example\r\nAUTHORIZATION: mine\r\n\
            Proxy-Connection: keep-alive\r\nConnection: keep-alive, X-Own\r\nX-Own: 1\r\nX-Kept: 2\r\n\
            Content-Length: 4\r\n\r\nbody";
        assert_eq!(
            sent(text).unwrap(),
            "POST /v1?q HTTP/1.1\r\nHost: api.example\r\nX-Kept: 2\r\nContent-Length: 4\r\n\
             Authorization: Bearer canary\r\nConnection: close\r\n\r\nbody"
        );
    }

    #[test]
    fn a_second_request_goes_nowhere() {
        let one = "GET http://api.example/ HTTP/1.1\r\nHost: api.example\r\n\r\n";
        let two = format!("{one}GET http://api.example/admin HTTP/1.1\r\nHost: evil\r\n\r\n");
        assert_eq!(sent(&two), sent(one));
        let mut request = Request::new(grant(true), added());
        request.push(one.as_bytes()).unwrap();
        assert_eq!(request.push(two.as_bytes()).unwrap(), b"");
    }

    #[test]
    fn requests_that_mean_another_server_or_another_request_are_refused() {
        for text in [
            "GET http://api.example/ HTTP/1.1\r\nHost: other.example\r\n\r\n",
            "GET http://api.example/ HTTP/1.1\r\n\r\n",
            "GET http://other.example/ HTTP/1.1\r\nHost: api.example\r\n\r\n",
            "GET http://api.example:81/ HTTP/1.1\r\nHost: api.example\r\n\r\n",
            "TRACE http://api.example/ HTTP/1.1\r\nHost: api.example\r\n\r\n",
            "GET http://api.example/ HTTP/1.1\r\nHost: api.example\r\nConnection: Content-Length\r\n\r\n",
            "GET http://api.example/ HTTP/1.1\r\nHost: api.example\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: api.example\r\n\r\n",
        ] {
            let refused = sent(text).unwrap_err();
            assert!(!refused.contains("canary"), "{refused}");
        }
        let mut request = Request::new(
            grant(false),
            vec![Added {
                value: Credential::new("two\r\nlines"),
                ..added().remove(0)
            }],
        );
        let text = "GET http://api.example/ HTTP/1.1\r\nHost: api.example\r\n\r\n";
        let refused = request.push(text.as_bytes()).unwrap_err();
        assert!(!refused.contains("lines"), "{refused}");
    }

    proptest! {
        #[test]
        fn however_it_is_cut_the_same_goes_out(cut in 1usize..80) {
            let text = "POST http://api.example/ HTTP/1.1\r\nHost: api.example\r\nTransfer-Encoding: chunked\r\n\r\n\
                3\r\nabc\r\n0\r\n\r\nGET http://api.example/ HTTP/1.1\r\n\r\n";
            let mut request = Request::new(grant(false), added());
            let mut out = Vec::new();
            for piece in text.as_bytes().chunks(cut) {
                out.extend(request.push(piece).unwrap());
            }
            let out = String::from_utf8(out).unwrap();
            prop_assert!(out.ends_with("Connection: close\r\n\r\n3\r\nabc\r\n0\r\n\r\n"));
            prop_assert_eq!(out.matches("canary").count(), 1);
        }
    }
}
