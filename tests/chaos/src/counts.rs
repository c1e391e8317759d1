//! Counters by name.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

#[derive(Default)]
pub(crate) struct Counts(Mutex<BTreeMap<&'static str, u64>>);

impl Counts {
    pub(crate) fn add(&self, what: &'static str) {
        *self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(what)
            .or_default() += 1;
    }

    pub(crate) fn total(&self) -> u64 {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .sum()
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (at, (what, count)) in counts.iter().enumerate() {
            write!(f, "{}{what} {count}", if at == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}
