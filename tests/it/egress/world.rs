//! A toolbox as a plain child with a way out, clients of its proxy, a resolver of our own.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use wharf::sandbox::egress::{
    Credential, Decision, Exit, Host, Inject, Listener, Patience, Policy, Resolve, Rule, Sink,
    Step, Way,
};
use wharf::sandbox::remote::{self, Remote, Start};
use wharf::sandbox::{Command, Facts, Finished, Sandbox};

/// How long any one thing may take before a test gives up on it.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Names and their addresses; counts how often each was looked up.
#[derive(Default)]
pub struct Names {
    pub known: BTreeMap<String, Vec<IpAddr>>,
    pub asked: Mutex<Vec<String>>,
}

impl Names {
    pub fn of(names: &[(&str, &[&str])]) -> Arc<Names> {
        let known = names.iter().map(|(name, addresses)| {
            let addresses = addresses.iter().map(|text| text.parse().unwrap());
            ((*name).to_owned(), addresses.collect())
        });
        Arc::new(Names {
            known: known.collect(),
            asked: Mutex::default(),
        })
    }

    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

impl Resolve for Names {
    fn resolve<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        self.asked.lock().unwrap().push(host.to_owned());
        let found = self.known.get(host).cloned();
        Box::pin(async move { found.ok_or_else(|| io::Error::other("no such name")) })
    }
}

/// Keeps every decision.
#[derive(Default)]
pub struct Kept(Mutex<Vec<Decision>>);

impl Sink for Kept {
    fn tell(&self, decision: Decision) {
        self.0.lock().unwrap().push(decision);
    }
}

impl Kept {
    pub fn all(&self) -> Vec<Decision> {
        self.0.lock().unwrap().clone()
    }

    pub fn reasons(&self) -> Vec<String> {
        let reason = |decision: Decision| match decision.step {
            Step::Refused { reason } => Some(reason),
            _ => None,
        };
        self.all().into_iter().filter_map(reason).collect()
    }

    /// Waits until so many connections have ended; how.
    pub async fn ended(&self, count: usize) -> Vec<(u64, u64, String)> {
        let wait = async {
            loop {
                let ended: Vec<(u64, u64, String)> = self
                    .all()
                    .into_iter()
                    .filter_map(|decision| match decision.step {
                        Step::Ended {
                            sent,
                            received,
                            how,
                            ..
                        } => Some((sent, received, how)),
                        _ => None,
                    })
                    .collect();
                if ended.len() >= count {
                    return ended;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(LIMIT, wait).await.unwrap()
    }
}

pub fn name(text: &str, port: u16) -> Rule {
    Rule {
        host: Host::Name(text.to_owned()),
        port: Some(port),
    }
}

/// A policy of these rules that may go to loopback.
pub fn private(rules: Vec<Rule>) -> Policy {
    Policy {
        private: true,
        ..public(rules)
    }
}

pub fn public(rules: Vec<Rule>) -> Policy {
    Policy {
        rules,
        private: false,
        bytes: 1 << 30,
        connections: 64,
        inject: Vec::new(),
        listener: Listener::default(),
    }
}

/// A way by these names alone.
pub fn way(names: &Arc<Names>) -> Way {
    Way {
        resolve: names.clone(),
        authorities: Some(authorities()),
        ..Way::default()
    }
}

/// The authority of the TLS server.
pub fn authorities() -> std::path::PathBuf {
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/egress/ca.pem").into()
}

pub fn credential(way: Way, name: &str, value: &str) -> Way {
    let mut way = way;
    way.credentials
        .insert(name.to_owned(), Credential::new(value));
    way
}

pub fn patience(way: Way, idle: Duration) -> Way {
    let patience = Patience {
        idle,
        ..way.patience
    };
    Way { patience, ..way }
}

pub fn bearer(host: &str, port: u16, tls: bool) -> Inject {
    Inject {
        host: host.to_owned(),
        port,
        tls,
        header: "Authorization".to_owned(),
        prefix: "Bearer ".to_owned(),
        env: "TOKEN".to_owned(),
    }
}

/// A toolbox with a way out, and what was decided.
pub struct World {
    pub remote: Remote,
    pub kept: Arc<Kept>,
    pub pid: u32,
    _folder: tempfile::TempDir,
}

impl World {
    pub async fn new(policy: Policy, way: Way) -> World {
        let folder = tempfile::tempdir().unwrap();
        for name in ["workspace", "home", "tmp"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let mut child = tokio::process::Command::new(env!("WHARF_TOOLBOX"))
            .args(["workspace", "home", "tmp"].map(|name| folder.path().join(name)))
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (reader, writer) = (child.stdout.take().unwrap(), child.stdin.take().unwrap());
        let pid = child.id().unwrap();
        let (gone, ended) = tokio::sync::oneshot::channel();
        let waiting = tokio::spawn(async move {
            let status = child.wait().await.unwrap();
            let _ = gone.send(status.to_string());
        });
        let kept = Arc::<Kept>::default();
        let policy = Policy {
            listener: Listener::new(kept.clone()),
            ..policy
        };
        let start = Start {
            facts: Facts::default(),
            tree_base: None,
            git: false,
            disk: 1 << 30,
            egress: Some(Exit {
                policy,
                way,
                port: 0,
            }),
            closer: Box::new(|| Box::pin(async { waiting.await.unwrap() })),
        };
        let ended = async { ended.await.unwrap_or_else(|_| "lost".into()) };
        let remote = remote::start(reader, writer, start, ended).await.unwrap();
        World {
            remote,
            kept,
            pid,
            _folder: folder,
        }
    }

    /// A connection to the proxy.
    pub async fn client(&self) -> Client {
        let port = self.remote.proxy().unwrap();
        Client(TcpStream::connect(("127.0.0.1", port)).await.unwrap())
    }

    /// Says something to the proxy and hears the whole answer.
    pub async fn ask(&self, text: &str) -> String {
        let mut client = self.client().await;
        client.say(text.as_bytes()).await;
        client.rest().await.unwrap()
    }

    /// `GET` in absolute form.
    pub async fn get(&self, host: &str, port: u16, path: &str) -> String {
        self.ask(&get(host, port, path)).await
    }

    pub async fn run(&self, line: &str) -> Finished {
        let command = Command {
            line: line.into(),
            timeout: LIMIT,
            background: false,
            keep: 4000,
        };
        let cancel = CancellationToken::new();
        self.remote.run(&command, &cancel).await.unwrap()
    }
}

pub fn get(host: &str, port: u16, path: &str) -> String {
    format!("GET http://{host}:{port}{path} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n")
}

/// A program inside that speaks to the proxy.
pub struct Client(pub TcpStream);

impl Client {
    pub async fn say(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.unwrap();
    }

    /// All that comes until the end; an error when the connection was broken off.
    pub async fn rest(&mut self) -> io::Result<String> {
        let mut bytes = Vec::new();
        tokio::time::timeout(LIMIT, self.0.read_to_end(&mut bytes))
            .await
            .unwrap()?;
        Ok(String::from_utf8(bytes).unwrap())
    }

    /// Bytes until the end, and whether it was a clean one.
    pub async fn drain(&mut self) -> (usize, bool) {
        let (mut total, mut buffer) = (0, vec![0; 64 << 10]);
        loop {
            let read = self.0.read(&mut buffer);
            match tokio::time::timeout(LIMIT, read).await.unwrap() {
                Ok(0) => return (total, true),
                Ok(got) => total += got,
                Err(_) => return (total, false),
            }
        }
    }

    pub async fn exactly(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let read = self.0.read_exact(&mut bytes);
        tokio::time::timeout(LIMIT, read).await.unwrap().unwrap();
        bytes
    }

    /// Asks for a tunnel by HTTP; the status line.
    pub async fn connect(&mut self, host: &str, port: u16) -> String {
        self.say(format!("CONNECT {host}:{port} HTTP/1.1\r\n\r\n").as_bytes())
            .await;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.extend(self.exactly(1).await);
        }
        let head = String::from_utf8(head).unwrap();
        head.lines().next().unwrap().to_owned()
    }

    /// Asks for a tunnel by SOCKS 5, by name; the reply's code.
    pub async fn socks(&mut self, host: &str, port: u16) -> u8 {
        self.say(&[5, 1, 0]).await;
        assert_eq!(self.exactly(2).await, [5, 0]);
        let mut request = vec![5, 1, 0, 3, u8::try_from(host.len()).unwrap()];
        request.extend(host.as_bytes());
        request.extend(port.to_be_bytes());
        self.say(&request).await;
        self.exactly(10).await[1]
    }
}
