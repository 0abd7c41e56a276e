//! Files that nobody may change, whatever tries to; and old checks run beside changed ones.

use serde_json::json;
use wharf::journal::Event;
use wharf::run::Status;
use wharf::workspace::{Edit, Globs, Mode};

use crate::server::{Answer, Ask, Role};
use crate::workspace::fixture::{self, delete, put, put_as};
use crate::world::{World, passes, report, write};

/// One coder under these further keys of the plan.
fn plan(extra: &str) -> String {
    format!(
        "version: 1\nname: test\ntask: Do the work\n{extra}\nsubtasks:\n  \
         - {{id: a, role: coder, brief: \"Do it.\"}}\n"
    )
}

fn verifier(ask: &Ask) -> Answer {
    match ask.ordinal {
        0 => Answer::call("list_files", json!({})),
        _ => passes(&["It is done"], "#1"),
    }
}

/// Whatever it is done with, a protected file that is not what it was is found.
#[tokio::test]
async fn any_change_of_a_protected_file_is_found() {
    let world = fixture::World::new().await;
    let base = [
        put("tests/t.py", "assert x\n"),
        put("tests/deep/u.py", "assert y\n"),
        put("free.py", "x = 1\n"),
    ];
    let base = world.store.commit(&[], &base, "base").await.unwrap();
    let both = || vec![delete("tests/t.py"), delete("tests/deep/u.py")];
    let with = |edits: Vec<Edit>, last: Edit| edits.into_iter().chain([last]).collect::<Vec<_>>();
    let one = ["tests/t.py"].as_slice();
    let all = ["tests/deep/u.py", "tests/t.py"].as_slice();
    let cases: [(&str, Vec<Edit>, &[&str]); 11] = [
        ("edit", vec![put("tests/t.py", "assert True\n")], one),
        (
            "mode",
            vec![put_as("tests/t.py", Mode::Executable, b"assert x\n")],
            one,
        ),
        ("removal", vec![delete("tests/t.py")], one),
        (
            "rename",
            vec![delete("tests/t.py"), put("tests/s.py", "assert x\n")],
            one,
        ),
        (
            "rename out",
            vec![delete("tests/t.py"), put("t.py", "assert x\n")],
            one,
        ),
        (
            "link",
            vec![put_as("tests/t.py", Mode::Link, b"../free.py")],
            one,
        ),
        (
            "folder",
            vec![delete("tests/t.py"), put("tests/t.py/in", "\n")],
            one,
        ),
        ("folder above gone", both(), all),
        (
            "folder above a link",
            with(both(), put_as("tests", Mode::Link, b"free")),
            all,
        ),
        (
            "folder above a file",
            with(both(), put("tests", "x\n")),
            all,
        ),
        (
            "others",
            vec![put("tests/new.py", "n\n"), put("free.py", "x = 2\n")],
            &[],
        ),
    ];
    let globs = ["tests/**".to_owned()];
    for (name, edits, want) in cases {
        let result = world.child(&base, &edits).await;
        let found = world.store.protected(&base, &result, &globs).await.unwrap();
        assert_eq!(found, want, "{name}");
    }
}

/// The write tools and the last check read the same patterns the same way.
#[test]
fn both_readers_of_patterns_agree() {
    let lists: [&[&str]; 9] = [
        &["tests/**"],
        &["tests"],
        &["tests/"],
        &["/top.txt"],
        &["./top.txt"],
        &["*.lock", "!sub/**"],
        &["tests/**", "!tests/new/**", "tests/new/old.py"],
        &["a/*.py"],
        &["**", "!free*"],
    ];
    let paths = [
        "top.txt",
        "a/top.txt",
        "tests",
        "tests/a.py",
        "tests/new/a.py",
        "tests/new/old.py",
        "x/tests/a.py",
        "Cargo.lock",
        "sub/Cargo.lock",
        "a/b.py",
        "a/c/b.py",
        "free",
        "free.d/x",
    ];
    for list in lists {
        let list: Vec<String> = list.iter().map(|&text| text.to_owned()).collect();
        let last = Globs::new(&list).unwrap();
        let first = wharf::tools::rules::Globs::new("protect", &list).unwrap();
        for path in paths {
            assert_eq!(
                first.covers(path),
                last.matches(path.as_bytes()),
                "{list:?} {path}"
            );
        }
    }
}

#[tokio::test]
async fn every_writing_tool_refuses_at_once_and_says_why() {
    let world = World::new(&[("tests/t.txt", "assert\n")]);
    let extra = "acceptance: {criteria: [\"It is done\"]}\nprotect: [\"tests/**\"]";
    let ran = world
        .run(&plan(extra), |ask| {
            if ask.role == Role::Verifier {
                return verifier(ask);
            }
            if ask.ordinal > 0 && ask.ordinal < 5 {
                let last = ask.last();
                assert!(last.contains("tests/t.txt is protected"), "{last}");
            }
            match ask.ordinal {
                0 => write("tests/t.txt", "true\n"),
                1 => write("/workspace/x/../tests//t.txt", "true\n"),
                2 => Answer::call(
                    "edit_file",
                    json!({"path": "tests/t.txt", "old_string": "assert", "new_string": "true"}),
                ),
                3 => Answer::call(
                    "apply_patch",
                    json!({"input": "*** Begin Patch\n*** Update File: tests/t.txt\n@@\n-assert\n+true\n*** End Patch"}),
                ),
                4 => write("tests/new.txt", "more\n"),
                5 => Answer::call("bash", json!({"command": "true"})),
                _ => report("done", "added one"),
            }
        })
        .await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    assert_eq!(ran.summary.subtasks[0].changed_files, ["tests/new.txt"]);
}

/// An agent that may change one test weakens it: the old one still speaks.
async fn weakened(extra: &str) -> (World, crate::world::Ran) {
    let world = World::new(&[("tests/flex.txt", "strict\n"), ("tests/t.txt", "t\n")]);
    let plan = plan(&format!(
        "acceptance: {{commands: [\"grep -q weak tests/flex.txt\"], criteria: [\"It is done\"]}}\n{extra}"
    ));
    let ran = world
        .run(&plan, |ask| match (ask.role, ask.ordinal) {
            (Role::Verifier, _) => verifier(ask),
            (_, 0) => write("tests/flex.txt", "weak\n"),
            (_, 1) => Answer::call("bash", json!({"command": "true"})),
            _ => report("done", "changed it"),
        })
        .await;
    (world, ran)
}

#[tokio::test]
async fn where_a_test_may_change_the_old_one_runs_too_and_decides_nothing() {
    let (world, ran) = weakened("protect: [\"tests/**\", \"!tests/flex.txt\"]").await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    let verdict = ran.summary.verdict.clone().unwrap();
    assert_eq!(verdict.commands[0].exit_code, Some(0));
    assert_eq!(verdict.protected_changes, Vec::<String>::new());
    let with = verdict.with_base_tests.expect("the old test was run");
    assert_eq!(with.paths, ["tests/flex.txt"]);
    assert_eq!(with.commands[0].exit_code, Some(1));
    let facts = ran.journal.iter().find_map(|line| match &line.event {
        Event::AcceptanceRan {
            with_base_tests, ..
        } => with_base_tests.clone(),
        _ => None,
    });
    assert_eq!(facts, Some(with));
    let requests = ran.server.requests();
    let told = |text: &str| requests.iter().any(|body| body.to_string().contains(text));
    assert!(told(
        "With the base's version of them the same commands came to this"
    ));
    let report = std::fs::read_to_string(world.state.join("runs/run/report.md")).unwrap();
    assert!(
        report.contains("With the base's version of tests/flex.txt"),
        "{report}"
    );
}

/// Without any `!` too: what the old checks say of the new code is worth knowing.
#[tokio::test]
async fn a_changed_check_runs_as_the_base_has_it_and_a_new_hook_is_taken_out() {
    let world = World::new(&[("tests/t.txt", "strict\n"), ("a.txt", "a\n")]);
    let extra = "acceptance: {commands: [\"grep -q weak tests/t.txt\"], \
                 criteria: [\"It is done\"]}";
    let ran = world
        .run(&plan(extra), |ask| match (ask.role, ask.ordinal) {
            (Role::Verifier, _) => verifier(ask),
            (_, 0) => Answer::calls(vec![
                (
                    "write_file",
                    json!({"path": "tests/t.txt", "content": "weak\n"}),
                ),
                (
                    "write_file",
                    json!({"path": "tests/new.txt", "content": "new\n"}),
                ),
                (
                    "write_file",
                    json!({"path": "conftest.py", "content": "x = 1\n"}),
                ),
            ]),
            (_, 1) => Answer::call("bash", json!({"command": "true"})),
            _ => report("done", "changed it"),
        })
        .await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    let told = "`grep -q weak tests/t.txt` passes only with what was changed of conftest.py (taken out), \
                tests/t.txt: with the base's version, `grep -q weak tests/t.txt` exited with 1";
    let warnings = &ran.summary.warnings;
    assert_eq!(
        warnings.iter().filter(|w| *w == told).count(),
        1,
        "{warnings:?}"
    );
    let verdict = ran.summary.verdict.unwrap();
    let with = verdict.with_base_tests.expect("the old test was run");
    assert_eq!(with.paths, ["conftest.py (taken out)", "tests/t.txt"]);
    let codes: Vec<_> = with.commands.iter().map(|run| run.exit_code).collect();
    assert_eq!(codes, [Some(1)]);
}

#[tokio::test]
async fn where_no_check_changed_nothing_runs_twice() {
    let world = World::new(&[("a.txt", "a\n"), ("tests/t.txt", "t\n")]);
    let extra = "acceptance: {commands: [\"true\"], criteria: [\"It is done\"]}\nprotect: [\"tests/t.txt\"]";
    let ran = world
        .run(&plan(extra), |ask| match (ask.role, ask.ordinal) {
            (Role::Verifier, _) => verifier(ask),
            (_, 0) => write("a.txt", "other\n"),
            (_, 1) => write("tests/new.txt", "more\n"),
            (_, 2) => Answer::call("bash", json!({"command": "true"})),
            _ => report("done", "changed it"),
        })
        .await;
    assert_eq!(ran.summary.status, Status::Passed, "{}", ran.summary.reason);
    assert_eq!(ran.summary.verdict.unwrap().with_base_tests, None);
}

/// Put back, a file stands as the base has it, whatever stands at its place or above it.
#[tokio::test]
async fn the_base_s_files_are_put_back_over_anything() {
    let world = fixture::World::new().await;
    let base = [
        put_as("t/a", Mode::Executable, b"a\n"),
        put("t/b", "b\n"),
        put("c", "c\n"),
    ];
    let base = world.store.commit(&[], &base, "base").await.unwrap();
    let globs = ["t/**", "!t/a", "!t/b"].map(str::to_owned);
    let cases: [Vec<Edit>; 3] = [
        vec![
            delete("t/a"),
            put("t/a/in", "x\n"),
            put("t/b", "bb\n"),
            put("new", "n\n"),
        ],
        vec![
            delete("t/a"),
            delete("t/b"),
            put("t", "flat\n"),
            put("new", "n\n"),
        ],
        vec![
            delete("t/a"),
            delete("t/b"),
            put_as("t", Mode::Link, b"c"),
            put("new", "n\n"),
        ],
    ];
    for edits in cases {
        let result = world.child(&base, &edits).await;
        let released = world.store.released(&base, &result, &globs).await.unwrap();
        assert_eq!(released, [b"t/a".to_vec(), b"t/b".to_vec()]);
        let back = world
            .store
            .put_back(&result, &base, &released)
            .await
            .unwrap();
        let all = world.all(&back).await;
        let names: Vec<&[u8]> = all.keys().map(Vec::as_slice).collect();
        assert_eq!(names, [&b"c"[..], b"new", b"t/a", b"t/b"], "{edits:?}");
        assert_eq!(all[&b"t/a"[..]], (Mode::Executable, "a\n".into()));
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(500))]
    /// What the write tools refuse at once is what the last check of a result finds.
    #[test]
    fn whatever_the_patterns_both_readers_agree(
        patterns in proptest::collection::vec("!?/?(a|b|[*]|a[*]|[*].x|[*][*]){1}(/(a|b|[*]|[*].x|[*][*])){0,2}/?", 0..5),
        path in "(a|b|ab|c.x)(/(a|b|ab|c.x)){0,3}",
    ) {
        let said = wharf::tools::rules::Globs::new("protect", &patterns);
        let found = Globs::new(&patterns);
        let said = said.ok().map(|globs| globs.covers(&path));
        let found = found.ok().map(|globs| globs.matches(path.as_bytes()));
        proptest::prop_assert_eq!(said, found, "{:?} {}", patterns, path);
    }
}
