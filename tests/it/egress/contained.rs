//! In real containers, and in a whole run.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;
use wharf::journal::{EgressStep, Event, Line};
use wharf::run::Notice;
use wharf::sandbox::egress::{Listener, Policy, Step};
use wharf::sandbox::{Command, Exit, Network, Sandbox, Spec};

use super::servers::Server;
use super::world::{Kept, Names, bearer, credential, name, private, way};
use crate::container::{engine, open, python, spec};
use crate::server::{Answer, Ask};
use crate::world::{World, report};

const CANARY: &str = "canary-of-the-operator";

async fn run(sandbox: &dyn Sandbox, line: &str) -> String {
    let command = Command {
        line: line.to_owned(),
        timeout: Duration::from_secs(60),
        background: false,
        keep: 100_000,
    };
    let ran = sandbox
        .run(&command, &CancellationToken::new())
        .await
        .unwrap();
    let text = String::from_utf8_lossy(&ran.stdout.head).into_owned();
    assert_eq!(
        ran.exit,
        Exit::Code(0),
        "{text}{}",
        String::from_utf8_lossy(&ran.stderr.head)
    );
    text
}

/// What a program tries that may go out by the proxy alone; a line for each try.
fn tries(port: u16) -> String {
    format!(
        r#"python3 - <<'END'
import socket, urllib.request, urllib.error
def attempt(what, work):
    try: print(what, work())
    except urllib.error.HTTPError as error: print(what, error.code, error.headers["X-Wharf-Reason"])
    except OSError as error: print(what, "failed")
def socks():
    s = socket.create_connection(("127.0.0.1", 3128))
    s.sendall(b"\5\1\0\5\1\0\3\x08web.test" + ({port}).to_bytes(2, "big"))
    answer = b""
    while len(answer) < 12: answer += s.recv(12 - len(answer))
    s.sendall(b"GET /socks HTTP/1.1\r\nHost: web.test\r\n\r\n")
    while part := s.recv(1000): answer += part
    return answer[3], answer.split(b"\r\n\r\n")[1].decode().strip()
def udp():
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("8.8.8.8", 53))
attempt("http", lambda: urllib.request.urlopen("http://web.test:{port}/py").read().decode().strip())
attempt("other", lambda: urllib.request.urlopen("http://other.test/").read())
attempt("tunnel", lambda: urllib.request.urlopen("https://other.test/").read())
attempt("socks", socks)
attempt("direct", lambda: socket.create_connection(("8.8.8.8", 53), 2))
attempt("gateway", lambda: socket.create_connection(("172.17.0.1", {port}), 2))
attempt("names", lambda: socket.getaddrinfo("web.test", 80))
attempt("udp", udp)
END
ls /sys/class/net; git ls-remote http://web.test:{port}/repo 2>/dev/null; true"#
    )
}

#[tokio::test]
async fn a_container_without_a_network_goes_out_by_its_proxy_alone() {
    let Some((docker, look)) = engine().await else {
        return;
    };
    let server = Server::http().await;
    let (port, kept) = (server.port(), Arc::<Kept>::default());
    let names = Names::of(&[("web.test", &["127.0.0.1"])]);
    let policy = Policy {
        inject: vec![bearer("web.test", port, false)],
        listener: Listener::new(kept.clone()),
        ..private(vec![name("web.test", port)])
    };
    let docker = docker.reaching(credential(way(&names), "TOKEN", CANARY));
    let spec = Spec {
        network: Network::Allow(policy),
        ..spec(python(&docker).await, "egress")
    };
    let sandbox = open(&docker, &spec).await;
    let seen = look
        .inspect_container(&sandbox.facts().container, None)
        .await
        .unwrap();
    assert_eq!(
        seen.host_config.unwrap().network_mode.as_deref(),
        Some("none")
    );

    let text = run(sandbox.as_ref(), &tries(port)).await;
    let wanted = "http /py 0\n\
        other 403 other.test:80 is not on the plan's list of hosts\n\
        tunnel failed\n\
        socks (0, '/socks 0')\n\
        direct failed\ngateway failed\nnames failed\nudp failed\n\
        lo\n";
    assert_eq!(text, wanted);
    let heads = server.heads();
    assert!(
        heads[0].contains(CANARY) && !heads[1].contains(CANARY),
        "{heads:?}"
    );
    let git = "GET /repo/info/refs?service=git-upload-pack HTTP/1.1\r\n";
    assert!(heads[2].starts_with(git), "{heads:?}");

    let text = run(
        sandbox.as_ref(),
        "env; cat /proc/[0-9]*/environ | tr '\\0' '\\n'; cat /proc/[0-9]*/cmdline",
    )
    .await;
    assert!(
        text.contains("HTTP_PROXY=http://127.0.0.1:3128") && text.contains("no_proxy=localhost"),
        "{text}"
    );
    assert!(!text.contains(CANARY));
    sandbox.close().await;
    let refused = kept.reasons();
    assert_eq!(refused.len(), 2, "{refused:?}");
    assert!(!format!("{:?}", kept.all()).contains(CANARY));
}

#[tokio::test]
async fn many_commands_at_once_go_out_of_one_container() {
    let Some((docker, _)) = engine().await else {
        return;
    };
    let server = Server::http().await;
    let (port, kept) = (server.port(), Arc::<Kept>::default());
    let names = Names::of(&[("web.test", &["127.0.0.1"])]);
    let policy = Policy {
        listener: Listener::new(kept.clone()),
        ..private(vec![name("web.test", port)])
    };
    let docker = docker.reaching(way(&names));
    let spec = Spec {
        network: Network::Allow(policy),
        ..spec(python(&docker).await, "egress-many")
    };
    let sandbox = open(&docker, &spec).await;
    let line = format!(
        r#"python3 - <<'END'
import threading, urllib.request
held = threading.Barrier(64)
answers = []
def ask(n):
    held.wait()
    answers.append(urllib.request.urlopen("http://web.test:{port}/" + str(n)).read() == b"/%d 0\n" % n)
all = [threading.Thread(target=ask, args=(n,)) for n in range(64)]
[t.start() for t in all]; [t.join() for t in all]
print(len(answers), sum(answers))
END"#
    );
    assert_eq!(run(sandbox.as_ref(), &line).await, "64 64\n");
    sandbox.close().await;
    let ended = |step: &Step| matches!(step, Step::Ended { .. });
    assert_eq!(
        kept.all().iter().filter(|told| ended(&told.step)).count(),
        64
    );
}

/// Every file below a folder that holds this text.
fn holding(folder: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(holding(&path, text));
        } else {
            let bytes = std::fs::read(&path).unwrap();
            let here = bytes
                .windows(text.len())
                .any(|part| part == text.as_bytes());
            found.extend(here.then(|| path.display().to_string()));
        }
    }
    found
}

/// Asks two servers, then reports.
fn asks(ask: &Ask, port: u16) -> Answer {
    let line = format!(
        "python3 -c 'import urllib.request as u; print(u.urlopen(\"http://api.test:{port}/v1\").read())'; \
         python3 -c 'import urllib.request as u; u.urlopen(\"http://evil.test/\")' 2>&1 | tail -1; env; \
         cat /proc/[0-9]*/environ | tr '\\0' '\\n'"
    );
    match ask.ordinal {
        0 => Answer::call("bash", json!({"command": line})),
        _ => report("done", "asked"),
    }
}

/// What the journal says of connections: whose, where to, what.
fn steps(journal: &[Line]) -> Vec<(String, String, EgressStep)> {
    let of = |line: &Line| match &line.event {
        Event::Egress {
            agent, host, step, ..
        } => Some((agent.subtask.to_string(), host.clone(), step.clone())),
        _ => None,
    };
    journal.iter().filter_map(of).collect()
}

#[tokio::test]
async fn a_run_tells_everybody_what_can_be_reached_and_nobody_the_credential() {
    let Some((docker, _)) = engine().await else {
        return;
    };
    let server = Server::https().await;
    let (port, names) = (server.port(), Names::of(&[("api.test", &["127.0.0.1"])]));
    let docker = docker.reaching(credential(way(&names), "TOKEN", CANARY));
    let mut world = World::new(&[("a.txt", "a\n")]);
    world.engine = Arc::new(docker);
    world.options.verify = false;
    world.options.bootstrap = true;
    let plan = format!(
        "version: 1\nmodel: openai/fake\nsandbox:\n  network:\n    allow: [\"api.test:{port}\"]\n    private: true\n    \
         inject: [{{host: \"api.test:{port}\", header: Authorization, env: TOKEN, prefix: \"Bearer \"}}]\n\
         subtasks: [{{id: a, role: coder, brief: \"Ask.\"}}]\n"
    );
    let ran = world.run(&plan, move |ask| asks(ask, port)).await;
    assert_eq!(ran.summary.subtasks[0].reason, None);
    let head = server.heads().remove(0);
    assert!(
        head.contains(&format!("Authorization: Bearer {CANARY}")),
        "{head}"
    );

    let started = ran.notices.iter().find_map(|notice| match notice {
        Notice::Started { network, .. } => Some(network.clone()),
        _ => None,
    });
    assert!(
        started
            .unwrap()
            .contains(&format!("coder (only api.test:{port})"))
    );
    let requests = ran.server.requests();
    let said = serde_json::to_string(&requests).unwrap();
    for part in [
        format!("reaches these hosts and nothing else: api.test:{port}"),
        format!("Requests to http://api.test:{port}/ get the header Authorization"),
        "b'/v1 0".to_owned(),
        "HTTP Error 403: Forbidden".to_owned(),
    ] {
        assert!(said.contains(&part), "{part}: {said}");
    }
    let steps = steps(&ran.journal);
    assert_eq!(steps.len(), 3, "{steps:?}");
    assert!(steps.iter().all(|(agent, ..)| agent == "a"));
    assert!(
        matches!(&steps[0].2, EgressStep::Allowed { injected, .. } if *injected == ["Authorization"])
    );
    let refused = |(_, host, step): &(String, String, EgressStep)| {
        host == "evil.test" && matches!(step, EgressStep::Refused { .. })
    };
    assert!(steps.iter().any(refused), "{steps:?}");
    assert!(!said.contains(CANARY));
    assert_eq!(holding(&world.state, CANARY), Vec::<String>::new());
    assert!(!format!("{:?}", ran.notices).contains(CANARY));
}
