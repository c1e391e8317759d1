use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::leases::Leases;
use crate::leader_election::{Lease, LeaseLock, Lock, Record};
use k8s_informer::error::Error;
use k8s_informer::object::ObjectReference;
use k8s_informer::stop::{Stop, Stopper};

/// One attempt to take the Lease of a shard. If it fails, the attempt ends, because another shard
/// may be free.
pub(crate) struct Claim {
    pub(crate) lock: LeaseLock,
    pub(crate) lease_name: String,
    pub(crate) leases: Arc<Leases>,
    /// Ends the attempt.
    pub(crate) attempt: Stopper,
    pub(crate) is_taken: AtomicBool,
}

impl Claim {
    fn wrote(&self, written: Result<Lease, Error>) -> Result<Lease, Error> {
        match written {
            Ok(_) => self.is_taken.store(true, Ordering::Relaxed),
            Err(_) => self.failed(),
        }
        written
    }

    fn failed(&self) {
        if !self.is_taken.load(Ordering::Relaxed) {
            self.attempt.stop();
        }
    }
}

impl Lock for Claim {
    fn name(&self) -> &str {
        self.lock.name()
    }

    fn identity(&self) -> &str {
        Lock::identity(&self.lock)
    }

    fn get(&self, stop: &Stop) -> Result<Lease, Error> {
        let mut lease = self.lock.get(stop).inspect_err(|error| {
            if !error.is_not_found() {
                self.failed();
            }
        })?;
        if !self.leases.is_free(&self.lease_name, &lease) {
            // The callbacks of a term that is lost are user code, which must not delay its end.
            self.attempt.stop_without_callbacks();
        } else if lease.record.holder.as_deref() != Some(self.identity()) {
            // This replica has seen it unchanged for its whole duration, so the elector need not.
            lease.record.holder = None;
        }
        Ok(lease)
    }

    fn create(&self, record: &Record, stop: &Stop) -> Result<Lease, Error> {
        self.wrote(self.lock.create(record, stop))
    }

    fn update(&self, record: &Record, last: &Lease, stop: &Stop) -> Result<Lease, Error> {
        self.wrote(self.lock.update(record, last, stop))
    }

    fn reference(&self, lease: &Lease) -> Option<ObjectReference> {
        self.lock.reference(lease)
    }
}
