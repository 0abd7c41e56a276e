//! Credentials that are added outside: at the server, and nowhere else.

use wharf::sandbox::Sandbox;
use wharf::sandbox::egress::{Policy, Step};

use super::servers::Server;
use super::world::{Names, World, bearer, credential, name, private, way};

const CANARY: &str = "canary-of-the-operator";

/// What programs of the sandbox can see of process 1 and of themselves.
async fn visible(world: &World) -> String {
    let line = format!(
        "env; cat /proc/{0}/environ /proc/self/environ /proc/{0}/cmdline | tr '\\0' '\\n'; ls -la ~ /tmp/.wharf 2>&1",
        world.pid
    );
    let finished = world.run(&line).await;
    String::from_utf8(finished.stdout.head.to_vec()).unwrap()
}

#[tokio::test]
async fn a_request_in_the_clear_gets_its_credential_over_tls() {
    let server = Server::https().await;
    let port = server.port();
    let names = Names::of(&[("api.test", &["127.0.0.1"])]);
    let policy = Policy {
        inject: vec![bearer("api.test", port, true)],
        ..private(vec![name("api.test", port)])
    };
    let way = credential(way(&names), "TOKEN", CANARY);
    let world = World::new(policy, way).await;
    let ask = format!(
        "POST http://api.test:{port}/v1 HTTP/1.1\r\nHost: api.test:{port}\r\nauthorization: Bearer mine\r\n\
         Content-Length: 3\r\n\r\nabc"
    );
    let answer = world.ask(&ask).await;
    assert!(answer.ends_with("/v1 3\n"), "{answer}");
    let head = server.heads().remove(0);
    assert!(
        head.contains(&format!("\r\nAuthorization: Bearer {CANARY}\r\n")),
        "{head}"
    );
    assert!(!head.contains("mine"), "{head}");
    let trace = ask.replace("POST", "TRACE");
    assert!(world.ask(&trace).await.starts_with("HTTP/1.1 403"));
    world.kept.ended(2).await;
    let told = world.kept.all();
    let named = |step: &Step| matches!(step, Step::Allowed { injected, .. } if *injected == ["Authorization"]);
    assert!(named(&told[0].step), "{told:?}");
    let seen = format!("{answer}{told:?}{}", visible(&world).await);
    assert!(seen.contains("PATH=") && !seen.contains(CANARY), "{seen}");
    assert_eq!(server.heads().len(), 1);
    world.remote.close().await;
}

#[tokio::test]
async fn a_tunnel_to_the_same_server_gets_none() {
    let server = Server::http().await;
    let port = server.port();
    let names = Names::of(&[("api.test", &["127.0.0.1"])]);
    let policy = Policy {
        inject: vec![bearer("api.test", port, false)],
        ..private(vec![name("api.test", port)])
    };
    let world = World::new(policy, credential(way(&names), "TOKEN", CANARY)).await;
    let mut client = world.client().await;
    client.connect("api.test", port).await;
    let ask = format!("GET / HTTP/1.1\r\nHost: api.test:{port}\r\n\r\n");
    client.say(ask.as_bytes()).await;
    client.rest().await.unwrap();
    assert!(world.get("api.test", port, "/").await.ends_with("/ 0\n"));
    let heads = server.heads();
    assert!(
        !heads[0].contains(CANARY) && heads[1].contains(CANARY),
        "{heads:?}"
    );
    world.remote.close().await;
}

#[tokio::test]
async fn without_its_value_or_a_trusted_certificate_nothing_is_sent() {
    let server = Server::https().await;
    let port = server.port();
    let names = Names::of(&[("api.test", &["127.0.0.1"]), ("other.test", &["127.0.0.1"])]);
    let policy = || Policy {
        inject: vec![
            bearer("api.test", port, true),
            bearer("other.test", port, true),
        ],
        ..private(vec![name("api.test", port), name("other.test", port)])
    };
    let world = World::new(policy(), way(&names)).await;
    let answer = world.get("api.test", port, "/").await;
    assert!(
        answer.starts_with("HTTP/1.1 403") && answer.contains("TOKEN is not set"),
        "{answer}"
    );
    assert_eq!(names.asked(), Vec::<String>::new());
    world.remote.close().await;

    // A certificate for another name, and one of an authority that is not trusted.
    let mut strange = credential(way(&names), "TOKEN", CANARY);
    let world = World::new(policy(), strange.clone()).await;
    let answer = world.get("other.test", port, "/").await;
    let reason = world.kept.reasons().remove(0);
    assert!(
        answer.starts_with("HTTP/1.1 502") && reason.contains("TLS failed"),
        "{answer} {reason}"
    );
    world.remote.close().await;
    strange.authorities =
        Some(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/egress/server.pem").into());
    let world = World::new(policy(), strange).await;
    let answer = world.get("api.test", port, "/").await;
    let reason = world.kept.reasons().remove(0);
    assert!(
        answer.starts_with("HTTP/1.1 502") && reason.contains("TLS failed"),
        "{answer} {reason}"
    );
    assert!(!format!("{answer}{:?}", world.kept.all()).contains(CANARY));
    assert_eq!(server.heads(), Vec::<String>::new());
    world.remote.close().await;
}

#[test]
fn a_credential_is_not_printed() {
    let way = credential(way(&Names::of(&[])), "TOKEN", CANARY);
    let text = format!("{way:?} {:?}", way.credentials);
    assert!(text.contains("TOKEN") && !text.contains(CANARY), "{text}");
}
