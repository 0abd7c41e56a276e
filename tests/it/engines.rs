//! Which engine is taken, how that is told, and what is said where none answers.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::{TcpListener, UnixListener, UnixStream};
use wharf::sandbox::{self, Candidate, Error, Options, Tls};

use crate::container::{engine, left, machine, open, python, run, spec};
use crate::faulty::socket;
use crate::operator::{Operator, skipped};

/// Writes a context as `docker context create` does.
fn context(home: &Path, name: &str, host: &str) {
    use sha2::Digest;
    let id: String = sha2::Sha256::digest(name.as_bytes())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let meta = home.join(".docker/contexts/meta").join(id);
    std::fs::create_dir_all(&meta).unwrap();
    let text = serde_json::json!({"Name": name, "Endpoints": {"docker": {"Host": host}}});
    std::fs::write(meta.join("meta.json"), text.to_string()).unwrap();
}

/// `doctor --json` without a DOCKER_HOST, with these variables: its exit code and what it found of engines.
async fn doctor(operator: &Operator, env: &[(&str, &str)]) -> (i32, String) {
    let mut command = operator.command(None, &["doctor", "--json"]);
    command.env_remove("DOCKER_HOST");
    command.envs(env.iter().copied());
    let out = command.output().await.unwrap();
    let told: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let checks = told["checks"].as_array().unwrap().iter();
    let lines = checks
        .filter(|check| check["name"].as_str().unwrap().contains("engine"))
        .map(|check| format!("{}: {} / {}", check["name"], check["found"], check["next"]));
    (
        out.status.code().unwrap(),
        lines.collect::<Vec<_>>().join("\n"),
    )
}

#[tokio::test]
async fn doctor_names_the_engine_and_how_it_was_found() {
    if skipped() {
        return;
    }
    let operator = Operator::new();
    let home = operator.work().parent().unwrap().to_owned();
    let host = format!("unix://{}", socket().display());
    context(&home, "here", &host);
    let (_, told) = doctor(&operator, &[("DOCKER_HOST", &host)]).await;
    assert!(told.contains("(DOCKER_HOST), API"), "{told}");
    let (_, told) = doctor(&operator, &[("DOCKER_CONTEXT", "here")]).await;
    assert!(
        told.contains("(docker context here, DOCKER_CONTEXT)"),
        "{told}"
    );
    std::fs::write(
        home.join(".docker/config.json"),
        r#"{"currentContext":"here"}"#,
    )
    .unwrap();
    let (_, told) = doctor(&operator, &[]).await;
    assert!(
        told.contains("(docker context here, the current context)"),
        "{told}"
    );
    std::fs::remove_file(home.join(".docker/config.json")).unwrap();
    let runtime = home.join("runtime");
    std::fs::create_dir_all(&runtime).unwrap();
    std::os::unix::fs::symlink(socket(), runtime.join("docker.sock")).unwrap();
    let (_, told) = doctor(&operator, &[("XDG_RUNTIME_DIR", runtime.to_str().unwrap())]).await;
    assert!(told.contains("(rootless Docker)"), "{told}");
}

#[tokio::test]
async fn what_did_not_answer_is_named_in_order_and_the_next_is_taken() {
    if skipped() {
        return;
    }
    let operator = Operator::new();
    let dir = tempfile::tempdir().unwrap();
    // Bound and closed again: what an engine that crashed leaves.
    drop(std::os::unix::net::UnixListener::bind(dir.path().join("docker.sock")).unwrap());
    let runtime = dir.path().to_str().unwrap();
    let (_, told) = doctor(&operator, &[("XDG_RUNTIME_DIR", runtime)]).await;
    assert!(told.contains("(the default socket), API"), "{told}");
    assert!(
        told.contains(&format!(
            "before it: unix://{runtime}/docker.sock (rootless Docker): "
        )),
        "{told}"
    );
    assert!(told.contains("refused"), "{told}");
}

#[tokio::test]
async fn an_engine_that_was_chosen_and_is_dead_is_not_exchanged_for_another() {
    let operator = Operator::new();
    let home = operator.work().parent().unwrap().to_owned();
    context(&home, "dead", "unix:///nope/docker.sock");
    for (env, said) in [
        (
            ("DOCKER_CONTEXT", "dead"),
            "unix:///nope/docker.sock (docker context dead, DOCKER_CONTEXT): there is no socket",
        ),
        (
            ("DOCKER_CONTEXT", "gone"),
            "docker context gone (DOCKER_CONTEXT): ",
        ),
        (
            ("DOCKER_HOST", "unix:///nope"),
            "unix:///nope (DOCKER_HOST): there is no socket",
        ),
        (
            ("DOCKER_HOST", "tcp://127.0.0.1:1"),
            "tcp://127.0.0.1:1 (DOCKER_HOST): ",
        ),
        (
            ("DOCKER_HOST", "ssh://-oProxyCommand=x"),
            "is no user and host",
        ),
    ] {
        let (code, told) = doctor(&operator, &[env]).await;
        assert!(code == 3 && told.contains(said), "{env:?}: {code} {told}");
    }
}

#[tokio::test]
async fn a_socket_that_accepts_and_says_nothing_ends_in_exit_3() {
    let operator = Operator::new();
    let path = operator.work().parent().unwrap().join("silent.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let holding = tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            held.push(stream);
        }
    });
    let host = format!("unix://{}", path.display());
    let (code, told) = doctor(&operator, &[("DOCKER_HOST", &host)]).await;
    holding.abort();
    assert!(
        code == 3 && told.contains("no answer within 5000 ms"),
        "{told}"
    );
}

#[tokio::test]
async fn a_socket_that_one_may_not_use_is_told_apart() {
    if !rustix::process::geteuid().is_root() {
        return crate::container::note("SKIPPED: only root can become somebody else");
    }
    let dir = tempfile::tempdir().unwrap();
    let open = |path: &Path, mode: u32| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    open(dir.path(), 0o755);
    let path = dir.path().join("shut.sock");
    let _listener = UnixListener::bind(&path).unwrap();
    open(&path, 0);
    let shut = dir.path().join("shut");
    std::fs::create_dir(&shut).unwrap();
    open(&shut, 0);
    let home = dir.path().join("home");
    std::fs::create_dir(&home).unwrap();
    open(&home, 0o777);
    for path in [path, shut.join("docker.sock")] {
        let out = tokio::process::Command::new(env!("CARGO_BIN_EXE_wharf"))
            .env_clear()
            .env("HOME", &home)
            .env("DOCKER_HOST", format!("unix://{}", path.display()))
            .args(["doctor", "--json"])
            .current_dir(&home)
            .uid(65534)
            .gid(65534)
            .output()
            .await
            .unwrap();
        let told = String::from_utf8_lossy(&out.stdout).into_owned();
        assert_eq!(out.status.code(), Some(3), "{told}");
        assert!(
            told.contains(&format!("you may not use {}", path.display())),
            "{told}"
        );
        assert!(told.contains("join the group docker"), "{told}");
    }
}

/// An authority, a server's and a client's certificate in a folder, and a stranger's authority beside.
pub(crate) fn certificates() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let script = r#"
set -e
authority() { openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
  -subj "/CN=$1" -keyout "$1-key.pem" -out "$1.pem" 2>/dev/null; }
authority ca
authority stranger
sign() {
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=$1" \
    -keyout "$2-key.pem" -out "$2.csr" 2>/dev/null
  printf 'subjectAltName=IP:127.0.0.1\nextendedKeyUsage=%s\n' "$3" > "$2.ext"
  openssl x509 -req -days 2 -in "$2.csr" -CA "$4.pem" -CAkey "$4-key.pem" -CAcreateserial \
    -extfile "$2.ext" -out "$2.pem" 2>/dev/null
}
sign server server serverAuth ca
sign client client clientAuth ca
sign client other clientAuth stranger
for who in client other; do
  mkdir "$who.d"; cp "$who-key.pem" "$who.d/key.pem"; cp "$who.pem" "$who.d/cert.pem"; cp ca.pem "$who.d/ca.pem"
done
mkdir distrust.d; cp client.d/*.pem distrust.d; cp stranger.pem distrust.d/ca.pem
"#;
    let done = std::process::Command::new("sh")
        .args(["-c", script])
        .current_dir(dir.path())
        .status()
        .unwrap();
    assert!(done.success(), "openssl makes certificates");
    dir
}

/// The engine's socket behind TLS, which asks for a client's certificate.
async fn encrypted(dir: &Path) -> (u16, tokio::task::JoinHandle<()>) {
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    drop(rustls::crypto::ring::default_provider().install_default());
    let one = |name: &str| CertificateDer::from_pem_file(dir.join(name)).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(one("ca.pem")).unwrap();
    let clients = rustls::server::WebPkiClientVerifier::builder(Arc::new(roots));
    let key = PrivateKeyDer::from_pem_file(dir.join("server-key.pem")).unwrap();
    let config = rustls::ServerConfig::builder()
        .with_client_cert_verifier(clients.build().unwrap())
        .with_single_cert(vec![one("server.pem")], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = tokio::spawn(async move {
        let mut connections = tokio::task::JoinSet::new();
        while let Ok((client, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            connections.spawn(async move {
                let Ok(mut client) = acceptor.accept(client).await else {
                    return;
                };
                let mut engine = UnixStream::connect(socket()).await.unwrap();
                drop(tokio::io::copy_bidirectional(&mut client, &mut engine).await);
            });
        }
    });
    (port, serving)
}

fn at(address: String, tls: Option<PathBuf>) -> Options {
    Options {
        candidates: vec![Candidate {
            tls: tls.as_deref().map(Tls::of),
            ..Candidate::new(address, "a test")
        }],
        state: "/tmp/wharf-it-state".into(),
        machine: machine(),
        ..Options::default()
    }
}

/// A sandbox from its opening to its end over one way to the engine.
async fn works(options: &Options, subtask: &str) {
    let docker = sandbox::connect(options).await.unwrap();
    let sandbox = open(&docker, &spec(python(&docker).await, subtask)).await;
    let (exit, text) = run(sandbox.as_ref(), "echo $GREETING; seq 20000 | tail -n 1").await;
    assert_eq!(
        (exit, text.as_str()),
        (sandbox::Exit::Code(0), "hello\n20000\n")
    );
    sandbox.close().await;
}

async fn refusal(options: &Options) -> String {
    match sandbox::connect(options).await {
        Err(error @ Error::NoEngine { .. }) => error.to_string(),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it answered"),
    }
}

#[tokio::test]
async fn an_engine_behind_tls_is_used_and_both_ends_are_checked() {
    let Some((_, look)) = engine().await else {
        return;
    };
    let dir = certificates();
    let (port, serving) = encrypted(dir.path()).await;
    let place = |folder: Option<&str>| {
        let folder = folder.map(|folder| dir.path().join(folder));
        at(format!("tcp://127.0.0.1:{port}"), folder)
    };
    works(&place(Some("client.d")), "tls").await;
    assert_eq!(left(&look, "run-tls").await, (0, 0));
    let said = refusal(&place(Some("distrust.d"))).await;
    assert!(
        said.contains("UnknownIssuer") || said.contains("certificate"),
        "{said}"
    );
    let said = refusal(&place(Some("other.d"))).await;
    assert!(said.contains("tcp://127.0.0.1"), "{said}");
    let said = refusal(&place(None)).await;
    assert!(said.contains("tcp://127.0.0.1"), "{said}");
    let said = refusal(&place(Some("none.d"))).await;
    assert!(said.contains("none.d/ca.pem"), "{said}");
    serving.abort();
}

/// A program in the place of `ssh` that runs here what it should run there.
fn ssh(dir: &Path, body: &str) -> PathBuf {
    let path = dir.join("ssh");
    std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[tokio::test]
async fn an_engine_behind_ssh_is_used() {
    let Some((_, look)) = engine().await else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let program = ssh(
        dir.path(),
        &format!(
            "echo \"$@\" >> {}\nwhile [ \"$1\" != -- ]; do shift; done\nshift; shift\nexec \"$@\"",
            log.display()
        ),
    );
    let address = format!("ssh://me@build.example:2222{}", socket().display());
    let options = Options {
        ssh: Some(program),
        ..at(address, None)
    };
    works(&options, "ssh").await;
    assert_eq!(left(&look, "run-ssh").await, (0, 0));
    let log = std::fs::read_to_string(log).unwrap();
    let first = log.lines().next().unwrap();
    assert!(first.contains("BatchMode=yes"), "{first}");
    let end = format!(
        "-p 2222 -l me -- build.example docker -H unix://{} system dial-stdio",
        socket().display()
    );
    assert!(first.ends_with(&end), "{first}");
}

#[tokio::test]
async fn what_ssh_complains_of_is_what_is_said() {
    let dir = tempfile::tempdir().unwrap();
    for (body, said) in [
        (
            "echo 'me@host: Permission denied (publickey).' >&2; exit 255",
            "ssh says: me@host: Permission denied (publickey).",
        ),
        (
            "echo 'sh: docker: not found' >&2; exit 127",
            "ssh says: sh: docker: not found",
        ),
    ] {
        let options = Options {
            ssh: Some(ssh(dir.path(), body)),
            ..at("ssh://host".to_owned(), None)
        };
        let told = refusal(&options).await;
        assert!(told.contains(said), "{told}");
    }
    let options = Options {
        ssh: Some("/nope/ssh".into()),
        ..at("ssh://host".to_owned(), None)
    };
    let told = refusal(&options).await;
    assert!(told.contains("/nope/ssh does not start"), "{told}");
}
