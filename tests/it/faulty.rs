//! A proxy on a unix socket in front of the engine through which things go wrong: answers that are
//! lost, cut, late, made up or never come, and an engine that goes away and comes back.

#![expect(
    clippy::disallowed_methods,
    reason = "tests ask the environment where the engine is"
)]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

use crate::proxy::{closing, exactly, head, header};

/// What becomes of a request.
#[derive(Clone)]
pub enum Fault {
    /// The engine does it, and its answer is lost.
    Lost,
    /// The connection ends after so many bytes behind the head of the answer.
    CutAfter(usize),
    /// Nothing comes. In the test's time so long passes, while no real time does.
    Silent(Duration),
    /// The answer comes late.
    Late(Duration),
    /// The engine is not asked; this is the answer: status line, body.
    Answer(&'static str, String),
}

struct Rule {
    on: String,
    fault: Fault,
    left: usize,
    met: Arc<AtomicUsize>,
}

/// The proxy; it serves until it is dropped.
pub struct Faulty {
    dir: tempfile::TempDir,
    rules: Arc<Mutex<Vec<Rule>>>,
    /// How often it was restarted.
    restarted: watch::Sender<u64>,
    serving: tokio::task::JoinHandle<()>,
}

/// Where the real one listens.
pub fn socket() -> PathBuf {
    let host = std::env::var("DOCKER_HOST").unwrap_or_default();
    let path = host
        .strip_prefix("unix://")
        .unwrap_or("/var/run/docker.sock");
    path.into()
}

impl Faulty {
    /// In front of the engine's socket.
    pub fn start(engine: &Path) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("engine.sock")).unwrap();
        let rules = Arc::new(Mutex::new(Vec::<Rule>::new()));
        let (restarted, seen) = watch::channel(0);
        let (engine, known) = (engine.to_owned(), rules.clone());
        let serving = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let (engine, rules, mut end) = (engine.clone(), known.clone(), seen.clone());
                end.mark_unchanged();
                connections.spawn(async move {
                    tokio::select! {
                        // A client that goes away in the middle is none of the proxy's business.
                        done = serve(client, &engine, &rules) => drop(done),
                        _ = end.changed() => {}
                    }
                });
            }
        });
        Self {
            dir,
            rules,
            restarted,
            serving,
        }
    }

    /// The next `times` requests whose first line holds `on` go wrong; the count of those that did.
    pub fn on(&self, on: &str, times: usize, fault: Fault) -> Arc<AtomicUsize> {
        let met = Arc::<AtomicUsize>::default();
        self.rules.lock().unwrap().push(Rule {
            on: on.to_owned(),
            fault,
            left: times,
            met: met.clone(),
        });
        met
    }

    /// The engine is restarted: every connection ends, and the next ones are served again.
    pub fn restarts(&self) {
        self.restarted.send_modify(|count| *count += 1);
    }

    /// As DOCKER_HOST has it.
    pub fn address(&self) -> String {
        format!("unix://{}", self.dir.path().join("engine.sock").display())
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn fault_of(rules: &Mutex<Vec<Rule>>, first: &str) -> Option<Fault> {
    let mut rules = rules.lock().unwrap();
    let rule = rules
        .iter_mut()
        .find(|rule| rule.left > 0 && first.contains(&rule.on))?;
    rule.left -= 1;
    rule.met.fetch_add(1, Ordering::SeqCst);
    Some(rule.fault.clone())
}

async fn serve(
    mut client: UnixStream,
    engine: &Path,
    rules: &Mutex<Vec<Rule>>,
) -> std::io::Result<()> {
    let (request, rest) = head(&mut client).await?;
    let first = request.lines().next().unwrap_or_default();
    let fault = fault_of(rules, first);
    if let Some(Fault::Answer(status, body)) = &fault {
        return answer(client, status, body).await;
    }
    if let Some(Fault::Silent(time)) = fault {
        tokio::time::pause();
        tokio::time::sleep(time).await;
        tokio::time::resume();
        return Ok(());
    }
    let mut engine = UnixStream::connect(engine).await?;
    let upgraded = header(&request, "upgrade").is_some();
    let sent = match upgraded {
        true => request.clone(),
        false => closing(&request),
    };
    engine.write_all(sent.as_bytes()).await?;
    match fault {
        Some(Fault::Lost) => {
            let length = header(&request, "content-length").map_or(0, |n| n.parse().unwrap_or(0));
            engine
                .write_all(&exactly(&mut client, rest, length).await?)
                .await?;
            head(&mut engine).await.map(drop)
        }
        Some(Fault::CutAfter(most)) => {
            engine.write_all(&rest).await?;
            cut(client, engine, most).await
        }
        late => {
            if let Some(Fault::Late(time)) = late {
                tokio::time::sleep(time).await;
            }
            engine.write_all(&rest).await?;
            tokio::io::copy_bidirectional(&mut client, &mut engine).await?;
            Ok(())
        }
    }
}

async fn answer(mut client: UnixStream, status: &str, body: &str) -> std::io::Result<()> {
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n");
    client.write_all(head.as_bytes()).await?;
    client.write_all(body.as_bytes()).await?;
    client.shutdown().await?;
    // What is still being sent is taken in, or its sender would hear of a broken pipe first.
    let mut sink = Vec::new();
    client.read_to_end(&mut sink).await.map(drop)
}

/// Copies both ways until the answer has `most` bytes behind its head.
async fn cut(client: UnixStream, mut engine: UnixStream, most: usize) -> std::io::Result<()> {
    let (mut from, mut to) = client.into_split();
    let (answer, rest) = head_of_upload(&mut engine, &mut from).await?;
    to.write_all(answer.as_bytes()).await?;
    let (mut back, mut there) = engine.into_split();
    let up = async {
        drop(tokio::io::copy(&mut from, &mut there).await);
        std::future::pending::<()>().await;
    };
    let down = async {
        let mut left = most;
        let mut next = rest;
        while left > 0 {
            let now = next.len().min(left);
            to.write_all(&next[..now]).await?;
            left -= now;
            next.clear();
            if left > 0 && back.read_buf(&mut next).await? == 0 {
                break;
            }
        }
        Ok(())
    };
    tokio::select! {
        () = up => Ok(()),
        done = down => done,
    }
}

/// The head of an answer, while the request's body still goes there.
async fn head_of_upload(
    engine: &mut UnixStream,
    from: &mut tokio::net::unix::OwnedReadHalf,
) -> std::io::Result<(String, Vec<u8>)> {
    let mut answer = Vec::new();
    let mut body = [0; 16 << 10];
    loop {
        if let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") {
            let rest = answer.split_off(end + 4);
            return Ok((String::from_utf8_lossy(&answer).into_owned(), rest));
        }
        tokio::select! {
            read = engine.read_buf(&mut answer) => if read? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            },
            read = from.read(&mut body) => match read? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                count => engine.write_all(&body[..count]).await?,
            },
        }
    }
}
