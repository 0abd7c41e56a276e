//! An engine that fails in the middle: none of it is read as output, none hangs, nothing is left.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;
use wharf::journal::Event;
use wharf::run::Status;
use wharf::sandbox::{self, Cause, Docker, Engine, Error, ImageSpec, Network, Options, Pull, Spec};

use crate::container::{
    Said, empty_tree, engine, image_spec, left, machine, open, python, run, soon, spec,
};
use crate::faulty::{Fault, Faulty, socket};
use crate::proxy::{Proxy, Rule};
use crate::server::Answer;
use crate::world::{World, report};

/// The engine through a proxy, and a client that looks past it.
async fn through() -> Option<(Docker, bollard::Docker, Faulty)> {
    let (_, look) = engine().await?;
    let faulty = Faulty::start(&socket());
    Some((behind(&faulty.address()).await, look, faulty))
}

async fn behind(address: &str) -> Docker {
    let options = Options {
        host: Some(address.to_owned()),
        state: "/tmp/wharf-it-state".into(),
        machine: machine(),
        ..Options::default()
    };
    sandbox::connect(&options).await.unwrap()
}

async fn refused(docker: &Docker, spec: &Spec) -> String {
    let cancel = CancellationToken::new();
    match docker.open(spec, &empty_tree(), &cancel).await {
        Err(error) => error.to_string(),
        Ok(_) => panic!("it opened"),
    }
}

fn full(spec: Spec) -> Spec {
    Spec {
        network: Network::Full,
        ..spec
    }
}

#[tokio::test]
async fn a_container_whose_making_was_not_heard_of_is_removed() {
    let Some((docker, look, faulty)) = through().await else {
        return;
    };
    let spec = full(spec(python(&docker).await, "lost-create"));
    let met = faulty.on("POST /containers/create", 1, Fault::Lost);
    let said = refused(&docker, &spec).await;
    assert!(said.starts_with("creating a container: "), "{said}");
    assert_eq!(met.load(Ordering::SeqCst), 1);
    assert_eq!(left(&look, "run-lost-create").await, (0, 0));
}

#[tokio::test]
async fn a_network_whose_making_was_not_heard_of_is_removed() {
    let Some((docker, look, faulty)) = through().await else {
        return;
    };
    let spec = full(spec(python(&docker).await, "lost-network"));
    faulty.on("POST /networks/create", 1, Fault::Lost);
    let said = refused(&docker, &spec).await;
    assert!(said.starts_with("creating a network: "), "{said}");
    assert_eq!(left(&look, "run-lost-network").await, (0, 0));
}

#[tokio::test]
async fn an_engine_that_does_not_answer_is_given_up_at_its_limit() {
    let Some((docker, look, faulty)) = through().await else {
        return;
    };
    let spec = spec(python(&docker).await, "silent");
    let long = Fault::Silent(Duration::from_secs(121));
    faulty.on("POST /containers/create", 1, long);
    assert_eq!(
        refused(&docker, &spec).await,
        "creating a container: the engine did not answer within 120 s"
    );
    let short = Fault::Silent(Duration::from_secs(16));
    faulty.on("/attach", 1, short);
    assert_eq!(
        refused(&docker, &spec).await,
        "attaching to a container: the engine did not answer within 15 s"
    );
    assert_eq!(left(&look, "run-silent").await, (0, 0));
}

#[tokio::test]
async fn a_cancel_is_heard_while_the_engine_is_silent() {
    let Some((docker, look, faulty)) = through().await else {
        return;
    };
    let spec = spec(python(&docker).await, "silent-cancel");
    let met = faulty.on(
        "POST /containers/create",
        1,
        Fault::Silent(Duration::from_secs(10)),
    );
    let cancel = CancellationToken::new();
    let (tree, waiting) = (empty_tree(), cancel.clone());
    let opening = docker.open(&spec, &tree, &cancel);
    let firing = async {
        while met.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        waiting.cancel();
    };
    let (opened, ()) = tokio::join!(opening, firing);
    assert!(matches!(opened, Err(Error::Cancelled)), "not cancelled");
    assert_eq!(left(&look, "run-silent-cancel").await, (0, 0));
}

#[tokio::test]
async fn what_the_engine_refuses_is_told_in_its_words_and_leaves_nothing() {
    let Some((docker, look, faulty)) = through().await else {
        return;
    };
    let spec = full(spec(python(&docker).await, "refused"));
    let no = json!({"message": "no space left on device"}).to_string();
    for (on, said) in [
        (
            "POST /containers/create",
            "creating a container: no space left on device",
        ),
        ("/start", "starting a container: no space left on device"),
        (
            "POST /networks/create",
            "creating a network: no space left on device",
        ),
    ] {
        let answer = Fault::Answer("500 Internal Server Error", no.clone());
        faulty.on(on, 1, answer);
        assert_eq!(refused(&docker, &spec).await, said);
    }
    faulty.on("/attach", 1, Fault::Lost);
    let said = refused(&docker, &spec).await;
    assert!(said.starts_with("attaching to a container: "), "{said}");
    soon(&look, "run-refused", (0, 0)).await;
}

#[tokio::test]
async fn an_answer_that_is_no_answer_is_an_error() {
    let Some((docker, look, faulty)) = through().await else {
        return;
    };
    let spec = spec(python(&docker).await, "nonsense");
    for body in ["", "null", "[1]", "<html>busy</html>", "{\"Id\": 7}"] {
        faulty.on(
            "POST /containers/create",
            1,
            Fault::Answer("201 Created", body.into()),
        );
        let said = refused(&docker, &spec).await;
        assert!(said.starts_with("creating a container: "), "{body}: {said}");
    }
    assert_eq!(left(&look, "run-nonsense").await, (0, 0));
}

#[tokio::test]
async fn late_answers_change_nothing() {
    let Some((docker, look, faulty)) = through().await else {
        return;
    };
    let spec = spec(python(&docker).await, "late");
    let met = faulty.on("/containers/", 100, Fault::Late(Duration::from_millis(400)));
    let sandbox = open(&docker, &spec).await;
    let (exit, text) = run(sandbox.as_ref(), "echo $GREETING").await;
    assert_eq!((exit, text.as_str()), (sandbox::Exit::Code(0), "hello\n"));
    sandbox.close().await;
    assert!(met.load(Ordering::SeqCst) > 3);
    assert_eq!(left(&look, "run-late").await, (0, 0));
}

/// The stream of a sandbox ends after some bytes of it: somewhere between two frames or in one.
#[tokio::test]
async fn a_cut_stream_is_a_broken_sandbox_and_never_output() {
    let Some((docker, look, faulty)) = through().await else {
        return;
    };
    let spec = spec(python(&docker).await, "cut");
    let mut opened = 0;
    for bytes in [0, 5, 300, 1_000, 2_500, 6_000] {
        faulty.on("/attach", 1, Fault::CutAfter(bytes));
        let cancel = CancellationToken::new();
        let sandbox = match docker.open(&spec, &empty_tree(), &cancel).await {
            Ok(sandbox) => sandbox,
            Err(Error::Broken { .. }) => continue,
            Err(other) => panic!("after {bytes} bytes: {other}"),
        };
        opened += 1;
        let command = sandbox::Command {
            line: "i=0; while [ $i -lt 4000 ]; do echo line $i; i=$((i+1)); done".into(),
            timeout: Duration::from_secs(60),
            background: false,
            keep: 100_000,
        };
        let done = sandbox.run(&command, &cancel).await;
        assert!(
            matches!(done, Err(Error::Broken { .. })),
            "after {bytes} bytes: {done:?}"
        );
        sandbox.close().await;
    }
    assert!(opened > 0, "some stream lasted until the command");
    soon(&look, "run-cut", (0, 0)).await;
}

#[tokio::test]
async fn a_sandbox_that_the_engine_lost_sight_of_is_removed() {
    let Some((docker, look, faulty)) = through().await else {
        return;
    };
    let image = python(&docker).await;
    faulty.on("condition=next-exit", 1, Fault::CutAfter(0));
    let blind = spec(image.clone(), "blind");
    let cancel = CancellationToken::new();
    match docker.open(&blind, &empty_tree(), &cancel).await {
        Err(Error::Broken { cause, .. }) => assert_eq!(cause, Cause::Engine),
        Err(other) => panic!("{other}"),
        Ok(sandbox) => {
            let command = sandbox::Command {
                line: "true".into(),
                timeout: Duration::from_secs(60),
                background: false,
                keep: 100,
            };
            let done = sandbox.run(&command, &cancel).await;
            assert!(matches!(done, Err(Error::Broken { .. })), "{done:?}");
            sandbox.close().await;
        }
    }
    soon(&look, "run-blind", (0, 0)).await;
}

/// An engine that keeps what it should remove, and does not say so.
#[tokio::test]
async fn a_container_whose_end_is_not_confirmed_is_removed_by_hand() {
    let Some((_, look)) = engine().await else {
        return;
    };
    let keeping = Proxy::start(
        socket(),
        vec![Rule::request("POST /containers/create", |body| {
            body["HostConfig"]["AutoRemove"] = json!(false);
        })],
    );
    let path = keeping.address();
    let faulty = Faulty::start(path.strip_prefix("unix://").unwrap().as_ref());
    let docker = behind(&faulty.address()).await;
    let spec = spec(python(&docker).await, "unconfirmed");
    let no = json!({"message": "not now"}).to_string();
    let met = faulty.on(
        "condition=removed",
        1,
        Fault::Answer("500 Internal Server Error", no),
    );
    open(&docker, &spec).await.close().await;
    assert_eq!(met.load(Ordering::SeqCst), 1);
    assert_eq!(left(&look, "run-unconfirmed").await, (0, 0));
}

#[tokio::test]
async fn a_removal_is_asked_again_of_an_engine_that_is_starting() {
    let Some((docker, look, faulty)) = through().await else {
        return;
    };
    let spec = spec(python(&docker).await, "again");
    let no = json!({"message": "no"}).to_string();
    faulty.on("/start", 1, Fault::Answer("500 Internal Server Error", no));
    let met = faulty.on("DELETE /containers/", 2, Fault::Lost);
    assert_eq!(refused(&docker, &spec).await, "starting a container: no");
    assert!(met.load(Ordering::SeqCst) >= 1);
    assert_eq!(left(&look, "run-again").await, (0, 0));
}

/// The engine's own restart: every connection ends, and a moment later all is there again.
#[tokio::test]
async fn a_run_outlives_a_restart_of_the_engine() {
    let Some((docker, look, faulty)) = through().await else {
        return;
    };
    python(&docker).await;
    let mut world = World::new(&[("a.txt", "one\n")]);
    world.options.verify = false;
    world.options.machine = machine();
    world.engine = Arc::new(docker);
    let plan = "version: 1\ntask: Do it\nsubtasks: [{id: a, role: coder, brief: A}]\n";
    let faulty = Arc::new(faulty);
    let away = faulty.clone();
    let ran = world
        .run(plan, move |ask| match ask.ordinal {
            0 => Answer::call("bash", json!({"command": "echo first > b.txt; echo here"})),
            1 => {
                away.restarts();
                Answer::call("bash", json!({"command": "cat b.txt; echo again"}))
            }
            2 => {
                let seen = ask.last();
                assert!(seen.contains("the sandbox broke"), "{seen}");
                Answer::call("bash", json!({"command": "cat b.txt; echo again"}))
            }
            _ => {
                let seen = ask.last();
                assert!(seen.contains("first") && seen.contains("again"), "{seen}");
                report("done", "what was first is there again")
            }
        })
        .await;
    assert_eq!(ran.summary.status, Status::Unverified, "it was not to be");
    let broken: Vec<(String, bool)> = ran
        .journal
        .iter()
        .filter_map(|line| match &line.event {
            Event::SandboxBroken {
                cause, reopened, ..
            } => Some((cause.clone(), *reopened)),
            _ => None,
        })
        .collect();
    assert_eq!(broken, [("engine".to_owned(), true)]);
    soon(&look, "run", (0, 0)).await;
}

fn named(image: &str, pull: Pull) -> ImageSpec {
    ImageSpec {
        image: image.to_owned(),
        pull,
        ..ImageSpec::default()
    }
}

async fn pulled(docker: &Docker, spec: &ImageSpec) -> Result<String, (String, String)> {
    match docker.ensure(spec, &Said, &CancellationToken::new()).await {
        Ok(name) => Ok(name),
        Err(Error::Image { reason, hint, .. }) => Err((reason, hint)),
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test]
#[expect(
    clippy::too_many_lines,
    reason = "one table of what engines say of a pull"
)]
async fn what_goes_wrong_in_a_pull_is_told_apart() {
    let Some((docker, _, faulty)) = through().await else {
        return;
    };
    let wanted = named("registry.invalid/a/b:c", Pull::Missing);
    let inside = |reason: &str| {
        let first = json!({"status": "Pulling from a/b", "id": "c"});
        let last = json!({"errorDetail": {"message": reason}, "error": reason});
        format!("{first}\r\n{last}\r\n")
    };
    for (body, said) in [
        (
            inside("toomanyrequests: You have reached your pull rate limit."),
            "limits how often",
        ),
        (
            inside("unauthorized: authentication required"),
            "refuses access",
        ),
        (
            inside("manifest for a/b:c not found: manifest unknown"),
            "no such image",
        ),
        (
            inside("dial tcp: lookup registry.invalid on 10.0.0.2:53: no such host"),
            "its name does not resolve",
        ),
        (
            inside(
                "Get \"https://registry.invalid/v2/\": net/http: request canceled while waiting \
                    for connection (Client.Timeout exceeded while awaiting headers)",
            ),
            "is not reached",
        ),
        (
            "{\"errorDetail\":{\"code\":1}}\r\n".to_owned(),
            "the engine names no reason",
        ),
        (
            "{\"error\":\"some\"}\r\n".to_owned(),
            "ended before the pull did",
        ),
        (
            "{\"status\":\"Pulling\"}\r\n".to_owned(),
            "ended before the pull did",
        ),
        (String::new(), "ended before the pull did"),
        ("{\"status\":\"Pul".to_owned(), "pull"),
    ] {
        faulty.on(
            "POST /images/create",
            1,
            Fault::Answer("200 OK", body.clone()),
        );
        let (reason, hint) = pulled(&docker, &wanted).await.unwrap_err();
        assert!(
            reason.contains(said) && !hint.is_empty(),
            "{body}: {reason}"
        );
    }
    let down =
        json!({"message": "Get \"https://r/v2/\": dial tcp 10.0.0.1:443: connection refused"});
    faulty.on(
        "POST /images/create",
        1,
        Fault::Answer("500 Internal Server Error", down.to_string()),
    );
    let (reason, _) = pulled(&docker, &wanted).await.unwrap_err();
    assert!(reason.contains("not reached"), "{reason}");
    faulty.on(
        "POST /images/create",
        1,
        Fault::Silent(Duration::from_secs(31)),
    );
    let (reason, _) = pulled(&docker, &wanted).await.unwrap_err();
    assert!(reason.contains("nothing was heard for 30 s"), "{reason}");
}

/// A stream that ends well and leaves no image, and one that ends without its last word although an
/// older image is there.
#[tokio::test]
async fn a_pull_counts_only_when_it_is_proven() {
    let Some((docker, look, faulty)) = through().await else {
        return;
    };
    let fine = "{\"status\":\"Status: Downloaded newer image for x\"}\r\n".to_owned();
    faulty.on(
        "POST /images/create",
        1,
        Fault::Answer("200 OK", fine.clone()),
    );
    let absent = named("registry.invalid/a/b:c", Pull::Missing);
    let (reason, _) = pulled(&docker, &absent).await.unwrap_err();
    assert!(reason.contains("ended before the pull did"), "{reason}");

    let name = crate::images::scratch(&look, "proven", "LABEL a=b").await;
    let always = named(&name, Pull::Always);
    let part = "{\"status\":\"Pulling from a\"}\r\n".to_owned();
    faulty.on("POST /images/create", 1, Fault::Answer("200 OK", part));
    let (reason, _) = pulled(&docker, &always).await.unwrap_err();
    assert!(reason.contains("ended before the pull did"), "{reason}");

    // Once it is fetched, no subagent asks again; `missing` and `never` take what is there.
    let met = faulty.on("POST /images/create", 9, Fault::Answer("200 OK", fine));
    for pull in [Pull::Always, Pull::Always, Pull::Missing, Pull::Never] {
        assert_eq!(pulled(&docker, &named(&name, pull)).await, Ok(name.clone()));
    }
    assert_eq!(met.load(Ordering::SeqCst), 1);
    let (reason, hint) = pulled(&docker, &named("registry.invalid/a/b:c", Pull::Never))
        .await
        .unwrap_err();
    assert!(
        reason.contains("`pull: never`") && hint.contains("docker load"),
        "{reason}"
    );
    let (reason, _) = pulled(
        &docker,
        &named(&format!("sha256:{}", "0".repeat(64)), Pull::Missing),
    )
    .await
    .unwrap_err();
    assert!(reason.contains("no image of that id"), "{reason}");
    assert_eq!(met.load(Ordering::SeqCst), 1);
    crate::images::discard(&look, &name).await;
}

#[tokio::test]
async fn a_bake_that_the_engine_breaks_off_is_no_image_and_leaves_nothing() {
    let Some((docker, look, faulty)) = through().await else {
        return;
    };
    python(&docker).await;
    let wanted = |mark: &str| ImageSpec {
        run: Some("run-bake".to_owned()),
        ..image_spec(
            &[&format!(
                "echo {mark} {}; sleep 1; echo end",
                std::process::id()
            )],
            &[],
        )
    };
    for (on, before, fault, said) in [
        // The first is the image's description, which is worth no failure.
        (
            "POST /exec/",
            1,
            Fault::CutAfter(20),
            "following a setup command",
        ),
        (
            "GET /exec/",
            1,
            Fault::Lost,
            "asking how a setup command ended",
        ),
        ("POST /commit", 0, Fault::Lost, "committing an image"),
    ] {
        faulty.on(on, before, Fault::Late(Duration::ZERO));
        let met = faulty.on(on, 1, fault);
        let made = docker
            .prepare(&wanted(said), &Said, &CancellationToken::new())
            .await;
        let error = made
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default();
        assert!(error.starts_with(said), "{on}: {error}");
        assert_eq!(met.load(Ordering::SeqCst), 1);
        soon(&look, "run-bake", (0, 0)).await;
    }
}

/// Killed in the middle: its container ends with its connection, and its network is the sweep's, at once.
#[tokio::test]
async fn what_a_killed_builder_left_is_swept_by_its_runs_lock() {
    let Some((docker, look)) = engine().await else {
        return;
    };
    python(&docker).await;
    let wanted = ImageSpec {
        run: Some("run-builder".to_owned()),
        ..image_spec(&["sleep 600"], &[])
    };
    let builder = docker.clone();
    let baking = tokio::spawn(async move {
        let cancel = CancellationToken::new();
        builder.prepare(&wanted, &Said, &cancel).await.map(drop)
    });
    soon(&look, "run-builder", (1, 1)).await;
    let alive = docker.sweep(&|_| false).await.unwrap();
    assert!(
        alive
            .left
            .iter()
            .any(|item| item.reason == "an image build is using it"),
        "{alive:?}"
    );
    assert_eq!(left(&look, "run-builder").await, (1, 1));
    baking.abort();
    assert!(baking.await.unwrap_err().is_cancelled());
    let swept = docker
        .sweep(&|labels| labels.run == "run-builder")
        .await
        .unwrap();
    assert!(
        swept
            .removed
            .iter()
            .any(|item| item.reason.contains("run run-builder, which is dead")),
        "{swept:?}"
    );
    soon(&look, "run-builder", (0, 0)).await;
}
