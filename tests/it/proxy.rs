//! A proxy on a unix socket in front of the engine, which changes what goes through it.
//!
//! Each connection carries one request: what is passed on says `Connection: close`, so that the next
//! request is seen as well. A request that no rule is about, and one that is upgraded to a stream, is
//! copied as bytes.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

type Edit = Arc<dyn Fn(&mut Value) + Send + Sync>;

/// What to do to the JSON of requests whose first line holds `on`, and to that of their answers.
#[derive(Clone)]
pub struct Rule {
    pub on: &'static str,
    pub request: Edit,
    pub answer: Edit,
}

impl Rule {
    /// Changes requests alone.
    pub fn request(on: &'static str, edit: impl Fn(&mut Value) + Send + Sync + 'static) -> Self {
        Self {
            on,
            request: Arc::new(edit),
            answer: Arc::new(|_| ()),
        }
    }

    /// Changes answers alone.
    pub fn answer(on: &'static str, edit: impl Fn(&mut Value) + Send + Sync + 'static) -> Self {
        Self {
            on,
            request: Arc::new(|_| ()),
            answer: Arc::new(edit),
        }
    }
}

/// A proxy that serves until it is dropped.
pub struct Proxy {
    dir: tempfile::TempDir,
    serving: tokio::task::JoinHandle<()>,
}

impl Proxy {
    /// In front of the engine's socket at `engine`.
    pub fn start(engine: PathBuf, rules: Vec<Rule>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("engine.sock")).unwrap();
        let rules: Arc<[Rule]> = rules.into();
        let serving = tokio::spawn(async move {
            // They end with the proxy, as an engine's connections do with it.
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let (engine, rules) = (engine.clone(), rules.clone());
                // A client that goes away in the middle is none of the proxy's business.
                connections.spawn(async move { drop(serve(client, engine, &rules).await) });
            }
        });
        Self { dir, serving }
    }

    /// As DOCKER_HOST has it.
    pub fn address(&self) -> String {
        format!("unix://{}", self.dir.path().join("engine.sock").display())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(mut client: UnixStream, engine: PathBuf, rules: &[Rule]) -> std::io::Result<()> {
    let mut engine = UnixStream::connect(engine).await?;
    let (head, rest) = head(&mut client).await?;
    let first = head.lines().next().unwrap_or_default();
    let rules: Vec<&Rule> = rules
        .iter()
        .filter(|rule| first.contains(rule.on))
        .collect();
    let upgraded = header(&head, "upgrade").is_some();
    if rules.is_empty() || upgraded {
        let head = if upgraded { head } else { closing(&head) };
        engine.write_all(head.as_bytes()).await?;
        engine.write_all(&rest).await?;
        tokio::io::copy_bidirectional(&mut client, &mut engine).await?;
        return Ok(());
    }
    let length = header(&head, "content-length").map_or(0, |n| n.parse().unwrap_or(0));
    let body = exactly(&mut client, rest, length).await?;
    let edits = rules.iter().map(|rule| &rule.request);
    let body = edited(body, edits);
    engine
        .write_all(sized(&closing(&head), body.len()).as_bytes())
        .await?;
    engine.write_all(&body).await?;
    let (head, mut rest) = self::head(&mut engine).await?;
    engine.read_to_end(&mut rest).await?;
    let chunked = header(&head, "transfer-encoding").is_some();
    let body = if chunked { joined(&rest) } else { rest };
    let body = edited(body, rules.iter().map(|rule| &rule.answer));
    client
        .write_all(sized(&closing(&head), body.len()).as_bytes())
        .await?;
    client.write_all(&body).await?;
    client.shutdown().await
}

/// The head of a message up to and with its empty line, and what came after it already.
pub async fn head(stream: &mut UnixStream) -> std::io::Result<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let rest = bytes.split_off(end + 4);
            return Ok((String::from_utf8_lossy(&bytes).into_owned(), rest));
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
}

pub async fn exactly(
    stream: &mut (impl AsyncRead + Unpin),
    mut bytes: Vec<u8>,
    length: usize,
) -> std::io::Result<Vec<u8>> {
    while bytes.len() < length {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(bytes)
}

pub fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// The head without the headers named, and with one more line.
fn changed(head: &str, without: &[&str], with: &str) -> String {
    let kept = head.trim_end().lines().filter(|line| {
        let key = line.split_once(':').map_or("", |(key, _)| key);
        !without.iter().any(|name| key.eq_ignore_ascii_case(name))
    });
    let kept: Vec<&str> = kept.collect();
    format!("{}\r\n{with}\r\n\r\n", kept.join("\r\n"))
}

pub fn closing(head: &str) -> String {
    changed(head, &["connection"], "Connection: close")
}

fn sized(head: &str, length: usize) -> String {
    let without = ["content-length", "transfer-encoding"];
    changed(head, &without, &format!("Content-Length: {length}"))
}

/// A body that is no JSON goes through as it is.
fn edited<'a>(body: Vec<u8>, edits: impl Iterator<Item = &'a Edit>) -> Vec<u8> {
    let Ok(mut value) = serde_json::from_slice::<Value>(&body) else {
        return body;
    };
    edits.for_each(|edit| edit(&mut value));
    serde_json::to_vec(&value).unwrap()
}

/// The chunks of a body as one.
fn joined(mut bytes: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(end) = bytes.windows(2).position(|two| two == b"\r\n") {
        let size = String::from_utf8_lossy(&bytes[..end]);
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        let from = end + 2;
        if size == 0 || bytes.len() < from + size + 2 {
            break;
        }
        whole.extend_from_slice(&bytes[from..from + size]);
        bytes = &bytes[from + size + 2..];
    }
    whole
}
