//! Finding the engine: which addresses, in which order, whether one answers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Error;
use super::dial::{self, Line, Refusal};
use super::docker::Docker;
use super::egress::Credential;
use super::facts::{EngineFacts, Info, describe};
use super::filter::{self, Dialect};

/// How long an engine may take to answer its first question.
const FIRST_ANSWER: Duration = Duration::from_secs(5);
/// The same where a login on another machine comes first.
const FIRST_LOGIN: Duration = Duration::from_secs(20);
const DEFAULT_SOCKET: &str = "unix:///var/run/docker.sock";

/// How the engine is reached and what its containers are labelled with; `config` fills it.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The address somebody asked for (DOCKER_HOST); then no other is tried.
    pub host: Option<String>,
    /// Certificates for that address.
    pub tls: Option<Tls>,
    /// Where to look in this order when no address was asked for; the default socket when empty.
    pub candidates: Vec<Candidate>,
    /// The program that logs in at `ssh://` addresses; `ssh` of the search path when absent.
    pub ssh: Option<PathBuf>,
    /// `$XDG_STATE_HOME/wharf` or `WHARF_HOME`, absolute.
    pub state: PathBuf,
    /// Names this machine in labels.
    pub machine: String,
    /// Proxy settings of the host (`HTTP_PROXY`, `https_proxy` …) for builds and setup commands.
    pub proxies: Vec<(String, String)>,
    /// A PEM bundle of the authorities this host trusts, for setup commands and for servers that Wharf
    /// reaches for a sandbox; never kept in an image.
    pub ca_bundle: Option<PathBuf>,
    /// What is added to requests of sandboxes with an allow-list, by the names that plans give it.
    pub credentials: BTreeMap<String, Credential>,
    /// How long a sandbox and Wharf hear nothing of each other until each takes the other for gone;
    /// a minute when absent, and never more.
    pub lease: Option<Duration>,
}

/// One place where the engine may be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Candidate {
    /// `unix://`, `tcp://`, `https://` or `ssh://`.
    pub address: String,
    /// How it came to be one, for people: `DOCKER_HOST`, `docker context NAME`, `rootless Docker`.
    pub why: String,
    pub tls: Option<Tls>,
    /// What keeps it from being tried at all, such as a context that cannot be read.
    pub unusable: Option<String>,
}

/// Paths of PEM files, as `DOCKER_CERT_PATH` and contexts hold them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    pub key: PathBuf,
    pub cert: PathBuf,
    pub ca: PathBuf,
}

impl Tls {
    /// The three files under the names they have in such a folder.
    pub fn of(folder: &std::path::Path) -> Self {
        Tls {
            key: folder.join("key.pem"),
            cert: folder.join("cert.pem"),
            ca: folder.join("ca.pem"),
        }
    }
}

impl Candidate {
    /// An address that can be tried.
    pub fn new(address: impl Into<String>, why: impl Into<String>) -> Self {
        Candidate {
            address: address.into(),
            why: why.into(),
            ..Candidate::default()
        }
    }
}

/// Finds the engine and asks what it is: within 5 s an address, 20 s where ssh leads to it.
pub async fn connect(options: &Options) -> Result<Docker, Error> {
    let mut refused = Vec::new();
    for candidate in candidates(options) {
        let limit = match candidate.address.starts_with("ssh://") {
            true => FIRST_LOGIN,
            false => FIRST_ANSWER,
        };
        match greet(&candidate, options, limit).await {
            Ok((line, info)) => {
                let info = Info {
                    encrypted: candidate.tls.is_some(),
                    address: candidate.address,
                    found_by: candidate.why,
                    passed_over: refused.iter().map(said).collect(),
                    ..info
                };
                return Ok(Docker::new(line, options.clone(), info));
            }
            Err(refusal) => refused.push((candidate, refusal)),
        }
    }
    Err(none(&refused))
}

/// One address when it was asked for, else where it may be, in order.
fn candidates(options: &Options) -> Vec<Candidate> {
    if let Some(host) = options.host.as_deref().filter(|host| !host.is_empty()) {
        return vec![Candidate {
            tls: options.tls.clone(),
            ..Candidate::new(host, "DOCKER_HOST")
        }];
    }
    match options.candidates.is_empty() {
        true => vec![Candidate::new(DEFAULT_SOCKET, "the default socket")],
        false => options.candidates.clone(),
    }
}

fn said((candidate, refusal): &(Candidate, Refusal)) -> String {
    format!(
        "{} ({}): {}",
        candidate.address, candidate.why, refusal.reason
    )
}

/// All that was tried, in its order, with what each came to.
fn none(refused: &[(Candidate, Refusal)]) -> Error {
    let tried = refused
        .iter()
        .map(|(candidate, _)| format!("{} ({})", candidate.address, candidate.why))
        .collect::<Vec<_>>()
        .join(", then ");
    let reason = match refused {
        [(_, refusal)] => refusal.reason.clone(),
        many => many.iter().map(said).collect::<Vec<_>>().join("; "),
    };
    Error::NoEngine {
        tried,
        reason,
        denied: refused.iter().any(|(_, refusal)| refusal.denied),
    }
}

async fn greet(
    candidate: &Candidate,
    options: &Options,
    limit: Duration,
) -> Result<(Line, Info), Refusal> {
    if let Some(reason) = &candidate.unusable {
        return Err(Refusal::new(reason.clone()));
    }
    let line = dial::dial(candidate, options.ssh.as_deref())?;
    let asked = async { tokio::try_join!(line.api.version(), line.api.info()) };
    match tokio::time::timeout(limit, asked).await {
        Ok(Ok((version, info))) => {
            usable(describe(version, info), candidate, &options.state).map(|info| (line, info))
        }
        Ok(Err(fault)) => Err(dial::refusal(candidate, &line, &fault)),
        Err(_) => Err(Refusal::new(
            line.with_complaint(format!("no answer within {} ms", limit.as_millis())),
        )),
    }
}

/// Podman (4.3.1, tried) reads the list of system calls from a file of its own machine, whatever its
/// client sends, so it serves where that machine is this one. An engine that does not hold a container
/// to the list is none.
fn usable(info: Info, candidate: &Candidate, state: &Path) -> Result<Info, Refusal> {
    if info.product != "Podman" {
        return Ok(info);
    }
    let version = &info.version;
    if !dial::is_local(&candidate.address) {
        return Err(Refusal::new(format!(
            "Podman {version} takes no seccomp profile from its client, only from a file of its own \
             machine; Wharf uses it through a socket of this machine, or Docker"
        )));
    }
    let list = filter::keep(state).map_err(|reason| {
        Refusal::new(format!(
            "Podman {version} reads its seccomp profile from a file, which could not be made: {reason}"
        ))
    })?;
    let facts = EngineFacts {
        dialect: Dialect::Podman { list },
        ..info.facts
    };
    Ok(Info { facts, ..info })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn podman_serves_where_it_can_read_what_is_written_here() {
        let state = tempfile::tempdir().unwrap();
        let found = |product, address: &str, state: &Path| {
            let info = Info {
                product,
                version: "4.3.1".to_owned(),
                ..Info::default()
            };
            let usable = usable(info, &Candidate::new(address, "a test"), state);
            usable.map_err(|refusal| refusal.reason)
        };
        let docker = found("Docker", "tcp://a:1", state.path()).unwrap();
        assert_eq!(docker.facts.dialect, Dialect::Docker);
        assert!(!state.path().join("seccomp").exists());
        let near = found("Podman", "unix:///run/podman/podman.sock", state.path()).unwrap();
        let Dialect::Podman { list } = near.facts.dialect else {
            panic!("taken for Docker");
        };
        assert!(list.starts_with(state.path()) && list.is_file());
        for far in ["tcp://a:1", "ssh://a", "https://a"] {
            let reason = found("Podman", far, state.path()).unwrap_err();
            assert!(
                reason.starts_with("Podman 4.3.1 takes no seccomp profile"),
                "{reason}"
            );
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        let reason = found("Podman", "unix:///a", file.path()).unwrap_err();
        assert!(reason.contains("could not be made"), "{reason}");
    }

    fn asked(host: &str) -> Options {
        Options {
            host: Some(host.to_owned()),
            ..Options::default()
        }
    }

    async fn refusal(options: &Options) -> (String, bool) {
        match connect(options).await {
            Err(error @ Error::NoEngine { denied, .. }) => (error.to_string(), denied),
            Err(other) => panic!("not NoEngine: {other}"),
            Ok(_) => panic!("something answers at {options:?}"),
        }
    }

    #[tokio::test]
    async fn a_missing_socket_is_named() {
        let (text, denied) = refusal(&asked("unix:///nope/docker.sock")).await;
        assert!(
            text.contains("unix:///nope/docker.sock (DOCKER_HOST): there is no socket") && !denied,
            "{text}"
        );
    }

    #[tokio::test]
    async fn a_file_that_is_no_socket_is_told_apart_from_a_missing_one() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (text, _) = refusal(&asked(&format!("unix://{}", file.path().display()))).await;
        assert!(text.ends_with("is no socket"), "{text}");
    }

    #[tokio::test]
    async fn a_dead_port_and_an_unknown_scheme_are_named() {
        let (text, _) = refusal(&asked("tcp://127.0.0.1:1")).await;
        assert!(
            text.contains("tcp://127.0.0.1:1") && text.contains("refused"),
            "{text}"
        );
        let (text, _) = refusal(&asked("gopher://host")).await;
        assert!(text.contains("gopher"), "{text}");
    }

    #[tokio::test]
    async fn a_socket_that_never_answers_is_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("silent.sock");
        let _listener = tokio::net::UnixListener::bind(&path).unwrap();
        let candidate = Candidate::new(format!("unix://{}", path.display()), "a test");
        let limit = Duration::from_millis(50);
        let outcome = greet(&candidate, &Options::default(), limit).await;
        assert_eq!(
            outcome.err().map(|refusal| refusal.reason).as_deref(),
            Some("no answer within 50 ms")
        );
    }

    #[tokio::test]
    async fn all_that_was_tried_is_named_in_its_order() {
        let options = Options {
            candidates: vec![
                Candidate::new("unix:///nope/a.sock", "rootless Docker"),
                Candidate {
                    unusable: Some("it has no address".into()),
                    ..Candidate::new("docker context c", "DOCKER_CONTEXT")
                },
                Candidate::new("tcp://127.0.0.1:1", "the last"),
            ],
            ..Options::default()
        };
        let (text, _) = refusal(&options).await;
        let place = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
        assert!(
            place("unix:///nope/a.sock (rootless Docker), then docker context c")
                < place("no socket")
        );
        assert!(place("no socket") < place("it has no address"));
        assert!(place("it has no address") < place("refused"));
    }

    #[test]
    fn an_asked_address_is_the_only_one() {
        let addresses = |options: &Options| {
            let found = candidates(options).into_iter();
            found.map(|one| one.address).collect::<Vec<_>>()
        };
        assert_eq!(addresses(&asked("tcp://x:1")), ["tcp://x:1"]);
        assert_eq!(addresses(&Options::default()), [DEFAULT_SOCKET]);
        let options = Options {
            candidates: vec![Candidate::new("unix:///run/user/7/docker.sock", "rootless")],
            ..Options::default()
        };
        assert_eq!(addresses(&options), ["unix:///run/user/7/docker.sock"]);
    }
}
