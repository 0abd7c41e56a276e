//! Finding the engine: which address, whether it answers, what it is.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use bollard::API_DEFAULT_VERSION;

use super::call;
use super::docker::Docker;
use super::egress::Credential;
use super::{Error, Limit};

/// How long an engine may take to answer its first question.
const FIRST_ANSWER: Duration = Duration::from_secs(5);
/// Seconds bollard waits for the headers of an answer; our own limits are shorter where it matters.
const HEADERS: u64 = 600;
/// How the reason begins where the socket is another's.
const DENIED: &str = "you may not use";
const DEFAULT_SOCKET: &str = "unix:///var/run/docker.sock";

/// How the engine is reached and what its containers are labelled with; `config` fills it.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The address somebody asked for (flag, DOCKER_HOST); then no other is tried.
    pub host: Option<String>,
    /// Addresses to try in order when none was asked for; the default socket comes after them.
    pub candidates: Vec<String>,
    /// Client certificates for a remote engine.
    pub tls: Option<Tls>,
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

/// Paths of PEM files, as `DOCKER_CERT_PATH` holds them.
#[derive(Clone, Debug)]
pub struct Tls {
    pub key: PathBuf,
    pub cert: PathBuf,
    pub ca: PathBuf,
}

/// What the engine can do, as far as the profile depends on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineFacts {
    pub apparmor: bool,
    pub seccomp: bool,
    /// The engine understands private cgroup namespaces (API 1.41).
    pub cgroupns: bool,
    pub runtimes: BTreeSet<String>,
    pub default_runtime: String,
    /// As images name it: `amd64`, `arm64`.
    pub arch: String,
    pub cores: u32,
    /// Bytes of memory of the engine's machine; None when it does not say.
    pub memory: Option<u64>,
    /// Limits that the engine says it cannot set.
    pub unable: BTreeSet<Limit>,
}

/// What `doctor` shows of the engine.
#[derive(Clone, Debug)]
pub struct Info {
    pub address: String,
    pub version: String,
    pub api: String,
    pub cgroup: String,
    pub storage: String,
    pub kernel: String,
    pub facts: EngineFacts,
}

/// Finds the engine and asks what it is; within 5 s an address.
pub async fn connect(options: &Options) -> Result<Docker, Error> {
    let mut tried = Vec::new();
    let mut reasons = Vec::new();
    for address in addresses(options) {
        match greet(&address, options, FIRST_ANSWER).await {
            Ok((api, info)) => return Ok(Docker::new(api, options.clone(), info)),
            Err(reason) => {
                reasons.push(reason);
                tried.push(address);
            }
        }
    }
    Err(Error::NoEngine {
        denied: reasons.iter().any(|reason| reason.starts_with(DENIED)),
        tried: tried.join(", "),
        reason: reasons.join("; "),
    })
}

/// One address when it was asked for, else the candidates with the default last.
fn addresses(options: &Options) -> Vec<String> {
    if let Some(host) = options.host.as_deref().filter(|host| !host.is_empty()) {
        return vec![host.to_owned()];
    }
    let mut list = options.candidates.clone();
    if !list.iter().any(|address| address == DEFAULT_SOCKET) {
        list.push(DEFAULT_SOCKET.to_owned());
    }
    list
}

async fn greet(
    address: &str,
    options: &Options,
    limit: Duration,
) -> Result<(bollard::Docker, Info), String> {
    let api = dial(address, options)?;
    let asked = async { tokio::try_join!(api.version(), api.info()) };
    match tokio::time::timeout(limit, asked).await {
        Ok(Ok((version, info))) => {
            let info = describe(address, version, info);
            Ok((api, info))
        }
        Ok(Err(fault)) => Err(match call::cause(&fault).map(std::io::Error::kind) {
            Some(std::io::ErrorKind::PermissionDenied) => {
                format!("{DENIED} {}", address.trim_start_matches("unix://"))
            }
            _ => call::words(&fault),
        }),
        Err(_) => Err(format!("no answer within {} ms", limit.as_millis())),
    }
}

/// A client for the address; bollard's own `connect_with_host` would read the environment.
fn dial(address: &str, options: &Options) -> Result<bollard::Docker, String> {
    let (scheme, _) = address.split_once("://").unwrap_or(("unix", address));
    let client = match (scheme, &options.tls) {
        ("unix", _) => bollard::Docker::connect_with_unix(address, HEADERS, API_DEFAULT_VERSION),
        ("tcp" | "https", Some(tls)) => {
            install_crypto();
            bollard::Docker::connect_with_ssl(
                address,
                &tls.key,
                &tls.cert,
                &tls.ca,
                HEADERS,
                API_DEFAULT_VERSION,
            )
        }
        ("https", None) => return Err("https needs client certificates (DOCKER_CERT_PATH)".into()),
        ("tcp" | "http", _) => {
            bollard::Docker::connect_with_http(address, HEADERS, API_DEFAULT_VERSION)
        }
        ("ssh", _) => {
            return Err(
                "ssh is not supported; forward the socket (ssh -L) and name it as unix://".into(),
            );
        }
        (other, _) => return Err(format!("the scheme {other} is not supported")),
    };
    client.map_err(|fault| call::words(&fault))
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

fn describe(
    address: &str,
    version: bollard::models::SystemVersion,
    info: bollard::models::SystemInfo,
) -> Info {
    let api = version.api_version.unwrap_or_default();
    let has = |word: &str| {
        let options = info.security_options.as_deref().unwrap_or_default();
        options.iter().any(|option| option.contains(word))
    };
    let facts = EngineFacts {
        apparmor: has("name=apparmor"),
        seccomp: has("name=seccomp"),
        cgroupns: at_least(&api, (1, 41)),
        runtimes: info
            .runtimes
            .iter()
            .flatten()
            .map(|(name, _)| name.clone())
            .collect(),
        default_runtime: info.default_runtime.clone().unwrap_or_default(),
        arch: image_arch(info.architecture.as_deref().unwrap_or_default()).to_owned(),
        cores: info
            .ncpu
            .and_then(|n| u32::try_from(n).ok())
            .unwrap_or(1)
            .max(1),
        memory: info
            .mem_total
            .and_then(|bytes| u64::try_from(bytes).ok())
            .filter(|&bytes| bytes > 0),
        unable: unable(&info),
    };
    Info {
        address: address.to_owned(),
        version: info.server_version.clone().unwrap_or_default(),
        api,
        cgroup: info
            .cgroup_version
            .map(|v| v.to_string())
            .unwrap_or_default(),
        storage: info.driver.clone().unwrap_or_default(),
        kernel: info.kernel_version.clone().unwrap_or_default(),
        facts,
    }
}

/// Silence about a limit is no refusal: what holds is read inside of each sandbox.
fn unable(info: &bollard::models::SystemInfo) -> BTreeSet<Limit> {
    let flags = [
        (Limit::Memory, info.memory_limit),
        (Limit::Swap, info.swap_limit),
        (Limit::Cpus, info.cpu_cfs_quota),
        (Limit::Processes, info.pids_limit),
    ];
    let no = flags.into_iter().filter(|(_, flag)| *flag == Some(false));
    no.map(|(limit, _)| limit).collect()
}

fn at_least(api: &str, wanted: (u32, u32)) -> bool {
    let mut parts = api.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= wanted
}

/// The name images use for an architecture that `uname -m` or rustc names.
pub(super) fn image_arch(machine: &str) -> &str {
    match machine {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "armv7l" | "armv6l" => "arm",
        "i386" | "i686" | "x86" => "386",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(host: &str) -> Options {
        Options {
            host: Some(host.to_owned()),
            ..Options::default()
        }
    }

    async fn refusal(host: &str) -> String {
        match connect(&asked(host)).await {
            Err(error @ Error::NoEngine { .. }) => error.to_string(),
            Err(other) => panic!("not NoEngine: {other}"),
            Ok(_) => panic!("something answers at {host}"),
        }
    }

    #[tokio::test]
    async fn a_missing_socket_is_named() {
        let text = refusal("unix:///nope/docker.sock").await;
        assert!(text.contains("unix:///nope/docker.sock"), "{text}");
    }

    #[tokio::test]
    async fn a_dead_port_and_an_unknown_scheme_are_named() {
        let text = refusal("tcp://127.0.0.1:1").await;
        assert!(
            text.contains("tcp://127.0.0.1:1") && text.contains("refused"),
            "{text}"
        );
        assert!(refusal("ssh://host").await.contains("ssh is not supported"));
        assert!(refusal("gopher://host").await.contains("gopher"));
    }

    #[tokio::test]
    async fn a_socket_that_never_answers_is_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("silent.sock");
        let _listener = tokio::net::UnixListener::bind(&path).unwrap();
        let address = format!("unix://{}", path.display());
        let limit = Duration::from_millis(50);
        let outcome = greet(&address, &Options::default(), limit).await;
        assert_eq!(outcome.err().as_deref(), Some("no answer within 50 ms"));
    }

    #[test]
    fn an_asked_address_is_the_only_one() {
        assert_eq!(addresses(&asked("tcp://x:1")), ["tcp://x:1"]);
        let options = Options {
            candidates: vec!["unix:///run/user/7/docker.sock".into()],
            ..Options::default()
        };
        assert_eq!(
            addresses(&options),
            ["unix:///run/user/7/docker.sock", DEFAULT_SOCKET]
        );
    }

    #[test]
    fn versions_compare_as_numbers() {
        assert!(at_least("1.41", (1, 41)) && at_least("1.100", (1, 41)));
        assert!(!at_least("1.9", (1, 41)) && !at_least("", (1, 41)));
    }
}
