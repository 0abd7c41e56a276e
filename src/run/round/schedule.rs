//! Which subtask may start: pure, and indifferent to the order in which agents finish.

use std::collections::{BTreeSet, HashMap};

use crate::id::SubtaskId;

/// Where a node of the DAG stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::run) enum Place {
    Waiting,
    Running,
    Done,
    Failed,
    /// Needs a node that failed or was blocked itself.
    Blocked {
        by: SubtaskId,
    },
    Cancelled,
}

/// The nodes of all rounds in DAG-then-id order. A step costs what it touches, not what there is.
#[derive(Clone, Debug, Default)]
pub(in crate::run) struct Schedule {
    nodes: Vec<Node>,
    at: HashMap<SubtaskId, usize>,
    /// Waiting nodes whose needs are all done.
    ready: BTreeSet<usize>,
    /// Nodes that wait or run.
    open: usize,
}

#[derive(Clone, Debug)]
struct Node {
    id: SubtaskId,
    place: Place,
    /// Needs that are not done.
    unmet: usize,
    /// Who needs it.
    dependents: Vec<usize>,
}

impl Schedule {
    /// Adds checked nodes, given in DAG-then-id order; what they need is among them or was added
    /// before. Returns those that are blocked from the start, each with what blocks it.
    pub fn add(
        &mut self,
        nodes: impl IntoIterator<Item = (SubtaskId, BTreeSet<SubtaskId>)>,
    ) -> Vec<(SubtaskId, SubtaskId)> {
        let mut blocked = Vec::new();
        for (id, needs) in nodes {
            let at = self.nodes.len();
            let mut node = Node {
                id: id.clone(),
                place: Place::Waiting,
                unmet: 0,
                dependents: Vec::new(),
            };
            for need in needs {
                let needed = self.at.get(&need).map(|&n| &mut self.nodes[n]);
                match needed {
                    Some(needed) if needed.place == Place::Done => {}
                    Some(needed) if !needed.place.is_lost() => {
                        node.unmet += 1;
                        needed.dependents.push(at);
                    }
                    _ => node.place = Place::Blocked { by: need },
                }
            }
            match &node.place {
                Place::Blocked { by } => blocked.push((id.clone(), by.clone())),
                _ => {
                    self.open += 1;
                    if node.unmet == 0 {
                        self.ready.insert(at);
                    }
                }
            }
            self.at.insert(id, at);
            self.nodes.push(node);
        }
        blocked
    }

    /// Waiting nodes whose needs are all done, in order.
    pub fn ready(&self) -> Vec<SubtaskId> {
        self.ready
            .iter()
            .map(|&at| self.nodes[at].id.clone())
            .collect()
    }

    /// Where a node stands; None for an unknown id.
    #[cfg(test)]
    pub fn place(&self, id: &SubtaskId) -> Option<&Place> {
        self.at.get(id).map(|&at| &self.nodes[at].place)
    }

    /// Moves a node; returns the nodes that are blocked by this with what blocks them, in order.
    pub fn set(&mut self, id: &SubtaskId, place: Place) -> Vec<(SubtaskId, SubtaskId)> {
        let Some(&at) = self.at.get(id) else {
            return Vec::new();
        };
        let (done, lost) = (place == Place::Done, place.is_lost());
        self.put(at, place);
        if done {
            for dependent in self.nodes[at].dependents.clone() {
                let node = &mut self.nodes[dependent];
                node.unmet = node.unmet.saturating_sub(1);
                if node.unmet == 0 && node.place == Place::Waiting {
                    self.ready.insert(dependent);
                }
            }
        }
        if lost {
            self.block_after(at)
        } else {
            Vec::new()
        }
    }

    /// Cancels what has not started; returns those nodes.
    pub fn cancel_waiting(&mut self) -> Vec<SubtaskId> {
        let waiting = |node: &Node| node.place == Place::Waiting;
        let waiting: Vec<usize> = (0..self.nodes.len())
            .filter(|&at| waiting(&self.nodes[at]))
            .collect();
        waiting
            .iter()
            .for_each(|&at| self.put(at, Place::Cancelled));
        waiting
            .iter()
            .map(|&at| self.nodes[at].id.clone())
            .collect()
    }

    /// The nodes that are done, in order.
    pub fn done(&self) -> Vec<SubtaskId> {
        let done = self.nodes.iter().filter(|node| node.place == Place::Done);
        done.map(|node| node.id.clone()).collect()
    }

    /// Those of `ids` that are done, in order.
    pub fn done_of(&self, ids: &[SubtaskId]) -> Vec<SubtaskId> {
        let places: BTreeSet<usize> = ids
            .iter()
            .filter_map(|id| self.at.get(id).copied())
            .collect();
        let done = places
            .into_iter()
            .map(|at| &self.nodes[at])
            .filter(|node| node.place == Place::Done);
        done.map(|node| node.id.clone()).collect()
    }

    /// True when no node waits or runs.
    pub fn is_over(&self) -> bool {
        self.open == 0
    }

    /// How many nodes ended, and how many there are.
    pub fn count(&self) -> (usize, usize) {
        (self.nodes.len() - self.open, self.nodes.len())
    }

    fn put(&mut self, at: usize, place: Place) {
        let was_open = self.nodes[at].place.is_open();
        let is_open = place.is_open();
        self.open = self.open + usize::from(is_open) - usize::from(was_open);
        if place != Place::Waiting {
            self.ready.remove(&at);
        }
        self.nodes[at].place = place;
    }

    /// Blocks whatever waits and needs a lost node, directly or through others.
    fn block_after(&mut self, lost: usize) -> Vec<(SubtaskId, SubtaskId)> {
        let mut blocked = Vec::new();
        let by_lost = |at: usize| move |&dependent: &usize| (dependent, at);
        let mut open: BTreeSet<(usize, usize)> = self.nodes[lost]
            .dependents
            .iter()
            .map(by_lost(lost))
            .collect();
        while let Some((at, by)) = open.pop_first() {
            if self.nodes[at].place != Place::Waiting {
                continue;
            }
            let by = self.nodes[by].id.clone();
            self.put(at, Place::Blocked { by: by.clone() });
            open.extend(self.nodes[at].dependents.iter().map(by_lost(at)));
            blocked.push((self.nodes[at].id.clone(), by));
        }
        blocked
    }
}

impl Place {
    fn is_open(&self) -> bool {
        matches!(self, Self::Waiting | Self::Running)
    }

    /// What needs it can never start. A cancelled node is none of these: its dependents are cancelled too.
    fn is_lost(&self) -> bool {
        matches!(self, Self::Failed | Self::Blocked { .. })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn id(n: usize) -> SubtaskId {
        SubtaskId::new(format!("n{n:03}"))
    }

    proptest! {
        /// In any order of finishes, with any failures: a node starts once, only after its needs are
        /// done, and the run ends with every node in a final place.
        #[test]
        fn every_order_of_finishes_ends(
            edges in proptest::collection::vec(proptest::collection::vec(any::<prop::sample::Index>(), 0..3), 1..14),
            picks in proptest::collection::vec(any::<(prop::sample::Index, bool)>(), 40),
        ) {
            let nodes = edges.iter().enumerate().map(|(n, needs)| {
                let needs = if n == 0 { BTreeSet::new() } else { needs.iter().map(|i| id(i.index(n))).collect() };
                (id(n), needs)
            });
            let nodes: Vec<_> = nodes.collect();
            let needs: BTreeMap<_, _> = nodes.iter().cloned().collect();
            let mut schedule = Schedule::default();
            schedule.add(nodes);
            let (mut running, mut started, mut picks) = (Vec::new(), BTreeSet::new(), picks.into_iter().cycle());
            loop {
                for ready in schedule.ready() {
                    prop_assert!(started.insert(ready.clone()), "started twice");
                    for need in &needs[&ready] {
                        prop_assert_eq!(schedule.place(need), Some(&Place::Done));
                    }
                    schedule.set(&ready, Place::Running);
                    running.push(ready);
                }
                if running.is_empty() {
                    break;
                }
                let (pick, ok) = picks.next().unwrap();
                let ended = running.remove(pick.index(running.len()));
                schedule.set(&ended, if ok { Place::Done } else { Place::Failed });
            }
            prop_assert!(schedule.is_over());
            for n in 0..edges.len() {
                let final_place = schedule.place(&id(n)).unwrap().clone();
                let blocked = matches!(final_place, Place::Blocked { .. });
                prop_assert_eq!(blocked, !started.contains(&id(n)));
            }
        }
    }

    #[test]
    fn a_failure_blocks_what_needs_it_and_names_it() {
        let mut schedule = Schedule::default();
        let needs = |ids: &[usize]| ids.iter().map(|&n| id(n)).collect::<BTreeSet<_>>();
        schedule.add([
            (id(0), needs(&[])),
            (id(1), needs(&[0])),
            (id(2), needs(&[0])),
            (id(3), needs(&[1, 2])),
        ]);
        schedule.set(&id(0), Place::Done);
        let blocked = schedule.set(&id(1), Place::Failed);
        assert_eq!(blocked, [(id(3), id(1))]);
        assert_eq!(schedule.ready(), [id(2)]);
    }
}
