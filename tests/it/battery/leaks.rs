//! Rows on what gets in and out: rights, files of the change, keys, sockets.

use wharf::sandbox::{Changes, Exit, Mode};

use super::{tree, trial};

#[tokio::test]
async fn row_06_the_image() {
    let Some(trial) = trial(6).await else { return };
    let sandbox = trial.open().await;
    let seen = sandbox
        .python(
            "import errno, os\nseen = set()\nfor path in ('/x', '/etc/x', '/usr/bin/python3', '/.wharf/toolbox', '/.wharf/x'):\n    \
            try:\n        open(path, 'a'); seen.add('ALLOWED ' + path)\n    \
            except OSError as error:\n        seen.add(errno.errorcode[error.errno])\n\
            for action in (lambda: os.unlink('/.wharf/toolbox'), lambda: os.rename('/etc', '/e')):\n    \
            try:\n        action(); seen.add('ALLOWED')\n    \
            except OSError as error:\n        seen.add(errno.errorcode[error.errno])\n\
            print(*sorted(seen))",
        )
        .await;
    sandbox.close().await;
    trial.saw(&seen);
}

#[tokio::test]
async fn row_12_a_file_of_holes() {
    let Some(trial) = trial(12).await else { return };
    let sandbox = trial.open().await;
    assert_eq!(
        sandbox
            .run(
                "truncate -s 1T huge && exit 9; rm -f huge; truncate -s 3G holes && echo x > small"
            )
            .await
            .0,
        Exit::Code(0)
    );
    let changes = sandbox.0.scan().await.unwrap();
    sandbox.close().await;
    assert_eq!(paths(&changes), [b"small".as_slice()]);
    let seen = match changes.left_out.as_slice() {
        [(path, why)]
            if path == b"holes" && why.contains("more than the 64 MiB a file may have") =>
        {
            "left out of the change, by its size; nothing of it read"
        }
        other => panic!("{other:?}"),
    };
    trial.saw(seen);
}

fn paths(changes: &Changes) -> Vec<&[u8]> {
    changes.puts.iter().map(|put| put.path.as_slice()).collect()
}

#[tokio::test]
async fn row_13_setuid() {
    let Some(trial) = trial(13).await else { return };
    let sandbox = trial.open().await;
    // One of root's that waits for input, so that its rights can be looked at; one of our own.
    let (_, mode) = sandbox.run("stat -c '%a %u' /usr/bin/passwd").await;
    assert_eq!(
        mode, "4755 0\n",
        "the image has the program that this row tries"
    );
    let seen = sandbox
        .python(
            "import os, subprocess as s, time\n\
            p = s.Popen(['/usr/bin/passwd'], stdin=s.PIPE, stdout=s.DEVNULL, stderr=s.DEVNULL)\n\
            name = lambda: open(f'/proc/{p.pid}/comm').read().strip()\n\
            while name() != 'passwd':\n    time.sleep(0.01)\n\
            uids = {line for line in open(f'/proc/{p.pid}/status') if line.startswith('Uid')}\n\
            os.system('cp /usr/bin/id /tmp/id; chmod 4755 /tmp/id')\n\
            own = s.check_output(['/tmp/id', '-u']).decode().strip()\n\
            try:\n    os.setuid(0); own = '0'\nexcept OSError:\n    pass\n\
            four = uids.pop().split()[1:]\n\
            print('the user stays', *sorted(set(four + [own])))",
        )
        .await;
    sandbox.close().await;
    trial.saw(&seen);
}

#[tokio::test]
async fn row_27_sockets_of_others() {
    let Some(trial) = trial(27).await else { return };
    let sandbox = trial.open().await;
    let (_, seen) = sandbox
        .run(
            "find / -xdev -type s -not -path '/proc/*' 2>/dev/null; \
            ls -d /var/run/docker.sock /run/docker.sock /run/containerd /run/podman /run/user \
            $SSH_AUTH_SOCK $DOCKER_HOST 2>/dev/null; echo none there",
        )
        .await;
    sandbox.close().await;
    trial.saw(seen.trim_end());
}

#[tokio::test]
async fn row_32_odd_files_in_the_change() {
    let Some(trial) = trial(32).await else { return };
    let sandbox = trial.open().await;
    let line = "ln -s / out; ln -s ../../../../etc/passwd up; echo x > file; ln file hard; mkfifo fifo; \
        echo '#!/bin/sh' > suid; chmod 6755 suid; mkdir -p sub/.git; echo x > sub/.git/config; \
        python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('sock')\"";
    assert_eq!(sandbox.run(line).await.0, Exit::Code(0));
    let changes = sandbox.0.scan().await.unwrap();
    sandbox.close().await;
    let puts: Vec<(&[u8], Mode, &[u8])> = changes
        .puts
        .iter()
        .map(|put| (put.path.as_slice(), put.mode, put.content.as_ref()))
        .collect();
    let wanted: Vec<(&[u8], Mode, &[u8])> = vec![
        (b"file", Mode::File, b"x\n"),
        (b"hard", Mode::File, b"x\n"),
        (b"out", Mode::Link, b"/"),
        (b"suid", Mode::Executable, b"#!/bin/sh\n"),
        (b"up", Mode::Link, b"../../../../etc/passwd"),
    ];
    assert_eq!(puts, wanted);
    let left: Vec<&[u8]> = changes
        .left_out
        .iter()
        .map(|(path, _)| path.as_slice())
        .collect();
    assert_eq!(left, [b"fifo".as_slice(), b"sock", b"sub/.git/"]);
    trial.saw("a link stays a link, a hard link is a file, bits are dropped, the FIFO is left out");
}

#[tokio::test]
async fn row_33_a_race_with_a_link() {
    let Some(trial) = trial(33).await else { return };
    let sandbox = trial.open().await;
    // `d` is by turns a folder with a file `passwd` and a link to /etc, which has one too.
    let line = "mkdir d1; echo mine > d1/passwd; ln -s /etc d2; \
        setsid python3 -c 'import os\nwhile True:\n    os.rename(\"d1\", \"d\"); os.utime(\"d/passwd\"); \
        os.rename(\"d\", \"d1\"); os.rename(\"d2\", \"d\"); os.rename(\"d\", \"d2\")' & \
        sleep 0.3; kill -0 $! && echo racing";
    assert_eq!(sandbox.run(line).await, (Exit::Code(0), "racing\n".into()));
    let mut seen = 0;
    for n in 0..5000 {
        if n >= 100 && seen > 20 {
            break;
        }
        let changes = sandbox.0.scan().await.unwrap();
        seen += changes.puts.len() + changes.deletes.len();
        for put in &changes.puts {
            let expected: &[u8] = if put.mode == Mode::Link {
                b"/etc"
            } else {
                b"mine\n"
            };
            assert_eq!(put.content, expected, "{put:?}");
        }
    }
    sandbox.close().await;
    assert!(seen > 20, "only {seen} changes: nothing was raced with");
    trial.saw("nothing of /etc in the change");
}

#[tokio::test]
async fn row_34_odd_names() {
    let Some(trial) = trial(34).await else { return };
    let sandbox = trial.open().await;
    let line = "touch $'a\\nb' $'\\033[2J' $'\\377' ./-rf; echo needle > $'n\\nl'";
    assert_eq!(sandbox.run(line).await.0, Exit::Code(0));
    let listed = sandbox.0.list(None, 10).await.unwrap().unwrap().lines;
    assert_eq!(listed, ["\\x1b[2J", "-rf", "a\\x0ab", "n\\x0al", "\\xff"]);
    let search = wharf::sandbox::Search {
        pattern: "needle".into(),
        glob: None,
        limit: 5,
    };
    let found = sandbox.0.grep(&search).await.unwrap().unwrap().lines;
    assert_eq!(found, ["n\\x0al:1:needle"]);
    let changes = sandbox.0.scan().await.unwrap();
    sandbox.close().await;
    let wanted: Vec<&[u8]> = vec![b"\x1b[2J", b"-rf", b"a\nb", b"n\nl", b"\xff"];
    assert_eq!(paths(&changes), wanted);
    trial.saw("carried byte by byte, shown escaped");
}

#[tokio::test]
async fn row_37_keys() {
    let Some(trial) = trial(37).await else { return };
    let sandbox = trial.open().await;
    let (_, text) = sandbox
        .run(
            "env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'; \
            cat ~/.* ~/.*/* /.wharf/* 2>/dev/null | head -c 100000 | tr -cd '[:print:]\\n'",
        )
        .await;
    sandbox.close().await;
    // Cargo sets this in the environment of this very process; whole runs look for keys.
    {
        let name = "CARGO_MANIFEST_DIR";
        assert!(std::env::var(name).is_ok(), "{name}");
        assert!(!text.contains(name), "{name} in {text}");
    }
    assert!(text.contains("HOME=/home/agent"), "{text}");
    trial.saw("nothing of Wharf's environment");
}

#[tokio::test]
async fn row_38_no_exec() {
    let Some(trial) = trial(38).await else { return };
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/sandbox");
    let mut read = 0;
    for entry in walk(&source) {
        // Setup commands run as the agent's user, in a container that is never a sandbox.
        if entry.ends_with("bench.rs") {
            assert!(text_of(&entry).contains("user: Some(USER"), "{entry:?}");
            continue;
        }
        let text = text_of(&entry);
        for call in ["create_exec", "start_exec", "/exec", "bollard::exec"] {
            assert!(!text.contains(call), "{call} in {}", entry.display());
        }
        read += 1;
    }
    assert!(read > 20, "the room is where it is looked for");
    trial.saw("not applicable: no exec is ever asked of a sandbox");
}

fn text_of(path: &std::path::Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| {
            if path.is_dir() {
                walk(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}

/// A folder that the agent made unreadable, in part or whole, is looked into all the same: nothing in it is
/// gone, and it stays as it was made.
#[tokio::test]
async fn what_was_shut_is_not_gone() {
    let Some(trial) = trial(32).await else { return };
    let files = tree(&[
        (b"listed/a", Mode::File, "1"),
        (b"shut/b", Mode::File, "2"),
        (b"open/c", Mode::File, "3"),
    ]);
    let sandbox = trial.open_at(&files).await;
    let line = "chmod 644 listed; chmod 0 shut; rm open/c";
    assert_eq!(sandbox.run(line).await.0, Exit::Code(0));
    let changes = sandbox.0.scan().await.unwrap();
    assert_eq!(changes.deletes, [b"open/c".to_vec()], "{changes:?}");
    assert!(changes.left_out.is_empty(), "{changes:?}");
    let modes = sandbox.run("stat -c %a listed shut").await.1;
    assert_eq!(modes, "644\n0\n");
    assert_eq!(
        sandbox.run("chmod 755 listed shut; rm -r listed").await.0,
        Exit::Code(0)
    );
    let changes = sandbox.0.scan().await.unwrap();
    sandbox.close().await;
    assert_eq!(changes.deletes, [b"listed/a".to_vec()], "{changes:?}");
}
