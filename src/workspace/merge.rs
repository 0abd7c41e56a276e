//! Three-way merges of snapshots: a commit of both, or a conflict with every version of every file.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::git::{object_id, unreadable};
use super::store::mode_of;
use super::{Conflict, ConflictFile, Error, Merged, Store, path};
use crate::id::{BlobId, CommitId, SubtaskId, TreeId};

/// How far a list of commits could be merged.
#[derive(Clone, Debug)]
pub struct Folded {
    pub merged: Merged,
    /// How many inputs, from the first, `merged` holds; after a conflict is resolved, its commit and
    /// the inputs from here on are what is left to merge.
    pub inputs: usize,
}

/// What `git merge-tree` said of a merge that is not clean.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    tree: String,
    stages: BTreeMap<Vec<u8>, [Option<String>; 3]>,
    /// Kind by path, in git's words.
    kinds: BTreeMap<Vec<u8>, String>,
}

impl Merged {
    fn start(&self) -> Option<&CommitId> {
        match self {
            Self::Clean(_) => None,
            Self::Conflict(conflict) => Some(&conflict.start),
        }
    }
}

impl Store {
    /// Merges two commits from their common history. Clean: a commit with both as parents. What was
    /// made is on disk only after `flush`.
    pub async fn merge(&self, ours: &CommitId, theirs: &CommitId) -> Result<Merged, Error> {
        if ours == theirs {
            return Ok(Merged::Clean(ours.clone()));
        }
        let call = self
            .among_merges("merge-tree")?
            // On disk by `flush`, with others and in one piece.
            .set("core.fsync=none")
            .args(["--write-tree", "-z", "--messages"])
            .args([ours.as_str(), theirs.as_str()]);
        let output = self.git.try_ask(call, b"").await?;
        let told = match output.code {
            0 | 1 => parse(&output.stdout)?,
            _ => return Err(output.into_error("merge-tree")),
        };
        let both = [ours.clone(), theirs.clone()];
        let tree = TreeId::new(&told.tree);
        if output.code == 0 {
            let merge = self.write_commit(&tree, &both, "merge")?;
            return Ok(Merged::Clean(merge));
        }
        if told.stages.is_empty() && told.kinds.is_empty() {
            return Err(unreadable("merge-tree", "a conflict without a path"));
        }
        Ok(Merged::Conflict(Conflict {
            start: self.write_commit(&tree, &both, "conflict")?,
            files: self.versions(told).await?,
            ours: ours.clone(),
            theirs: theirs.clone(),
        }))
    }

    /// Merges a list from the left and stops at the first conflict.
    pub async fn merge_all(&self, inputs: &[CommitId]) -> Result<Folded, Error> {
        let Some((first, rest)) = inputs.split_first() else {
            return Err(Error::Refused {
                what: "there is nothing to merge".into(),
                hint: "give at least one commit".into(),
            });
        };
        let (mut merged, mut made) = (first.clone(), Vec::new());
        for (at, next) in rest.iter().enumerate() {
            match self.merge(&merged, next).await? {
                Merged::Clean(commit) => {
                    made.push(commit.clone());
                    merged = commit;
                }
                conflict => {
                    made.extend(conflict.start().cloned());
                    self.flush(&made, inputs).await?;
                    return Ok(Folded {
                        merged: conflict,
                        inputs: at + 2,
                    });
                }
            }
        }
        self.flush(&made, inputs).await?;
        Ok(Folded {
            merged: Merged::Clean(merged),
            inputs: inputs.len(),
        })
    }

    /// Names both sides of a conflict in the store, so that a person finds them.
    pub async fn keep_conflict(&self, id: &SubtaskId, conflict: &Conflict) -> Result<(), Error> {
        let reference = conflict_ref(id);
        let lines = format!(
            "update {reference}/ours {}\nupdate {reference}/theirs {}\n",
            conflict.ours, conflict.theirs
        );
        let call = self.call("update-ref").arg("--stdin");
        self.git.ask(call, lines.as_bytes()).await?;
        self.sync_refs(&format!("{reference}/ours")).await
    }

    /// The inputs that no other input already holds in its history, in their order, none twice.
    pub async fn independent(&self, inputs: &[CommitId]) -> Result<Vec<CommitId>, Error> {
        if inputs.len() < 2 {
            return Ok(inputs.to_vec());
        }
        let call = self
            .call("merge-base")
            .arg("--independent")
            .args(inputs.iter().map(CommitId::as_str));
        let answer = self.git.line(call).await?;
        let mut kept: Vec<&str> = answer.lines().collect();
        let mut independent = Vec::new();
        for input in inputs {
            if let Some(at) = kept.iter().position(|id| *id == input.as_str()) {
                kept.swap_remove(at);
                independent.push(input.clone());
            }
        }
        if kept.is_empty() && !independent.is_empty() {
            Ok(independent)
        } else {
            Err(unreadable("merge-base", &answer))
        }
    }

    async fn versions(&self, told: Told) -> Result<Vec<ConflictFile>, Error> {
        let mut stages = told.stages;
        for path in told.kinds.keys() {
            stages.entry(path.clone()).or_default();
        }
        let blobs: Vec<BlobId> = stages
            .values()
            .flatten()
            .flatten()
            .map(BlobId::new)
            .collect();
        let mut contents = self.read_all(blobs).await?.into_iter();
        let mut files = Vec::with_capacity(stages.len());
        for (path, blobs) in stages {
            let [base, ours, theirs] = blobs.map(|blob| blob.and_then(|_| contents.next()));
            let told = told.kinds.get(&path).map_or("content", String::as_str);
            files.push(ConflictFile {
                kind: kind(told, [&base, &ours, &theirs]),
                path,
                base,
                ours,
                theirs,
            });
        }
        Ok(files)
    }
}

/// Below this ref of the store stand `ours` and `theirs` of a conflict.
pub fn conflict_ref(id: &SubtaskId) -> String {
    format!("refs/wharf/conflicts/{id}")
}

/// True for content that no line-wise merge can handle, by git's own measure.
pub(super) fn is_binary(content: &[u8]) -> bool {
    content[..content.len().min(8_000)].contains(&0)
}

fn kind(told: &str, versions: [&Option<Bytes>; 3]) -> String {
    let binary = versions.iter().any(|v| v.as_deref().is_some_and(is_binary));
    match told {
        "content" | "contents" | "add/add" if binary => "binary".into(),
        _ => told.to_owned(),
    }
}

/// Reads `merge-tree -z`: the tree, the conflicted stages, an empty field, the messages.
fn parse(answer: &[u8]) -> Result<Told, Error> {
    let bad = |what: &[u8]| unreadable("merge-tree", &path::display(what));
    let mut fields = answer.split(|&byte| byte == 0);
    let first = fields.next().unwrap_or_default();
    let tree = std::str::from_utf8(first).map_err(|_| bad(first))?;
    let mut told = Told {
        tree: object_id("merge-tree", tree)?.to_owned(),
        ..Told::default()
    };
    for field in fields.by_ref() {
        if field.is_empty() {
            break;
        }
        let (path, stage, blob) = stage(field).ok_or_else(|| bad(field))?;
        told.stages.entry(path).or_default()[stage] = blob;
    }
    while let Some(count) = fields.next().filter(|field| !field.is_empty()) {
        let count: usize = std::str::from_utf8(count)
            .ok()
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| bad(count))?;
        let paths: Vec<&[u8]> = fields.by_ref().take(count).collect();
        let (Some(kind), Some(message)) = (fields.next(), fields.next()) else {
            return Err(bad(b"a message is cut"));
        };
        note(&mut told, &paths, kind, message);
    }
    Ok(told)
}

/// `MODE ID STAGE<tab>path`; a submodule's commit is no content.
fn stage(field: &[u8]) -> Option<(Vec<u8>, usize, Option<String>)> {
    let tab = field.iter().position(|&byte| byte == b'\t')?;
    let mut words = std::str::from_utf8(&field[..tab]).ok()?.split(' ');
    let mode = words.next()?;
    let blob = object_id("merge-tree", words.next()?).ok()?.to_owned();
    let stage: usize = words.next()?.parse().ok()?;
    let blob = mode_of(mode).map(|_| blob);
    (1..=3)
        .contains(&stage)
        .then(|| (field[tab + 1..].to_vec(), stage - 1, blob))
}

/// Keeps a conflict's kind for the path it is about, the first one named.
fn note(told: &mut Told, paths: &[&[u8]], kind: &[u8], message: &[u8]) {
    if !kind.starts_with(b"CONFLICT") {
        return;
    }
    let text = String::from_utf8_lossy(message);
    let words = text
        .strip_prefix("CONFLICT (")
        .and_then(|rest| rest.split_once(')'))
        .map_or("", |(words, _)| words);
    let short = String::from_utf8_lossy(kind);
    let short = short.trim_start_matches("CONFLICT (").trim_end_matches(')');
    let kind = match (short, words) {
        ("binary", _) => "binary",
        (_, "") => short,
        (_, words) => words,
    };
    if let Some(path) = paths.first() {
        told.kinds
            .entry(path.to_vec())
            .or_insert_with(|| kind.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789012345678901234567890123456789";

    #[test]
    fn stages_and_kinds_are_read() {
        let answer = format!(
            "{ID}\x00100644 {ID} 1\ta\nb\x00100644 {ID} 3\ta\nb\x00\x001\x00a\nb\x00CONFLICT (modify/delete)\x00CONFLICT (modify/delete): a deleted\n\x001\x00c\x00Auto-merging\x00Auto-merging c\n\x00"
        );
        let told = parse(answer.as_bytes()).unwrap();
        let id = Some(ID.to_owned());
        assert_eq!(told.stages[&b"a\nb".to_vec()], [id.clone(), None, id]);
        assert_eq!(told.kinds[&b"a\nb".to_vec()], "modify/delete");
        assert_eq!(told.kinds.len(), 1);
    }

    #[test]
    fn cut_answers_are_errors() {
        assert!(parse(b"").is_err());
        assert!(parse(b"fatal: no\0").is_err());
        assert!(parse(format!("{ID}\x00100644 {ID} 7\ta\x00\x00").as_bytes()).is_err());
        assert!(parse(format!("{ID}\x00\x002\x00a\x00").as_bytes()).is_err());
    }
}
