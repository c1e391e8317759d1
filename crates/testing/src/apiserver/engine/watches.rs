//! The registry of open watches.

use std::collections::{BTreeMap, VecDeque};

use crate::apiserver::model::faults::{Fault, FaultEffect};
use crate::apiserver::model::log::RequestRecord;

/// The open watches of a server. Tests count them and inject faults into them.
#[derive(Default)]
pub(crate) struct Watches {
    pub(crate) last_id: u64,
    pub(crate) open: BTreeMap<u64, Entry>,
    /// The number of progress requests. After each one, every watch sends a bookmark.
    pub(crate) progress_requests: u64,
}

pub(crate) struct Entry {
    pub(crate) request: RequestRecord,
    /// The faults to apply, each with the version after which it strikes. Changes up to this
    /// version are sent before the fault.
    pub(crate) faults: VecDeque<(u64, FaultEffect)>,
    /// Whether the watch must end because its store was restored.
    pub(crate) cancelled: bool,
}

impl Watches {
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// Returns the open watches with their requests.
    pub(crate) fn requests(&self) -> Vec<(u64, RequestRecord)> {
        self.open
            .iter()
            .map(|(&id, entry)| (id, entry.request.clone()))
            .collect()
    }

    /// Injects the fault into these watches, after the changes up to `after`. Returns the number of
    /// watches.
    pub(crate) fn fail(&mut self, ids: &[u64], after: u64, fault: &Fault) -> usize {
        let mut count = 0;
        for id in ids {
            if let Some(entry) = self.open.get_mut(id) {
                entry.faults.push_back((after, fault.effect().clone()));
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
