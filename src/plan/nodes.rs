//! What each subtask must be by itself, and the words for what is wrong with a set of them.

use std::collections::{BTreeMap, BTreeSet};

use super::error::{nearest, suggest};
use super::{Kind, Role, Subtask};
use crate::id::{RoleName, SubtaskId, is_valid};

/// Ids that agents of Wharf's own bear.
const RESERVED: [&str; 2] = ["coordinator", "verifier"];

/// Why subtasks are no DAG. The text is meant for a model as well as for a person.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    #[error("there are no subtasks; submit at least one")]
    Empty,
    #[error("there are {count} subtasks, more than the limit of {limit}; join some of them")]
    TooMany { count: usize, limit: usize },
    #[error("the id `{id}` is not usable; {reason}")]
    OddId {
        id: String,
        index: usize,
        reason: String,
    },
    #[error("the id `{id}` stands twice; every subtask needs an id of its own")]
    Duplicate { id: SubtaskId, index: usize },
    #[error("subtask `{id}` has the unknown role `{role}`; {hint}")]
    UnknownRole {
        id: SubtaskId,
        index: usize,
        role: String,
        hint: String,
    },
    #[error("subtask `{id}` has an empty brief; say what its agent is to do")]
    EmptyBrief { id: SubtaskId, index: usize },
    #[error("subtask `{id}` needs `{need}`, which is no subtask; {hint}")]
    MissingNeed {
        id: SubtaskId,
        index: usize,
        place: usize,
        need: String,
        hint: String,
    },
    #[error("subtask `{id}` names `{need}` twice in its needs; once is enough")]
    NeedTwice {
        id: SubtaskId,
        index: usize,
        place: usize,
        need: SubtaskId,
    },
    #[error(
        "the subtasks need each other in a circle: {}; remove one of these needs",
        show(path)
    )]
    Cycle {
        path: Vec<SubtaskId>,
        index: usize,
        place: usize,
    },
}

fn show(path: &[SubtaskId]) -> String {
    let names: Vec<&str> = path.iter().map(SubtaskId::as_str).collect();
    match names.len() {
        0..=24 => names.join(" -> "),
        count => format!(
            "{} -> … ({} more) -> {}",
            names[..12].join(" -> "),
            count - 13,
            names[count - 1]
        ),
    }
}

impl GraphError {
    /// The subtask (from 0) that is at fault, where one is.
    pub fn index(&self) -> Option<usize> {
        match self {
            Self::Empty | Self::TooMany { .. } => None,
            Self::OddId { index, .. }
            | Self::Duplicate { index, .. }
            | Self::UnknownRole { index, .. }
            | Self::EmptyBrief { index, .. }
            | Self::MissingNeed { index, .. }
            | Self::NeedTwice { index, .. }
            | Self::Cycle { index, .. } => Some(*index),
        }
    }
}

pub(super) fn check(
    subtask: &Subtask,
    index: usize,
    roles: &BTreeMap<RoleName, Role>,
) -> Result<(), GraphError> {
    let id = subtask.id.as_str();
    if let Some(reason) = odd(id) {
        return Err(GraphError::OddId {
            id: id.to_owned(),
            index,
            reason,
        });
    }
    let worker = |(name, role): (&RoleName, &Role)| {
        (role.kind == Kind::Worker && name.as_str() != "merger").then(|| name.as_str().to_owned())
    };
    let known = roles.get(&subtask.role).map(|role| role.kind);
    if known != Some(Kind::Worker) {
        let workers: Vec<String> = roles.iter().filter_map(worker).collect();
        let hint = match known {
            Some(_) => format!("a subtask takes a worker: {}", workers.join(", ")),
            None => suggest(subtask.role.as_str(), workers.iter().map(String::as_str)),
        };
        let role = subtask.role.as_str().to_owned();
        return Err(GraphError::UnknownRole {
            id: subtask.id.clone(),
            index,
            role,
            hint,
        });
    }
    if subtask.brief.trim().is_empty() {
        return Err(GraphError::EmptyBrief {
            id: subtask.id.clone(),
            index,
        });
    }
    Ok(())
}

pub(super) fn check_needs(
    subtask: &Subtask,
    index: usize,
    ids: &BTreeSet<SubtaskId>,
) -> Result<(), GraphError> {
    for (place, need) in subtask.needs.iter().enumerate() {
        let id = subtask.id.clone();
        if subtask.needs[..place].contains(need) {
            return Err(GraphError::NeedTwice {
                id,
                index,
                place,
                need: need.clone(),
            });
        }
        if !ids.contains(need) {
            let hint = missing_hint(need.as_str(), ids);
            let need = need.as_str().to_owned();
            return Err(GraphError::MissingNeed {
                id,
                index,
                place,
                need,
                hint,
            });
        }
    }
    Ok(())
}

fn missing_hint(need: &str, ids: &BTreeSet<SubtaskId>) -> String {
    match nearest(need, ids.iter().map(SubtaskId::as_str)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => {
            let shown: Vec<&str> = ids.iter().take(20).map(SubtaskId::as_str).collect();
            format!("the ids are {}", shown.join(", "))
        }
    }
}

/// `verifier-2` and its like: further votes.
fn names_vote(id: &str) -> bool {
    let number = id.strip_prefix("verifier-");
    number.is_some_and(|number| number.bytes().all(|b| b.is_ascii_digit()))
}

/// Why an id cannot be used, if so.
fn odd(id: &str) -> Option<String> {
    if RESERVED.contains(&id) || names_conflict(id) || names_vote(id) {
        return Some("choose another, this one is Wharf's own".to_owned());
    }
    if is_valid(id) {
        return None;
    }
    let rule = "use 1 to 40 of a-z, 0-9, _ and -, first a letter or digit";
    let near = near(id);
    Some(if is_valid(&near) {
        format!("{rule}, such as `{near}`")
    } else {
        rule.to_owned()
    })
}

/// What is left of an id in letters that one may have, with one dash for all between them.
fn near(id: &str) -> String {
    let lower = id.to_lowercase();
    let known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let parts = lower.split(|c| !known(c)).filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("-")
}

/// The form of a conflict node's id: `merge-` and a hash.
fn names_conflict(id: &str) -> bool {
    let hash = id.strip_prefix("merge-").unwrap_or_default();
    hash.len() >= 6 && hash.bytes().all(|c| c.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_suggested_with_one_dash_between_its_words() {
        for (id, near_it) in [
            ("Fix It", "fix-it"),
            ("a -- & . c", "a-c"),
            ("-rf ", "rf"),
            ("../../x", "x"),
            ("übung_1", "bung_1"),
            ("***", ""),
        ] {
            assert_eq!(near(id), near_it);
        }
    }
}
