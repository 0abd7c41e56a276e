//! Calls that may have run before a crash and reach beyond their sandbox: never made a second time unseen.

use std::collections::BTreeSet;

use crate::run::work::desk::Desk;
use crate::sandbox::Network;
use crate::tools::{Call, Kind, Output};

/// What an agent is told in place of such a call's result.
const TOLD: &str = "it is not known whether this ran: the run was interrupted while it may have been running, and \
                    what it did over the network may have happened. Files are as they were before it. It was not \
                    made again: find out first, then make the call again if that is safe";

impl Desk {
    /// Remembers the calls of an answer whose results an earlier process took with it. Where nothing
    /// leaves the sandbox they are made again on the last snapshot and leave no trace of the first time.
    pub fn doubt(&self, calls: &BTreeSet<String>) {
        if !matches!(self.spec.network, Network::None) {
            self.now.send_modify(|now| now.unknown.clone_from(calls));
        }
    }

    /// What is told in place of a call that may have run; None for every other.
    pub fn unknown(&self, call: &Call, id: &str) -> Option<Output> {
        let beyond = matches!(call.kind, Kind::Execute | Kind::External);
        if !beyond || !self.now.borrow().unknown.contains(id) {
            return None;
        }
        self.now.send_modify(|now| {
            now.unknown.remove(id);
        });
        self.shared.warn(format!(
            "{}: a call of {} may have run before the run was interrupted and could reach the network; \
             whether it did is unknown, and it was not made again",
            self.who.subtask, call.tool
        ));
        Some(Output::refused("unknown_outcome", TOLD))
    }
}
