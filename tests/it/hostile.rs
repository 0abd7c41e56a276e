//! A process 1 that lies: at the other end of the stream stands the test itself, and whatever it says,
//! the call ends with the reason that the sandbox is broken, within bounds and without a result.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use tokio_util::sync::CancellationToken;
use wharf::sandbox::remote::{self, Remote, Start};
use wharf::sandbox::{
    Command, Contents, Entry, Error, Facts, Mode, ProcessAction, Sandbox, Search, Tree,
};
use wharf_toolbox::held::Held;
use wharf_toolbox::message::{
    Ended, HostHello, Printed, Ran, Reply, Request, Signal, Spooled, ToolboxHello,
};
use wharf_toolbox::record::{Header, Kind as Record, Mode as RecordMode};
use wharf_toolbox::seal::{self, Seals, Side};
use wharf_toolbox::wire::{CREDIT, Frame, INSIDE, Kind, MAX_DATA, VERSION};

/// The end that ought to be a toolbox.
struct Peer {
    reader: ReadHalf<DuplexStream>,
    writer: WriteHalf<DuplexStream>,
    buffer: Vec<u8>,
    /// Bytes that Wharf has taken in.
    taken: usize,
    /// Of its own frames and of Wharf's, where they are sealed.
    seals: [Option<Seals>; 2],
}

impl Peer {
    /// Sends bytes as they are; false once Wharf listens no more.
    async fn raw(&mut self, bytes: &[u8]) -> bool {
        let sent = self.writer.write_all(bytes).await.is_ok();
        self.taken += if sent { bytes.len() } else { 0 };
        sent
    }

    async fn send(&mut self, frame: &Frame) -> bool {
        let mut bytes = Vec::new();
        seal::encode(frame, &mut self.seals[0], &mut bytes);
        self.raw(&bytes).await
    }

    async fn close(&mut self, channel: u32, reply: &Reply) -> bool {
        self.send(&Frame::json(Kind::Close, channel, reply).unwrap())
            .await
    }

    async fn greet(&mut self) {
        let hello = ToolboxHello {
            version: VERSION,
            shell: Some("bash".into()),
            git: false,
            proxy: None,
            sealed: false,
            held: Default::default(),
        };
        self.send(&Frame::json(Kind::Hello, 0, &hello).unwrap())
            .await;
    }

    /// Greets as one whose streams others can take up, and who has the key.
    async fn greet_sealed(&mut self) {
        let hello: HostHello = self.hear().await.unwrap().parse().unwrap();
        let key = hello.key.expect("a key in the first frame");
        let hello = ToolboxHello {
            version: VERSION,
            shell: Some("bash".into()),
            git: false,
            proxy: None,
            sealed: true,
            held: Held {
                streams: Some(1),
                traced: Some(0),
                ..Held::default()
            },
        };
        self.send(&Frame::json(Kind::Hello, 0, &hello).unwrap())
            .await;
        self.seals = [Side::Toolbox, Side::Wharf].map(|from| Some(Seals::new(&key, from)));
    }

    /// The next frame of Wharf; nothing when it says no more.
    async fn hear(&mut self) -> Option<Frame> {
        loop {
            if let Some((frame, used)) = seal::decode(&self.buffer, &mut self.seals[1]).unwrap() {
                self.buffer.drain(..used);
                return Some(frame);
            }
            if self.reader.read_buf(&mut self.buffer).await.ok()? == 0 {
                return None;
            }
        }
    }

    /// The next request, with its channel.
    async fn asked(&mut self) -> (u32, Request) {
        loop {
            let frame = self.hear().await.expect("a request");
            if frame.kind == Kind::Open {
                return (frame.channel, frame.parse().unwrap());
            }
        }
    }

    /// Hears until Wharf says no more, answering nothing.
    async fn deaf(&mut self) {
        while self.hear().await.is_some() {}
    }

    /// Says nothing more, but for answers to pings if it is to.
    async fn stay(&mut self, pings: bool) {
        match pings {
            true => self.alive().await,
            false => self.deaf().await,
        }
    }

    /// Sends so many bytes of a frame, one a second, and reads nothing.
    async fn trickle(&mut self, channel: u32, bytes: usize) {
        let mut frame = Vec::new();
        Frame::data(channel, vec![7; 50_000]).encode(&mut frame);
        for byte in frame.into_iter().take(bytes) {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if !self.raw(&[byte]).await {
                return;
            }
        }
    }

    /// Answers pings and nothing else until Wharf says no more.
    async fn alive(&mut self) {
        while let Some(frame) = self.hear().await {
            if (frame.kind, frame.channel) == (Kind::Signal, 0) {
                let pong = Frame::json(Kind::Signal, 0, &Signal::Pong).unwrap();
                self.send(&pong).await;
            }
        }
    }
}

fn pair() -> (Peer, DuplexStream) {
    let (far, near) = tokio::io::duplex(64 << 10);
    let (reader, writer) = tokio::io::split(far);
    let peer = Peer {
        reader,
        writer,
        buffer: Vec::new(),
        taken: 0,
        seals: [None, None],
    };
    (peer, near)
}

async fn connect(near: DuplexStream) -> Result<Remote, Error> {
    let (reader, writer) = tokio::io::split(near);
    let start = Start {
        facts: Facts::default(),
        tree_base: None,
        git: false,
        disk: 1 << 30,
        inodes: 500_000,
        egress: None,
        closer: Box::new(|| Box::pin(async {})),
    };
    remote::start(
        reader,
        writer,
        start,
        std::future::pending::<wharf::sandbox::Break>(),
    )
    .await
}

/// A guard against hanging, far above every limit; with paused time it costs nothing.
const HANG: Duration = Duration::from_secs(24 * 3600);

/// What became of a call on a toolbox that acts thus: the reason of its break. Every later call must
/// say the same, and the sandbox must close.
async fn broken<A, C>(act: A, call: C) -> String
where
    A: for<'a> FnOnce(&'a mut Peer) -> BoxFuture<'a, ()> + Send + 'static,
    C: AsyncFnOnce(&Remote) -> Result<String, Error>,
{
    let acts = self::act(move |peer| {
        Box::pin(async move {
            peer.greet().await;
            act(peer).await;
        })
    });
    met(acts, call).await
}

/// The same of one that has yet to greet.
async fn met<A, C>(act: A, call: C) -> String
where
    A: for<'a> FnOnce(&'a mut Peer) -> BoxFuture<'a, ()> + Send + 'static,
    C: AsyncFnOnce(&Remote) -> Result<String, Error>,
{
    let (mut peer, near) = pair();
    let acting = tokio::spawn(async move {
        act(&mut peer).await;
        peer
    });
    let work = async {
        let remote = connect(near).await.expect("it greets well");
        let outcome = call(&remote).await;
        let Err(Error::Broken { reason, .. }) = outcome else {
            panic!("not broken: {outcome:?}");
        };
        let later = remote.read("x", 0, 1).await;
        let Err(Error::Broken { reason: again, .. }) = &later else {
            panic!("not broken for good: {later:?}");
        };
        // Two faults at once are two reasons; which is found first is the clock's.
        assert!(!again.is_empty() && !reason.is_empty());
        remote.close().await;
        reason
    };
    let reason = tokio::time::timeout(HANG, work)
        .await
        .expect("it does not hang");
    acting.abort();
    reason
}

/// What a call on a toolbox that acts thus comes to in the end.
async fn answered<A, C>(act: A, call: C) -> String
where
    A: for<'a> FnOnce(&'a mut Peer) -> BoxFuture<'a, ()> + Send + 'static,
    C: AsyncFnOnce(&Remote) -> Result<String, Error>,
{
    let (mut peer, near) = pair();
    let acting = tokio::spawn(async move {
        peer.greet().await;
        act(&mut peer).await;
    });
    let work = async {
        let remote = connect(near).await.expect("it greets well");
        let outcome = call(&remote).await.expect("an answer");
        remote.close().await;
        outcome
    };
    let outcome = tokio::time::timeout(HANG, work).await;
    acting.abort();
    outcome.expect("it does not hang")
}

async fn command(remote: &Remote, seconds: u64, background: bool) -> Result<String, Error> {
    let command = Command {
        line: "true".into(),
        timeout: Duration::from_secs(seconds),
        background,
        keep: 100,
    };
    let cancel = CancellationToken::new();
    let finished = remote.run(&command, &cancel).await?;
    Ok(format!("{finished:?}"))
}

async fn run(remote: &Remote) -> Result<String, Error> {
    command(remote, 5, false).await
}

async fn scan(remote: &Remote) -> Result<String, Error> {
    let changes = remote.scan().await?;
    Ok(format!("{} puts", changes.puts.len()))
}

/// A tree of one file that holds so many bytes.
fn tree(bytes: usize) -> Tree {
    struct Zeros(usize);
    impl Contents for Zeros {
        fn read(&self, _ids: Vec<String>) -> BoxStream<'static, std::io::Result<Bytes>> {
            let part = Bytes::from(vec![0; MAX_DATA]);
            futures::stream::repeat_with(move || Ok(part.clone()))
                .take(self.0.div_ceil(MAX_DATA))
                .boxed()
        }
    }
    let entry = Entry {
        mode: Mode::File,
        size: bytes as u64,
        id: "zeros".into(),
    };
    Tree {
        entries: [(b"a".to_vec(), entry)].into(),
        contents: Arc::new(Zeros(bytes)),
    }
}

async fn upload(remote: &Remote) -> Result<String, Error> {
    remote.upload(None, &tree(2 << 20)).await?;
    Ok("uploaded".into())
}

/// Boxes an act of a peer.
fn act<F>(f: F) -> impl for<'a> FnOnce(&'a mut Peer) -> BoxFuture<'a, ()> + Send + 'static
where
    F: for<'a> FnOnce(&'a mut Peer) -> BoxFuture<'a, ()> + Send + 'static,
{
    f
}

/// Why a greeting was not taken.
async fn refused<F: Future<Output = Peer> + Send + 'static>(act: impl FnOnce(Peer) -> F) -> String {
    let (peer, near) = pair();
    let acting = tokio::spawn(act(peer));
    let outcome = tokio::time::timeout(HANG, connect(near))
        .await
        .expect("it does not hang");
    let error = outcome.err().expect("no greeting to be taken");
    acting.abort();
    let Error::Broken { reason, .. } = error else {
        panic!("{error:?}");
    };
    reason
}

#[tokio::test(start_paused = true)]
async fn a_greeting_that_is_none_is_refused_with_the_reason() {
    let hello = |version: u32, shell: Option<&str>| {
        let hello = json!({"version": version, "shell": shell, "git": true});
        Frame::json(Kind::Hello, 0, &hello).unwrap()
    };
    let frame = |frame: Frame| {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        bytes
    };
    let long = frame(Frame::data(1, vec![7; MAX_DATA]));
    let pong = Frame::json(Kind::Signal, 0, &Signal::Pong).unwrap();
    let shared = json!({"version": VERSION, "shell": null, "git": true, "held": {"streams": 1}});
    let shared = Frame::json(Kind::Hello, 0, &shared).unwrap();
    let cases: [(Vec<u8>, &str); 11] = [
        (frame(shared), "no seals"),
        (frame(hello(0, None)), "version 0"),
        (frame(hello(255, None)), "version 255"),
        (frame(hello(u32::MAX, None)), "version 4294967295"),
        (frame(hello(VERSION, Some("zsh\u{1b}[2J"))), "shell"),
        (frame(pong), "without a greeting"),
        (long.repeat(20), "without a greeting"),
        (vec![0, 0, 0, 0, 9], "unknown kind 9"),
        (vec![255, 255, 255, 255, 1, 0, 0, 0, 0], "over the limit"),
        (
            frame(Frame::json(Kind::Hello, 0, &json!([[[1]]])).unwrap()),
            "not understood",
        ),
        (b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), "unknown kind"),
    ];
    for (bytes, wanted) in cases {
        let reason = refused(move |mut peer| async move {
            peer.raw(&bytes).await;
            peer.deaf().await;
            peer
        })
        .await;
        assert!(reason.contains(wanted), "{wanted}: {reason}");
    }
    let silent = refused(|mut peer| async move {
        peer.deaf().await;
        peer
    });
    assert!(silent.await.contains("did not greet"));
    let slow = refused(|mut peer| async move {
        let mut bytes = Vec::new();
        let hello = json!({"version": VERSION, "shell": null, "git": true});
        Frame::json(Kind::Hello, 0, &hello)
            .unwrap()
            .encode(&mut bytes);
        for byte in bytes {
            tokio::time::sleep(Duration::from_secs(1)).await;
            peer.raw(&[byte]).await;
        }
        peer
    });
    assert!(slow.await.contains("did not greet"));
}

/// What a peer says on the channel of a call, as bytes, and what the reason names.
#[expect(clippy::too_many_lines, reason = "a table")]
fn misplaced(channel: u32) -> Vec<(&'static str, Vec<Frame>, &'static str)> {
    let of = |kind: Kind, channel: u32, body: &[u8]| Frame {
        kind,
        channel,
        body: body.to_vec(),
    };
    let deep = [b"[".repeat(10_000), b"]".repeat(10_000)].concat();
    vec![
        ("data elsewhere", vec![Frame::data(99, vec![1])], "not open"),
        (
            "credit elsewhere",
            vec![Frame::credit(u32::MAX, 1)],
            "not open",
        ),
        (
            "a close elsewhere",
            vec![of(Kind::Close, 7, b"\"scanned\"")],
            "not open",
        ),
        (
            "data on channel 0",
            vec![Frame::data(0, vec![1])],
            "not understood",
        ),
        (
            "a close on channel 0",
            vec![of(Kind::Close, 0, b"\"pong\"")],
            "out of place",
        ),
        (
            "a ping",
            vec![Frame::json(Kind::Signal, 0, &Signal::Ping).unwrap()],
            "out of place",
        ),
        (
            "two pongs",
            vec![Frame::json(Kind::Signal, 0, &Signal::Pong).unwrap(); 2],
            "ping",
        ),
        (
            "an opening",
            vec![of(Kind::Open, channel, b"{\"do\":\"scan\"}")],
            "out of place",
        ),
        (
            "another opening",
            vec![of(Kind::Open, 5000, b"{\"do\":\"scan\"}")],
            "not open",
        ),
        (
            "a way out",
            vec![of(Kind::Open, INSIDE | 1, b"{\"host\":\"a\",\"port\":1}")],
            "nobody may open",
        ),
        (
            "an answer of ours",
            vec![of(Kind::Answer, channel, b"{}")],
            "out of place",
        ),
        (
            "a second hello",
            vec![of(Kind::Hello, channel, b"{}")],
            "out of place",
        ),
        (
            "a hello on channel 0",
            vec![of(Kind::Hello, 0, b"{}")],
            "not understood",
        ),
        (
            "a signal",
            vec![of(Kind::Signal, channel, b"\"cancel\"")],
            "out of place",
        ),
        (
            "credit of two bytes",
            vec![of(Kind::Credit, channel, &[1, 0])],
            "wrong size",
        ),
        (
            "credit of nothing",
            vec![Frame::credit(channel, 0)],
            "credit",
        ),
        (
            "credit for nothing",
            vec![Frame::credit(channel, u32::MAX)],
            "credit",
        ),
        (
            "data without data",
            vec![Frame::data(channel, Vec::new())],
            "without data",
        ),
        (
            "an empty close",
            vec![of(Kind::Close, channel, b"")],
            "not understood",
        ),
        (
            "a close in another language",
            vec![of(Kind::Close, channel, b"<xml/>")],
            "not understood",
        ),
        (
            "a close without a bottom",
            vec![of(Kind::Close, channel, &deep)],
            "not understood",
        ),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_frame_out_of_place_breaks_the_sandbox_with_its_reason() {
    for at in 0..misplaced(1).len() {
        let (name, _, wanted) = misplaced(1).remove(at);
        let reason = broken(
            act(move |peer| {
                Box::pin(async move {
                    let (channel, _) = peer.asked().await;
                    for frame in misplaced(channel).remove(at).1 {
                        peer.send(&frame).await;
                    }
                    peer.deaf().await;
                })
            }),
            run,
        )
        .await;
        assert!(reason.contains(wanted), "{name}: {reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_answer_and_what_follows_one_are_found_out_by_the_next_call() {
    for late in [true, false] {
        let reason = broken(
            act(move |peer| {
                Box::pin(async move {
                    let (channel, _) = peer.asked().await;
                    peer.close(channel, &Reply::Read { size: 0 }).await;
                    if late {
                        peer.close(channel, &Reply::Read { size: 0 }).await;
                    } else {
                        peer.send(&Frame::data(channel, vec![1])).await;
                    }
                    peer.deaf().await;
                })
            }),
            async |remote: &Remote| {
                remote.read("x", 0, 10).await?.expect("a good answer");
                run(remote).await
            },
        )
        .await;
        assert!(reason.contains("not open"), "{reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_flood_is_stopped_at_its_first_byte_over_the_credit() {
    // The request of an upload is long, so for a while nobody waits for an answer.
    for (name, uploads) in [
        ("while it is listened to", false),
        ("while nobody listens", true),
    ] {
        let (tell, told) = tokio::sync::oneshot::channel();
        let flood = act(move |peer| {
            Box::pin(async move {
                let (channel, _) = peer.asked().await;
                let frame = Frame::data(channel, vec![7; MAX_DATA]);
                let before = peer.taken;
                while peer.taken < 64 << 20 && peer.send(&frame).await {}
                let _ = tell.send(peer.taken - before);
                peer.deaf().await;
            })
        });
        let reason = if uploads {
            broken(flood, upload).await
        } else {
            broken(flood, async |remote: &Remote| {
                let read = remote.read("x", 0, 1 << 30).await?;
                Ok(format!("{:?}", read.map(|read| read.size)))
            })
            .await
        };
        assert!(
            reason.contains("credit") || reason.contains("more than was asked"),
            "{name}: {reason}"
        );
        // What it took: a credit, its own buffers and those of the stream.
        let taken = told.await.unwrap();
        assert!(taken <= 16 * CREDIT as usize, "{name}: {taken} bytes");
    }
}

#[tokio::test(start_paused = true)]
async fn more_than_was_asked_for_is_no_answer() {
    let reason = broken(
        act(|peer| {
            Box::pin(async move {
                let (channel, _) = peer.asked().await;
                for _ in 0..3 {
                    peer.send(&Frame::data(channel, vec![7; 10])).await;
                }
                peer.close(channel, &Reply::Read { size: 30 }).await;
                peer.deaf().await;
            })
        }),
        async |remote: &Remote| {
            let read = remote.read("x", 0, 20).await?;
            Ok(format!("{read:?}"))
        },
    )
    .await;
    assert!(reason.contains("more than was asked"), "{reason}");
}

fn printed(head: u64, tail: u64, total: u64, spool: Option<(&str, u64)>) -> Printed {
    let spool = spool.map(|(path, bytes)| Spooled {
        path: path.into(),
        bytes,
    });
    Printed {
        head,
        tail,
        total,
        spool,
    }
}

/// The end of a command that printed ten bytes, in words that cannot be true.
fn false_ends() -> Vec<(&'static str, Ran)> {
    let of = |exit: Ended, background: Option<u32>, stdout: Printed| Ran {
        exit,
        stdout,
        stderr: Printed::default(),
        elapsed_ms: u64::MAX,
        background,
    };
    let ten = printed(10, 0, 10, None);
    let (code, none) = (Ended::Code(0), None);
    vec![
        ("still running", of(Ended::Running, Some(3), ten.clone())),
        ("running nowhere", of(Ended::Running, None, ten.clone())),
        (
            "cancelled by nobody",
            of(Ended::Cancelled, None, ten.clone()),
        ),
        ("ended in the background", of(code, Some(1), ten)),
        ("too short", of(code, none, printed(9, 0, 10, None))),
        ("too long", of(code, none, printed(11, 0, 20, None))),
        (
            "without end",
            of(code, none, printed(u64::MAX, 1, u64::MAX, None)),
        ),
        (
            "round the corner",
            of(code, none, printed(u64::MAX, u64::MAX, 10, None)),
        ),
        (
            "more kept than printed",
            of(code, none, printed(5, 5, 9, None)),
        ),
        (
            "a text of more",
            of(code, none, printed(10, 0, 10, Some(("/tmp/x", 11)))),
        ),
        (
            "a text nowhere",
            of(code, none, printed(10, 0, 10, Some(("x", 1)))),
        ),
        (
            "a text that paints",
            of(code, none, printed(10, 0, 10, Some(("/\u{1b}[2J", 1)))),
        ),
        (
            "a text with a nul",
            of(code, none, printed(10, 0, 10, Some(("/\0", 1)))),
        ),
    ]
}

#[tokio::test(start_paused = true)]
async fn an_end_that_cannot_be_true_is_no_result() {
    for (name, ran) in false_ends() {
        let reason = broken(
            act(move |peer| {
                Box::pin(async move {
                    let (channel, _) = peer.asked().await;
                    peer.send(&Frame::data(channel, vec![b'x'; 10])).await;
                    peer.close(channel, &Reply::Ran(ran)).await;
                    peer.deaf().await;
                })
            }),
            run,
        )
        .await;
        assert!(reason.contains("the toolbox claims"), "{name}: {reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_background_process_has_no_limit_and_a_stopped_one_has_ended() {
    for (exit, action) in [
        (Ended::TimedOut, ProcessAction::Output),
        (Ended::Cancelled, ProcessAction::Output),
        (Ended::Running, ProcessAction::Stop),
    ] {
        let ran = Ran {
            exit,
            stdout: Printed::default(),
            stderr: Printed::default(),
            elapsed_ms: 0,
            background: None,
        };
        let reason = broken(
            act(move |peer| {
                Box::pin(async move {
                    let (channel, _) = peer.asked().await;
                    peer.close(channel, &Reply::Ran(ran)).await;
                    peer.deaf().await;
                })
            }),
            async |remote: &Remote| Ok(format!("{:?}", remote.process(1, action).await?)),
        )
        .await;
        assert!(reason.contains("the toolbox claims"), "{exit:?}: {reason}");
    }
}

/// Every call, by a word.
async fn every(remote: &Remote, what: &str) -> Result<String, Error> {
    let search = Search {
        pattern: "x".into(),
        glob: None,
        limit: 3,
    };
    Ok(match what {
        "run" => run(remote).await?,
        "background" => command(remote, 5, true).await?,
        "process" => format!("{:?}", remote.process(1, ProcessAction::Output).await?),
        "read" => format!("{:?}", remote.read("x", 0, 10).await?),
        "write" => format!("{:?}", remote.write("x", vec![7; 3 << 20].into()).await?),
        "list" => format!("{:?}", remote.list(None, 3).await?),
        "grep" => format!("{:?}", remote.grep(&search).await?),
        "scan" => scan(remote).await?,
        "upload" => upload(remote).await?,
        other => panic!("{other}"),
    })
}

const CALLS: [&str; 9] = [
    "run",
    "background",
    "process",
    "read",
    "write",
    "list",
    "grep",
    "scan",
    "upload",
];

/// One reply of each kind.
fn replies() -> Vec<Reply> {
    let ran = Ran {
        exit: Ended::Code(0),
        stdout: Printed::default(),
        stderr: Printed::default(),
        elapsed_ms: 0,
        background: None,
    };
    vec![
        Reply::Ran(ran),
        Reply::Read { size: 3 },
        Reply::Written,
        Reply::Listed { cut: false },
        Reply::Uploaded {
            manifest: "0".repeat(64),
        },
        Reply::Scanned,
        Reply::Told {
            text: "x".repeat(100_000),
        },
        Reply::Failed {
            reason: "gave up".into(),
        },
    ]
}

/// True where a reply without data is a possible answer to a call.
fn fits(call: &str, reply: &Reply) -> bool {
    matches!(
        (call, reply),
        ("run" | "background" | "process", Reply::Ran(_))
            | ("read", Reply::Read { .. })
            | ("list" | "grep", Reply::Listed { .. })
            | ("scan", Reply::Scanned)
    )
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_another_question_breaks_every_call() {
    let mut tried = 0;
    for call in CALLS {
        for at in 0..replies().len() {
            let reply = replies().remove(at);
            if fits(call, &reply) {
                continue;
            }
            let shown = format!("{call}: {reply:?}");
            let reason = broken(
                act(move |peer| {
                    Box::pin(async move {
                        let (channel, _) = peer.asked().await;
                        peer.close(channel, &reply).await;
                        peer.deaf().await;
                    })
                }),
                async |remote: &Remote| every(remote, call).await,
            )
            .await;
            assert!(!reason.is_empty(), "{shown}");
            tried += 1;
        }
    }
    assert_eq!(tried, 9 * 8 - 7);
}

#[tokio::test(start_paused = true)]
async fn silence_ends_every_call_whatever_else_is_said() {
    for call in CALLS {
        for pings in [true, false] {
            let reason = broken(
                act(move |peer| {
                    Box::pin(async move {
                        peer.asked().await;
                        peer.stay(pings).await;
                    })
                }),
                async |remote: &Remote| every(remote, call).await,
            )
            .await;
            let named = reason.contains("no answer to") || reason.contains("no sign of life");
            assert!(named, "{call}, pings answered: {pings}: {reason}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_toolbox_that_does_not_read_or_trickles_is_given_up() {
    for trickles in [true, false] {
        let reason = broken(
            act(move |peer| {
                Box::pin(async move {
                    let (channel, _) = peer.asked().await;
                    peer.trickle(channel, if trickles { 10_000 } else { 0 })
                        .await;
                    std::future::pending().await
                })
            }),
            async |remote: &Remote| every(remote, "write").await,
        )
        .await;
        let named = reason.contains("no answer to") || reason.contains("no sign of life");
        assert!(named, "{reason}");
    }
}

/// Takes a request's data at so many bytes a second, answers pings, and says at its end that it is done.
async fn takes_slowly(peer: &mut Peer, rate: u64, reply: &Reply) {
    let (channel, _) = peer.asked().await;
    while let Some(frame) = peer.hear().await {
        match frame.kind {
            Kind::Data => {
                let bytes = frame.body.len() as u64;
                tokio::time::sleep(Duration::from_millis(bytes * 1000 / rate)).await;
                let bytes = u32::try_from(bytes).unwrap();
                peer.send(&Frame::credit(channel, bytes)).await;
            }
            Kind::Signal if frame.channel == 0 => {
                let pong = Frame::json(Kind::Signal, 0, &Signal::Pong).unwrap();
                peer.send(&pong).await;
            }
            Kind::Close => {
                peer.close(channel, reply).await;
            }
            _ => {}
        }
    }
}

/// The same minutes are a slow line's, on which a call goes on, or a toolbox's that is no good.
#[tokio::test(start_paused = true)]
async fn a_line_that_is_slow_and_moves_is_waited_for() {
    let write = async |remote: &Remote| {
        let content = Bytes::from(vec![7; 12 << 20]);
        let written = remote.write("x", content).await?;
        Ok(format!("{written:?}"))
    };
    let at = |rate: u64| {
        act(move |peer| Box::pin(async move { takes_slowly(peer, rate, &Reply::Written).await }))
    };
    assert_eq!(answered(at(100 << 10), write).await, "Ok(())");
    let reason = broken(at(10 << 10), write).await;
    assert!(reason.contains("no answer to write"), "{reason}");
    // The same from there.
    let content = vec![7; 1 << 20];
    let body: Vec<u8> = (0..20)
        .flat_map(|n| {
            record(
                Record::Put(RecordMode::File),
                format!("f{n:02}").as_bytes(),
                &content,
            )
        })
        .collect();
    let sends = act(move |peer| {
        Box::pin(async move {
            let (channel, _) = peer.asked().await;
            answer_at(peer, channel, &body, Some(100 << 10)).await;
            peer.alive().await;
        })
    });
    assert_eq!(answered(sends, scan).await, "20 puts");
}

/// A record of a scan, right or wrong.
fn record(kind: Record, path: &[u8], content: &[u8]) -> Vec<u8> {
    let header = Header {
        kind,
        path: path.to_vec(),
        size: content.len() as u64,
    };
    let mut bytes = Vec::new();
    header.encode(&mut bytes).unwrap();
    [bytes.as_slice(), content].concat()
}

fn file(path: &[u8]) -> Vec<u8> {
    record(Record::Put(RecordMode::File), path, b"x")
}

fn link(path: &[u8], target: &[u8]) -> Vec<u8> {
    record(Record::Put(RecordMode::Link), path, target)
}

fn gone(path: &[u8]) -> Vec<u8> {
    record(Record::Delete, path, b"")
}

/// Sends this as the answer to a scan, within its credit.
async fn answer(peer: &mut Peer, channel: u32, body: &[u8]) {
    answer_at(peer, channel, body, None).await;
}

/// The same at so many bytes a second.
async fn answer_at(peer: &mut Peer, channel: u32, body: &[u8], rate: Option<u64>) {
    let mut credit = CREDIT as usize;
    for part in body.chunks(MAX_DATA) {
        if let Some(rate) = rate {
            let time = Duration::from_millis(part.len() as u64 * 1000 / rate);
            tokio::time::sleep(time).await;
        }
        while credit < part.len() {
            match peer.hear().await {
                Some(frame) if frame.kind == Kind::Credit => {
                    credit += frame.amount().unwrap() as usize;
                }
                Some(_) => {}
                None => return,
            }
        }
        credit -= part.len();
        peer.send(&Frame::data(channel, part.to_vec())).await;
    }
    peer.close(channel, &Reply::Scanned).await;
}

async fn scanned(body: Vec<u8>) -> String {
    broken(
        act(move |peer| {
            Box::pin(async move {
                let (channel, _) = peer.asked().await;
                answer(peer, channel, &body).await;
                peer.deaf().await;
            })
        }),
        scan,
    )
    .await
}

/// Records of a scan that cannot be true, and what the reason names.
#[expect(clippy::too_many_lines, reason = "a table")]
fn lies() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let mut huge = record(Record::Put(RecordMode::File), b"a", b"");
    huge[3..11].copy_from_slice(&u64::MAX.to_le_bytes());
    let mut weighty = gone(b"a");
    weighty[3..11].copy_from_slice(&5u64.to_le_bytes());
    vec![
        ("up", file(b"../evil"), "not allowed"),
        ("up within", file(b"a/../../evil"), "not allowed"),
        ("absolute", file(b"/etc/passwd"), "not allowed"),
        (
            "a repository",
            file(b".git/hooks/post-checkout"),
            "not allowed",
        ),
        (
            "a repository in capitals",
            link(b"a/.GIT", b"x"),
            "not allowed",
        ),
        ("a nul", file(b"a\0b"), "not allowed"),
        ("here", file(b"./a"), "not allowed"),
        ("a hole", file(b"a//b"), "not allowed"),
        ("a folder", file(b"a/"), "not allowed"),
        (
            "nothing",
            vec![b'f', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            "over the limit",
        ),
        (
            "too long",
            [vec![b'f', 255, 255], vec![0; 8]].concat(),
            "over the limit",
        ),
        ("up to be deleted", gone(b"../evil"), "not allowed"),
        ("absolute to be deleted", gone(b"/etc"), "not allowed"),
        ("twice", [file(b"a"), file(b"a")].concat(), "twice"),
        (
            "as file and link",
            [file(b"a"), link(b"a", b"b")].concat(),
            "twice",
        ),
        ("deleted twice", [gone(b"a"), gone(b"a")].concat(), "twice"),
        (
            "put and deleted",
            [file(b"a"), gone(b"a")].concat(),
            "put and deleted",
        ),
        (
            "through a file",
            [file(b"a"), file(b"a/b")].concat(),
            "through",
        ),
        (
            "through a link",
            [file(b"d/x/y"), link(b"d", b"/etc")].concat(),
            "through",
        ),
        ("a link to nothing", link(b"a", b""), "nowhere"),
        ("a link with a nul", link(b"a", b"b\0c"), "nowhere"),
        ("a link without end", link(b"a", &[b'x'; 5000]), "nowhere"),
        (
            "kept",
            record(Record::Keep(RecordMode::File), b"a", b""),
            "out of place",
        ),
        (
            "of no kind",
            [vec![b'z', 1, 0], vec![0; 8], b"a".to_vec()].concat(),
            "unknown kind",
        ),
        ("a size that is not there", huge, "cut"),
        ("a deletion that weighs", weighty, "content"),
        ("cut in a header", file(b"a")[..7].to_vec(), "cut"),
        ("cut in a content", file(b"a")[..12].to_vec(), "cut"),
        (
            "after a good one",
            [file(b"ok"), file(b"../evil")].concat(),
            "not allowed",
        ),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_scan_that_lies_is_no_change() {
    for (name, body, wanted) in lies() {
        let reason = scanned(body).await;
        assert!(reason.contains(wanted), "{name}: {reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_scan_of_a_million_entries_is_no_change() {
    let mut body = Vec::new();
    for n in 0..=1_000_000u32 {
        body.extend(gone(n.to_string().as_bytes()));
    }
    let reason = scanned(body).await;
    assert!(reason.contains("more than 1000000 records"), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn more_lines_than_were_asked_for_are_no_answer() {
    for call in ["list", "grep"] {
        let reason = broken(
            act(|peer| {
                Box::pin(async move {
                    let (channel, _) = peer.asked().await;
                    peer.send(&Frame::data(channel, b"a\nb\nc\nd\n".to_vec()))
                        .await;
                    peer.close(channel, &Reply::Listed { cut: true }).await;
                    peer.deaf().await;
                })
            }),
            async |remote: &Remote| every(remote, call).await,
        )
        .await;
        assert!(reason.contains("more lines"), "{reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_before_the_question_was_whole_is_not_believed() {
    for (call, reply) in [
        ("write", Reply::Written),
        (
            "upload",
            Reply::Uploaded {
                manifest: "0".repeat(64),
            },
        ),
    ] {
        let reason = broken(
            act(move |peer| {
                Box::pin(async move {
                    let (channel, _) = peer.asked().await;
                    peer.close(channel, &reply).await;
                    peer.deaf().await;
                })
            }),
            async |remote: &Remote| every(remote, call).await,
        )
        .await;
        assert!(!reason.is_empty());
    }
}

/// The other side of all the above: what a true toolbox may do to a call that was dropped.
#[tokio::test(start_paused = true)]
async fn the_late_answer_of_a_dropped_call_breaks_nothing() {
    let (mut peer, near) = pair();
    let acting = tokio::spawn(async move {
        peer.greet().await;
        let (dropped, _) = peer.asked().await;
        while peer
            .hear()
            .await
            .is_some_and(|frame| frame.channel != dropped || frame.kind != Kind::Signal)
        {}
        peer.send(&Frame::data(dropped, b"late".to_vec())).await;
        peer.close(dropped, &Reply::Read { size: 4 }).await;
        let (channel, _) = peer.asked().await;
        peer.send(&Frame::data(channel, b"good".to_vec())).await;
        peer.close(channel, &Reply::Read { size: 4 }).await;
        peer.deaf().await;
    });
    let remote = connect(near).await.unwrap();
    tokio::select! {
        read = remote.read("first", 0, 10) => panic!("{read:?}"),
        () = tokio::time::sleep(Duration::from_secs(1)) => {}
    }
    let read = remote.read("second", 0, 10).await.unwrap().unwrap();
    assert_eq!(read.bytes, "good");
    remote.close().await;
    acting.await.unwrap();
}

/// Answers the next request for a file as the toolbox would.
async fn answer_read(peer: &mut Peer) {
    let (channel, _) = peer.asked().await;
    peer.send(&Frame::data(channel, b"abc".to_vec())).await;
    peer.close(channel, &Reply::Read { size: 3 }).await;
}

async fn two_reads(remote: &Remote) -> Result<String, Error> {
    for _ in 0..2 {
        let read = remote.read("a", 0, 100).await?.unwrap();
        assert_eq!(
            read.bytes.as_ref(),
            b"abc",
            "only the toolbox's own answer is one"
        );
    }
    Ok("two answers".into())
}

/// What a command says on the streams of process 1, where its runtime lets it have them.
#[derive(Clone, Copy, Debug)]
enum Forged {
    /// An answer without a seal.
    Bare,
    /// One with a seal of zeros.
    Zeros,
    /// One sealed with a key of its own.
    OwnKey,
    /// What the toolbox said before, once more.
    Again,
    /// The beginning of a frame, so that what the toolbox says next is taken for the rest of it.
    Swallowing,
}

impl Forged {
    async fn say(self, peer: &mut Peer, channel: u32) {
        let mut bytes = Vec::new();
        let reply = Frame::json(Kind::Close, channel, &Reply::Read { size: 0 }).unwrap();
        match self {
            Forged::Bare => reply.encode(&mut bytes),
            Forged::Zeros => {
                reply.encode(&mut bytes);
                bytes.extend_from_slice(&[0; seal::SEAL]);
            }
            Forged::OwnKey => {
                let mut seals = Some(Seals::new(&seal::Key([1; 32]), Side::Toolbox));
                seal::encode(&reply, &mut seals, &mut bytes);
            }
            Forged::Again => {
                let mut seals = peer.seals[0].clone();
                peer.send(&Frame::data(channel, b"abc".to_vec())).await;
                seal::encode(
                    &Frame::data(channel, b"abc".to_vec()),
                    &mut seals,
                    &mut bytes,
                );
            }
            Forged::Swallowing => {
                bytes.extend_from_slice(&60_000_u32.to_le_bytes());
                bytes.push(Kind::Data as u8);
                bytes.extend_from_slice(&channel.to_le_bytes());
            }
        }
        peer.raw(&bytes).await;
    }
}

#[tokio::test(start_paused = true)]
async fn where_frames_are_sealed_no_command_answers_for_the_toolbox() {
    for forged in [
        Forged::Bare,
        Forged::Zeros,
        Forged::OwnKey,
        Forged::Again,
        Forged::Swallowing,
    ] {
        let acts = act(move |peer| {
            Box::pin(async move {
                peer.greet_sealed().await;
                answer_read(peer).await;
                let (channel, _) = peer.asked().await;
                forged.say(peer, channel).await;
                peer.send(&Frame::data(channel, b"abc".to_vec())).await;
                peer.close(channel, &Reply::Read { size: 3 }).await;
                peer.alive().await;
            })
        });
        let reason = met(acts, async |remote| two_reads(remote).await).await;
        let wanted = match forged {
            // Nothing comes through any more, which is noticed by the limit of the call.
            Forged::Swallowing => "no answer to read",
            _ => "a frame that the other side did not send",
        };
        assert!(reason.contains(wanted), "{forged:?}: {reason}");
    }
}

/// Nothing of all that is in the way of a toolbox that is what it says.
#[tokio::test(start_paused = true)]
async fn where_frames_are_sealed_the_toolbox_is_understood() {
    let (mut peer, near) = pair();
    let acting = tokio::spawn(async move {
        peer.greet_sealed().await;
        answer_read(&mut peer).await;
        answer_read(&mut peer).await;
        peer.alive().await;
    });
    let remote = connect(near).await.unwrap();
    assert_eq!(two_reads(&remote).await.unwrap(), "two answers");
    // Pings are sealed and answered too, for longer than a silence may last.
    tokio::time::sleep(Duration::from_secs(300)).await;
    let later = tokio::time::timeout(Duration::from_secs(1), remote.read("a", 0, 1)).await;
    assert!(
        later.is_err(),
        "it is not broken, and nobody answers: {later:?}"
    );
    remote.close().await;
    acting.abort();
}
