//! Abuse inside a sandbox: what must fail fails, and the sandbox and the engine stay usable.

use std::sync::Arc;
use std::time::Instant;

use wharf::sandbox::{Exit, Sandbox, Spec};

use crate::container::{engine, open, python, run, spec};

/// A sandbox of its own for one abuse; None when tests go without an engine.
async fn sandbox(name: &str, change: impl FnOnce(&mut Spec)) -> Option<Arc<dyn Sandbox>> {
    let (docker, _) = engine().await?;
    let mut spec = spec(python(&docker).await, name);
    change(&mut spec);
    Some(open(&docker, &spec).await)
}

/// The sandbox still answers, quickly enough to be of use.
async fn still_works(sandbox: &dyn Sandbox) {
    assert_eq!(
        run(sandbox, "echo alive").await,
        (Exit::Code(0), "alive\n".to_owned())
    );
}

#[cfg(target_arch = "x86_64")]
#[tokio::test]
async fn forbidden_system_calls_are_refused() {
    let Some(sandbox) = sandbox("probe", |_| ()).await else {
        return;
    };
    let line = format!("python3 - <<'END'\n{}\nEND", include_str!("probe.py"));
    let (exit, text) = run(sandbox.as_ref(), &line).await;
    sandbox.close().await;
    assert_eq!(exit, Exit::Code(0), "{text}");
    let (may, must_not): (Vec<&str>, Vec<&str>) =
        text.lines().partition(|line| line.starts_with("may "));
    assert_eq!((may.len(), must_not.len()), (5, 44), "{text}");
    for line in may {
        assert!(line.ends_with(" ALLOWED"), "{line}");
    }
    let refused = [
        "EPERM",
        "ENOSYS",
        "EACCES",
        "ENOENT",
        "EROFS",
        "ENETUNREACH",
    ];
    for line in must_not {
        assert!(refused.iter().any(|code| line.ends_with(code)), "{line}");
    }
    assert!(
        text.contains("clone3 ENOSYS") && text.contains("unheard_of ENOSYS"),
        "{text}"
    );
}

#[tokio::test]
async fn a_fork_bomb_stays_within_its_limit() {
    let Some(sandbox) = sandbox("forks", |spec| spec.pids = 64).await else {
        return;
    };
    let command = wharf::sandbox::Command {
        line: "b() { b | b & }; b; sleep 60".to_owned(),
        timeout: std::time::Duration::from_secs(3),
        background: false,
        keep: 4000,
    };
    let cancel = tokio_util::sync::CancellationToken::new();
    let done = sandbox.run(&command, &cancel).await.unwrap();
    assert_eq!(done.exit, Exit::TimedOut);
    still_works(sandbox.as_ref()).await;
    sandbox.close().await;
    let again = self::sandbox("forks-after", |_| ()).await.unwrap();
    still_works(again.as_ref()).await;
    again.close().await;
}

#[tokio::test]
async fn a_memory_bomb_kills_itself_and_not_the_sandbox() {
    let Some(sandbox) = sandbox("memory", |_| ()).await else {
        return;
    };
    let (exit, _) = run(sandbox.as_ref(), "tail /dev/zero").await;
    assert_eq!(exit, Exit::OutOfMemory(137));
    still_works(sandbox.as_ref()).await;
    sandbox.close().await;
}

#[tokio::test]
async fn limits_on_files_and_privileges_hold() {
    let Some(sandbox) = sandbox("limits", |_| ()).await else {
        return;
    };
    let sandbox = sandbox.as_ref();
    let open_files =
        "python3 -c 'import os; [os.open(\"/dev/null\", 0) for _ in range(1500)]' 2>&1 | tail -1";
    assert!(
        run(sandbox, open_files)
            .await
            .1
            .contains("Too many open files")
    );
    let setuid = "cp /usr/bin/id /tmp/id && chmod 4755 /tmp/id && /tmp/id -u; su -c id 2>&1 </dev/null; true";
    let (_, text) = run(sandbox, setuid).await;
    assert!(
        text.starts_with("1000\n") && !text.contains("uid=0"),
        "{text}"
    );
    let full = run(
        sandbox,
        "dd if=/dev/zero of=/tmp/f bs=1M count=999 2>&1; rm -f /tmp/f",
    )
    .await
    .1;
    assert!(full.contains("No space left"), "{full}");
    assert_eq!(
        run(sandbox, "kill -9 1; kill 1; kill -STOP 1; echo on")
            .await
            .1,
        "on\n"
    );
    still_works(sandbox).await;
    sandbox.close().await;
}

#[tokio::test]
async fn orphans_are_reaped() {
    let Some(sandbox) = sandbox("zombies", |_| ()).await else {
        return;
    };
    let line = "for i in $(seq 300); do (true &) ; done; sleep 1; ps -eo stat | grep -c '^Z'; true";
    let (_, zombies) = run(sandbox.as_ref(), line).await;
    assert_eq!(zombies.trim(), "0");
    sandbox.close().await;
}

/// Not a limit, a figure: printed for whoever reads the output.
#[tokio::test]
async fn a_round_from_open_to_close() {
    let Some((docker, _)) = engine().await else {
        return;
    };
    let spec = spec(python(&docker).await, "round");
    let at = Instant::now();
    let sandbox = open(&docker, &spec).await;
    let opened = at.elapsed();
    still_works(sandbox.as_ref()).await;
    let answered = at.elapsed();
    sandbox.close().await;
    crate::container::note(&format!(
        "open {opened:?}, first answer {answered:?}, closed {:?}",
        at.elapsed()
    ));
    assert!(opened < at.elapsed());
}
