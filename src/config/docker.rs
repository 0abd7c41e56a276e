//! Where Docker may be: its own variables, the current context, the sockets people have.

use std::path::{Path, PathBuf};

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::Env;

/// Addresses of the engine and what its builds need from this host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Docker {
    /// DOCKER_HOST; then no other address is tried.
    pub host: Option<String>,
    /// Tried in order before the default socket, each with the reason it is here.
    pub candidates: Vec<(String, String)>,
    /// DOCKER_TLS_VERIFY is set.
    pub tls: Option<Tls>,
    /// Proxy variables of the host as they stand.
    pub proxies: Vec<(String, String)>,
    /// The host's bundle of trusted authorities.
    pub ca_bundle: Option<PathBuf>,
}

/// Paths of PEM files, as DOCKER_CERT_PATH holds them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    pub key: PathBuf,
    pub cert: PathBuf,
    pub ca: PathBuf,
}

const DEFAULT_SOCKET: &str = "/var/run/docker.sock";

pub(super) fn find(env: &Env, warnings: &mut Vec<String>) -> Docker {
    let folder = env
        .path("DOCKER_CONFIG")
        .or_else(|| Some(env.home()?.join(".docker")));
    let host = env.text("DOCKER_HOST");
    let mut candidates = Vec::new();
    if host.is_none() {
        candidates.extend(folder.as_deref().and_then(|f| of_context(env, f, warnings)));
        candidates.extend(sockets(env, Path::new(DEFAULT_SOCKET)));
    }
    Docker {
        tls: tls(env, folder.as_deref()),
        proxies: env.proxies(),
        ca_bundle: ca_bundle(env),
        candidates,
        host,
    }
}

/// The address of the context that `docker` itself would use, unless that is the default one.
fn of_context(env: &Env, folder: &Path, warnings: &mut Vec<String>) -> Option<(String, String)> {
    let name = env.text("DOCKER_CONTEXT").or_else(|| {
        let config = json(&folder.join("config.json"))?;
        Some(config.get("currentContext")?.as_str()?.to_owned())
    })?;
    if name.is_empty() || name == "default" {
        return None;
    }
    let place: String = Sha256::digest(name.as_bytes())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let meta = json(&folder.join("contexts/meta").join(place).join("meta.json"));
    let host = meta
        .as_ref()
        .and_then(|meta| meta.pointer("/Endpoints/docker/Host")?.as_str())
        .filter(|host| !host.is_empty());
    match host {
        Some(host) => Some((host.to_owned(), format!("docker context {name}"))),
        None => {
            warnings.push(format!(
                "the docker context `{name}` could not be read; it is passed over"
            ));
            None
        }
    }
}

fn json(path: &Path) -> Option<Value> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

/// A rootless engine of this user first; sockets of other products only where the default is missing.
fn sockets(env: &Env, default: &Path) -> Vec<(String, String)> {
    let runtime = env.absolute("XDG_RUNTIME_DIR");
    let home = env.home();
    let mut found = Vec::new();
    let mut add = |base: &Option<PathBuf>, rest: &str, why: &str| {
        if let Some(path) = base.as_ref().map(|base| base.join(rest))
            && path.exists()
        {
            found.push((format!("unix://{}", path.display()), why.to_owned()));
        }
    };
    add(&runtime, "docker.sock", "rootless Docker");
    if !default.exists() {
        add(&home, ".docker/run/docker.sock", "Docker Desktop");
        add(&home, ".docker/desktop/docker.sock", "Docker Desktop");
        add(&home, ".colima/default/docker.sock", "Colima");
        add(&home, ".orbstack/run/docker.sock", "OrbStack");
        add(&runtime, "podman/podman.sock", "Podman");
    }
    found
}

fn tls(env: &Env, folder: Option<&Path>) -> Option<Tls> {
    env.text("DOCKER_TLS_VERIFY")?;
    let folder = env
        .path("DOCKER_CERT_PATH")
        .or_else(|| folder.map(Path::to_owned))?;
    Some(Tls {
        key: folder.join("key.pem"),
        cert: folder.join("cert.pem"),
        ca: folder.join("ca.pem"),
    })
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

    fn write_context(home: &Path, name: &str, host: &str) {
        let place: String = Sha256::digest(name.as_bytes())
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        let meta = home.join(".docker/contexts/meta").join(place);
        std::fs::create_dir_all(&meta).unwrap();
        let text = serde_json::json!({"Name": name, "Endpoints": {"docker": {"Host": host}}});
        std::fs::write(meta.join("meta.json"), text.to_string()).unwrap();
    }

    #[test]
    fn docker_host_is_the_only_one_tried() {
        let home = tempfile::tempdir().unwrap();
        write_context(home.path(), "c", "tcp://c:1");
        let vars = [("DOCKER_HOST", "tcp://h:2"), ("DOCKER_CONTEXT", "c")];
        let docker = find(&env(home.path(), &vars), &mut Vec::new());
        assert_eq!(docker.host.as_deref(), Some("tcp://h:2"));
        assert!(docker.candidates.is_empty());
    }

    #[test]
    fn the_current_context_comes_first() {
        let home = tempfile::tempdir().unwrap();
        write_context(home.path(), "c", "tcp://c:1");
        let config = home.path().join(".docker/config.json");
        std::fs::write(config, r#"{"currentContext":"c"}"#).unwrap();
        let mut warnings = Vec::new();
        let docker = find(&env(home.path(), &[]), &mut warnings);
        assert_eq!(docker.candidates[0].0, "tcp://c:1");
        assert!(warnings.is_empty());
    }

    #[test]
    fn a_context_that_cannot_be_read_is_said() {
        let home = tempfile::tempdir().unwrap();
        let mut warnings = Vec::new();
        find(
            &env(home.path(), &[("DOCKER_CONTEXT", "gone")]),
            &mut warnings,
        );
        assert!(warnings[0].contains("`gone`"), "{warnings:?}");
    }

    #[test]
    fn other_products_serve_only_where_the_default_is_missing() {
        let home = tempfile::tempdir().unwrap();
        let colima = home.path().join(".colima/default");
        std::fs::create_dir_all(&colima).unwrap();
        std::fs::write(colima.join("docker.sock"), "").unwrap();
        let missing = sockets(&env(home.path(), &[]), &home.path().join("none"));
        assert_eq!(missing[0].1, "Colima");
        assert!(sockets(&env(home.path(), &[]), home.path()).is_empty());
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
