//! One agent in a real container makes everything that is hard to bring back: a branch, a patch and an
//! apply have all of it, byte by byte, and what is left out is named.

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::operator::{Operator, skipped};
use crate::server::{Answer, Ask, FakeModel, Role};
use crate::workspace::fixture::{NAMES, at};
use crate::world::{passes, put, report};

const PLAN: &str = "version: 1\nname: one\ntask: Do the work\nmodel: openai/fake\n\
                    acceptance: {criteria: [\"It is done\"]}\n\
                    subtasks: [{id: a, role: coder, brief: Do it.}]\n";

/// Names are written in octal, since a request is text.
fn names() -> String {
    let line = |name: &&[u8]| {
        let octal: String = name.iter().map(|byte| format!("\\{byte:03o}")).collect();
        format!(
            "n=\"./named/$(printf '{octal}.')\"; n=\"${{n%.}}\"; mkdir -p \"$(dirname \"$n\")\"; echo nasty > \"$n\"\n"
        )
    };
    NAMES.iter().map(line).collect()
}

/// Cases of files, kinds, links, settings of git, build output.
fn lines(pwn: &Path) -> [String; 4] {
    let pwn = pwn.display();
    let kinds = "printf '#!/bin/sh\\n' > run.sh; chmod +x run.sh; : > empty; chmod +x old.py; mkdir -p nothing/at/all; \
                 ln -s old.py link; rm gone.txt; mv moved.txt moved-away.txt; printf 'a\\r\\nb' > crlf.txt; \
                 printf 'changed\\n' >> a.py; printf '\\211PNG\\000\\377new' > logo.png; \
                 printf '\\377\\376h\\000i\\000' > utf16.txt; head -c 5000000 /dev/urandom > big.bin; \
                 rm -r folder; printf file > folder; rm file; mkdir file; echo in > file/inner; chmod 600 a.py; \
                 sha256sum big.bin";
    let links = format!(
        "ln -s {pwn}/secret notes.md; ln -s ../../../../../../..{pwn} out; ln -s {pwn}/not-yet draft; \
         rm -r replaced; ln -s {pwn} replaced; echo ok"
    );
    let settings = format!(
        "git config core.fsmonitor 'touch {pwn}/monitor'; printf '*.txt filter=x diff=x merge=x\\n' > .gitattributes; \
         git config filter.x.clean 'touch {pwn}/clean; cat'; printf '#!/bin/sh\\ntouch {pwn}/hook\\n' > .git/hooks/post-checkout; \
         chmod +x .git/hooks/post-checkout; git init -q library; echo lib > library/f; echo x > 'git~1'; echo ok"
    );
    let junk = "mkdir -p node_modules/x target __pycache__; echo x > node_modules/x/y; touch __pycache__/a.pyc; \
                head -c 70000000 /dev/zero > target/bin; mkfifo pipe; echo KEY= > .env.example; rm -rf .git; echo ok";
    let named = names();
    [
        format!("{kinds}\n{named}"),
        links,
        settings,
        junk.to_owned(),
    ]
}

/// The text that the agent was shown last.
fn shown(ask: &Ask) -> String {
    ask.last().to_owned()
}

fn script(pwn: &Path) -> impl Fn(&Ask) -> Answer + Send + Sync + 'static {
    let lines = lines(pwn);
    move |ask| match (ask.role, ask.ordinal) {
        (Role::Verifier, 0) => Answer::call("list_files", json!({})),
        (Role::Verifier, _) => passes(&["It is done"], "#1"),
        (_, turn) if turn < lines.len() => {
            let before = shown(ask);
            assert!(
                turn == 0 || before.contains("exit code 0") || before.contains("exit code: 0"),
                "{before}"
            );
            Answer::call("bash", json!({"command": lines[turn]}))
        }
        _ => report("done", "made all of it"),
    }
}

/// Everything that must have come back: the path and what stands there.
fn expected(big: &str) -> BTreeMap<Vec<u8>, String> {
    let file = |content: &[u8]| format!("file {}", hash(content));
    let mut all = BTreeMap::new();
    let mut add = |path: &[u8], is: String| drop(all.insert(path.to_vec(), is));
    add(b"run.sh", format!("executable {}", hash(b"#!/bin/sh\n")));
    add(b"old.py", format!("executable {}", hash(b"old\n")));
    add(b"empty", file(b""));
    add(b"link", "link old.py".to_owned());
    add(b"moved-away.txt", file(b"moved\n"));
    add(b"crlf.txt", file(b"a\r\nb"));
    add(b"a.py", file(b"a\nchanged\n"));
    add(b"logo.png", file(b"\x89PNG\0\xffnew"));
    add(b"utf16.txt", file(b"\xff\xfeh\0i\0"));
    add(b"big.bin", format!("file {big}"));
    add(b"folder", file(b"file"));
    add(b"file/inner", file(b"in\n"));
    add(b"library/f", file(b"lib\n"));
    add(b".gitattributes", file(b"*.txt filter=x diff=x merge=x\n"));
    add(b".env.example", file(b"KEY=\n"));
    for name in NAMES {
        add(&[b"named/", *name].concat(), file(b"nasty\n"));
    }
    all
}

fn hash(content: &[u8]) -> String {
    let digest = Sha256::digest(content);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What stands at a path of a directory.
fn standing(dir: &Path, path: &[u8]) -> String {
    let at = at(dir, path);
    let Ok(meta) = std::fs::symlink_metadata(&at) else {
        return "nothing".to_owned();
    };
    if meta.is_symlink() {
        return format!("link {}", std::fs::read_link(&at).unwrap().display());
    }
    let kind = match meta.permissions().mode() & 0o100 {
        0 => "file",
        _ => "executable",
    };
    format!("{kind} {}", hash(&std::fs::read(&at).unwrap()))
}

fn holds_all(dir: &Path, pwn: &Path, big: &str) {
    for (path, is) in expected(big) {
        assert_eq!(standing(dir, &path), is, "{}", path.escape_ascii());
    }
    for gone in [
        "gone.txt",
        "moved.txt",
        "folder/in",
        "replaced/f",
        "nothing",
    ] {
        assert_eq!(standing(dir, gone.as_bytes()), "nothing", "{gone}");
    }
    for (link, target) in [
        ("notes.md", "secret"),
        ("draft", "not-yet"),
        ("replaced", ""),
    ] {
        let target = match target {
            "" => pwn.display().to_string(),
            name => pwn.join(name).display().to_string(),
        };
        assert_eq!(
            standing(dir, link.as_bytes()),
            format!("link {target}"),
            "{link}"
        );
    }
}

fn workspace(operator: &Operator) {
    let at = |name: &str| operator.work().join(name);
    for (path, content) in [
        ("a.py", "a\n"),
        ("old.py", "old\n"),
        ("gone.txt", "gone\n"),
        ("moved.txt", "moved\n"),
        ("crlf.txt", "a\r\n"),
        ("folder/in", "in\n"),
        ("file", "file\n"),
        ("replaced/f", "f\n"),
        ("logo.png", "\u{1}PNG\u{0}old"),
    ] {
        put(&at(path), content);
    }
    operator.git(&["init", "-q", "-b", "main"]);
    operator.git(&["add", "-A"]);
    operator.git(&["commit", "-q", "-m", "first"]);
}

#[tokio::test]
async fn everything_that_is_hard_to_bring_back_comes_back_in_every_form() {
    if skipped() {
        return;
    }
    let operator = Operator::new();
    workspace(&operator);
    let outside = tempfile::tempdir().unwrap();
    let pwn = std::fs::canonicalize(outside.path()).unwrap();
    put(&pwn.join("secret"), "canary\n");
    // What a result that is applied must not be led through.
    symlink(&pwn, operator.work().join("unrelated")).unwrap();
    let server = FakeModel::start(script(&pwn)).await;
    let before = operator.photograph();
    let said = operator.run(&server, PLAN, &[]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(operator.photograph(), before);
    names_what_it_lacks(&said.object());
    let big = big(&server);

    let branch = worktree(&operator, "branch", "wharf/run");
    holds_all(&branch, &pwn, &big);
    let patched = worktree(&operator, "patched", "main");
    apply_the_diff(&operator, &patched).await;
    holds_all(&patched, &pwn, &big);
    for done in [branch, patched] {
        operator.git(&["worktree", "remove", "--force", done.to_str().unwrap()]);
    }

    let applied = operator.wharf(None, &["apply", "run"]).await;
    assert_eq!(applied.code, Some(0), "{applied:?}");
    holds_all(&operator.work(), &pwn, &big);
    let there: Vec<_> = std::fs::read_dir(&pwn)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(there, ["secret"], "something was written or run outside");
    let secret = std::fs::read_to_string(pwn.join("secret")).unwrap();
    assert_eq!(secret, "canary\n");
}

fn names_what_it_lacks(result: &Value) {
    assert_eq!(result["branch"], "wharf/run", "{result}");
    let left = result["left_out"].as_array().unwrap().iter();
    let left: Vec<&str> = left.map(|left| left["path"].as_str().unwrap()).collect();
    for path in [
        "node_modules/",
        "__pycache__/",
        "target/bin",
        "library/.git/",
        "git~1",
        "pipe",
    ] {
        assert!(left.contains(&path), "{path}: {left:?}");
    }
    let warnings = result["warnings"].to_string();
    for part in [
        "target/bin (67 MiB",
        "git~1 (",
        "library/.git/ (",
        "adds .env.example, whose name",
        "a filter that your repository does not know: ",
    ] {
        assert!(warnings.contains(part), "{part}: {warnings}");
    }
}

/// A commit checked out beside the workspace.
fn worktree(operator: &Operator, name: &str, commit: &str) -> PathBuf {
    let at = operator.work().with_file_name(name);
    let place = at.to_str().unwrap();
    operator.git(&["worktree", "add", "-q", "--detach", place, commit]);
    at
}

async fn apply_the_diff(operator: &Operator, to: &Path) {
    let diff = operator.command(None, &["diff", "run"]).output().await;
    let diff = diff.unwrap();
    assert!(diff.status.success(), "{diff:?}");
    let patch = operator.work().with_file_name("patch");
    std::fs::write(&patch, &diff.stdout).unwrap();
    let (to, patch) = (to.to_str().unwrap(), patch.to_str().unwrap());
    operator.git(&["-C", to, "apply", patch]);
}

/// The hash of the large file, as the agent's own tools told it.
fn big(server: &FakeModel) -> String {
    let requests = server.requests();
    let texts = requests
        .iter()
        .flat_map(|body| body["messages"].as_array().unwrap());
    let told: Vec<&str> = texts
        .filter_map(|message| message["content"].as_str())
        .collect();
    let line = told.iter().find_map(|text| text.split_once("  big.bin"));
    let (head, _) = line.expect("a hash was printed");
    head[head.len() - 64..].to_owned()
}
