//! Where Docker may be: its own variables, the current context, the sockets people have.

use std::path::{Path, PathBuf};

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::Env;
use crate::sandbox::{Candidate, Tls};

/// Addresses of the engine and what its builds need from this host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Docker {
    /// DOCKER_HOST; then no other address is tried.
    pub host: Option<String>,
    /// Certificates for that address: DOCKER_TLS_VERIFY is set.
    pub tls: Option<Tls>,
    /// Tried in this order when DOCKER_HOST names none.
    pub candidates: Vec<Candidate>,
    /// Proxy variables of the host as they stand.
    pub proxies: Vec<(String, String)>,
    /// The host's bundle of trusted authorities.
    pub ca_bundle: Option<PathBuf>,
}

const DEFAULT_SOCKET: &str = "/var/run/docker.sock";
/// The service of Podman for the whole machine.
const PODMAN: &str = "/run/podman/podman.sock";

pub(super) fn find(env: &Env) -> Docker {
    let folder = env
        .path("DOCKER_CONFIG")
        .or_else(|| Some(env.home()?.join(".docker")));
    let host = env.text("DOCKER_HOST");
    Docker {
        candidates: match host {
            Some(_) => Vec::new(),
            None => candidates(env, folder.as_deref()),
        },
        tls: tls(env, folder.as_deref()),
        proxies: env.proxies(),
        ca_bundle: ca_bundle(env),
        host,
    }
}

/// A context that somebody chose is the only place, as it is for docker itself: another engine is
/// another machine. Without one, the sockets people have.
fn candidates(env: &Env, folder: Option<&Path>) -> Vec<Candidate> {
    let default = || Candidate::new(format!("unix://{DEFAULT_SOCKET}"), "the default socket");
    if let Some(name) = env.text("DOCKER_CONTEXT") {
        return match name.as_str() {
            "default" => vec![default()],
            name => vec![of_context(name, "DOCKER_CONTEXT", folder)],
        };
    }
    if let Some(chosen) = folder.and_then(current) {
        return vec![chosen];
    }
    let mut found = sockets(env, Path::new(DEFAULT_SOCKET));
    let last = default();
    if !found.iter().any(|one| one.address == last.address) {
        found.push(last);
    }
    found
}

/// What `docker context use` chose.
fn current(folder: &Path) -> Option<Candidate> {
    let path = folder.join("config.json");
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(error) => return Some(unreadable(&path, &error.to_string())),
    };
    let config: Value = match serde_json::from_slice(&text) {
        Ok(config) => config,
        Err(error) => return Some(unreadable(&path, &error.to_string())),
    };
    let name = config.get("currentContext")?.as_str()?;
    let chosen = !name.is_empty() && name != "default";
    chosen.then(|| of_context(name, "the current context", Some(folder)))
}

/// Which engine is meant could not be told, so none is taken.
fn unreadable(path: &Path, reason: &str) -> Candidate {
    Candidate {
        unusable: Some(format!(
            "it cannot be read ({reason}), so which context is current cannot be told; mend it, or \
             name an engine by DOCKER_HOST or DOCKER_CONTEXT"
        )),
        ..Candidate::new(path.display().to_string(), "docker's configuration")
    }
}

/// The address that a context of docker's stands for, and its certificates.
fn of_context(name: &str, by: &str, folder: Option<&Path>) -> Candidate {
    let unusable = |reason: String| Candidate {
        unusable: Some(reason),
        ..Candidate::new(format!("docker context {name}"), by)
    };
    let Some(folder) = folder else {
        return unusable("there is no home directory to look for contexts in".to_owned());
    };
    let id: String = Sha256::digest(name.as_bytes())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let contexts = folder.join("contexts");
    let path = contexts.join("meta").join(&id).join("meta.json");
    let meta: Value = match std::fs::read(&path).map(|text| serde_json::from_slice(&text)) {
        Ok(Ok(meta)) => meta,
        Ok(Err(error)) => return unusable(format!("{}: {error}", path.display())),
        Err(error) => {
            return unusable(format!(
                "{}: {error}; `docker context ls` lists those there are",
                path.display()
            ));
        }
    };
    let docker = meta.pointer("/Endpoints/docker");
    let host = docker
        .and_then(|docker| docker.get("Host")?.as_str())
        .filter(|host| !host.is_empty());
    let Some(host) = host else {
        return unusable("it names no engine".to_owned());
    };
    let skips = docker.and_then(|docker| docker.get("SkipTLSVerify")?.as_bool());
    if skips == Some(true) {
        return unusable(
            "it leaves the engine's certificate unchecked, which Wharf does not".to_owned(),
        );
    }
    let certificates = contexts.join("tls").join(&id).join("docker");
    Candidate {
        tls: certificates.is_dir().then(|| Tls::of(&certificates)),
        ..Candidate::new(host, format!("docker context {name}, {by}"))
    }
}

/// A rootless engine of this user first; sockets of other products only where the default is missing.
fn sockets(env: &Env, default: &Path) -> Vec<Candidate> {
    let runtime = env.absolute("XDG_RUNTIME_DIR");
    let home = env.home();
    let mut found = Vec::new();
    let mut add = |path: Option<PathBuf>, why: &str| {
        if let Some(path) = path.filter(|path| path.exists()) {
            found.push(Candidate::new(format!("unix://{}", path.display()), why));
        }
    };
    let below = |base: &Option<PathBuf>, rest: &str| base.as_ref().map(|base| base.join(rest));
    add(below(&runtime, "docker.sock"), "rootless Docker");
    if !default.exists() {
        add(below(&home, ".docker/run/docker.sock"), "Docker Desktop");
        add(
            below(&home, ".docker/desktop/docker.sock"),
            "Docker Desktop",
        );
        add(below(&home, ".colima/default/docker.sock"), "Colima");
        add(below(&home, ".orbstack/run/docker.sock"), "OrbStack");
        add(below(&runtime, "podman/podman.sock"), "rootless Podman");
        add(Some(PODMAN.into()), "Podman");
    }
    found
}

fn tls(env: &Env, folder: Option<&Path>) -> Option<Tls> {
    env.text("DOCKER_TLS_VERIFY")?;
    let folder = env
        .path("DOCKER_CERT_PATH")
        .or_else(|| folder.map(Path::to_owned))?;
    Some(Tls::of(&folder))
}

fn ca_bundle(env: &Env) -> Option<PathBuf> {
    let said = env.path("SSL_CERT_FILE");
    let usual = PathBuf::from("/etc/ssl/certs/ca-certificates.crt");
    said.into_iter().chain([usual]).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(home: &Path, more: &[(&str, &str)]) -> Env {
        let home = home.display().to_string();
        let mut vars = vec![("HOME", home.as_str())];
        vars.extend_from_slice(more);
        Env::of(&vars)
    }

    fn write_context(home: &Path, name: &str, docker: Value) -> PathBuf {
        let id: String = Sha256::digest(name.as_bytes())
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        let contexts = home.join(".docker/contexts");
        let meta = contexts.join("meta").join(&id);
        std::fs::create_dir_all(&meta).unwrap();
        let text = serde_json::json!({"Name": name, "Endpoints": {"docker": docker}});
        std::fs::write(meta.join("meta.json"), text.to_string()).unwrap();
        contexts.join("tls").join(id).join("docker")
    }

    fn at(host: &str) -> Value {
        serde_json::json!({"Host": host, "SkipTLSVerify": false})
    }

    #[test]
    fn docker_host_is_the_only_one_tried() {
        let home = tempfile::tempdir().unwrap();
        write_context(home.path(), "c", at("tcp://c:1"));
        let vars = [("DOCKER_HOST", "tcp://h:2"), ("DOCKER_CONTEXT", "c")];
        let docker = find(&env(home.path(), &vars));
        assert_eq!(docker.host.as_deref(), Some("tcp://h:2"));
        assert!(docker.candidates.is_empty());
    }

    #[test]
    fn a_chosen_context_is_the_only_one_and_brings_its_certificates() {
        let home = tempfile::tempdir().unwrap();
        let folder = write_context(home.path(), "c", at("tcp://c:1"));
        std::fs::create_dir_all(&folder).unwrap();
        write_context(home.path(), "d", at("ssh://d"));
        let config = home.path().join(".docker/config.json");
        std::fs::write(config, r#"{"currentContext":"c"}"#).unwrap();
        let current = find(&env(home.path(), &[])).candidates;
        assert_eq!(
            current,
            [Candidate {
                tls: Some(Tls::of(&folder)),
                ..Candidate::new("tcp://c:1", "docker context c, the current context")
            }]
        );
        let named = find(&env(home.path(), &[("DOCKER_CONTEXT", "d")])).candidates;
        assert_eq!(
            named,
            [Candidate::new(
                "ssh://d",
                "docker context d, DOCKER_CONTEXT"
            )]
        );
        let default = find(&env(home.path(), &[("DOCKER_CONTEXT", "default")])).candidates;
        assert_eq!(default[0].address, "unix:///var/run/docker.sock");
        assert_eq!(default.len(), 1);
    }

    #[test]
    fn a_context_that_leads_nowhere_is_refused_and_no_other_engine_is_taken() {
        let home = tempfile::tempdir().unwrap();
        write_context(home.path(), "empty", serde_json::json!({}));
        let skips = serde_json::json!({"Host": "tcp://c:1", "SkipTLSVerify": true});
        write_context(home.path(), "skips", skips);
        for (name, said) in [
            ("gone", "docker context ls"),
            ("empty", "no engine"),
            ("skips", "unchecked"),
        ] {
            let found = find(&env(home.path(), &[("DOCKER_CONTEXT", name)])).candidates;
            assert_eq!(found.len(), 1, "{found:?}");
            let reason = found[0].unusable.clone().unwrap();
            assert!(reason.contains(said), "{reason}");
        }
        std::fs::write(home.path().join(".docker/config.json"), "{").unwrap();
        let found = find(&env(home.path(), &[])).candidates;
        assert!(found.len() == 1 && found[0].unusable.is_some(), "{found:?}");
    }

    #[test]
    fn other_products_serve_only_where_the_default_is_missing() {
        let home = tempfile::tempdir().unwrap();
        let colima = home.path().join(".colima/default");
        std::fs::create_dir_all(&colima).unwrap();
        std::fs::write(colima.join("docker.sock"), "").unwrap();
        let missing = sockets(&env(home.path(), &[]), &home.path().join("none"));
        assert_eq!(missing[0].why, "Colima");
        assert!(sockets(&env(home.path(), &[]), home.path()).is_empty());
    }

    #[test]
    fn a_rootless_engine_comes_before_the_default_socket() {
        let home = tempfile::tempdir().unwrap();
        let runtime = home.path().join("run");
        std::fs::create_dir_all(&runtime).unwrap();
        std::fs::write(runtime.join("docker.sock"), "").unwrap();
        let text = runtime.display().to_string();
        let found = find(&env(home.path(), &[("XDG_RUNTIME_DIR", &text)])).candidates;
        assert_eq!(found[0].why, "rootless Docker");
        assert_eq!(found.last().unwrap().why, "the default socket");
    }

    #[test]
    fn certificates_are_named_only_when_asked_for() {
        let home = tempfile::tempdir().unwrap();
        let path = ("DOCKER_CERT_PATH", "/certs");
        assert_eq!(tls(&env(home.path(), &[path]), None), None);
        let asked = tls(&env(home.path(), &[path, ("DOCKER_TLS_VERIFY", "1")]), None);
        assert_eq!(asked.unwrap().ca, Path::new("/certs/ca.pem"));
    }
}
