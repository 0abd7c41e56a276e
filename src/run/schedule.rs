//! Which subtask may start: pure, and indifferent to the order in which agents finish.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::SubtaskId;

/// Where a node of the DAG stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
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

/// The nodes of all rounds in DAG-then-id order.
#[derive(Clone, Debug, Default)]
pub(super) struct Schedule {
    order: Vec<SubtaskId>,
    needs: BTreeMap<SubtaskId, BTreeSet<SubtaskId>>,
    places: BTreeMap<SubtaskId, Place>,
}

impl Schedule {
    /// Adds checked nodes, given in DAG-then-id order; what they need is among them or was added before.
    pub fn add(&mut self, nodes: impl IntoIterator<Item = (SubtaskId, BTreeSet<SubtaskId>)>) {
        for (id, needs) in nodes {
            self.order.push(id.clone());
            self.places.insert(id.clone(), Place::Waiting);
            self.needs.insert(id, needs);
        }
        self.block();
    }

    /// Waiting nodes whose needs are all done, in order.
    pub fn ready(&self) -> Vec<SubtaskId> {
        self.order
            .iter()
            .filter(|id| self.place(id) == Some(&Place::Waiting))
            .filter(|id| {
                self.needs[*id]
                    .iter()
                    .all(|n| self.place(n) == Some(&Place::Done))
            })
            .cloned()
            .collect()
    }

    /// Where a node stands; None for an unknown id.
    pub fn place(&self, id: &SubtaskId) -> Option<&Place> {
        self.places.get(id)
    }

    /// Moves a node; returns the nodes that are blocked by this, in order.
    pub fn set(&mut self, id: &SubtaskId, place: Place) -> Vec<(SubtaskId, SubtaskId)> {
        if let Some(at) = self.places.get_mut(id) {
            *at = place;
        }
        self.block()
    }

    /// Cancels what has not started; returns those nodes.
    pub fn cancel_waiting(&mut self) -> Vec<SubtaskId> {
        let mut cancelled = Vec::new();
        for (id, place) in &mut self.places {
            if *place == Place::Waiting {
                *place = Place::Cancelled;
                cancelled.push(id.clone());
            }
        }
        cancelled
    }

    /// The nodes that are done, in order.
    pub fn done(&self) -> Vec<SubtaskId> {
        let done = |id: &&SubtaskId| self.place(id) == Some(&Place::Done);
        self.order.iter().filter(done).cloned().collect()
    }

    /// True when no node waits or runs.
    pub fn is_over(&self) -> bool {
        !self
            .places
            .values()
            .any(|p| matches!(p, Place::Waiting | Place::Running))
    }

    /// How many nodes ended, and how many there are.
    pub fn count(&self) -> (usize, usize) {
        let open = |p: &&Place| matches!(p, Place::Waiting | Place::Running);
        let open = self.places.values().filter(open).count();
        (self.places.len() - open, self.places.len())
    }

    fn block(&mut self) -> Vec<(SubtaskId, SubtaskId)> {
        let mut blocked = Vec::new();
        // One pass suffices: a node stands after everything it needs.
        for id in &self.order {
            if self.places[id] != Place::Waiting {
                continue;
            }
            let lost = self.needs[id].iter().find(|need| {
                matches!(
                    self.places.get(*need),
                    Some(Place::Failed | Place::Blocked { .. }) | None
                )
            });
            if let Some(by) = lost.cloned() {
                self.places
                    .insert(id.clone(), Place::Blocked { by: by.clone() });
                blocked.push((id.clone(), by));
            }
        }
        blocked
    }
}

#[cfg(test)]
mod tests {
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
            let mut schedule = Schedule::default();
            schedule.add(nodes);
            let (mut running, mut started, mut picks) = (Vec::new(), BTreeSet::new(), picks.into_iter().cycle());
            loop {
                for ready in schedule.ready() {
                    prop_assert!(started.insert(ready.clone()), "started twice");
                    for need in &schedule.needs[&ready] {
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
