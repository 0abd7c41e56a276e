//! What an agent leaves comes back byte by byte, and what does not is named.

use wharf::sandbox::{Exit, Mode, Sandbox as _};

use crate::toolbox::{self, World};

const FILES: &[(&[u8], Mode, &str)] = &[
    (b".gitignore", Mode::File, "out/\n"),
    (b"crlf.txt", Mode::File, "a\r\nb\r\n"),
    (b"gone.txt", Mode::File, "x\n"),
    (b"mode.sh", Mode::File, "#!/bin/sh\n"),
    (b"old name", Mode::File, "moved\n"),
    (b"was/a/folder", Mode::File, "1\n"),
];

#[tokio::test]
async fn everything_a_tree_holds_comes_back() {
    let world = World::new().await;
    world
        .remote
        .upload(None, &toolbox::tree(FILES))
        .await
        .unwrap();
    let line = "printf 'a\\r\\nb\\r\\nc' > crlf.txt; rm gone.txt; chmod +x mode.sh; mv 'old name' 'new name'; \
                rm -r was; printf 'file now' > was; : > empty; printf '\\0\\377' > bin; ln -s /etc/passwd out-link; \
                ln -s a/b dangling; mkdir -p nothing/at/all out made/.git/objects; echo x > made/.git/config; \
                echo y > made/inner; echo z > out/built; mkfifo pipe; chmod 600 empty";
    let finished = world.run(line).await;
    assert_eq!(finished.exit, Exit::Code(0), "{finished:?}");
    let changes = world.scan().await;
    let puts: Vec<(&[u8], Mode, &[u8])> = changes
        .puts
        .iter()
        .map(|put| (&put.path[..], put.mode, &put.content[..]))
        .collect();
    let expected: &[(&[u8], Mode, &[u8])] = &[
        (b"bin", Mode::File, b"\0\xff"),
        (b"crlf.txt", Mode::File, b"a\r\nb\r\nc"),
        (b"dangling", Mode::Link, b"a/b"),
        (b"empty", Mode::File, b""),
        (b"made/inner", Mode::File, b"y\n"),
        (b"mode.sh", Mode::Executable, b"#!/bin/sh\n"),
        (b"new name", Mode::File, b"moved\n"),
        (b"out-link", Mode::Link, b"/etc/passwd"),
        (b"was", Mode::File, b"file now"),
    ];
    assert_eq!(puts, expected);
    assert_eq!(
        changes.deletes,
        [&b"gone.txt"[..], b"old name", b"was/a/folder"]
    );
    let left: Vec<&[u8]> = changes.left_out.iter().map(|(path, _)| &path[..]).collect();
    assert_eq!(left, [&b"made/.git/"[..], b"out/", b"pipe"]);
    world.remote.close().await;
}
