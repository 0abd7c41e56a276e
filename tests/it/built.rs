//! Images of every form: what they declare and is not used, what is refused, and what is built from a
//! Dockerfile.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;
use wharf::sandbox::{self, Docker, Engine, Error, ImageSpec, Options, Pull, Recipe};

use crate::container::{Said, engine, machine, open, python, run, spec};
use crate::faulty::{Fault, Faulty, socket};
use crate::images::{discard, scratch};
use crate::operator::{Operator, skipped};
use crate::proxy::{Proxy, Rule};
use crate::server::{Answer, FakeModel};
use crate::world::{put, report};

async fn behind(address: String) -> Docker {
    let options = Options {
        host: Some(address),
        state: "/tmp/wharf-it-state".into(),
        machine: machine(),
        ..Options::default()
    };
    sandbox::connect(&options).await.unwrap()
}

fn recipe(dir: &Path, pull: Pull) -> ImageSpec {
    ImageSpec {
        image: "a test's Dockerfile".to_owned(),
        recipe: Some(Recipe {
            dockerfile: dir.join("Dockerfile"),
            context: dir.to_owned(),
        }),
        pull,
        ..ImageSpec::default()
    }
}

async fn ready(docker: &Docker, spec: &ImageSpec) -> Result<sandbox::Image, (String, String)> {
    match docker.prepare(spec, &Said, &CancellationToken::new()).await {
        Ok(image) => Ok(image),
        Err(Error::Image { reason, hint, .. }) => Err((reason, hint)),
        Err(other) => panic!("{other}"),
    }
}

/// A folder with this Dockerfile and a file that no other test has.
fn folder(dockerfile: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    put(&dir.path().join("Dockerfile"), dockerfile);
    let unlike = format!("{} {}", std::process::id(), dir.path().display());
    put(&dir.path().join("unlike"), &unlike);
    dir
}

const DECLARES: &str = "FROM wharf/python:latest\nCOPY unlike /unlike\nUSER nobody\nENV HOME=/nowhere MARK=kept\n\
                        ENTRYPOINT [\"/bin/false\"]\nCMD [\"x\"]\nHEALTHCHECK --interval=1s CMD false\n\
                        VOLUME /data /var/lib/x\nSTOPSIGNAL SIGTERM\nEXPOSE 80\nWORKDIR /nowhere\n";

#[tokio::test]
async fn what_an_image_declares_changes_nothing_but_its_environment() {
    let Some((docker, look)) = engine().await else {
        return;
    };
    python(&docker).await;
    let dir = folder(DECLARES);
    let image = ready(&docker, &recipe(dir.path(), Pull::Missing))
        .await
        .unwrap();
    let sandbox = open(&docker, &spec(image.clone(), "declares")).await;
    let line = "id -u; pwd; echo $HOME $MARK; cat /unlike | wc -l; touch new && echo wrote";
    let (exit, text) = run(sandbox.as_ref(), line).await;
    assert_eq!(
        (exit, text.as_str()),
        (
            sandbox::Exit::Code(0),
            "1000\n/workspace\n/home/agent kept\n0\nwrote\n"
        )
    );
    let seen = look
        .inspect_container(&sandbox.facts().container, None)
        .await
        .unwrap();
    let health = seen.state.unwrap().health.and_then(|health| health.status);
    assert!(
        health.is_none_or(|status| status.to_string() == "none"),
        "{health:?}"
    );
    let volumes: Vec<String> = seen
        .mounts
        .into_iter()
        .flatten()
        .filter_map(|mount| mount.name)
        .collect();
    sandbox.close().await;
    for volume in volumes {
        assert!(
            look.inspect_volume(&volume).await.is_err(),
            "{volume} is left"
        );
    }
    discard(&look, &image.id).await;
}

/// A plain shell and few programs, as small images have.
const PLAIN: &str = "FROM wharf/python:latest\nCOPY unlike /unlike\n\
                     RUN cd /usr/bin && rm -f bash git tar setsid timeout nohup stdbuf kill ps\n";

#[tokio::test]
async fn an_image_with_a_plain_shell_alone_runs_commands_and_says_which() {
    let Some((docker, look)) = engine().await else {
        return;
    };
    python(&docker).await;
    let dir = folder(PLAIN);
    let spec_of = recipe(dir.path(), Pull::Missing);
    let image = ready(&docker, &spec_of).await.unwrap();
    let sandbox = open(&docker, &spec(image.clone(), "plain")).await;
    assert_eq!(sandbox.facts().shell.as_deref(), Some("sh"));
    let line =
        "for i in 1 2; do echo $i; done | cat; command -v bash git; (sleep 60 &); echo made > made";
    let (exit, text) = run(sandbox.as_ref(), line).await;
    assert_eq!((exit, text.as_str()), (sandbox::Exit::Code(0), "1\n2\n"));
    assert_eq!(sandbox.scan().await.unwrap().puts.len(), 1);
    let command = sandbox::Command {
        line: "trap '' TERM; echo begun; while :; do :; done".to_owned(),
        timeout: Duration::from_secs(1),
        background: false,
        keep: 100,
    };
    let ended = sandbox
        .run(&command, &CancellationToken::new())
        .await
        .unwrap();
    assert_eq!(ended.exit, sandbox::Exit::TimedOut);
    assert_eq!(ended.stdout.head, "begun\n");
    sandbox.close().await;
    discard(&look, &image.id).await;
}

#[tokio::test]
async fn a_bare_image_with_an_entrypoint_and_a_user_opens() {
    let Some((docker, look)) = engine().await else {
        return;
    };
    let change =
        "ENTRYPOINT [\"/note\"]\nUSER 4711:4711\nHEALTHCHECK CMD [\"/note\"]\nVOLUME /data";
    let name = scratch(&look, "declares", change).await;
    let wanted = ImageSpec {
        image: name.clone(),
        ..ImageSpec::default()
    };
    let image = ready(&docker, &wanted).await.unwrap();
    let sandbox = open(&docker, &spec(image.clone(), "bare-declares")).await;
    let wrote = sandbox.write("a/b.txt", "x\n".into()).await.unwrap();
    assert_eq!(wrote, Ok(()));
    assert_eq!(sandbox.scan().await.unwrap().puts.len(), 1);
    sandbox.close().await;
    discard(&look, &image.id).await;
    discard(&look, &name).await;
}

#[tokio::test]
async fn a_volume_over_what_must_be_kept_is_refused_by_name() {
    let Some((docker, look)) = engine().await else {
        return;
    };
    for (tag, volume, place) in [
        ("volume-root", "/", "/workspace"),
        ("volume-home", "/home", "/home/agent"),
        ("volume-agent", "/home/agent/", "/home/agent"),
        ("volume-toolbox", "/.wharf", "/.wharf/toolbox"),
    ] {
        let name = scratch(&look, tag, &format!("VOLUME {volume}")).await;
        let wanted = ImageSpec {
            image: name.clone(),
            ..ImageSpec::default()
        };
        let (reason, _) = ready(&docker, &wanted).await.unwrap_err();
        discard(&look, &name).await;
        assert!(
            reason.contains(&format!("VOLUME at {volume}")) && reason.contains(place),
            "{reason}"
        );
    }
}

/// The engine's own word for an image's architecture is what counts, so it is what is changed here.
#[tokio::test]
async fn another_architecture_is_exit_3_and_both_are_named() {
    if skipped() {
        return;
    }
    let Some((docker, _)) = engine().await else {
        return;
    };
    python(&docker).await;
    let foreign = Proxy::start(
        socket(),
        vec![Rule::answer("GET /images/", |image| {
            if image.get("Architecture").is_some() {
                image["Architecture"] = json!("s390x");
            }
        })],
    );
    let mut operator = Operator::new();
    operator.env.push(("DOCKER_HOST".into(), foreign.address()));
    let server = FakeModel::start(|_| report("done", "nothing")).await;
    let plan =
        "version: 1\nmodel: openai/fake\ntask: x\nsubtasks: [{id: a, role: coder, brief: A}]\n";
    let said = operator.run(&server, plan, &[]).await;
    assert_eq!(said.code, Some(3), "{said:?}");
    let reason = said.object()["reason"].to_string();
    assert!(
        reason.contains("made for s390x") && reason.contains("runs amd64"),
        "{reason}"
    );
    assert!(server.requests().is_empty(), "no model was asked");
}

#[tokio::test]
async fn a_dockerfile_is_built_once_for_its_content() {
    let Some((docker, look)) = engine().await else {
        return;
    };
    python(&docker).await;
    let faulty = Faulty::start(&socket());
    let docker = behind(faulty.address()).await;
    let builds = faulty.on("POST /build", 100, Fault::Late(Duration::ZERO));
    let dir = folder("FROM wharf/python:latest\nCOPY unlike data /there/\n");
    put(&dir.path().join("data"), "one");
    put(&dir.path().join(".dockerignore"), "*.log\n");
    let wanted = recipe(dir.path(), Pull::Missing);
    let first = ready(&docker, &wanted).await.unwrap();
    put(&dir.path().join("new.log"), "not read");
    assert_eq!(ready(&docker, &wanted).await.unwrap().id, first.id);
    assert_eq!(builds.load(Ordering::SeqCst), 1);
    put(&dir.path().join("data"), "two");
    let second = ready(&docker, &wanted).await.unwrap();
    assert_ne!(second.id, first.id);
    let sandbox = open(&docker, &spec(second.clone(), "built")).await;
    let (_, text) = run(sandbox.as_ref(), "ls /there; cat /there/data").await;
    sandbox.close().await;
    assert_eq!(text, "data\nunlike\ntwo");
    let rows = docker.images().await.unwrap();
    let title = dir.path().join("Dockerfile").display().to_string();
    let own = |row: &&sandbox::ImageRow| row.made_for.as_deref() == Some(&title);
    let built: Vec<_> = rows.iter().filter(own).collect();
    assert!(
        built.len() == 2 && built.iter().all(|row| row.cached),
        "{built:?}"
    );
    let names: Vec<String> = built.iter().map(|row| row.name.clone()).collect();
    // Asked for newer ones once, although two subagents want it.
    let always = recipe(dir.path(), Pull::Always);
    let pulls = faulty.on("pull=true", 100, Fault::Late(Duration::ZERO));
    drop((ready(&docker, &always).await, ready(&docker, &always).await));
    assert!(pulls.load(Ordering::SeqCst) <= 1);
    for image in [&first.id, &second.id].into_iter().chain(&names) {
        discard(&look, image).await;
    }
}

#[tokio::test]
async fn a_build_that_fails_or_is_broken_off_is_no_image() {
    let Some((docker, _)) = engine().await else {
        return;
    };
    python(&docker).await;
    let faulty = Faulty::start(&socket());
    let docker = behind(faulty.address()).await;
    let dir = folder("FROM wharf/python:latest\nRUN echo because >&2; exit 7\n");
    let wanted = recipe(dir.path(), Pull::Missing);
    let (reason, hint) = ready(&docker, &wanted).await.unwrap_err();
    assert!(
        reason.contains("because") && reason.contains("code: 7"),
        "{reason}"
    );
    assert!(hint.contains("classic builder"), "{hint}");
    for (fault, said) in [
        (
            Fault::Answer("200 OK", "{\"stream\":\"Step 1/2\"}\r\n".into()),
            "ended before the build did",
        ),
        (
            Fault::Answer(
                "200 OK",
                "{\"errorDetail\":{\"message\":\"pull access denied for x\"},\"error\":\"x\"}\r\n"
                    .into(),
            ),
            "pull access denied for x",
        ),
        (Fault::CutAfter(40), "the build failed"),
    ] {
        faulty.on("POST /build", 1, fault);
        let (reason, _) = ready(&docker, &wanted).await.unwrap_err();
        assert!(reason.contains(said), "{reason}");
    }
    faulty.on("POST /build", 1, Fault::Silent(Duration::from_secs(301)));
    let (reason, _) = ready(&docker, &wanted).await.unwrap_err();
    assert!(reason.contains("nothing was heard for 300 s"), "{reason}");
}

#[tokio::test]
async fn under_never_nothing_is_fetched_for_a_build_either() {
    let Some((docker, _)) = engine().await else {
        return;
    };
    python(&docker).await;
    for (from, said) in [
        ("registry.invalid/a/b:c", "which the engine does not have"),
        ("$WHICH", "which only the builder can resolve"),
    ] {
        let dir = folder(&format!("ARG WHICH=x\nFROM {from}\n"));
        let (reason, _) = ready(&docker, &recipe(dir.path(), Pull::Never))
            .await
            .unwrap_err();
        assert!(
            reason.contains(said) && reason.contains("`pull: never`"),
            "{reason}"
        );
    }
    let (reason, _) = ready(&docker, &recipe(Path::new("/nope"), Pull::Never))
        .await
        .unwrap_err();
    assert!(reason.contains("/nope"), "{reason}");
}

#[tokio::test]
async fn a_plan_builds_its_image_from_beside_itself() {
    if skipped() {
        return;
    }
    let Some((docker, look)) = engine().await else {
        return;
    };
    python(&docker).await;
    let operator = Operator::new();
    let unlike = format!("{:?}", std::time::SystemTime::now());
    operator.beside(
        "Dockerfile.agent",
        "FROM wharf/python:latest\nCOPY stamp /stamp\n",
    );
    operator.beside("stamp", &unlike);
    let stamp = unlike.clone();
    let server = FakeModel::start(move |ask| match ask.ordinal {
        0 => Answer::call("bash", json!({"command": "cat /stamp"})),
        _ => {
            assert!(ask.last().contains(&stamp), "{}", ask.last());
            report("done", "seen")
        }
    })
    .await;
    let plan = "version: 1\nmodel: openai/fake\ntask: x\n\
                sandbox: {image: {dockerfile: Dockerfile.agent}, pull: missing}\n\
                subtasks: [{id: a, role: coder, brief: A}]\n";
    let said = operator.run(&server, plan, &["--no-verify"]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    let ready = operator.of_run("journal.jsonl");
    assert!(ready.contains("Dockerfile.agent"), "the journal names it");
    let whole = operator.beside("broken.yaml", &plan.replace("Dockerfile.agent", "gone"));
    let said = operator.wharf(None, &["plan", "check", &whole]).await;
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.stderr.contains("cannot read `gone`"), "{said:?}");
    for row in docker.images().await.unwrap() {
        if row
            .made_for
            .is_some_and(|name| name.ends_with("Dockerfile.agent"))
            && !row.in_use
        {
            discard(&look, &row.name).await;
        }
    }
}

#[tokio::test]
async fn a_plan_that_only_lies_there_builds_from_its_own_folder_alone() {
    let mut operator = Operator::new();
    let nowhere = "unix:///nowhere/docker.sock".to_owned();
    operator.env.push(("DOCKER_HOST".into(), nowhere));
    operator.beside("Dockerfile", "FROM scratch\n");
    put(&operator.work().join("img/Dockerfile"), "FROM scratch\n");
    let plan = |dockerfile: &str| {
        format!(
            "version: 1\ntask: x\nsandbox: {{image: {{dockerfile: {dockerfile}}}}}\n\
             subtasks: [{{id: a, role: coder, brief: A}}]\n"
        )
    };
    let run = ["run", "--model", "openai/x", "--json"];
    let named = [
        "run",
        "--plan",
        "wharf.yaml",
        "--model",
        "openai/x",
        "--json",
    ];
    put(&operator.work().join("wharf.yaml"), &plan("../Dockerfile"));
    let said = operator.wharf(None, &run).await;
    assert_eq!(said.code, Some(2), "{said:?}");
    let message = said.object()["error"]["message"].to_string();
    assert!(message.contains("an image from the files of"), "{message}");
    // Named once, it is trusted, and its own folder always was: the next fault is the missing engine.
    assert_eq!(operator.wharf(None, &named).await.code, Some(3));
    assert_eq!(operator.wharf(None, &run).await.code, Some(3));
    put(&operator.work().join("wharf.yaml"), &plan("img/Dockerfile"));
    assert_eq!(operator.wharf(None, &run).await.code, Some(3));
    // A link that leads out is seen through.
    std::os::unix::fs::symlink("/etc", operator.work().join("out")).unwrap();
    let linked = plan("img/Dockerfile, context: out");
    put(&operator.work().join("wharf.yaml"), &linked);
    assert_eq!(operator.wharf(None, &run).await.code, Some(2));
}
