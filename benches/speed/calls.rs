//! One call: the toolbox against a bare echo on an attached stream and against `docker exec`.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bollard::container::AttachContainerResults;
use bollard::exec::{CreateExecOptions, StartExecResults};
use bollard::models::{ContainerCreateBody, HostConfig};
use bollard::query_parameters::{
    AttachContainerOptionsBuilder, CreateContainerOptions, RemoveContainerOptionsBuilder,
    StartContainerOptions,
};
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio_util::sync::CancellationToken;
use wharf::sandbox::{Command, Engine, Image, ProcessAction, Sandbox};

use crate::world;

const ROUNDS: usize = 300;
const EXECS: usize = 50;

pub async fn measure() -> Value {
    let (docker, image) = world::engine().await;
    let cancel = CancellationToken::new();
    let sandbox = docker
        .open(&world::spec(image.clone()), &world::empty(), &cancel)
        .await
        .unwrap();
    let api = bollard::Docker::connect_with_defaults().unwrap();
    let plain = start_plain(&api, &image).await;
    let mut echo = Echo::attach(&api, &plain).await;

    sandbox
        .write("small.txt", "hello\n".into())
        .await
        .unwrap()
        .unwrap();
    let (mut bare, mut asks) = (Vec::new(), Vec::new());
    let (mut reads, mut runs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        // Taken in turn, so that whatever else the machine does falls on all alike.
        bare.push(echo.round().await);
        asks.push(ask(sandbox.as_ref()).await);
        reads.push(read(sandbox.as_ref()).await);
        runs.push(run(sandbox.as_ref(), &cancel).await);
    }
    let mut execs = Vec::new();
    for _ in 0..EXECS {
        execs.push(exec(&api, &plain).await);
    }
    sandbox.close().await;
    let remove = RemoveContainerOptionsBuilder::new().force(true).build();
    api.remove_container(&plain, Some(remove)).await.unwrap();

    let figures = [bare, asks, reads, runs, execs].map(world::summary);
    let [bare, ask, read, run, exec] = &figures;
    json!({
        "bare_echo": bare, "call_without_files": ask, "read_file": read, "run_true": run, "docker_exec_true": exec,
        "call_to_echo": world::ratio(ask, bare),
        "read_to_echo": world::ratio(read, bare),
        "exec_to_call": world::ratio(exec, ask),
        "exec_to_read": world::ratio(exec, read),
        "exec_to_run": world::ratio(exec, run),
    })
}

/// A call that touches no file: what the way there and back costs by itself.
async fn ask(sandbox: &dyn Sandbox) -> Duration {
    let since = Instant::now();
    let answer = sandbox.process(999, ProcessAction::Output).await.unwrap();
    assert!(answer.is_err());
    since.elapsed()
}

async fn read(sandbox: &dyn Sandbox) -> Duration {
    let since = Instant::now();
    let answer = sandbox.read("small.txt", 0, 100).await.unwrap().unwrap();
    assert_eq!(&answer.bytes[..], b"hello\n");
    since.elapsed()
}

async fn run(sandbox: &dyn Sandbox, cancel: &CancellationToken) -> Duration {
    let since = Instant::now();
    let command = Command {
        line: "true".to_owned(),
        timeout: Duration::from_secs(30),
        background: false,
        keep: 1000,
    };
    sandbox.run(&command, cancel).await.unwrap();
    since.elapsed()
}

async fn start_plain(api: &bollard::Docker, image: &Image) -> String {
    let body = ContainerCreateBody {
        image: Some(image.id.clone()),
        entrypoint: Some(vec!["cat".to_owned()]),
        open_stdin: Some(true),
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        labels: Some(HashMap::from([("wharf.bench".to_owned(), "1".to_owned())])),
        host_config: Some(HostConfig {
            network_mode: Some("none".to_owned()),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    };
    let made = api
        .create_container(None::<CreateContainerOptions>, body)
        .await
        .unwrap();
    made.id
}

/// `cat` as process 1: what goes in comes out.
struct Echo(AttachContainerResults);

impl Echo {
    async fn attach(api: &bollard::Docker, id: &str) -> Self {
        let options = AttachContainerOptionsBuilder::new()
            .stdin(true)
            .stdout(true)
            .stream(true)
            .build();
        let attached = api.attach_container(id, Some(options)).await.unwrap();
        api.start_container(id, None::<StartContainerOptions>)
            .await
            .unwrap();
        Self(attached)
    }

    async fn round(&mut self) -> Duration {
        let since = Instant::now();
        self.0.input.write_all(b"ping\n").await.unwrap();
        self.0.input.flush().await.unwrap();
        self.0.output.next().await.unwrap().unwrap();
        since.elapsed()
    }
}

async fn exec(api: &bollard::Docker, id: &str) -> Duration {
    let since = Instant::now();
    let options = CreateExecOptions {
        cmd: Some(vec!["true"]),
        attach_stdout: Some(true),
        ..CreateExecOptions::default()
    };
    let made = api.create_exec(id, options).await.unwrap();
    if let StartExecResults::Attached { mut output, .. } =
        api.start_exec(&made.id, None).await.unwrap()
    {
        while output.next().await.is_some() {}
    }
    assert_eq!(api.inspect_exec(&made.id).await.unwrap().exit_code, Some(0));
    since.elapsed()
}
