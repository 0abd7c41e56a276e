//! The DAG of subtasks: checks, order, and what may start.

use std::collections::{BTreeMap, BTreeSet};

use petgraph::Direction;
use petgraph::algo::{tarjan_scc, toposort};
use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::EdgeRef;

use super::error::{nearest, suggest};
use super::{Kind, Role, Subtask};
use crate::id::{RoleName, SubtaskId, is_valid};

/// Ids that agents of Wharf's own bear.
const RESERVED: [&str; 4] = ["coordinator", "verifier", "merger", "extends"];

/// Checked subtasks: no cycle, no missing need, no id twice, known roles.
#[derive(Clone, Debug)]
pub struct Dag {
    /// An edge goes from what is needed to who needs it.
    graph: DiGraph<Subtask, ()>,
    places: BTreeMap<SubtaskId, NodeIndex>,
    order: Vec<SubtaskId>,
    layers: Vec<Vec<SubtaskId>>,
}

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
    names.join(" -> ")
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

impl Dag {
    /// Checks subtasks; `limit` is the most there may be.
    pub fn new(
        subtasks: Vec<Subtask>,
        limit: usize,
        roles: &BTreeMap<RoleName, Role>,
    ) -> Result<Self, GraphError> {
        let empty = Self {
            graph: DiGraph::new(),
            places: BTreeMap::new(),
            order: Vec::new(),
            layers: Vec::new(),
        };
        empty.extend(subtasks, limit, roles)
    }

    /// Adds a later round's subtasks: their ids are new, their needs may name earlier ones.
    /// `limit` is the most that may be added at a time.
    pub fn extend(
        &self,
        more: Vec<Subtask>,
        limit: usize,
        roles: &BTreeMap<RoleName, Role>,
    ) -> Result<Self, GraphError> {
        if more.is_empty() {
            return Err(GraphError::Empty);
        }
        if more.len() > limit {
            return Err(GraphError::TooMany {
                count: more.len(),
                limit,
            });
        }
        let mut ids: BTreeSet<SubtaskId> = self.places.keys().cloned().collect();
        for (index, subtask) in more.iter().enumerate() {
            check(subtask, index, roles)?;
            if !ids.insert(subtask.id.clone()) {
                return Err(GraphError::Duplicate {
                    id: subtask.id.clone(),
                    index,
                });
            }
        }
        for (index, subtask) in more.iter().enumerate() {
            check_needs(subtask, index, &ids)?;
        }
        self.joined(more)
    }

    fn joined(&self, more: Vec<Subtask>) -> Result<Self, GraphError> {
        let mut dag = self.clone();
        for subtask in &more {
            let place = dag.graph.add_node(subtask.clone());
            dag.places.insert(subtask.id.clone(), place);
        }
        for subtask in &more {
            let to = dag.places[&subtask.id];
            for need in &subtask.needs {
                dag.graph.add_edge(dag.places[need], to, ());
            }
        }
        let Ok(sorted) = toposort(&dag.graph, None) else {
            return Err(dag.cycle(&more));
        };
        dag.layers = dag.depths(&sorted);
        dag.order = dag.layers.concat();
        Ok(dag)
    }

    /// Ids by the length of the longest chain of needs, each layer sorted.
    fn depths(&self, sorted: &[NodeIndex]) -> Vec<Vec<SubtaskId>> {
        let mut depth: BTreeMap<NodeIndex, usize> = BTreeMap::new();
        let mut layers: Vec<Vec<SubtaskId>> = Vec::new();
        for &node in sorted {
            let needs = self.graph.neighbors_directed(node, Direction::Incoming);
            let deep = needs.map(|need| depth[&need] + 1).max().unwrap_or(0);
            depth.insert(node, deep);
            if layers.len() <= deep {
                layers.resize(deep + 1, Vec::new());
            }
            layers[deep].push(self.graph[node].id.clone());
        }
        layers.iter_mut().for_each(|layer| layer.sort());
        layers
    }

    /// The circle through the smallest id that is in one, each id followed by what it needs.
    fn cycle(&self, more: &[Subtask]) -> GraphError {
        let circles = tarjan_scc(&self.graph);
        let circular = |group: &Vec<NodeIndex>| {
            group.len() > 1 || self.graph.contains_edge(group[0], group[0])
        };
        let group: BTreeSet<SubtaskId> = circles
            .iter()
            .filter(|group| circular(group))
            .map(|group| {
                group
                    .iter()
                    .map(|&node| self.graph[node].id.clone())
                    .collect()
            })
            .min()
            .unwrap_or_default();
        let mut path: Vec<SubtaskId> = group.first().cloned().into_iter().collect();
        // Every member of the group needs another member, so the walk returns to one it has seen.
        while let Some(need) = path.last().and_then(|id| self.need_within(id, &group)) {
            if let Some(start) = path.iter().position(|seen| *seen == need) {
                path.drain(..start);
                path.push(need);
                break;
            }
            path.push(need);
        }
        let index = more
            .iter()
            .position(|s| Some(&s.id) == path.first())
            .unwrap_or(0);
        let needs = more
            .get(index)
            .map(|s| s.needs.as_slice())
            .unwrap_or_default();
        let place = needs
            .iter()
            .position(|need| Some(need) == path.get(1))
            .unwrap_or(0);
        GraphError::Cycle { path, index, place }
    }

    fn need_within(&self, id: &SubtaskId, group: &BTreeSet<SubtaskId>) -> Option<SubtaskId> {
        let needs = &self.get(id)?.needs;
        needs
            .iter()
            .filter(|need| group.contains(need))
            .min()
            .cloned()
    }

    /// A subtask by id.
    pub fn get(&self, id: &SubtaskId) -> Option<&Subtask> {
        self.places.get(id).map(|&place| &self.graph[place])
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Never true of a checked DAG.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// All ids, needs before those who need them, then by id: the same for the same subtasks.
    pub fn order(&self) -> &[SubtaskId] {
        &self.order
    }

    /// The ids by the length of the longest chain of needs before them.
    pub fn layers(&self) -> &[Vec<SubtaskId>] {
        &self.layers
    }

    /// All subtasks in order.
    pub fn subtasks(&self) -> impl Iterator<Item = &Subtask> {
        self.order.iter().filter_map(|id| self.get(id))
    }

    /// What may start: not started, and all it needs is done. In order.
    pub fn ready(
        &self,
        done: &BTreeSet<SubtaskId>,
        started: &BTreeSet<SubtaskId>,
    ) -> Vec<SubtaskId> {
        let free = |subtask: &&Subtask| {
            !started.contains(&subtask.id)
                && !done.contains(&subtask.id)
                && subtask.needs.iter().all(|need| done.contains(need))
        };
        self.subtasks()
            .filter(free)
            .map(|subtask| subtask.id.clone())
            .collect()
    }

    /// Everything that needs a subtask, at first hand or through others. In order.
    pub fn dependents(&self, id: &SubtaskId) -> Vec<SubtaskId> {
        let mut found = BTreeSet::new();
        let mut open: Vec<NodeIndex> = self.places.get(id).copied().into_iter().collect();
        while let Some(node) = open.pop() {
            for edge in self.graph.edges_directed(node, Direction::Outgoing) {
                if found.insert(self.graph[edge.target()].id.clone()) {
                    open.push(edge.target());
                }
            }
        }
        self.order
            .iter()
            .filter(|id| found.contains(id))
            .cloned()
            .collect()
    }
}

fn check(
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

fn check_needs(
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

/// Why an id cannot be used, if so.
fn odd(id: &str) -> Option<String> {
    if RESERVED.contains(&id) || id.starts_with("merge-") {
        return Some("choose another, this one is Wharf's own".to_owned());
    }
    if is_valid(id) {
        return None;
    }
    let rule = "use 1 to 40 of a-z, 0-9, _ and -, first a letter or digit";
    let lower: String = id.trim().to_lowercase().replace([' ', '.', '/'], "-");
    Some(if is_valid(&lower) {
        format!("{rule}, such as `{lower}`")
    } else {
        rule.to_owned()
    })
}
