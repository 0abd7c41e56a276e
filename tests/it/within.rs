//! The program itself in a container that has the engine's socket, as on a build server: what it is asked to
//! work on lies in its own container, of which the engine's machine knows nothing.

use std::collections::HashMap;
use std::path::Path;

use futures::StreamExt as _;
use serde_json::{Value, json};

use crate::container::{engine, note, python};
use crate::faulty::socket;
use crate::operator::Operator;
use crate::server::{Answer, FakeModel};
use crate::world::{put, report};

const PLAN: &str = "version: 1\nname: within\nmodel: openai/fake\ntask: Count\n\
    subtasks: [{id: a, role: coder, brief: BRIEF a.}]\n";

/// A folder that exists nowhere but in the container; nobody else makes one of this name.
fn folder() -> String {
    format!("/src-{}", std::process::id())
}

/// Runs a shell line in a container of the base image with the socket, this machine's programs, and the
/// network of the machine, where the scripted model listens. What it printed, and its exit code.
async fn inside(
    look: &bollard::Docker,
    operator: &Operator,
    server: &FakeModel,
    line: &str,
) -> (String, i64) {
    let socket = socket().display().to_string();
    let binary = env!("CARGO_BIN_EXE_wharf");
    let (plan, given) = (
        operator.beside("plan.yaml", PLAN),
        operator.work().display().to_string(),
    );
    let body = bollard::models::ContainerCreateBody {
        image: Some("wharf/base:latest".to_owned()),
        user: Some("0:0".to_owned()),
        entrypoint: Some(vec!["/bin/sh".to_owned(), "-ec".to_owned()]),
        cmd: Some(vec![line.to_owned()]),
        env: Some(vec![
            format!("OPENAI_BASE_URL={}", server.base_url()),
            "OPENAI_API_KEY=none".to_owned(),
            "WHARF_HOME=/state".to_owned(),
            "DOCKER_HOST=unix:///engine.sock".to_owned(),
        ]),
        host_config: Some(bollard::models::HostConfig {
            binds: Some(vec![
                format!("{socket}:/engine.sock"),
                // The program is linked to this machine's libraries, and asks for this machine's git.
                "/usr:/usr:ro".to_owned(),
                format!("{binary}:/wharf:ro"),
                format!("{plan}:/plan.yaml:ro"),
                format!("{given}:/given:ro"),
            ]),
            network_mode: Some("host".to_owned()),
            ..Default::default()
        }),
        labels: Some(HashMap::from([(
            "wharf-it".to_owned(),
            "within".to_owned(),
        )])),
        ..Default::default()
    };
    let id = look.create_container(None, body).await.unwrap().id;
    look.start_container(&id, None).await.unwrap();
    let ended = look.wait_container(&id, None).next().await.unwrap();
    let code = match ended {
        Ok(ended) => ended.status_code,
        Err(bollard::errors::Error::DockerContainerWaitError { code, .. }) => code,
        Err(other) => panic!("{other}"),
    };
    let options = bollard::query_parameters::LogsOptions {
        stdout: true,
        stderr: true,
        ..Default::default()
    };
    let lines: Vec<_> = look.logs(&id, Some(options)).collect().await;
    let text: String = lines
        .into_iter()
        .map(|line| line.unwrap().to_string())
        .collect();
    let force = bollard::query_parameters::RemoveContainerOptionsBuilder::new()
        .force(true)
        .v(true)
        .build();
    look.remove_container(&id, Some(force)).await.unwrap();
    (text, code)
}

#[tokio::test]
async fn a_workspace_that_the_engine_s_machine_does_not_have_is_worked_on_whole() {
    let Some((docker, look)) = engine().await else {
        return;
    };
    python(&docker).await;
    let operator = Operator::new();
    for name in ["one.txt", "two.txt", "sub/three.txt"] {
        put(&operator.work().join(name), "x\n");
    }
    let server = FakeModel::start(|ask| match ask.ordinal {
        0 => Answer::call(
            "bash",
            json!({"command": "find . -name '*.txt' | wc -l; echo four > four.txt"}),
        ),
        _ => report("done", "counted"),
    })
    .await;
    let folder = folder();
    let line = format!(
        "cp -r /given {folder}; cd {folder}; \
        /wharf run -f /plan.yaml -C . --no-verify --run-id run --json > /out; \
        cat /state/runs/run/result.patch; cat /out; ls -A {folder}"
    );
    let (text, code) = inside(&look, &operator, &server, &line).await;
    assert_eq!(code, 0, "{text}");
    let object = text
        .lines()
        .find(|line| line.starts_with('{'))
        .expect(&text);
    let result: Value = serde_json::from_str(object).unwrap();
    assert_eq!(result["subtasks"][0]["changed_files"], json!(["four.txt"]));
    assert!(text.contains("+four\n"), "{text}");
    let seen = server.requests().last().unwrap()["messages"].to_string();
    assert!(seen.contains("\\n3\\n") || seen.contains("3\\n"), "{seen}");
    assert!(
        !Path::new(&folder).exists(),
        "the engine made a folder on its machine"
    );
    note(&format!("within a container: {}", result["status"]));
}
