//! Whether a replay came to what was recorded: trees, statuses, verdict; each yes, no, or could not tell.

use std::collections::BTreeMap;

use serde::Serialize;

use super::compare::{Requests, Results};
use crate::id::{CommitId, TreeId};
use crate::journal::State;
use crate::run::end::result;
use crate::run::{Status, Summary, Verdict, VerdictStatus};
use crate::workspace::{Error, Store};

/// How two things compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Likeness {
    Same,
    Different,
    /// One of them is not known.
    Unknown,
}

/// A fact that is another one than was recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Changed {
    /// `subtask fix`, `verdict`, …
    pub what: String,
    pub recorded: String,
    pub replayed: String,
}

/// What a replay came to, beside its recording.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    pub outcome: Likeness,
    pub trees: Likeness,
    pub statuses: Likeness,
    pub verdict: Likeness,
    /// Why something could not be told.
    pub untold: Option<String>,
    pub changed: Vec<Changed>,
    pub results: Results,
    pub requests: Requests,
    /// Calls of a model that the replay made and that no answer was recorded of.
    pub unanswered: Vec<String>,
}

/// What one side came to.
#[derive(Debug, Default)]
pub(super) struct Ends {
    /// None: it did not end in order.
    pub status: Option<Status>,
    pub rounds: u32,
    /// Each node with its status and its tree; None for a tree that is not known.
    nodes: BTreeMap<String, (String, Option<TreeId>)>,
    merged: Option<TreeId>,
    verdict: Option<Verdict>,
}

impl Ends {
    /// From a journal's state, with the trees of its commits.
    pub async fn of(state: &State, store: &Store) -> Result<Self, Error> {
        let ended = state.ended.as_ref();
        let summary: Option<Summary> = ended.map(|ended| {
            let read = serde_json::from_value(ended.result.clone());
            read.unwrap_or_else(|_| result::of(state, store.dir()))
        });
        let mut nodes = BTreeMap::new();
        for (id, node) in &state.subtasks {
            let tree = match &node.snapshot {
                Some(commit) => Some(store.tree(commit).await?),
                None => None,
            };
            let status = format!("{:?}", node.status).to_lowercase();
            nodes.insert(id.to_string(), (status, tree));
        }
        let merged = summary.as_ref().and_then(|s| s.snapshot.clone());
        let merged = match merged {
            Some(commit) => Some(store.tree(&CommitId::new(commit)).await?),
            None => None,
        };
        let verdict = state.verdict.as_ref();
        Ok(Self {
            status: summary.as_ref().map(status),
            rounds: state.round,
            nodes,
            merged,
            verdict: verdict.and_then(|(_, value)| serde_json::from_value(value.clone()).ok()),
        })
    }
}

/// What the work came to; a replay delivers nothing, so whether that failed is none of it.
fn status(summary: &Summary) -> Status {
    match summary.status {
        Status::Error if summary.has_passed() => Status::Passed,
        status => status,
    }
}

/// Where one of them ends before the other could.
#[derive(Debug, Default)]
pub(super) struct Cut(pub Option<String>);

/// Compares both ends. With a cut, only what both have can differ.
pub(super) fn compare(was: &Ends, is: &Ends, cut: Cut) -> Comparison {
    let mut changed = Vec::new();
    let partial = cut.0.is_some();
    let statuses = [run_status(was, is, partial), nodes(was, is, partial)];
    let statuses = merge(statuses.into_iter().flatten(), partial, &mut changed);
    let trees = merge(trees(was, is, partial).into_iter(), partial, &mut changed);
    let verdict = merge(verdict(was, is, partial).into_iter(), partial, &mut changed);
    let all = [trees, statuses, verdict];
    let outcome = match () {
        () if all.contains(&Likeness::Different) => Likeness::Different,
        () if all.contains(&Likeness::Unknown) => Likeness::Unknown,
        () => Likeness::Same,
    };
    Comparison {
        outcome,
        trees,
        statuses,
        verdict,
        untold: cut.0,
        changed,
        results: Results::default(),
        requests: Requests::default(),
        unanswered: Vec::new(),
    }
}

fn merge(
    found: impl Iterator<Item = Changed>,
    partial: bool,
    changed: &mut Vec<Changed>,
) -> Likeness {
    let before = changed.len();
    changed.extend(found);
    match changed.len() > before {
        true => Likeness::Different,
        false if partial => Likeness::Unknown,
        false => Likeness::Same,
    }
}

fn run_status(was: &Ends, is: &Ends, partial: bool) -> Vec<Changed> {
    let word = |status: Option<Status>| match status {
        Some(status) => format!("{status:?}").to_lowercase(),
        None => "no end".to_owned(),
    };
    let mut found = Vec::new();
    if !partial && was.status != is.status {
        found.push(Changed {
            what: "status".to_owned(),
            recorded: word(was.status),
            replayed: word(is.status),
        });
    }
    if !partial && was.rounds != is.rounds {
        found.push(Changed {
            what: "rounds".to_owned(),
            recorded: was.rounds.to_string(),
            replayed: is.rounds.to_string(),
        });
    }
    found
}

fn nodes(was: &Ends, is: &Ends, partial: bool) -> Vec<Changed> {
    let stopped = |status: &str| status == "cancelled";
    pairs(was, is)
        .filter(|(_, old, new)| match (old, new) {
            // Where one was cut off, what had no end there says nothing.
            (Some((old, _)), Some((new, _))) => {
                old != new && !(partial && (stopped(old) || stopped(new)))
            }
            _ => !partial,
        })
        .map(|(id, old, new)| {
            let word = |side: Option<&(String, Option<TreeId>)>| {
                side.map_or("not there".to_owned(), |(status, _)| status.clone())
            };
            Changed {
                what: format!("subtask {id}"),
                recorded: word(old),
                replayed: word(new),
            }
        })
        .collect()
}

type Side<'a> = Option<&'a (String, Option<TreeId>)>;

fn pairs<'a>(
    was: &'a Ends,
    is: &'a Ends,
) -> impl Iterator<Item = (&'a String, Side<'a>, Side<'a>)> {
    let more = is.nodes.keys().filter(|id| !was.nodes.contains_key(*id));
    let all = was.nodes.keys().chain(more);
    all.map(|id| (id, was.nodes.get(id), is.nodes.get(id)))
}

fn trees(was: &Ends, is: &Ends, partial: bool) -> Vec<Changed> {
    let short = |tree: Option<&TreeId>| match tree {
        Some(tree) => format!("tree {}", &tree.as_str()[..tree.as_str().len().min(12)]),
        None => "no tree".to_owned(),
    };
    let differ = |what: String, old: Option<&TreeId>, new: Option<&TreeId>| Changed {
        what,
        recorded: short(old),
        replayed: short(new),
    };
    let mut found: Vec<Changed> = pairs(was, is)
        .filter_map(|(id, old, new)| {
            let ((old_status, old), (new_status, new)) = (old?, new?);
            let ended = old_status == "done" && new_status == "done";
            let counts = ended || !partial;
            let what = format!("files of {id}");
            (counts && old != new).then(|| differ(what, old.as_ref(), new.as_ref()))
        })
        .collect();
    if !partial && was.merged != is.merged {
        let (old, new) = (was.merged.as_ref(), is.merged.as_ref());
        found.push(differ("merged files".to_owned(), old, new));
    }
    found
}

fn verdict(was: &Ends, is: &Ends, partial: bool) -> Vec<Changed> {
    let word = |status: VerdictStatus| format!("{status:?}").to_lowercase();
    let mut found = Vec::new();
    match (&was.verdict, &is.verdict) {
        (Some(old), Some(new)) => {
            if old.status != new.status {
                found.push(Changed {
                    what: "verdict".to_owned(),
                    recorded: word(old.status),
                    replayed: word(new.status),
                });
            }
            for criterion in &old.criteria {
                let now = new.criteria.iter().find(|c| c.text == criterion.text);
                let now = now.map(|c| c.status);
                if now != Some(criterion.status) {
                    found.push(Changed {
                        what: format!("criterion {:?}", criterion.text),
                        recorded: word(criterion.status),
                        replayed: now.map_or("not judged".to_owned(), word),
                    });
                }
            }
        }
        (None, None) => {}
        (old, new) if !partial => {
            let word = |verdict: &Option<Verdict>| {
                let status = verdict.as_ref().map(|verdict| word(verdict.status));
                status.unwrap_or_else(|| "none".to_owned())
            };
            found.push(Changed {
                what: "verdict".to_owned(),
                recorded: word(old),
                replayed: word(new),
            });
        }
        _ => {}
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(status: Status, nodes: &[(&str, &str, &str)]) -> Ends {
        let node = |(id, status, tree): &(&str, &str, &str)| {
            let tree = Some(TreeId::new(*tree));
            ((*id).to_owned(), ((*status).to_owned(), tree))
        };
        Ends {
            status: Some(status),
            rounds: 1,
            nodes: nodes.iter().map(node).collect(),
            merged: Some(TreeId::new("m")),
            verdict: None,
        }
    }

    fn whole(was: &Ends, is: &Ends) -> Comparison {
        compare(was, is, Cut(None))
    }

    #[test]
    fn the_same_ends_are_the_same_and_each_other_one_is_named() {
        let was = ends(Status::Passed, &[("a", "done", "1"), ("b", "done", "2")]);
        assert_eq!(whole(&was, &was).outcome, Likeness::Same);
        let mut is = ends(Status::Failed, &[("a", "done", "9"), ("b", "failed", "2")]);
        is.rounds = 2;
        let found = whole(&was, &is);
        let said: Vec<&str> = found.changed.iter().map(|c| c.what.as_str()).collect();
        assert_eq!(said, ["status", "rounds", "subtask b", "files of a"]);
        assert_eq!(
            (found.statuses, found.trees, found.verdict),
            (Likeness::Different, Likeness::Different, Likeness::Same)
        );
        let fewer = ends(Status::Passed, &[("a", "done", "1")]);
        assert_eq!(whole(&was, &fewer).changed[0].replayed, "not there");
    }

    #[test]
    fn a_recording_without_an_end_is_never_said_to_be_the_same() {
        let mut was = ends(
            Status::Interrupted,
            &[("a", "done", "1"), ("b", "cancelled", "2")],
        );
        was.merged = None;
        let is = ends(Status::Error, &[("a", "done", "1"), ("c", "done", "3")]);
        let cut = || Cut(Some("the recorded run has no end".to_owned()));
        let found = compare(&was, &is, cut());
        assert_eq!((found.outcome, found.changed.len()), (Likeness::Unknown, 0));
        let other = ends(Status::Error, &[("a", "done", "7")]);
        let found = compare(&was, &other, cut());
        assert_eq!(found.outcome, Likeness::Different);
        assert_eq!(found.changed[0].what, "files of a");
    }
}
