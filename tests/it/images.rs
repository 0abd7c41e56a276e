//! Images on a real engine: built in, baked with a setup, refused, not to be had.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio_util::sync::CancellationToken;
use wharf::sandbox::{self, Contents, Engine, Error, ImageSpec, Tree};

use crate::container::{Said, engine, image_spec, note, run, spec};

#[tokio::test]
async fn built_in_images_are_made_once() {
    let Some((docker, _)) = engine().await else {
        return;
    };
    let cancel = CancellationToken::new();
    let spec = image_spec(&[], &[]);
    let name = docker.ensure(&spec, &Said, &cancel).await.unwrap();
    assert!(name.starts_with("wharf/python:"));
    assert_eq!(docker.ensure(&spec, &Said, &cancel).await.unwrap(), name);
    let rows = docker.images().await.unwrap();
    assert!(
        docker
            .spare_images(u64::MAX)
            .await
            .unwrap()
            .iter()
            .all(|row| row.name == row.id),
        "only nameless ones are spare below the cap"
    );
    assert!(
        rows.iter()
            .any(|row| row.name == name && row.size > 1 << 20)
    );
}

#[tokio::test]
async fn a_baked_image_holds_what_its_setup_made_and_nothing_of_the_host() {
    let Some((docker, look)) = engine().await else {
        return;
    };
    let cancel = CancellationToken::new();
    let lines = [
        "test -s requirements.txt && pip install -q -r requirements.txt",
        "mkdir -p node_modules && id > ~/who",
    ];
    let wanted = image_spec(
        &lines,
        &[
            ("requirements.txt", "iniconfig==2.0.0\n"),
            ("a/b.lock", "x"),
        ],
    );
    let at = Instant::now();
    let image = docker.prepare(&wanted, &Said, &cancel).await.unwrap();
    note(&format!("baked in {:?}: {}", at.elapsed(), image.describes));
    assert!(
        image.describes.contains("python3 3."),
        "{}",
        image.describes
    );
    assert_eq!(
        docker.prepare(&wanted, &Said, &cancel).await.unwrap(),
        image
    );
    let seen = look.inspect_image(&image.id).await.unwrap();
    let config = seen.config.unwrap();
    let env = config.env.unwrap();
    assert!(
        env.iter()
            .any(|pair| pair.starts_with("PATH=/home/agent/.local/bin:/usr/local/sbin")),
        "{env:?}"
    );
    assert!(
        !env.iter()
            .any(|pair| pair.contains("CERT") || pair.contains("proxy")),
        "{env:?}"
    );
    assert_eq!(
        config
            .labels
            .unwrap()
            .get("wharf.machine")
            .map(String::as_str),
        Some("")
    );
}

#[tokio::test]
async fn a_failing_setup_command_says_what_it_printed() {
    let Some((docker, _)) = engine().await else {
        return;
    };
    let cancel = CancellationToken::new();
    let wanted = image_spec(&["echo fine", "echo why >&2; exit 3"], &[]);
    match docker.prepare(&wanted, &Said, &cancel).await {
        Err(Error::Setup {
            command,
            code,
            output,
        }) => {
            assert_eq!((command.as_str(), code), ("echo why >&2; exit 3", 3));
            assert_eq!(output.trim(), "why");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_image_nobody_has_says_why() {
    let Some((docker, _)) = engine().await else {
        return;
    };
    let cancel = CancellationToken::new();
    for (name, said) in [
        ("nosuch.invalid/x:y", "not reached"),
        ("wharf/nosuch", "no image of that name"),
    ] {
        let wanted = ImageSpec {
            image: name.into(),
            ..image_spec(&[], &[])
        };
        match docker.prepare(&wanted, &Said, &cancel).await {
            Err(Error::Image { image, reason, .. }) => {
                assert_eq!(image, name);
                assert!(reason.contains(said), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A tree whose contents are named by themselves.
struct Literal;

impl Contents for Literal {
    fn read(&self, ids: Vec<String>) -> BoxStream<'static, std::io::Result<Bytes>> {
        futures::stream::iter(ids.into_iter().map(|id| Ok(Bytes::from(id)))).boxed()
    }
}

fn tree(files: &[(&str, &str)]) -> Tree {
    let entry = |text: &str| sandbox::Entry {
        mode: sandbox::Mode::File,
        size: text.len() as u64,
        id: text.to_owned(),
    };
    Tree {
        entries: files
            .iter()
            .map(|(path, text)| (path.as_bytes().to_vec(), entry(text)))
            .collect(),
        contents: Arc::new(Literal),
    }
}

#[tokio::test]
async fn what_the_setup_left_is_no_change_of_the_agents() {
    let Some((docker, _)) = engine().await else {
        return;
    };
    let cancel = CancellationToken::new();
    let wanted = image_spec(
        &["cp lock made-by-setup && mkdir -p vendor/x && echo 1 > vendor/x/f"],
        &[("lock", "1"), ("deep/er/lock", "2")],
    );
    let image = docker.prepare(&wanted, &Said, &cancel).await.unwrap();
    let tree = tree(&[("lock", "1"), ("src/a.py", "print(1)\n")]);
    let sandbox = docker
        .open(&spec(image, "setup"), &tree, &cancel)
        .await
        .unwrap();
    assert!(sandbox.scan().await.unwrap().is_empty());
    let (_, seen) = run(
        sandbox.as_ref(),
        "cat made-by-setup vendor/x/f lock src/a.py; ls -d deep 2>&1; git log --oneline | wc -l",
    )
    .await;
    assert!(seen.starts_with("11\n1print(1)\n"), "{seen}");
    assert!(
        seen.contains("deep': No such") && seen.contains("\n1\n"),
        "{seen}"
    );
    run(sandbox.as_ref(), "echo 'print(2)' > src/a.py").await;
    let changes = sandbox.scan().await.unwrap();
    assert_eq!(changes.puts.len(), 1);
    assert_eq!(changes.puts[0].path, b"src/a.py");
    sandbox.close().await;
}

/// Makes an image of one file, without a shell or a C library.
pub(crate) async fn scratch(look: &bollard::Docker, tag: &str, change: &str) -> String {
    let options = bollard::query_parameters::CreateImageOptions {
        from_src: Some("-".into()),
        repo: Some("wharf-it".into()),
        tag: Some(tag.into()),
        changes: vec![change.into()],
        ..Default::default()
    };
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(2);
    header.set_mode(0o644);
    tar.append_data(&mut header, "note", &b"x\n"[..]).unwrap();
    let body = bollard::body_full(tar.into_inner().unwrap().into());
    let mut stream = std::pin::pin!(look.create_image(Some(options), Some(body), None));
    while let Some(item) = stream.next().await {
        item.unwrap();
    }
    format!("wharf-it:{tag}")
}

pub(crate) async fn discard(look: &bollard::Docker, image: &str) {
    let options = bollard::query_parameters::RemoveImageOptionsBuilder::new()
        .force(true)
        .build();
    look.remove_image(image, Some(options), None).await.unwrap();
}

#[tokio::test]
async fn an_image_without_a_shell_opens_and_says_so() {
    let Some((docker, look)) = engine().await else {
        return;
    };
    let cancel = CancellationToken::new();
    let name = scratch(&look, "bare", "LABEL a=b").await;
    let wanted = ImageSpec {
        image: name.clone(),
        ..image_spec(&[], &[])
    };
    let image = docker.prepare(&wanted, &Said, &cancel).await.unwrap();
    let tree = tree(&[("a.txt", "hello\n")]);
    let sandbox = docker
        .open(&spec(image.clone(), "bare"), &tree, &cancel)
        .await
        .unwrap();
    assert_eq!(sandbox.facts().shell, None);
    let read = sandbox.read("a.txt", 0, 100).await.unwrap().unwrap();
    assert_eq!(read.bytes, "hello\n");
    sandbox.close().await;
    let setup = ImageSpec {
        setup: vec!["true".into()],
        ..wanted
    };
    let refused = docker.prepare(&setup, &Said, &cancel).await;
    assert!(
        matches!(&refused, Err(Error::Image { reason, .. }) if reason.contains("no /bin/sh")),
        "{refused:?}"
    );
    discard(&look, &image.id).await;
    discard(&look, &name).await;
}

#[tokio::test]
async fn an_image_whose_workspace_would_not_be_kept_is_refused() {
    let Some((docker, look)) = engine().await else {
        return;
    };
    let name = scratch(&look, "volume", "VOLUME /workspace").await;
    let wanted = ImageSpec {
        image: name.clone(),
        ..image_spec(&[], &[])
    };
    let refused = docker
        .prepare(&wanted, &Said, &CancellationToken::new())
        .await;
    discard(&look, &name).await;
    assert!(
        matches!(&refused, Err(Error::Image { image, reason, .. }) if *image == name && reason.contains("VOLUME at /workspace")),
        "{refused:?}"
    );
}

/// Answers every request to a registry in one way.
async fn registry(status: &str, code: &str) -> u16 {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let body = format!(r#"{{"errors":[{{"code":"{code}","message":"x"}}]}}"#);
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            while matches!(stream.read(&mut request).await, Ok(n) if n > 0) {
                if stream.write_all(answer.as_bytes()).await.is_err() {
                    break;
                }
            }
        }
    });
    port
}

#[tokio::test]
async fn a_registry_that_limits_and_one_that_has_nothing_are_told_apart() {
    let Some((docker, _)) = engine().await else {
        return;
    };
    for (status, code, said) in [
        (
            "429 Too Many Requests",
            "TOOMANYREQUESTS",
            "limits how often",
        ),
        ("404 Not Found", "MANIFEST_UNKNOWN", "no such image"),
    ] {
        let port = registry(status, code).await;
        let wanted = ImageSpec {
            image: format!("127.0.0.1:{port}/a/b:c"),
            ..image_spec(&[], &[])
        };
        match docker
            .prepare(&wanted, &Said, &CancellationToken::new())
            .await
        {
            Err(Error::Image { reason, .. }) => assert!(reason.contains(said), "{reason}"),
            other => assert!(other.is_err(), "{other:?}"),
        }
    }
}
