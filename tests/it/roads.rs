//! The road to a model server: proxies that the environment names, and authorities of one's own.

use serde_json::Value;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::cli::{home, object, text, wharf};
use crate::egress::servers::{Server, each};
use crate::server::{Answer, FakeModel};

/// What `wharf models mine` says of a server at `base`, with these variables.
async fn models(base: &str, variables: &[(&str, String)]) -> Value {
    let home = home();
    let dir = home.path().join(".config/wharf");
    std::fs::create_dir_all(&dir).unwrap();
    let own = format!("providers:\n  mine: {{kind: openai, base_url: '{base}'}}\n");
    std::fs::write(dir.join("config.yaml"), own).unwrap();
    let mut command = wharf(home.path());
    for (name, value) in variables {
        command.env(name, value);
    }
    command.args(["models", "mine", "--json"]);
    let out = tokio::task::spawn_blocking(move || command.output().unwrap());
    let said = object(&text(&out.await.unwrap().stdout));
    said["providers"][0].clone()
}

async fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// A proxy that leads every tunnel to `to`, answers everything else itself, and keeps first lines.
async fn proxy(to: std::net::SocketAddr) -> (String, Arc<Mutex<Vec<String>>>) {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let kept = seen.clone();
    let address = each(move |mut stream| {
        let kept = kept.clone();
        async move {
            let head = head(&mut stream).await;
            let first = head.lines().next().unwrap().to_owned();
            kept.lock().unwrap().push(first.clone());
            if first.starts_with("CONNECT ") {
                let mut other = TcpStream::connect(to).await.unwrap();
                let open = b"HTTP/1.1 200 OK\r\n\r\n";
                stream.write_all(open).await.unwrap();
                // Either end may be gone before the other.
                drop(tokio::io::copy_bidirectional(&mut stream, &mut other).await);
                return;
            }
            let list = r#"{"data": [{"id": "seen-through-the-proxy"}]}"#;
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{list}",
                list.len()
            );
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    })
    .await;
    (format!("http://{address}"), seen)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_is_taken_where_the_environment_names_one_and_never_to_this_machine() {
    let server = FakeModel::start(|_| Answer::text("ok")).await;
    let (proxy, seen) = proxy(([127, 0, 0, 1], 1).into()).await;
    let named = ("HTTP_PROXY", proxy.clone());
    let through = models("http://models.test/v1", std::slice::from_ref(&named)).await;
    assert_eq!(through["state"], "ok", "{through}");
    assert_eq!(through["models"][0]["id"], "seen-through-the-proxy");
    let first = "GET http://models.test/v1/models HTTP/1.1".to_owned();
    assert_eq!(*seen.lock().unwrap(), [first]);
    let spared = ("NO_PROXY", "models.test".to_owned());
    let direct = models("http://models.test/v1", &[named.clone(), spared]).await;
    assert_eq!(direct["state"], "failed", "{direct}");
    let local = models(&server.base_url(), &[named]).await;
    assert_eq!(local["models"][0]["id"], "fake", "{local}");
    assert_eq!(seen.lock().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_authority_of_one_s_own_is_trusted_where_it_is_named_and_else_told_of() {
    let server = Server::https().await;
    let (proxy, seen) = proxy(server.address).await;
    let named = ("HTTPS_PROXY", proxy);
    let doubted = models("https://api.test/v1", std::slice::from_ref(&named)).await;
    assert_eq!(doubted["state"], "failed", "{doubted}");
    let next = doubted["next"].as_str().unwrap();
    assert!(next.contains("SSL_CERT_FILE"), "{doubted}");
    assert_eq!(server.heads().len(), 0, "nothing was said to it");
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/egress/ca.pem");
    let trusted = models(
        "https://api.test/v1",
        &[named, ("SSL_CERT_FILE", own.to_owned())],
    )
    .await;
    let reason = trusted["reason"].as_str().unwrap_or_default();
    assert!(
        reason.contains("no JSON"),
        "it answered, if not in JSON: {trusted}"
    );
    assert!(server.heads()[0].starts_with("GET /v1/models "));
    assert!(
        seen.lock()
            .unwrap()
            .iter()
            .all(|line| line.starts_with("CONNECT api.test:443 "))
    );
}
