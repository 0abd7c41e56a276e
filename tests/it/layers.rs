//! The table of rooms and the rules of how files look, held against the source text.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Room, layer, the rooms it may use. `id` and `trace` are open to all.
const ROOMS: [(&str, u8, &[&str]); 13] = [
    (
        "cli",
        7,
        &[
            "config",
            "run",
            "ops",
            "plan",
            "journal",
            "workspace",
            "mcp",
        ],
    ),
    (
        "config",
        6,
        &[
            "run",
            "ops",
            "agent",
            "tools",
            "mcp",
            "model",
            "sandbox",
            "workspace",
            "plan",
            "journal",
        ],
    ),
    (
        "run",
        5,
        &[
            "agent",
            "tools",
            "mcp",
            "model",
            "sandbox",
            "workspace",
            "plan",
            "journal",
        ],
    ),
    ("ops", 5, &["model", "sandbox", "workspace", "journal"]),
    // Of `sandbox` an agent holds the trait alone, to hand it to its tools.
    ("agent", 4, &["tools", "model", "sandbox", "plan"]),
    ("tools", 3, &["sandbox"]),
    ("mcp", 3, &["sandbox"]),
    ("model", 2, &[]),
    ("sandbox", 2, &[]),
    ("workspace", 2, &[]),
    ("plan", 1, &[]),
    ("journal", 1, &[]),
    ("trace", 0, &[]),
];

/// What only these rooms may name.
const OWNERS: [(&str, &[&str]); 16] = [
    ("reqwest", &["model"]),
    ("bollard", &["sandbox"]),
    ("tokio_rustls", &["sandbox"]),
    ("rustls_native_certs", &["sandbox"]),
    ("petgraph", &["plan"]),
    ("opentelemetry", &["trace"]),
    ("opentelemetry_sdk", &["trace"]),
    ("opentelemetry_otlp", &["trace"]),
    ("dashmap", &["run"]),
    ("rmcp", &["mcp"]),
    ("clap", &["cli"]),
    ("clap_complete", &["cli"]),
    ("indicatif", &["cli"]),
    ("console", &["cli"]),
    ("JoinSet", &["run"]),
    ("anyhow", &["cli"]),
];

/// Calls that only these rooms may make; those that spawn are long-lived owners, awaited by a handle.
const CALLS: [(&str, &[&str]); 10] = [
    ("println!", &["cli"]),
    ("print!", &["cli"]),
    ("eprintln!", &["cli"]),
    ("eprint!", &["cli"]),
    ("env::var", &["config"]),
    ("env::vars", &["config"]),
    ("env::var_os", &["config"]),
    ("env::vars_os", &["config"]),
    ("tokio::spawn", &["run", "sandbox", "journal"]),
    ("task::spawn", &["run", "sandbox", "journal"]),
];

/// Production lines of a file.
const LONGEST: usize = 400;

/// One file of `src`.
struct File {
    path: PathBuf,
    room: String,
    /// How deep its module lies below the crate's root.
    depth: usize,
    text: String,
    /// Production code without comments; texts are there.
    code: String,
    /// The same with texts emptied.
    bare: String,
}

fn files() -> Vec<File> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    walk(&root, &mut paths);
    assert!(paths.len() > 20, "the source is where it is looked for");
    paths.into_iter().map(|path| read(&root, path)).collect()
}

fn walk(dir: &Path, paths: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            walk(&path, paths);
        } else if path.extension().is_some_and(|e| e == "rs") {
            paths.push(path);
        }
    }
}

fn read(root: &Path, path: PathBuf) -> File {
    let text = std::fs::read_to_string(&path).unwrap();
    let parts: Vec<String> = path
        .strip_prefix(root)
        .unwrap()
        .with_extension("")
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .filter(|part| part != "mod" && part != "lib")
        .collect();
    let code = strip(production(&text), Texts::Kept);
    File {
        room: parts.first().cloned().unwrap_or_default(),
        depth: parts.len(),
        bare: strip(production(&text), Texts::Emptied),
        code,
        text,
        path,
    }
}

/// The part before the tests at the foot.
fn production(text: &str) -> &str {
    let foot = text.find("\n#[cfg(test)]\nmod tests");
    foot.map_or(text, |at| &text[..at])
}

#[derive(Clone, Copy, PartialEq)]
enum Texts {
    Kept,
    Emptied,
}

/// Takes comments out, and what stands inside of text literals where asked.
fn strip(text: &str, texts: Texts) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::new();
    let mut at = 0;
    while at < chars.len() {
        let end = match (chars[at], chars.get(at + 1)) {
            ('/', Some('/')) => line_end(&chars, at),
            ('/', Some('*')) => comment_end(&chars, at),
            ('r', Some('"' | '#')) if is_raw(&chars, at) => raw_end(&chars, at),
            ('"', _) => text_end(&chars, at),
            ('\'', Some('\\')) => find(&chars, at + 3, '\'') + 1,
            ('\'', Some(_)) if chars.get(at + 2) == Some(&'\'') => at + 3,
            _ => {
                out.push(chars[at]);
                at += 1;
                continue;
            }
        };
        match (chars[at], texts) {
            ('/', _) => {}
            (_, Texts::Kept) => out.extend(&chars[at..end.min(chars.len())]),
            (_, Texts::Emptied) => out.push_str("\"\""),
        }
        at = end;
    }
    out
}

fn find(chars: &[char], from: usize, wanted: char) -> usize {
    let rest = chars.iter().skip(from).position(|c| *c == wanted);
    rest.map_or(chars.len(), |n| from + n)
}

fn line_end(chars: &[char], at: usize) -> usize {
    find(chars, at, '\n')
}

fn comment_end(chars: &[char], at: usize) -> usize {
    let mut at = at + 2;
    while at < chars.len() && !(chars[at] == '*' && chars.get(at + 1) == Some(&'/')) {
        at += 1;
    }
    at + 2
}

fn text_end(chars: &[char], at: usize) -> usize {
    let mut at = at + 1;
    while at < chars.len() && chars[at] != '"' {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

fn is_raw(chars: &[char], at: usize) -> bool {
    let word = at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_');
    let quote = chars[at + 1..].iter().find(|c| **c != '#');
    // `br"…"` is a raw text as well.
    (!word || chars[at - 1] == 'b') && quote == Some(&'"')
}

fn raw_end(chars: &[char], at: usize) -> usize {
    let hashes = chars[at + 1..].iter().take_while(|c| **c == '#').count();
    let mut at = at + hashes + 2;
    while at < chars.len() {
        let closed =
            chars[at] == '"' && chars[at + 1..].iter().take_while(|c| **c == '#').count() >= hashes;
        at += 1;
        if closed {
            return at + hashes;
        }
    }
    at
}

/// Where `word` stands as a whole path segment.
fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word)
        .filter(move |(at, _)| {
            let before = text[..*at].chars().next_back();
            let after = text[at + word.len()..].chars().next();
            let open = word.ends_with(is_name) && after.is_some_and(is_name);
            !before.is_some_and(is_name) && !open
        })
        .map(|(at, _)| at)
}

/// The rooms that a file names by `crate::…` or by climbing to the root.
fn mentions(file: &File) -> Vec<String> {
    let mut found = Vec::new();
    let climb = "super::".repeat(file.depth.max(1));
    for root in ["crate::", climb.as_str()] {
        for at in words(&file.bare, root) {
            let rest = &file.bare[at + root.len()..];
            match rest.trim_start().strip_prefix('{') {
                Some(group) => found.extend(heads(group)),
                None => found.push(head(rest)),
            }
        }
    }
    let is_room = |name: &String| ROOMS.iter().any(|(room, _, _)| room == name);
    found.retain(is_room);
    found
}

fn head(text: &str) -> String {
    let name = |c: &char| c.is_alphanumeric() || *c == '_';
    text.trim_start().chars().take_while(name).collect()
}

/// The first segments of `a::b, c::{d, e}, f}`.
fn heads(group: &str) -> Vec<String> {
    let mut found = vec![head(group)];
    let mut depth = 1;
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => found.push(head(&group[at + 1..])),
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    found
}

fn none(faults: Vec<String>) {
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

fn shown(path: &Path) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    path.strip_prefix(root)
        .unwrap_or(path)
        .display()
        .to_string()
}

fn room(name: &str) -> Option<(u8, &'static [&'static str])> {
    let row = ROOMS.iter().find(|(room, _, _)| *room == name);
    row.map(|(_, layer, uses)| (*layer, *uses))
}

#[test]
fn the_table_goes_downwards_only() {
    for (name, layer, uses) in ROOMS {
        for used in uses {
            let (below, _) = room(used).unwrap();
            assert!(below < layer, "{name} above {used}");
        }
    }
}

#[test]
fn a_room_uses_only_what_the_table_lets_it() {
    let mut faults = Vec::new();
    for file in files() {
        let Some((_, uses)) = room(&file.room) else {
            continue;
        };
        for used in mentions(&file) {
            let open = used == "trace" || used == file.room;
            if !open && !uses.contains(&used.as_str()) {
                faults.push(format!(
                    "{}: {} may not use {used}",
                    shown(&file.path),
                    file.room
                ));
            }
        }
    }
    faults.dedup();
    none(faults);
}

#[test]
fn outside_crates_and_calls_have_one_owner() {
    let mut faults = Vec::new();
    for file in files().iter().filter(|file| file.room != "main") {
        for (word, owners) in OWNERS.iter().chain(&CALLS) {
            let owned = owners.contains(&file.room.as_str());
            // A field or a local may have the name of a crate; a path or a `use` means the crate.
            let hit = words(&file.bare, word).any(|at| {
                let rest = &file.bare[at + word.len()..];
                word.contains(['!', ':']) || *word == "JoinSet" || rest.starts_with("::")
            });
            if hit && !owned {
                faults.push(format!(
                    "{}: {word} belongs to {owners:?}",
                    shown(&file.path)
                ));
            }
        }
        let git = file.code.contains("Command::new(\"git\")");
        if git && file.room != "workspace" {
            faults.push(format!(
                "{}: git is run by workspace alone",
                shown(&file.path)
            ));
        }
    }
    none(faults);
}

#[test]
fn attribute_names_of_spans_stand_in_one_file() {
    let mut faults = Vec::new();
    let owned = [
        "gen_ai.",
        "openinference.",
        "llm.",
        "graph.node.",
        "session.id",
    ];
    for file in files() {
        if file.path.ends_with("trace/names.rs") {
            continue;
        }
        for name in owned {
            if file.code.contains(&format!("\"{name}")) {
                faults.push(format!("{}: a literal \"{name}…", shown(&file.path)));
            }
        }
        // `wharf.` also begins file names and container labels: here it counts beside a value only.
        for (at, _) in file.code.match_indices("\"wharf.") {
            let rest = file.code[at + 1..]
                .split_once('"')
                .map_or("", |(_, rest)| rest);
            let rest = rest.trim_start_matches(',').trim_start();
            let set = file.code[..at].trim_end().ends_with(".set(");
            if set || rest.starts_with("Value::") || rest.starts_with("trace::Value") {
                faults.push(format!(
                    "{}: a literal \"wharf.… attribute",
                    shown(&file.path)
                ));
            }
        }
    }
    none(faults);
}

#[test]
fn every_file_says_what_it_owns_and_is_of_readable_length() {
    let mut faults = Vec::new();
    for file in files() {
        let lines = file.text.lines().count();
        // A file of one line has nothing to say yet.
        if lines > 1 && !file.text.starts_with("//! ") {
            faults.push(format!("{}: does not open with //!", shown(&file.path)));
        }
        let produced = production(&file.text).lines().count();
        if produced > LONGEST {
            faults.push(format!(
                "{}: {produced} lines, at most {LONGEST}",
                shown(&file.path)
            ));
        }
        let door = file.path.ends_with("mod.rs") && lines > 1;
        for word in ["Owns:", "Takes:", "Gives:", "Never:"] {
            let said = file
                .text
                .lines()
                .any(|line| line.starts_with(&format!("//! {word}")));
            if door && !said {
                faults.push(format!("{}: lacks {word}", shown(&file.path)));
            }
        }
    }
    none(faults);
}

#[test]
fn the_reader_of_source_sees_through_comments_and_texts() {
    let source = "use crate::{run::Order, plan::{Plan, Role}, id}; // crate::cli\n\
        /* crate::cli */ let a = \"crate::cli \\\" x\"; let b = r#\"crate::cli \"#; let c = '\"'; crate::tools::x();\n\
        super::super::model::y(); my_crate::sandbox::z(); fn f<'a>(x: &'a str) {}";
    let file = File {
        path: PathBuf::new(),
        room: "agent".to_owned(),
        depth: 2,
        text: String::new(),
        code: String::new(),
        bare: strip(source, Texts::Emptied),
    };
    assert_eq!(mentions(&file), ["run", "plan", "tools", "model"]);
    let kept = strip("a(\"// no comment\"); // comment", Texts::Kept);
    assert_eq!(kept, "a(\"// no comment\"); ");
    let counts: BTreeMap<&str, usize> = ["clap", "print!"]
        .map(|word| {
            (
                word,
                words("clap::x clapper println!() print!()", word).count(),
            )
        })
        .into();
    assert_eq!(counts, BTreeMap::from([("clap", 1), ("print!", 1)]));
}
