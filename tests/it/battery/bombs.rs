//! Rows that take too much: processes, memory, disk, descriptors, output, processor.

use wharf::sandbox::{Engine as _, Exit, Network};

use super::{ended, said, tree, trial};

#[tokio::test]
async fn row_01_a_fork_bomb() {
    let Some(mut trial) = trial(1).await else {
        return;
    };
    if trial.runtime == "runc" {
        trial.spec.pids = 64;
    }
    let sandbox = trial.open().await;
    let neighbour = trial.neighbour(Network::None).await;
    let until = "import errno, os, time\nwhile True:\n    try:\n        if os.fork() == 0:\n            \
        time.sleep(60); os._exit(0)\n    except OSError as error:\n        \
        print(errno.errorcode[error.errno]); break";
    let full = sandbox.python(until).await;
    let meanwhile = async {
        for _ in 0..5 {
            assert_eq!(
                neighbour.run("echo on").await,
                (Exit::Code(0), "on\n".into())
            );
        }
    };
    let bomb = sandbox.ask("b() { b | b & }; b; sleep 60", 3);
    let (done, ()) = tokio::join!(bomb, meanwhile);
    let (how, after) = (ended(&done), sandbox.answers().await);
    sandbox.close().await;
    neighbour.close().await;
    trial.saw(&format!("{full}; {how}; {after}; another works meanwhile"));
}

/// Runs a line that must starve; how it ended, and whether the sandbox lives.
async fn starve(number: u8, line: &str) {
    let Some(trial) = trial(number).await else {
        return;
    };
    let sandbox = trial.open().await;
    let done = sandbox.ask(line, 60).await;
    let seen = match &done {
        Ok(_) => format!("{}; {}", ended(&done), sandbox.answers().await),
        Err(_) => ended(&done),
    };
    sandbox.close().await;
    trial.saw(&seen);
}

#[tokio::test]
async fn row_02_a_memory_bomb() {
    starve(2, "tail /dev/zero; exit $?").await;
}

#[tokio::test]
async fn row_03_a_memory_bomb_in_the_place_of_the_shell() {
    starve(3, "exec tail /dev/zero").await;
}

#[tokio::test]
async fn row_04_a_disk_filler() {
    let Some(mut trial) = trial(4).await else {
        return;
    };
    trial.spec.disk = 64 << 20;
    let sandbox = trial.open().await;
    let done = sandbox
        .ask(
            "dd if=/dev/zero of=/workspace/f bs=1M count=999999; sleep 60",
            120,
        )
        .await
        .unwrap();
    let text = said(&done);
    let limit = text
        .split("[wharf] ")
        .nth(1)
        .and_then(|note| note.split(" (").next());
    let how = match (done.exit, limit) {
        (Exit::Full(137), Some(limit)) => format!("killed: {limit}"),
        (exit, _) => format!("{exit:?}: {text}"),
    };
    assert_eq!(sandbox.run("rm /workspace/f").await.0, Exit::Code(0));
    let after = sandbox.answers().await;
    sandbox.close().await;
    trial.saw(&format!("{how}; {after}"));
}

#[tokio::test]
async fn row_05_a_tmp_that_would_take_all_memory() {
    let Some(mut trial) = trial(5).await else {
        return;
    };
    trial.spec.memory = 128 << 20;
    let cancel = tokio_util::sync::CancellationToken::new();
    let opened = trial.docker.open(&trial.spec, &tree(&[]), &cancel).await;
    let seen = match opened.err().map(|error| error.to_string()) {
        Some(text) if text.contains("memory of 128 MiB") => "refused before anything starts",
        other => panic!("{other:?}"),
    };
    trial.saw(seen);
}

#[tokio::test]
async fn row_07_an_inode_filler() {
    let Some(trial) = trial(7).await else { return };
    let sandbox = trial.open().await;
    let seen = sandbox
        .python(
            "import errno, os\nos.mkdir('/tmp/many')\nn = 0\ntry:\n    while n < 60000:\n        \
            open(f'/tmp/many/{n}', 'w').close(); n += 1\n    \
            print('no limit on files, only on memory')\nexcept OSError as error:\n    \
            print(errno.errorcode[error.errno], 'near 50,000 files' if 45000 < n < 55000 else n)",
        )
        .await;
    assert_eq!(sandbox.run("rm -r /tmp/many").await.0, Exit::Code(0));
    let after = sandbox.answers().await;
    sandbox.close().await;
    trial.saw(&format!("{seen}; {after}"));
}

#[tokio::test]
async fn row_08_open_files() {
    let Some(trial) = trial(8).await else { return };
    let sandbox = trial.open().await;
    let seen = sandbox
        .python(
            "import errno, os\nn = 0\ntry:\n    while n < 1500:\n        os.open('/dev/null', 0); n += 1\n    \
            print('no limit')\nexcept OSError as error:\n    \
            print(errno.errorcode[error.errno], 'below 1,024' if 1000 < n < 1024 else n)",
        )
        .await;
    sandbox.close().await;
    trial.saw(&seen);
}

#[tokio::test]
async fn row_09_shared_memory() {
    let Some(trial) = trial(9).await else { return };
    let sandbox = trial.open().await;
    let seen = sandbox
        .python(
            "import errno\ntry:\n    open('/dev/shm/f', 'w'); print('ALLOWED')\n\
            except OSError as error:\n    print(errno.errorcode[error.errno])",
        )
        .await;
    sandbox.close().await;
    trial.saw(&seen);
}

#[tokio::test]
async fn row_10_the_streams_of_process_1() {
    let Some(trial) = trial(10).await else { return };
    let sandbox = trial.open().await;
    let flood = sandbox
        .python(
            "import errno\nseen = set()\nfor n in (0, 1, 2):\n    try:\n        \
            open(f'/proc/1/fd/{n}', 'w'); seen.add('ALLOWED')\n    \
            except OSError as error:\n        seen.add(errno.errorcode[error.errno])\n\
            print(*sorted(seen))",
        )
        .await;
    let id = &sandbox.0.facts().container;
    let about = trial.look.inspect_container(id, None).await.unwrap();
    let log = match about.log_path.as_deref() {
        None | Some("") => "the engine keeps no log",
        Some(_) => "the engine keeps a log",
    };
    sandbox.close().await;
    trial.saw(&format!("{flood}; {log}"));
}

#[tokio::test]
async fn row_11_output_without_end() {
    let Some(trial) = trial(11).await else { return };
    let sandbox = trial.open().await;
    let done = sandbox.ask("echo first; yes flood-of-row-11", 3).await;
    let how = ended(&done);
    let stream = done.unwrap().stdout;
    let kept = (stream.head.len(), stream.tail.len()) == (20_000, 20_000);
    assert!(stream.total > 1 << 20, "{}", stream.total);
    let kept = match kept && stream.head.starts_with(b"first\n") {
        true => "head and tail kept",
        false => "not kept",
    };
    let left = sandbox.running("flood-of-row-11").await;
    sandbox.close().await;
    trial.saw(&format!("{how}; {kept}; {left}"));
}

#[tokio::test]
async fn row_28_signals_to_process_1() {
    let Some(trial) = trial(28).await else { return };
    let sandbox = trial.open().await;
    // Each from a command of its own: what a signal does may show only in the next call.
    let mut seen = "nothing happens".to_owned();
    for n in 1..65 {
        let line =
            format!("kill -9 1; kill 1; python3 -c 'import os; os.kill(1, {n})' && echo sent");
        match sandbox.ask(&line, 20).await {
            Ok(done) if said(&done).ends_with("sent\n") => {}
            other => {
                seen = format!("signal {n}: {}", ended(&other));
                break;
            }
        }
    }
    let after = sandbox.answers().await;
    sandbox.close().await;
    trial.saw(&format!("{seen}; {after}"));
}

#[tokio::test]
async fn row_29_every_signal_ignored() {
    let Some(trial) = trial(29).await else { return };
    let sandbox = trial.open().await;
    let line = "trap '' $(seq 64); env -i setsid python3 -c 'import signal, time\n\
        for n in range(1, 65):\n    try:\n        signal.signal(n, signal.SIG_IGN)\n    \
        except (OSError, ValueError):\n        pass\nprint(\"deaf\", flush=True)\n\
        time.sleep(999)' deaf-of-row-29 & wait; sleep 999";
    let done = sandbox.ask(line, 3).await;
    let how = ended(&done);
    assert!(said(&done.unwrap()).contains("deaf"));
    let left = sandbox.running("deaf-of-row-29").await;
    sandbox.close().await;
    trial.saw(&format!("{how}; {left}"));
}

#[tokio::test]
async fn row_30_children_that_stay() {
    let Some(trial) = trial(30).await else { return };
    let sandbox = trial.open().await;
    let line = "sleep 999 & setsid python3 -m http.server -b 127.0.0.1 8000 & echo started";
    let done = sandbox.ask(line, 30).await;
    let how = ended(&done);
    let ask = "import time, urllib.request as u\nend = time.time() + 50\nwhile time.time() < end:\n    try:\n        \
        print(u.urlopen('http://127.0.0.1:8000').status); break\n    \
        except OSError as error:\n        told = error; time.sleep(0.05)\nelse:\n    print(told)";
    let serves = match sandbox.python(ask).await.as_str() {
        "200" => "they serve the next command".to_owned(),
        told => format!("they do not serve the next command: {told}"),
    };
    let id = sandbox.0.facts().container.clone();
    sandbox.close().await;
    let gone = match trial.look.inspect_container(&id, None).await {
        Err(_) => "gone with the sandbox",
        Ok(_) => "still there",
    };
    trial.saw(&format!("{how} at once; {serves}; {gone}"));
}

#[tokio::test]
async fn row_31_orphans() {
    let Some(mut trial) = trial(31).await else {
        return;
    };
    // Room for all of them at once: on a busy machine none may have ended when the last one begins, and
    // what is looked for is who stays when it has ended, not how many may live.
    trial.spec.pids = 1024;
    let sandbox = trial.open().await;
    let line = "for i in $(seq 300); do (true &) ; done; \
        while n=$(grep -ls '^State:.Z' /proc/[0-9]*/status | wc -l); test $n != 0; do \
        echo $n; sleep 0.2; done; echo none left as a zombie";
    let done = sandbox.ask(line, 300).await.unwrap();
    let text = said(&done);
    sandbox.close().await;
    trial.saw(text.lines().last().unwrap_or_default());
}

#[tokio::test]
async fn row_35_busy_loops() {
    let Some(mut trial) = trial(35).await else {
        return;
    };
    trial.spec.cpus = 0.5;
    let sandbox = trial.open().await;
    // Until it is seen: on a machine that others keep busy, the loops may not get half a processor to be
    // held at for a good while.
    let seen = sandbox
        .python_within(
            "import os, signal, time\nfolders = ('/sys/fs/cgroup/cpu', '/sys/fs/cgroup/cpu,cpuacct', '/sys/fs/cgroup')\n\
            folder = next(f for f in folders if os.path.exists(f + '/cpu.stat'))\n\
            try:\n    quota, period = open(folder + '/cpu.max').read().split()\n\
            except OSError:\n    quota, period = (open(f'{folder}/cpu.cfs_{w}_us').read() for w in ('quota', 'period'))\n\
            loops = []\nfor n in range(4):\n    loops.append(os.fork())\n    \
            if loops[-1] == 0:\n        while True: pass\n\
            def held():\n    stat = dict(line.split() for line in open(folder + '/cpu.stat'))\n    \
            return int(stat['nr_throttled']) > 0\n\
            end = time.time() + 240\nwhile not held() and time.time() < end:\n    time.sleep(0.1)\n\
            print('throttled' if held() else 'not throttled', 'at', int(quota) / int(period), 'of a processor')\n\
            for loop in loops:\n    os.kill(loop, signal.SIGKILL)",
            300,
        )
        .await;
    sandbox.close().await;
    trial.saw(&seen);
}
