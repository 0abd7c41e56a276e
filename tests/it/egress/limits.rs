//! Bytes, connections, time, and the end of all.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use wharf::sandbox::egress::{Policy, Step};
use wharf::sandbox::{Exit, Sandbox};

use super::servers::{Server, each};
use super::world::{Names, World, get, name, patience, private, way};

fn names() -> Arc<Names> {
    Names::of(&[("web.test", &["127.0.0.1"])])
}

#[tokio::test]
async fn what_is_over_the_byte_limit_is_cut_and_nothing_is_reached_after_it() {
    let server = Server::http().await;
    let port = server.port();
    let policy = Policy {
        bytes: 300_000,
        ..private(vec![name("web.test", port)])
    };
    let world = World::new(policy, way(&names())).await;
    let mut client = world.client().await;
    client
        .say(get("web.test", port, "/endless").as_bytes())
        .await;
    let (got, clean) = client.drain().await;
    assert!(got <= 300_000 && !clean, "{got} {clean}");
    let (sent, received, how) = world.kept.ended(1).await.remove(0);
    assert_eq!(sent + received, 300_000);
    assert_eq!(
        how,
        "cut: the 300000 bytes that the plan allows are used up"
    );
    let answer = world.get("web.test", port, "/").await;
    assert!(
        answer.starts_with("HTTP/1.1 403") && answer.contains("used up"),
        "{answer}"
    );
    assert_eq!(server.connections(), 1);
    world.remote.close().await;
}

#[tokio::test]
async fn one_connection_too_many_is_told_so_and_those_that_are_go_on() {
    let server = Server::http().await;
    let port = server.port();
    let policy = Policy {
        connections: 2,
        ..private(vec![name("web.test", port)])
    };
    let world = World::new(policy, way(&names())).await;
    let (mut one, mut two) = (world.client().await, world.client().await);
    for client in [&mut one, &mut two] {
        let status = client.connect("web.test", port).await;
        assert!(status.starts_with("HTTP/1.1 200"), "{status}");
    }
    let status = world.client().await.connect("web.test", port).await;
    assert_eq!(status, "HTTP/1.1 503 Service Unavailable");
    assert_eq!(world.client().await.socks("web.test", port).await, 1);
    let ask = format!("GET /x HTTP/1.1\r\nHost: web.test:{port}\r\n\r\n");
    one.say(ask.as_bytes()).await;
    assert!(one.rest().await.unwrap().ends_with("/x 0\n"));
    drop(one);
    world.kept.ended(1).await;
    let status = world.client().await.connect("web.test", port).await;
    assert!(status.starts_with("HTTP/1.1 200"), "{status}");
    drop(two);
    world.remote.close().await;
}

#[tokio::test]
async fn sixty_four_at_once_each_get_their_own_answer() {
    let server = Server::http().await;
    let port = server.port();
    let world = World::new(private(vec![name("web.test", port)]), way(&names())).await;
    let each = (0..64).map(|n| {
        let world = &world;
        async move {
            let mut client = world.client().await;
            let status = client.connect("web.test", port).await;
            assert!(status.starts_with("HTTP/1.1 200"), "{status}");
            (n, client)
        }
    });
    // All are open before the first asks.
    let clients = join_all(each).await;
    let answers = clients.into_iter().map(|(n, mut client)| async move {
        let ask = format!("GET /{n} HTTP/1.1\r\nHost: web.test:{port}\r\n\r\n");
        client.say(ask.as_bytes()).await;
        (n, client.rest().await.unwrap())
    });
    for (n, answer) in join_all(answers).await {
        assert!(answer.ends_with(&format!("/{n} 0\n")), "{n}: {answer}");
    }
    assert_eq!(world.kept.ended(64).await.len(), 64);
    world.remote.close().await;
}

#[tokio::test]
async fn slow_readers_hold_up_neither_calls_nor_each_other() {
    let server = Server::http().await;
    let port = server.port();
    let world = World::new(private(vec![name("web.test", port)]), way(&names())).await;
    let mut slow = Vec::new();
    for _ in 0..8 {
        let mut client = world.client().await;
        client
            .say(get("web.test", port, "/endless").as_bytes())
            .await;
        assert_eq!(client.exactly(15).await, b"HTTP/1.1 200 OK");
        slow.push(client);
    }
    for _ in 0..5 {
        assert_eq!(
            world.run("echo on; seq 100000 | tail -1").await.exit,
            Exit::Code(0)
        );
        assert!(
            world
                .get("web.test", port, "/quick")
                .await
                .ends_with("/quick 0\n")
        );
    }
    // Each was given no more than its credit and what kernels hold.
    let mut first = slow.remove(0);
    assert_eq!(first.exactly(100_000).await.len(), 100_000);
    drop((first, slow));
    world.remote.close().await;
    let ended = world.kept.ended(13).await;
    assert!(
        ended.iter().all(|(_, received, _)| *received < 64 << 20),
        "{ended:?}"
    );
}

#[tokio::test]
async fn a_client_that_says_nothing_holds_up_nobody() {
    let server = Server::http().await;
    let port = server.port();
    let world = World::new(private(vec![name("web.test", port)]), way(&names())).await;
    let mut silent = Vec::new();
    for n in 0..100 {
        let mut client = world.client().await;
        client
            .say(&b"GET http://web.test/ HTTP/1.1\r\nHost:"[..n % 30])
            .await;
        silent.push(client);
    }
    assert!(world.get("web.test", port, "/x").await.ends_with("/x 0\n"));
    drop(silent);
    assert!(world.get("web.test", port, "/y").await.ends_with("/y 0\n"));
    world.remote.close().await;
}

#[tokio::test]
async fn a_connection_without_a_byte_is_given_up() {
    let address = each(|mut stream| async move {
        let mut all = Vec::new();
        // The end that it waits for is the one under test.
        drop(stream.read_to_end(&mut all).await);
    })
    .await;
    let (port, names) = (address.port(), names());
    let way = patience(way(&names), Duration::from_millis(300));
    let world = World::new(private(vec![name("web.test", port)]), way).await;
    let mut client = world.client().await;
    assert_eq!(client.socks("web.test", port).await, 0);
    assert!(!client.drain().await.1);
    assert_eq!(world.kept.ended(1).await[0].2, "no byte for 0 s");
    world.remote.close().await;
}

#[tokio::test]
async fn closing_ends_every_connection_and_says_how() {
    let (done, mut ends) = tokio::sync::mpsc::unbounded_channel();
    let address = each(move |mut stream| {
        let done = done.clone();
        async move {
            let mut all = Vec::new();
            drop(stream.read_to_end(&mut all).await);
            done.send(()).unwrap();
        }
    })
    .await;
    let (port, names) = (address.port(), names());
    let world = World::new(private(vec![name("web.test", port)]), way(&names)).await;
    let mut clients = Vec::new();
    for _ in 0..3 {
        let mut client = world.client().await;
        assert_eq!(client.socks("web.test", port).await, 0);
        clients.push(client);
    }
    let proxy = world.remote.proxy().unwrap();
    world.remote.close().await;
    for client in &mut clients {
        client.drain().await;
        tokio::time::timeout(super::world::LIMIT, ends.recv())
            .await
            .unwrap()
            .unwrap();
    }
    let ended = world.kept.ended(3).await;
    assert!(
        ended
            .iter()
            .all(|(_, _, how)| how.starts_with("the sandbox ")),
        "{ended:?}"
    );
    let again = tokio::net::TcpStream::connect(("127.0.0.1", proxy)).await;
    assert!(again.is_err());
    assert!(!std::path::Path::new(&format!("/proc/{}", world.pid)).exists());
}

#[tokio::test]
async fn a_program_that_goes_away_takes_its_connection_with_it() {
    let server = Server::http().await;
    let port = server.port();
    let world = World::new(private(vec![name("web.test", port)]), way(&names())).await;
    let mut client = world.client().await;
    client
        .say(get("web.test", port, "/endless").as_bytes())
        .await;
    client.exactly(1000).await;
    client.0.set_zero_linger().unwrap();
    drop(client);
    assert_eq!(
        world.kept.ended(1).await[0].2,
        "the program inside broke off"
    );
    world.remote.close().await;
}

#[tokio::test]
async fn a_flood_is_counted_and_not_told_one_by_one() {
    let names = names();
    let world = World::new(private(vec![name("web.test", 1)]), way(&names)).await;
    for _ in 0..12 {
        let asked = (0..50).map(|_| async { world.client().await.socks("evil.test", 1).await });
        assert!(join_all(asked).await.iter().all(|code| *code == 2));
    }
    world.remote.close().await;
    let told = world.kept.all();
    assert_eq!(told.len(), 501);
    let unlisted = Step::Unlisted {
        allowed: 0,
        refused: 100,
        sent: 0,
        received: 0,
    };
    assert_eq!(told.last().unwrap().step, unlisted);
}

#[tokio::test]
async fn a_dead_server_is_named_and_is_no_refusal() {
    let names = Names::of(&[("web.test", &["127.0.0.1"]), ("gone.test", &[])]);
    let port = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let rules = vec![
        name("web.test", port),
        name("gone.test", port),
        name("lost.test", port),
    ];
    let world = World::new(private(rules), way(&names)).await;
    let answer = world.get("web.test", port, "/").await;
    assert!(
        answer.starts_with("HTTP/1.1 502") && answer.contains("could not be reached"),
        "{answer}"
    );
    let reasons = world.kept.reasons();
    assert!(reasons[0].contains("refused"), "{reasons:?}");
    assert_eq!(world.client().await.socks("lost.test", port).await, 4);
    assert_eq!(world.client().await.socks("gone.test", port).await, 4);
    let mut client = world.client().await;
    client.0.write_all(b"\x04\x01").await.unwrap();
    assert_eq!(client.exactly(8).await[1], 91);
    world.remote.close().await;
}
