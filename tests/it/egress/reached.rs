//! What is reached, and what is refused.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;
use wharf::sandbox::Sandbox;
use wharf::sandbox::egress::{Host, Rule, Step};

use super::servers::{Server, each};
use super::world::{Names, World, get, name, private, public, way};

#[tokio::test]
async fn an_allowed_server_is_reached_in_three_ways_and_each_is_told() {
    let server = Server::http().await;
    let (port, names) = (server.port(), Names::of(&[("web.test", &["127.0.0.1"])]));
    let world = World::new(private(vec![name("web.test", port)]), way(&names)).await;

    let answer = world.get("Web.Test", port, "/plain").await;
    assert!(answer.ends_with("/plain 0\n"), "{answer}");
    let head = &server.heads()[0];
    assert!(head.starts_with("GET /plain HTTP/1.1\r\n"), "{head}");
    assert!(
        head.contains(&format!("\r\nHost: web.test:{port}\r\n")),
        "{head}"
    );

    let ask = format!("GET /tunnel HTTP/1.1\r\nHost: web.test:{port}\r\n\r\n");
    let mut client = world.client().await;
    let status = client.connect("web.test", port).await;
    assert_eq!(status, "HTTP/1.1 200 Connection established");
    client.say(ask.as_bytes()).await;
    assert!(client.rest().await.unwrap().ends_with("/tunnel 0\n"));
    drop(client);

    let mut client = world.client().await;
    assert_eq!(client.socks("web.test", port).await, 0);
    client.say(ask.as_bytes()).await;
    assert!(client.rest().await.unwrap().ends_with("/tunnel 0\n"));
    drop(client);

    let ended = world.kept.ended(3).await;
    assert!(
        ended.iter().all(|(sent, received, how)| *sent > 20
            && *received > 20
            && how == "both sides were done"),
        "{ended:?}"
    );
    assert_eq!(names.asked(), ["web.test"; 3]);
    let address = format!("127.0.0.1:{port}");
    let allowed = |step: &Step| matches!(step, Step::Allowed { address: at, injected } if *at == address && injected.is_empty());
    let told = world.kept.all();
    assert_eq!(
        told.iter()
            .filter(|decision| allowed(&decision.step))
            .count(),
        3,
        "{told:?}"
    );
    world.remote.close().await;
}

#[tokio::test]
async fn what_the_list_does_not_name_is_refused_without_a_look_up() {
    let server = Server::http().await;
    let (port, names) = (server.port(), Names::of(&[]));
    let world = World::new(private(vec![name("web.test", 1)]), way(&names)).await;
    let answer = world.get("web.test", port, "/").await;
    assert!(answer.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{answer}");
    let reason = format!("web.test:{port} is not on the plan's list of hosts");
    assert!(answer.contains(&format!("wharf: {reason}")), "{answer}");
    assert!(
        world
            .get("127.0.0.1", port, "/")
            .await
            .starts_with("HTTP/1.1 403")
    );
    for host in [
        "other.test",
        "127.1",
        "2130706433",
        "0x7f000001",
        "localhost",
    ] {
        let status = world.client().await.connect(host, port).await;
        assert!(status.starts_with("HTTP/1.1 403"), "{host}: {status}");
        assert_eq!(world.client().await.socks(host, port).await, 2, "{host}");
    }
    assert!(
        world
            .ask("GET / HTTP/1.1\r\nHost: web.test\r\n\r\n")
            .await
            .starts_with("HTTP/1.1 400")
    );
    assert_eq!(names.asked(), Vec::<String>::new());
    assert_eq!(server.connections(), 0);
    assert_eq!(world.kept.reasons().len(), 12);
    world.remote.close().await;
}

#[tokio::test]
async fn a_name_that_leads_where_nobody_may_go_is_refused_after_the_look_up() {
    let server = Server::http().await;
    let port = server.port();
    let names = Names::of(&[
        ("loop.test", &["127.0.0.1"]),
        ("cloud.test", &["169.254.169.254"]),
        ("private.test", &["10.1.2.3", "192.168.1.1", "172.16.0.1"]),
        ("six.test", &["::1", "fd00::1", "fe80::1"]),
        (
            "mapped.test",
            &["::ffff:127.0.0.1", "64:ff9b::7f00:1", "::127.0.0.1"],
        ),
        ("all.test", &["0.0.0.0", "::"]),
        ("carrier.test", &["100.64.0.1"]),
        ("many.test", &["224.0.0.1", "255.255.255.255"]),
        ("none.test", &[]),
    ]);
    let rules = |names: &Names| names.known.keys().map(|host| name(host, port)).collect();
    let strict = World::new(public(rules(&names)), way(&names)).await;
    for host in names.known.keys() {
        let answer = strict.get(host, port, "/").await;
        // Where it leads is for the operator alone.
        let told = names.known[host]
            .iter()
            .any(|address| answer.contains(&address.to_string()));
        assert!(!told, "{host}: {answer}");
        let code = if host == "none.test" { "502" } else { "403" };
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {code}")),
            "{host}: {answer}"
        );
        assert_ne!(strict.client().await.socks(host, port).await, 0, "{host}");
    }
    assert!(
        strict
            .get("gone.test", port, "/")
            .await
            .starts_with("HTTP/1.1 403")
    );
    strict.remote.close().await;
    let reasons = strict.kept.reasons();
    let wanted =
        "cloud.test leads to an address where a cloud hands out credentials (169.254.169.254)";
    assert!(reasons.iter().any(|reason| reason == wanted), "{reasons:?}");

    // What the operator opened is private and loopback; nothing else is with it.
    let loose = World::new(private(rules(&names)), way(&names)).await;
    for host in ["cloud.test", "mapped.test", "all.test", "many.test"] {
        let answer = loose.get(host, port, "/").await;
        assert!(answer.starts_with("HTTP/1.1 403"), "{host}: {answer}");
    }
    assert_eq!(server.connections(), 0);
    assert!(loose.get("loop.test", port, "/").await.ends_with("/ 0\n"));
    loose.remote.close().await;
}

#[tokio::test]
async fn only_checked_addresses_are_dialled_and_nothing_is_looked_up_twice() {
    let server = Server::http().await;
    let (port, mixed) = (
        server.port(),
        ["169.254.169.254", "::ffff:127.0.0.1", "127.0.0.1"],
    );
    let names = Names::of(&[("mixed.test", &mixed)]);
    let world = World::new(private(vec![name("mixed.test", port)]), way(&names)).await;
    assert!(
        world
            .get("mixed.test", port, "/x")
            .await
            .ends_with("/x 0\n")
    );
    assert_eq!(names.asked(), ["mixed.test"]);
    world.remote.close().await;
}

#[tokio::test]
async fn an_address_that_is_written_down_is_reached_without_further_leave() {
    let server = Server::http().await;
    let (port, names) = (server.port(), Names::of(&[]));
    let address = |text: &str| Rule {
        host: Host::Address(text.parse().unwrap()),
        port: Some(port),
    };
    let world = World::new(public(vec![address("127.0.0.1")]), way(&names)).await;
    assert!(world.get("127.0.0.1", port, "/x").await.ends_with("/x 0\n"));
    assert!(
        world
            .get("127.0.0.2", port, "/")
            .await
            .starts_with("HTTP/1.1 403")
    );
    assert_eq!(names.asked(), Vec::<String>::new());
    world.remote.close().await;
}

#[tokio::test]
async fn a_tunnel_may_not_ask_for_another_server_than_it_was_granted_for() {
    let (clear, tls) = (Server::http().await, Server::https().await);
    let names = Names::of(&[("tls.test", &["127.0.0.1"]), ("web.test", &["127.0.0.1"])]);
    let rules = vec![name("tls.test", tls.port()), name("web.test", clear.port())];
    let world = World::new(private(rules), way(&names)).await;

    let shake = async |named: &str| {
        let mut client = world.client().await;
        let status = client.connect("tls.test", tls.port()).await;
        assert!(status.starts_with("HTTP/1.1 200"), "{status}");
        let name = ServerName::try_from(named.to_owned()).unwrap();
        let mut stream = connector().connect(name, client.0).await?;
        stream.write_all(b"GET /secret HTTP/1.1\r\n\r\n").await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await.map(|_| text)
    };
    assert!(shake("tls.test").await.unwrap().ends_with("/secret 0\n"));
    assert!(shake("api.test").await.is_err());

    let mut client = world.client().await;
    client.connect("web.test", clear.port()).await;
    client
        .say(b"GET / HTTP/1.1\r\nHost: other.test\r\n\r\n")
        .await;
    assert!(client.rest().await.is_err());
    assert_eq!(clear.heads(), Vec::<String>::new());
    let get =
        get("web.test", clear.port(), "/").replace("\r\nHost: web.test", "\r\nHost: other.test");
    assert!(world.ask(&get).await.starts_with("HTTP/1.1 403"));
    let ended = world.kept.ended(4).await;
    let refused: Vec<&str> = ended.iter().map(|(_, _, how)| how.as_str()).collect();
    assert!(
        refused.contains(&"refused: TLS asks tls.test for api.test"),
        "{refused:?}"
    );
    assert_eq!(
        refused
            .iter()
            .filter(|how| **how == "refused: a request to web.test for the Host other.test")
            .count(),
        2,
        "{refused:?}"
    );
    assert_eq!(clear.heads(), Vec::<String>::new());
    world.remote.close().await;
}

fn connector() -> TlsConnector {
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(include_bytes!("ca.pem")).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

#[tokio::test]
async fn either_side_may_be_done_first_and_a_server_may_speak_first() {
    // It greets, hears its client out, and only then answers.
    let address = each(|mut stream| async move {
        stream.write_all(b"220 hello\r\n").await.unwrap();
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).await.unwrap();
        let answer = format!("heard {} bytes", heard.len());
        stream.write_all(answer.as_bytes()).await.unwrap();
    })
    .await;
    let (port, names) = (address.port(), Names::of(&[("echo.test", &["127.0.0.1"])]));
    let world = World::new(private(vec![name("echo.test", port)]), way(&names)).await;
    let mut client = world.client().await;
    assert_eq!(client.socks("echo.test", port).await, 0);
    assert_eq!(client.exactly(11).await, b"220 hello\r\n");
    // More than the credit of a channel.
    client.say(b"EHLO me\r\n").await;
    client.say(&vec![b'x'; 1_000_000]).await;
    client.0.shutdown().await.unwrap();
    assert_eq!(client.rest().await.unwrap(), "heard 1000009 bytes");
    assert_eq!(world.kept.ended(1).await[0].0, 1_000_009);
    // Two bytes and the end mean no server.
    let mut client = world.client().await;
    assert_eq!(client.socks("echo.test", port).await, 0);
    client.say(b"hi").await;
    client.0.shutdown().await.unwrap();
    assert!(client.rest().await.unwrap().ends_with("heard 2 bytes"));
    world.remote.close().await;
}

#[tokio::test]
async fn a_server_that_breaks_off_never_looks_like_one_that_is_done() {
    let address: SocketAddr = each(|mut stream| async move {
        let mut head = [0; 8];
        stream.read_exact(&mut head).await.unwrap();
        stream
            .write_all(b"HTTP/1.0 200 OK\r\n\r\nhalf")
            .await
            .unwrap();
        stream.set_zero_linger().unwrap();
    })
    .await;
    let (port, names) = (address.port(), Names::of(&[("web.test", &["127.0.0.1"])]));
    let world = World::new(private(vec![name("web.test", port)]), way(&names)).await;
    let mut client = world.client().await;
    client.say(get("web.test", port, "/").as_bytes()).await;
    let (_, clean) = client.drain().await;
    assert!(!clean);
    let how = world.kept.ended(1).await[0].2.clone();
    assert!(how.starts_with("the server broke off"), "{how}");
    world.remote.close().await;
}

#[tokio::test]
async fn a_body_goes_whole_and_what_comes_after_it_goes_nowhere() {
    let server = Server::http().await;
    let (port, names) = (server.port(), Names::of(&[("web.test", &["127.0.0.1"])]));
    let world = World::new(private(vec![name("web.test", port)]), way(&names)).await;
    let body = "b".repeat(700_000);
    let ask = format!(
        "POST http://web.test:{port}/put HTTP/1.1\r\nHost: web.test:{port}\r\nContent-Length: {}\r\n\r\n{body}{}",
        body.len(),
        get("web.test", port, "/smuggled")
    );
    let answer = world.ask(&ask).await;
    assert!(answer.ends_with("/put 700000\n"), "{answer}");
    world.kept.ended(1).await;
    assert_eq!(server.heads().len(), 1);
    world.remote.close().await;
}
