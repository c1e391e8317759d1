//! The open watches of a server.

use std::collections::{BTreeMap, VecDeque};

use crate::testing::apiserver::model::faults::{Fault, Strike};
use crate::testing::apiserver::model::log::RequestRecord;

/// The open watches of a server, so that tests can count them and meddle with them.
#[derive(Default)]
pub(crate) struct Watches {
    pub(crate) last_id: u64,
    pub(crate) open: BTreeMap<u64, Entry>,
}

pub(crate) struct Entry {
    pub(crate) request: RequestRecord,
    /// What is to go wrong, and after which version: what was written before still goes out before it.
    pub(crate) faults: VecDeque<(u64, Strike)>,
    /// What it watches is no more.
    pub(crate) cancelled: bool,
}

impl Watches {
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// Which are open, and what was asked for.
    pub(crate) fn requests(&self) -> Vec<(u64, RequestRecord)> {
        self.open
            .iter()
            .map(|(&id, entry)| (id, entry.request.clone()))
            .collect()
    }

    /// Lets the fault strike these watches, behind the changes up to `after`; how many there are.
    pub(crate) fn fail(&mut self, ids: &[u64], after: u64, fault: &Fault) -> usize {
        let mut count = 0;
        for id in ids {
            if let Some(entry) = self.open.get_mut(id) {
                entry.faults.push_back((after, fault.strike().clone()));
                count += 1;
            }
        }
        count
    }

    pub(crate) fn cancel_all(&mut self) {
        for entry in self.open.values_mut() {
            entry.cancelled = true;
        }
    }
}
