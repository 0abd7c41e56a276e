//! The judged tree, for evidence of the form `path:line`: what stands at a place that a verdict names.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::StreamExt as _;
use serde_json::Value;

use crate::run::judge::verdict::{self, Lack};
use crate::sandbox::{Entry, Mode, Tree};
use crate::tools::clip;
use crate::workspace;

/// Characters of a path that are shown.
const SHOWN: usize = 120;

/// What verdicts on one tree are held against. Paths are looked up in the tree's own list, so that
/// nothing a model wrote reaches git or a file system.
pub(in crate::run) struct Witness {
    tree: Arc<Tree>,
    /// There are acceptance commands and all of them passed.
    accepted: bool,
}

/// The verifier's calls that have a result, and of each whether it went well and shows something.
pub(in crate::run) type Calls = BTreeMap<u32, bool>;

/// Evidence that exists: the verifier's calls, and what stands where its verdict points.
pub(in crate::run) struct Seen {
    calls: Calls,
    places: BTreeMap<String, Place>,
    accepted: bool,
}

/// What stands at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// A file of so many lines.
    Lines(u64),
    /// Not followed, wherever it leads.
    Link,
    Folder,
    Missing,
    /// No path of any tree.
    Outside,
}

impl Witness {
    pub fn new(tree: Arc<Tree>, accepted: bool) -> Self {
        Self { tree, accepted }
    }

    /// Looks up every `path:line` that a verdict names.
    ///
    /// # Errors
    /// A file that is in the tree and cannot be read: whether the line is there cannot be told.
    pub async fn seen(&self, arguments: &Value, calls: Calls) -> std::io::Result<Seen> {
        let mut places = BTreeMap::new();
        for path in verdict::paths(arguments) {
            let place = self.place(&path).await?;
            places.insert(path, place);
        }
        Ok(Seen {
            calls,
            places,
            accepted: self.accepted,
        })
    }

    async fn place(&self, path: &str) -> std::io::Result<Place> {
        let Some(path) = relative(path) else {
            return Ok(Place::Outside);
        };
        match self.tree.entries.get(path.as_bytes()) {
            Some(entry) if entry.mode == Mode::Link => Ok(Place::Link),
            Some(entry) => self.lines(entry).await.map(Place::Lines),
            None if self.is_folder(&path) => Ok(Place::Folder),
            None => Ok(Place::Missing),
        }
    }

    fn is_folder(&self, path: &str) -> bool {
        let below = match path {
            "" => Vec::new(),
            path => format!("{path}/").into_bytes(),
        };
        let first = self.tree.entries.range(below.clone()..).next();
        first.is_some_and(|(at, _)| at.starts_with(&below)) || path.is_empty()
    }

    /// Lines of a file; a last one without a line break counts.
    async fn lines(&self, entry: &Entry) -> std::io::Result<u64> {
        let mut chunks = self.tree.contents.read(vec![entry.id.clone()]);
        let (mut ends, mut last) = (0, b'\n');
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk?;
            ends += chunk.iter().filter(|&&byte| byte == b'\n').count() as u64;
            last = chunk.last().copied().unwrap_or(last);
        }
        Ok(ends + u64::from(last != b'\n'))
    }
}

/// A path as the tree spells it: relative to its top, or absolute where sandboxes have it; without `.`.
/// None for what leads out of it or is no path.
fn relative(path: &str) -> Option<String> {
    let inside = path.strip_prefix("/workspace/");
    let inside = inside.or((path == "/workspace").then_some("."));
    let path = inside.unwrap_or(path);
    let whole = !path.is_empty() && !path.starts_with('/') && !path.contains('\0');
    let parts: Vec<&str> = path
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
        .collect();
    (whole && !parts.contains(&"..")).then(|| parts.join("/"))
}

impl verdict::Evidence for Seen {
    fn call(&self, number: u32) -> Result<(), Lack> {
        let why = || format!("#{number} is no call of yours that went well");
        match self.calls.get(&number) {
            Some(true) => Ok(()),
            Some(false) => Err(Lack::Proofless(why())),
            None => Err(Lack::Missing(why())),
        }
    }

    fn line(&self, path: &str, line: u64) -> Result<(), Lack> {
        let at = || clip::line(&workspace::display(path.as_bytes()), SHOWN);
        let place = self.places.get(path).copied();
        Err(match place.unwrap_or(Place::Missing) {
            Place::Lines(_) if line == 0 => {
                Lack::Missing(format!("`{}:0`: lines count from 1", at()))
            }
            Place::Lines(lines) if line > lines => {
                Lack::Missing(format!("`{}` has {lines} lines and no line {line}", at()))
            }
            Place::Lines(_) => return Ok(()),
            Place::Link => Lack::Missing(format!("`{}` is a link: name the file itself", at())),
            Place::Folder => Lack::Missing(format!("`{}` is a folder: name a file in it", at())),
            Place::Missing => Lack::Nameless(format!("there is no file `{}` in the tree", at())),
            Place::Outside if path.is_empty() => {
                Lack::Nameless("`` is not inside the tree".to_owned())
            }
            Place::Outside => Lack::Missing(format!("`{}` is not inside the tree", at())),
        })
    }

    fn looked(&self) -> bool {
        self.accepted || self.calls.values().any(|shows| *shows)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures::stream::{self, BoxStream};
    use serde_json::json;

    use super::*;
    use crate::run::judge::verdict::Evidence as _;
    use crate::sandbox::Contents;

    /// Each id is its own content; the id `lost` cannot be read.
    struct Own;

    impl Contents for Own {
        fn read(&self, ids: Vec<String>) -> BoxStream<'static, std::io::Result<Bytes>> {
            let one = |id: String| match id.as_str() {
                "lost" => Err(std::io::Error::other("gone")),
                _ => Ok(Bytes::from(id)),
            };
            stream::iter(ids.into_iter().map(one)).boxed()
        }
    }

    fn witness(files: &[(&[u8], Mode, &str)]) -> Witness {
        let entry = |(path, mode, id): &(&[u8], Mode, &str)| {
            let entry = Entry {
                mode: *mode,
                size: id.len() as u64,
                id: (*id).to_owned(),
            };
            (path.to_vec(), entry)
        };
        let tree = Tree {
            entries: files.iter().map(entry).collect(),
            contents: Arc::new(Own),
        };
        Witness::new(Arc::new(tree), false)
    }

    fn at(evidence: &str) -> Value {
        json!({"verdict": "pass", "criteria":
            [{"criterion": "A", "status": "pass", "evidence": evidence}]})
    }

    #[tokio::test]
    async fn every_place_that_is_none_has_its_reason() {
        let witness = witness(&[
            (b"src/a.py", Mode::File, "one\ntwo"),
            (b"empty", Mode::File, ""),
            (b"bad\xff", Mode::File, "x"),
            (b"out", Mode::Link, "../../etc/passwd"),
        ]);
        let long = format!("{}:1", "x/".repeat(100_000));
        for (evidence, why) in [
            ("../../x:1", "not inside the tree"),
            ("src/../../x:1", "not inside the tree"),
            ("/etc/passwd:1", "not inside the tree"),
            ("/workspace/../etc/passwd:1", "not inside the tree"),
            ("..:1", "not inside the tree"),
            (":1", "not inside the tree"),
            ("src/a.py\0:1", "not inside the tree"),
            (".:1", "is a folder"),
            ("/workspace:1", "is a folder"),
            ("src:1", "is a folder"),
            ("src/:1", "is a folder"),
            ("out:1", "is a link"),
            ("src/a.py:3", "has 2 lines and no line 3"),
            ("src/a.py:0", "lines count from 1"),
            ("src/a.py:1-900", "has 2 lines and no line 900"),
            (
                "nothing #999 but see src/a.py:1",
                "#999 is no call of yours",
            ),
            ("#1 and gone/a.py:1", "there is no file"),
            (
                "src/a.py:99999999999999999999999",
                "no line 18446744073709551615",
            ),
            ("empty:1", "has 0 lines"),
            ("bad\u{fffd}:1", "there is no file"),
            ("SRC/A.PY:1", "there is no file"),
            (&long, "there is no file"),
        ] {
            let arguments = at(evidence);
            let seen = witness
                .seen(&arguments, BTreeMap::from([(1, true)]))
                .await
                .unwrap();
            let asked = ["A".to_owned()];
            let fault = verdict::faults(&arguments, &asked, &seen).unwrap_or_default();
            assert!(fault.contains(why), "{evidence:?}: {fault}");
            assert!(fault.len() < 600, "{}", fault.len());
            assert!(!fault.contains('\0'), "{fault:?}");
            let judged = verdict::judge(&arguments, &asked, &seen);
            assert_eq!(
                judged.status,
                crate::run::VerdictStatus::Unknown,
                "{evidence:?}"
            );
        }
    }

    #[tokio::test]
    async fn a_place_that_is_there_is_evidence_however_it_is_written() {
        let witness = witness(&[(b"src/a.py", Mode::File, "one\ntwo")]);
        for evidence in ["src/a.py:2", "./src/./a.py:1-2", "/workspace/src/a.py:1"] {
            let seen = witness
                .seen(&at(evidence), BTreeMap::from([(1, true)]))
                .await
                .unwrap();
            assert_eq!(
                verdict::faults(&at(evidence), &["A".to_owned()], &seen),
                None
            );
        }
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_read_is_an_error_and_no_answer() {
        let witness = witness(&[(b"a", Mode::File, "lost")]);
        assert!(witness.seen(&at("a:1"), BTreeMap::new()).await.is_err());
    }

    #[tokio::test]
    async fn only_a_call_or_commands_that_passed_are_a_look() {
        let mut witness = witness(&[(b"a", Mode::File, "x")]);
        let blind = witness.seen(&at("a:1"), BTreeMap::new()).await.unwrap();
        assert!(!blind.looked());
        let seen = witness
            .seen(&at("a:1"), BTreeMap::from([(2, true), (3, false)]))
            .await
            .unwrap();
        assert!(seen.looked() && seen.call(2).is_ok() && seen.call(1).is_err());
        assert!(matches!(seen.call(3), Err(Lack::Proofless(_))));
        let failed = BTreeMap::from([(3, false)]);
        let seen = witness.seen(&at("a:1"), failed).await.unwrap();
        assert!(!seen.looked());
        witness.accepted = true;
        let seen = witness.seen(&at("a:1"), BTreeMap::new()).await.unwrap();
        assert!(seen.looked());
    }
}
