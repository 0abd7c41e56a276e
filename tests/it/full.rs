//! A state directory on a disk without room: what failed is said, and nothing unreadable is left.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output};

use wharf::run;

use crate::server::FakeModel;
use crate::world::{World, connect, report};

const PLAN: &str = "version: 1\nname: test\ntask: Do the work\n\
                    subtasks:\n  - {id: a, role: coder, brief: \"Write b.txt.\"}\n";

/// Runs one of the tests below in a mount namespace of its own.
fn apart(test: &str) {
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    let output = command
        .arg("--mount")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", "--nocapture", test])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(said.contains("1 passed"), "{said}");
}

/// A world whose state directory has `free` bytes left, as far as whole pages allow.
fn world(free: u64) -> World {
    let world = World::new(&[("a.txt", "a\n")]);
    std::fs::create_dir_all(&world.state).unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
        .arg(&world.state)
        .status();
    assert!(mounted.unwrap().success());
    let mut filler = std::fs::File::create(world.state.join("filler")).unwrap();
    while filler.write_all(&[b'.'; 4096]).is_ok() {}
    let length = filler.metadata().unwrap().len();
    filler.set_len(length - free).unwrap();
    world
}

fn wharf(state: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_wharf"))
        .args(args)
        .env("WHARF_HOME", state)
        .env("DOCKER_HOST", "unix:///nope")
        .output()
        .unwrap()
}

async fn fails(world: &World) -> String {
    let server = FakeModel::start(|_| report("done", "never asked")).await;
    let error = run::start(world.order(PLAN, connect(&server))).await;
    let error = error.expect_err("there is no room for it").to_string();
    assert!(error.contains("No space left on device"), "{error}");
    assert!(!error.contains('\n') && !error.contains("\\n"), "{error}");
    error
}

#[test]
fn a_run_without_room_for_its_plan_leaves_no_directory() {
    apart("full::inner_nothing");
}

#[tokio::test]
#[ignore = "run by the test above, where it may mount"]
async fn inner_nothing() {
    let world = world(0);
    fails(&world).await;
    let left = std::fs::read_dir(world.state.join("runs")).unwrap();
    assert_eq!(left.count(), 0);

    let out = wharf(&world.state, &["doctor", "--json"]);
    let told: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let checks = told["checks"].as_array().unwrap().iter();
    let state = checks.filter(|check| check["name"] == "state directory");
    let state: Vec<_> = state.collect();
    assert_eq!(state[0]["state"], "failed", "{told}");
    assert!(
        state[0]["next"]
            .as_str()
            .unwrap()
            .contains("free some space")
    );
}

#[test]
fn a_run_without_room_for_its_store_says_so_wherever_it_is_looked_at() {
    apart("full::inner_little");
}

#[tokio::test]
#[ignore = "run by the test above, where it may mount"]
async fn inner_little() {
    let world = world(40 << 10);
    fails(&world).await;
    for args in [&["show", "last"][..], &["runs"]] {
        let out = wharf(&world.state, args);
        let told = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success(), "{out:?}");
        assert!(told.contains("error"), "{args:?}: {told}");
        assert!(!told.contains("could not be told"), "{args:?}: {told}");
    }
}
