//! A toolbox that does not keep to the protocol breaks its sandbox, and nothing else.

use std::sync::Arc;

use tokio::io::{AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use wharf::sandbox::egress::{Exit, Listener, Policy};
use wharf::sandbox::remote::{self, Remote, Start};
use wharf::sandbox::{Error, Facts, Sandbox};
use wharf_toolbox::message::{Answer, Form, Reach, Request, ToolboxHello};
use wharf_toolbox::wire::{CREDIT, Frame, INSIDE, Kind, MAX_DATA, VERSION};

use super::servers::Server;
use super::world::{Kept, LIMIT, Names, name, private, way};

/// The other end of a sandbox's stream, played by a test.
struct Toolbox {
    remote: Remote,
    from: ReadHalf<DuplexStream>,
    to: WriteHalf<DuplexStream>,
    held: Vec<u8>,
}

impl Toolbox {
    async fn new(egress: Option<Exit>) -> Toolbox {
        let (near, far) = tokio::io::duplex(4 << 20);
        let (from, mut to) = tokio::io::split(near);
        let hello = ToolboxHello {
            version: VERSION,
            shell: None,
            git: false,
            proxy: egress.as_ref().map(|_| 1),
            held: wharf_toolbox::held::Held::default(),
            sealed: false,
        };
        let frame = Frame::json(Kind::Hello, 0, &hello).unwrap();
        send(&mut to, &frame).await;
        let start = Start {
            facts: Facts::default(),
            tree_base: None,
            git: false,
            disk: 1,
            inodes: 1000,
            egress,
            closer: Box::new(|| Box::pin(async {})),
        };
        let (reader, writer) = tokio::io::split(far);
        let remote = remote::start(reader, writer, start, std::future::pending::<String>());
        Toolbox {
            remote: remote.await.unwrap(),
            from,
            to,
            held: Vec::new(),
        }
    }

    async fn send(&mut self, frame: Frame) {
        send(&mut self.to, &frame).await;
    }

    async fn knock(&mut self, channel: u32, host: &str, port: u16) {
        let reach = Reach {
            host: host.to_owned(),
            port,
            form: Form::Tunnel,
        };
        self.send(Frame::json(Kind::Open, channel, &reach).unwrap())
            .await;
    }

    /// The next frame of this kind.
    async fn next(&mut self, kind: Kind) -> Frame {
        use tokio::io::AsyncReadExt;
        loop {
            if let Some((frame, used)) = Frame::decode(&self.held).unwrap() {
                self.held.drain(..used);
                if frame.kind == kind {
                    return frame;
                }
                continue;
            }
            let read = self.from.read_buf(&mut self.held);
            assert_ne!(tokio::time::timeout(LIMIT, read).await.unwrap().unwrap(), 0);
        }
    }

    /// The reason why calls fail.
    async fn broken(&self) -> String {
        let call = self.remote.read("x", 0, 1);
        match tokio::time::timeout(LIMIT, call).await.unwrap() {
            Err(Error::Broken { reason, .. }) => reason,
            other => panic!("{other:?}"),
        }
    }
}

async fn send(to: &mut WriteHalf<DuplexStream>, frame: &Frame) {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    // A hub that has broken off reads no more.
    drop(to.write_all(&bytes).await);
}

fn exit(policy: Policy, kept: &Arc<Kept>) -> Exit {
    let names = Names::of(&[("web.test", &["127.0.0.1"])]);
    Exit {
        policy: Policy {
            listener: Listener::new(kept.clone()),
            ..policy
        },
        way: way(&names),
        port: 0,
    }
}

#[tokio::test]
async fn nobody_may_open_a_way_out_that_was_not_given() {
    let mut toolbox = Toolbox::new(None).await;
    toolbox.knock(INSIDE | 1, "web.test", 80).await;
    assert_eq!(toolbox.broken().await, "a way out that nobody may open");
    // Nor a channel that looks like one of Wharf's calls.
    let kept = Arc::default();
    let mut toolbox = Toolbox::new(Some(exit(private(vec![]), &kept))).await;
    toolbox.knock(7, "web.test", 80).await;
    assert_eq!(
        toolbox.broken().await,
        "frame on a channel that is not open"
    );
    toolbox.remote.close().await;
}

#[tokio::test]
async fn a_channel_opened_twice_or_with_nonsense_breaks_the_sandbox() {
    let server = Server::http().await;
    let kept = Arc::default();
    let policy = || private(vec![name("web.test", server.port())]);
    let mut toolbox = Toolbox::new(Some(exit(policy(), &kept))).await;
    toolbox.knock(INSIDE | 1, "web.test", server.port()).await;
    toolbox.next(Kind::Answer).await;
    toolbox.knock(INSIDE | 1, "web.test", server.port()).await;
    assert_eq!(toolbox.broken().await, "a way out that nobody may open");
    let mut toolbox = Toolbox::new(Some(exit(policy(), &kept))).await;
    toolbox
        .send(Frame::json(Kind::Open, INSIDE | 1, &Request::Scan).unwrap())
        .await;
    assert!(toolbox.broken().await.starts_with("message not understood"));
}

#[tokio::test]
async fn more_data_than_the_credit_breaks_the_sandbox() {
    // A server that reads nothing: whoever sends on must wait for credit.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let kept = Arc::default();
    let mut toolbox = Toolbox::new(Some(exit(private(vec![name("web.test", port)]), &kept))).await;
    toolbox.knock(INSIDE | 1, "web.test", port).await;
    let answer: Answer = toolbox.next(Kind::Answer).await.parse().unwrap();
    assert_eq!(answer, Answer::Accepted);
    // Kernels take some megabytes before the server's silence is felt.
    for _ in 0..1000 {
        toolbox
            .send(Frame::data(INSIDE | 1, vec![0; MAX_DATA]))
            .await;
    }
    assert_eq!(toolbox.broken().await, "more data than the credit allows");
    toolbox.remote.close().await;
    let ended = kept.ended(1).await;
    assert!(ended[0].0 <= u64::from(CREDIT) + (64 << 20), "{ended:?}");
}

#[tokio::test]
async fn frames_that_cost_nothing_and_could_come_without_end_break_the_sandbox() {
    let server = Server::http().await;
    let (port, kept) = (server.port(), Arc::default());
    let free: [(&[Frame], &str); 4] = [
        (&[Frame::data(INSIDE | 1, vec![])], "data that is none"),
        (
            &[Frame::credit(INSIDE | 1, 1)],
            "credit for what was not sent",
        ),
        (
            &[Frame::credit(INSIDE | 1, 0)],
            "credit for what was not sent",
        ),
        (
            &[Frame::end(INSIDE | 1), Frame::end(INSIDE | 1)],
            "frame out of place",
        ),
    ];
    for (frames, reason) in free {
        let mut toolbox =
            Toolbox::new(Some(exit(private(vec![name("web.test", port)]), &kept))).await;
        toolbox.knock(INSIDE | 1, "web.test", port).await;
        toolbox.next(Kind::Answer).await;
        for frame in frames {
            toolbox.send(frame.clone()).await;
        }
        assert_eq!(toolbox.broken().await, reason);
        toolbox.remote.close().await;
    }
}

#[tokio::test]
async fn frames_for_a_channel_that_is_over_are_late_and_names_of_any_bytes_are_refused() {
    let kept = Arc::<Kept>::default();
    let mut toolbox = Toolbox::new(Some(exit(private(vec![name("web.test", 1)]), &kept))).await;
    for (n, host) in [
        "",
        "a\u{1b}[2J",
        "web.test\0",
        "x".repeat(3000).as_str(),
        "wéb.test",
    ]
    .iter()
    .enumerate()
    {
        let channel = INSIDE | u32::try_from(n + 1).unwrap();
        toolbox.knock(channel, host, 1).await;
        let answer: Answer = toolbox.next(Kind::Answer).await.parse().unwrap();
        assert!(matches!(answer, Answer::Refused { .. }), "{host}");
        toolbox.send(Frame::data(channel, vec![1])).await;
        toolbox.send(Frame::end(channel)).await;
    }
    // It lives: this call waits for an answer that never comes.
    let call = toolbox.remote.read("x", 0, 1);
    assert!(
        tokio::time::timeout(std::time::Duration::from_millis(200), call)
            .await
            .is_err()
    );
    assert!(
        kept.all()
            .iter()
            .all(|decision| decision.host.chars().count() <= 253)
    );
    assert_eq!(kept.reasons().len(), 5);
    toolbox.remote.close().await;
}
