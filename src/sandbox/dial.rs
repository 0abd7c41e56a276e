//! A client for one address, of whichever kind, and what it means when nobody answers there.

use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;

use bollard::API_DEFAULT_VERSION;
use bollard::errors::Error as Fault;

use super::call;
use super::connect::{Candidate, Tls};
use super::tunnel::Tunnel;

/// Seconds bollard waits for the headers of an answer; our own limits are shorter where it matters.
const HEADERS: u64 = 600;

/// Why an address does not serve.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) reason: String,
    /// A socket is there, and this user may not use it.
    pub(super) denied: bool,
}

impl Refusal {
    pub(super) fn new(reason: impl Into<String>) -> Self {
        Refusal {
            reason: reason.into(),
            denied: false,
        }
    }

    fn denied(path: &str) -> Self {
        Refusal {
            reason: format!("you may not use {path}"),
            denied: true,
        }
    }
}

/// A client, and the tunnel it goes through where there is one.
pub(super) struct Line {
    pub(super) api: bollard::Docker,
    pub(super) tunnel: Option<Arc<Tunnel>>,
}

impl Line {
    /// A reason, with what the program at the tunnel's mouth complained of: that is the nearer cause.
    pub(super) fn with_complaint(&self, reason: String) -> String {
        let complaint = self.tunnel.as_ref().and_then(|tunnel| tunnel.complaint());
        match complaint {
            Some(complaint) => format!("ssh says: {complaint}"),
            None => reason,
        }
    }
}

/// True for a socket of this machine; what comes out at its other end may still be elsewhere.
pub(super) fn is_local(address: &str) -> bool {
    let scheme = address
        .split_once("://")
        .map_or("unix", |(scheme, _)| scheme);
    scheme == "unix"
}

/// A client for the address; bollard's own `connect_with_host` would read the environment.
pub(super) fn dial(candidate: &Candidate, ssh: Option<&Path>) -> Result<Line, Refusal> {
    let (address, tls) = (candidate.address.as_str(), &candidate.tls);
    let (scheme, rest) = address.split_once("://").unwrap_or(("unix", address));
    let plain = |api| Ok(Line { api, tunnel: None });
    match (scheme, tls) {
        ("unix", _) => plain(socket(rest)?),
        ("tcp" | "https" | "http", Some(tls)) => plain(encrypted(rest, tls)?),
        ("https", None) => Err(Refusal::new(
            "https needs client certificates (DOCKER_TLS_VERIFY and DOCKER_CERT_PATH)",
        )),
        ("tcp" | "http", None) => {
            let place = format!("tcp://{}", with_port(rest, 2375));
            let client = bollard::Docker::connect_with_http(&place, HEADERS, API_DEFAULT_VERSION);
            plain(client.map_err(broken)?)
        }
        ("ssh", _) => {
            let tunnel = Tunnel::open(rest, ssh.unwrap_or(Path::new("ssh")));
            let tunnel = tunnel.map_err(Refusal::new)?;
            let path = tunnel.socket().display().to_string();
            Ok(Line {
                api: socket(&path)?,
                tunnel: Some(Arc::new(tunnel)),
            })
        }
        (other, _) => Err(Refusal::new(format!(
            "the scheme {other} is not supported (unix, tcp, https and ssh are)"
        ))),
    }
}

/// Looks at the path before bollard does, which knows only that there is none.
fn socket(path: &str) -> Result<bollard::Docker, Refusal> {
    match std::fs::metadata(path) {
        Ok(there) if there.file_type().is_socket() => {}
        Ok(_) => return Err(Refusal::new(format!("{path} is no socket"))),
        Err(error) => {
            return Err(match error.kind() {
                ErrorKind::NotFound => Refusal::new("there is no socket of that name"),
                ErrorKind::PermissionDenied => Refusal::denied(path),
                _ => Refusal::new(error.to_string()),
            });
        }
    }
    bollard::Docker::connect_with_unix(path, HEADERS, API_DEFAULT_VERSION).map_err(broken)
}

fn encrypted(place: &str, tls: &Tls) -> Result<bollard::Docker, Refusal> {
    // The certificates are read at the first handshake only, whose words would not name the file.
    for file in [&tls.ca, &tls.cert, &tls.key] {
        if let Err(error) = std::fs::File::open(file) {
            return Err(Refusal::new(format!(
                "the certificates cannot be read: {}: {error}",
                file.display()
            )));
        }
    }
    install_crypto();
    let place = format!("tcp://{}", with_port(place, 2376));
    let client = bollard::Docker::connect_with_ssl(
        &place,
        &tls.key,
        &tls.cert,
        &tls.ca,
        HEADERS,
        API_DEFAULT_VERSION,
    );
    client.map_err(broken)
}

/// Docker's own ports stand for themselves, where HTTP's would be taken.
fn with_port(place: &str, port: u16) -> String {
    let place = place.trim_end_matches('/');
    let tail = place.rsplit_once(']').map_or(place, |(_, tail)| tail);
    match tail.contains(':') {
        true => place.to_owned(),
        false => format!("{place}:{port}"),
    }
}

fn broken(fault: Fault) -> Refusal {
    Refusal::new(call::words(&fault))
}

/// What a first question that failed means.
pub(super) fn refusal(candidate: &Candidate, line: &Line, fault: &Fault) -> Refusal {
    match call::cause(fault).map(std::io::Error::kind) {
        Some(ErrorKind::PermissionDenied) => {
            Refusal::denied(candidate.address.trim_start_matches("unix://"))
        }
        _ => Refusal::new(line.with_complaint(call::words(fault))),
    }
}

/// bollard panics without a provider of cryptography; a second installation is refused and harmless.
fn install_crypto() {
    if rustls::crypto::ring::default_provider()
        .install_default()
        .is_err()
    {
        tracing::trace!("a provider of cryptography is already installed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_port_is_dockers() {
        assert_eq!(with_port("host", 2375), "host:2375");
        assert_eq!(with_port("host/", 2376), "host:2376");
        assert_eq!(with_port("host:1", 2375), "host:1");
        assert_eq!(with_port("[::1]", 2375), "[::1]:2375");
        assert_eq!(with_port("[::1]:7", 2375), "[::1]:7");
    }

    #[test]
    fn a_missing_certificate_is_named() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("ca.pem"), "").unwrap();
        let candidate = Candidate {
            tls: Some(Tls::of(dir.path())),
            ..Candidate::new("tcp://127.0.0.1:1", "a test")
        };
        let refusal = dial(&candidate, None).err().unwrap();
        assert!(refusal.reason.contains("cert.pem"), "{}", refusal.reason);
    }
}
