//! What the sandbox in memory promises to those who test with it.

use std::time::Duration;

use futures::stream::BoxStream;

use std::collections::BTreeMap;

use super::*;
use crate::sandbox::{Contents, Entry, FileLimits, Labels, Network};

struct Same;

impl Contents for Same {
    fn read(&self, ids: Vec<String>) -> BoxStream<'static, std::io::Result<Bytes>> {
        futures::stream::iter(ids.into_iter().map(|id| Ok(Bytes::from(id)))).boxed()
    }
}

async fn open(memory: Memory) -> Arc<dyn Sandbox> {
    open_with(memory, Network::None).await
}

async fn open_with(memory: Memory, network: Network) -> Arc<dyn Sandbox> {
    let entries = [("a", "one\n"), ("d/b", "two\n")].map(|(path, content)| {
        let entry = Entry {
            mode: Mode::File,
            size: content.len() as u64,
            id: content.into(),
        };
        (path.as_bytes().to_vec(), entry)
    });
    let labels = Labels {
        machine: String::new(),
        state: String::new(),
        run: String::new(),
        subtask: String::new(),
    };
    let spec = Spec {
        image: Image {
            id: String::new(),
            name: "m".into(),
            describes: String::new(),
        },
        env: BTreeMap::new(),
        cpus: 1.0,
        memory: 0,
        pids: 0,
        disk: 0,
        files: FileLimits::default(),
        strict: false,
        history: None,
        network,
        runtime: None,
        labels,
    };
    let tree = Tree {
        entries: entries.into_iter().collect(),
        contents: Arc::new(Same),
    };
    memory
        .open(&spec, &tree, &CancellationToken::new())
        .await
        .unwrap()
}

async fn run(sandbox: &dyn Sandbox, line: &str) -> (Exit, String) {
    let command = Command {
        line: line.into(),
        timeout: Duration::from_millis(300),
        background: false,
        keep: 100,
    };
    let finished = sandbox
        .run(&command, &CancellationToken::new())
        .await
        .unwrap();
    (
        finished.exit,
        String::from_utf8(finished.stdout.head.to_vec()).unwrap(),
    )
}

#[tokio::test]
async fn the_shell_does_what_its_words_say() {
    let sandbox = open(Memory::default()).await;
    for (line, code, printed) in [
        ("cat a && echo 'x && y'", 0, "one\nx && y\n"),
        ("false && echo no; echo yes", 0, "yes\n"),
        ("echo new > d/c; echo more >>d/c; cat d/c", 0, "new\nmore\n"),
        ("test -f nope", 1, ""),
        ("grep -q tw d/b && exit 3; echo never", 3, ""),
        ("make", 127, ""),
        ("sleep 0.01; echo awake", 0, "awake\n"),
    ] {
        let expected = (Exit::Code(code), printed.to_owned());
        assert_eq!(run(&*sandbox, line).await, expected, "{line}");
    }
    assert_eq!(
        run(&*sandbox, "echo a; sleep 9; echo b").await,
        (Exit::TimedOut, "a\n".into())
    );
}

#[tokio::test]
async fn a_scan_gives_each_change_once() {
    let sandbox = open(Memory::default()).await;
    assert!(sandbox.scan().await.unwrap().is_empty());
    run(&*sandbox, "rm a; echo 2 > d/b").await;
    sandbox.write("n/w", "3".into()).await.unwrap().unwrap();
    let changes = sandbox.scan().await.unwrap();
    let paths: Vec<_> = changes.puts.iter().map(|put| put.path.as_slice()).collect();
    assert_eq!(paths, [b"d/b", b"n/w"]);
    assert_eq!(changes.deletes, [b"a".to_vec()]);
    assert!(sandbox.scan().await.unwrap().is_empty());
}

#[tokio::test]
async fn it_breaks_when_told_and_when_closed() {
    let sandbox = open(Memory {
        break_after: Some(1),
        ..Memory::default()
    })
    .await;
    assert!(sandbox.read("../x", 0, 1).await.unwrap().is_err());
    assert!(matches!(sandbox.scan().await, Err(Error::Broken { .. })));
    let sandbox = open(Memory::default()).await;
    sandbox.close().await;
    assert!(matches!(
        sandbox.list(None, 1).await,
        Err(Error::Broken { .. })
    ));
}

#[tokio::test]
async fn a_policy_of_hosts_is_taken_and_reaches_nothing() {
    let allow = Network::Allow(crate::sandbox::egress::Policy::default());
    let sandbox = open_with(Memory::default(), allow).await;
    let (exit, text) = run(sandbox.as_ref(), "curl http://a.example/").await;
    assert_eq!(exit, Exit::Code(127), "{text}");
}
