//! The sandbox in memory with a count of what is open, as an engine would count containers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use wharf::sandbox::Spec;
use wharf::sandbox::memory::Memory;

use crate::around::{Around, Look};

/// The sandbox in memory, counted.
pub type Counted = Around<Memory, Count>;

/// How many sandboxes are open, by the subtask they were opened for.
#[derive(Clone, Default)]
pub struct Count {
    open: Arc<Mutex<BTreeMap<String, usize>>>,
    /// Subtasks that had two at a time.
    twice: Arc<Mutex<Vec<String>>>,
    /// Most that were open at a time.
    most: Arc<Mutex<usize>>,
}

impl Counted {
    /// How many are open now.
    pub fn open(&self) -> usize {
        self.look.open.lock().unwrap().values().sum()
    }

    /// Most that were open at a time.
    pub fn most(&self) -> usize {
        *self.look.most.lock().unwrap()
    }

    /// Who had two at a time.
    pub fn twice(&self) -> Vec<String> {
        self.look.twice.lock().unwrap().clone()
    }
}

impl Look for Count {
    type Place = Place;

    fn started(&self, spec: &Spec) -> Place {
        let subtask = spec.labels.subtask.clone();
        let mut open = self.open.lock().unwrap();
        let count = open.entry(subtask.clone()).or_default();
        *count += 1;
        if *count > 1 {
            self.twice.lock().unwrap().push(subtask.clone());
        }
        let now: usize = open.values().sum();
        let mut most = self.most.lock().unwrap();
        *most = now.max(*most);
        drop(most);
        Place {
            open: self.open.clone(),
            subtask: Mutex::new(Some(subtask)),
        }
    }

    fn closed(place: &Place) {
        place.gone();
    }
}

/// One that is counted, until it is counted out.
pub struct Place {
    open: Arc<Mutex<BTreeMap<String, usize>>>,
    subtask: Mutex<Option<String>>,
}

impl Place {
    fn gone(&self) {
        if let Some(subtask) = self.subtask.lock().unwrap().take() {
            *self.open.lock().unwrap().get_mut(&subtask).unwrap() -= 1;
        }
    }
}

/// A lost connection ends a container as well as a closed one.
impl Drop for Place {
    fn drop(&mut self) {
        self.gone();
    }
}
