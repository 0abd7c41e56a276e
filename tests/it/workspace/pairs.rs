//! Every pair of kinds of change, in both orders: merged right, or a conflict that holds both.

#![allow(clippy::too_many_lines, reason = "tables of one shape")]

use std::collections::BTreeSet;

use bytes::Bytes;
use wharf::workspace::{Edit, Mode};

use super::fixture::*;
use super::merge::{Both, TEXT, both, text};

/// What a pair must come to.
enum Want {
    /// Exactly these files beside those that no one touched.
    Clean(Vec<(&'static str, Mode, Vec<u8>)>),
    /// A conflict about this path, of this kind; the path may stand aside as `path~COMMIT`.
    Conflict(&'static str, &'static str),
}

struct Pair {
    name: &'static str,
    left: Vec<Edit>,
    right: Vec<Edit>,
    want: Want,
}

fn pair(name: &'static str, left: Vec<Edit>, right: Vec<Edit>, want: Want) -> Pair {
    Pair {
        name,
        left,
        right,
        want,
    }
}

fn clash(path: &'static str, kind: &'static str) -> Want {
    Want::Conflict(path, kind)
}

fn file(path: &'static str, content: &str) -> (&'static str, Mode, Vec<u8>) {
    (path, Mode::File, content.as_bytes().to_vec())
}

fn link(path: &'static str, target: &str) -> (&'static str, Mode, Vec<u8>) {
    (path, Mode::Link, target.as_bytes().to_vec())
}

fn put_link(path: &str, target: &str) -> Edit {
    put_as(path, Mode::Link, target.as_bytes())
}

fn binary(last: u8) -> Vec<u8> {
    let mut bytes = vec![0, 1, 2, 0xff, b'\n', b'\r'];
    bytes.extend(std::iter::repeat_n(7, 300));
    bytes.push(last);
    bytes
}

fn base() -> Vec<Edit> {
    vec![
        put("a", TEXT),
        put("other", &TEXT.replace('\n', " other\n")),
        put("d/x", "x\n"),
        put("d/y", "y\n"),
        put_link("l", "target"),
        put_as("bin", Mode::File, &binary(0)),
        put("crlf", "1\r\n2\r\n3\r\n4\r\n5\r\n"),
        put("open", "first\nlast"),
        put(".gitmodules", "[submodule \"m\"]\n\tpath = m\n"),
        put("m/lib.c", TEXT),
    ]
}

fn rename(to: &str, content: &str) -> Vec<Edit> {
    vec![delete("a"), put(to, content)]
}

/// Text against text.
fn edits() -> Vec<Pair> {
    let edit = |from, to| vec![put("a", &text(from, to))];
    let both = text("1", "one").replace("9\n", "nine\n");
    vec![
        pair(
            "edits far apart",
            edit("1", "one"),
            edit("9", "nine"),
            Want::Clean(vec![file("a", &both)]),
        ),
        pair(
            "edits of neighbours",
            edit("5", "five"),
            edit("6", "six"),
            clash("a", "content"),
        ),
        pair(
            "edits of one line",
            edit("5", "left"),
            edit("5", "right"),
            clash("a", "content"),
        ),
        pair(
            "the same edit",
            edit("5", "five"),
            edit("5", "five"),
            Want::Clean(vec![file("a", &text("5", "five"))]),
        ),
        pair(
            "both append",
            vec![put("a", &format!("{TEXT}left\n"))],
            vec![put("a", &format!("{TEXT}right\n"))],
            clash("a", "content"),
        ),
        pair(
            "one reformats all",
            edit("5", "five"),
            vec![put("a", &TEXT.replace('\n', " \n"))],
            clash("a", "content"),
        ),
        pair(
            "line ends against an edit",
            vec![put("crlf", "1\n2\n3\n4\n5\n")],
            vec![put("crlf", "1\r\n2\r\nthree\r\n4\r\n5\r\n")],
            clash("crlf", "content"),
        ),
        pair(
            "carriage returns are kept",
            vec![put("crlf", "one\r\n2\r\n3\r\n4\r\n5\r\n")],
            vec![put("crlf", "1\r\n2\r\n3\r\n4\r\nfive\r\n")],
            Want::Clean(vec![file("crlf", "one\r\n2\r\n3\r\n4\r\nfive\r\n")]),
        ),
        pair(
            "a final line end against a line after it",
            vec![put("open", "first\nlast\n")],
            vec![put("open", "first\nlast\nmore\n")],
            clash("open", "content"),
        ),
        pair(
            "files of a nested repository",
            vec![put("m/lib.c", &text("1", "one"))],
            vec![put("m/lib.c", &text("9", "nine"))],
            Want::Clean(vec![file("m/lib.c", &both)]),
        ),
        pair(
            "two new submodules in .gitmodules",
            vec![put(
                ".gitmodules",
                "[submodule \"m\"]\n\tpath = m\n[submodule \"l\"]\n",
            )],
            vec![put(
                ".gitmodules",
                "[submodule \"m\"]\n\tpath = m\n[submodule \"r\"]\n",
            )],
            clash(".gitmodules", "content"),
        ),
    ]
}

/// Names that come, go and move.
fn names() -> Vec<Pair> {
    let edit = || vec![put("a", &text("5", "five"))];
    let five = text("5", "five");
    vec![
        pair(
            "edit, delete",
            edit(),
            vec![delete("a")],
            clash("a", "modify/delete"),
        ),
        pair(
            "delete, delete",
            vec![delete("a")],
            vec![delete("a")],
            Want::Clean(vec![]),
        ),
        pair(
            "a folder, a file of it",
            vec![delete("d/x"), delete("d/y")],
            vec![delete("d/x")],
            Want::Clean(vec![]),
        ),
        pair(
            "rename, edit",
            rename("b", TEXT),
            edit(),
            Want::Clean(vec![file("b", &five)]),
        ),
        pair(
            "rename in case",
            rename("A", TEXT),
            edit(),
            Want::Clean(vec![file("A", &five)]),
        ),
        pair(
            "rename with an edit, edit of that line",
            rename("b", &text("5", "fuenf")),
            edit(),
            clash("b", "content"),
        ),
        pair(
            "rename, the same rename",
            rename("b", TEXT),
            rename("b", TEXT),
            Want::Clean(vec![file("b", TEXT)]),
        ),
        pair(
            "rename, another rename",
            rename("b", TEXT),
            rename("c", TEXT),
            clash("a", "rename/rename"),
        ),
        pair(
            "rename, delete",
            rename("b", TEXT),
            vec![delete("a")],
            clash("b", "rename/delete"),
        ),
        pair(
            "rename, another file there",
            rename("b", TEXT),
            vec![put("b", "mine\n")],
            clash("b", "add/add"),
        ),
        pair(
            "two files renamed to one name",
            rename("b", TEXT),
            vec![delete("other"), put("b", &TEXT.replace('\n', " other\n"))],
            clash("b", "add/add"),
        ),
        pair(
            "add, the same",
            vec![put("n", "n\n")],
            vec![put("n", "n\n")],
            Want::Clean(vec![file("n", "n\n")]),
        ),
        pair(
            "add, another",
            vec![put("n", "left\n")],
            vec![put("n", "right\n")],
            clash("n", "add/add"),
        ),
        pair(
            "add, an empty one",
            vec![put("n", "left\n")],
            vec![put("n", "")],
            Want::Clean(vec![file("n", "left\n")]),
        ),
        pair(
            "odd names",
            vec![put("o\n\"~", "l\n")],
            vec![put("o\n\"~", "r\n")],
            clash("o\n\"~", "add/add"),
        ),
    ]
}

/// Kinds that change: folders, modes, links, binary files.
fn kinds() -> Vec<Pair> {
    let edit = || vec![put("a", &text("5", "five"))];
    let far = || vec![put("other", "new\n")];
    let run = || vec![put_as("a", Mode::Executable, TEXT.as_bytes())];
    let folder = || vec![delete("a"), put("a/in", "in\n")];
    let flat = || vec![delete("d/x"), delete("d/y"), put("d", "flat\n")];
    let to_link = || vec![delete("a"), put_link("a", "other")];
    let bin = |last| vec![put_as("bin", Mode::File, &binary(last))];
    let five = text("5", "five").into_bytes();
    vec![
        pair(
            "file to folder, edit",
            folder(),
            edit(),
            clash("a", "file/directory"),
        ),
        pair(
            "file to folder, nothing",
            folder(),
            far(),
            Want::Clean(vec![file("a/in", "in\n"), file("other", "new\n")]),
        ),
        pair(
            "folder to file, edit inside",
            flat(),
            vec![put("d/x", "edited\n")],
            clash("d/x", "modify/delete"),
        ),
        pair(
            "folder to file, a new file inside",
            flat(),
            vec![put("d/z", "z\n")],
            clash("d", "file/directory"),
        ),
        pair(
            "folder to file, nothing",
            flat(),
            far(),
            Want::Clean(vec![file("d", "flat\n"), file("other", "new\n")]),
        ),
        pair(
            "mode, edit",
            run(),
            edit(),
            Want::Clean(vec![("a", Mode::Executable, five)]),
        ),
        pair(
            "mode, the same mode",
            run(),
            run(),
            Want::Clean(vec![("a", Mode::Executable, TEXT.into())]),
        ),
        pair(
            "mode, delete",
            run(),
            vec![delete("a")],
            clash("a", "modify/delete"),
        ),
        pair(
            "file to link, edit",
            to_link(),
            edit(),
            clash("a", "distinct types"),
        ),
        pair(
            "file to link, nothing",
            to_link(),
            far(),
            Want::Clean(vec![link("a", "other"), file("other", "new\n")]),
        ),
        pair(
            "link, another link",
            vec![put_link("l", "left")],
            vec![put_link("l", "right")],
            clash("l", "content"),
        ),
        pair(
            "link, the same link",
            vec![put_link("l", "n")],
            vec![put_link("l", "n")],
            Want::Clean(vec![link("l", "n")]),
        ),
        pair(
            "link to file, another link",
            vec![delete("l"), put("l", "f\n")],
            vec![put_link("l", "r")],
            clash("l", "distinct types"),
        ),
        pair(
            "a new link, a new file",
            vec![put_link("n", "a")],
            vec![put("n", "n\n")],
            clash("n", "distinct types"),
        ),
        pair(
            "link, a file below its name",
            vec![delete("d/x"), delete("d/y"), put_link("d", "/tmp/out")],
            vec![put("d/f", "f\n")],
            clash("d", "file/directory"),
        ),
        pair("binary, binary", bin(1), bin(2), clash("bin", "binary")),
        pair(
            "binary, the same",
            bin(1),
            bin(1),
            Want::Clean(vec![("bin", Mode::File, binary(1))]),
        ),
        pair(
            "binary, delete",
            bin(1),
            vec![delete("bin")],
            clash("bin", "modify/delete"),
        ),
        pair(
            "text made binary, edit",
            vec![put_as("a", Mode::File, b"1\n\0\n")],
            edit(),
            clash("a", "binary"),
        ),
    ]
}

/// The files of a clean merge are those of the base, changed as wanted, and no other.
async fn check_clean(
    world: &World,
    pair: &Pair,
    commit: &wharf::id::CommitId,
    want: &[(&str, Mode, Vec<u8>)],
) {
    let mut expected = world
        .all(&world.store.commit(&[], &base(), "b").await.unwrap())
        .await;
    for edit in pair.left.iter().chain(&pair.right) {
        let (Edit::Put { path, .. } | Edit::Keep { path, .. } | Edit::Delete { path }) = edit;
        expected.remove(path);
    }
    for (path, mode, content) in want {
        expected.insert(
            path.as_bytes().to_vec(),
            (*mode, Bytes::from(content.clone())),
        );
    }
    assert_eq!(world.all(commit).await, expected, "{}", pair.name);
}

/// Where the merger starts, every line that either side wrote can be read.
async fn check_start(world: &World, pair: &Pair, conflict: &wharf::workspace::Conflict) {
    let all = world.all(&conflict.start).await;
    let versions = conflict
        .files
        .iter()
        .flat_map(|f| [&f.ours, &f.theirs])
        .flatten();
    let lines = |text: &Bytes| -> Vec<Vec<u8>> {
        text.split(|&b| b == b'\n')
            .map(|line| line.trim_ascii().to_vec())
            .collect()
    };
    let held: BTreeSet<Vec<u8>> = all
        .values()
        .map(|(_, text)| text)
        .chain(versions)
        .flat_map(lines)
        .collect();
    for edit in pair.left.iter().chain(&pair.right) {
        let Edit::Put { path, content, .. } = edit else {
            continue;
        };
        for line in lines(content) {
            assert!(
                held.contains(&line),
                "{}: {path:?} lost {line:?}",
                pair.name
            );
        }
    }
}

#[tokio::test]
async fn every_pair_of_changes_merges_right_or_is_a_conflict_with_both() {
    let world = World::new().await;
    let start = world.store.commit(&[], &base(), "base").await.unwrap();
    for pair in edits().into_iter().chain(names()).chain(kinds()) {
        let merged = both(&world, &start, &pair.left, &pair.right).await;
        match (&pair.want, merged) {
            (Want::Clean(want), Both::Clean(commit)) => {
                check_clean(&world, &pair, &commit, want).await
            }
            (Want::Conflict(path, kind), Both::Conflict(conflict)) => {
                let aside = format!("{path}~");
                let named = conflict.files.iter().find(|f| {
                    (f.path == path.as_bytes() || f.path.starts_with(aside.as_bytes()))
                        && f.kind == *kind
                });
                assert!(named.is_some(), "{}: {:?}", pair.name, conflict.files);
                check_start(&world, &pair, &conflict).await;
            }
            (Want::Clean(_), Both::Conflict(conflict)) => {
                panic!("{}: {:?}", pair.name, conflict.files)
            }
            (Want::Conflict(..), Both::Clean(_)) => panic!("{}: merged", pair.name),
        }
    }
}
