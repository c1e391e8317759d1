//! Test objects of the queues, their key function, and known objects.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use k8s_informer::Deleted;
use k8s_informer::object::{Accessor, Key, KeyError, ResourceVersion};
use k8s_informer::queue::{Delta, Entry};
use k8s_informer::store::{KnownObjects, StoreError};

pub(crate) type Thing = (&'static str, u32);

pub(crate) fn thing(key: &'static str, value: u32) -> Arc<Thing> {
    Arc::new((key, value))
}

/// Returns the resource version with this text.
pub(crate) fn version(text: &str) -> ResourceVersion {
    ResourceVersion::new(text).unwrap()
}

pub(crate) fn accessor() -> Accessor<Thing> {
    Accessor::new(|thing: &Thing| match thing.0 {
        "" => Err(KeyError::new("no key")),
        "panic" => panic!("key function"),
        key => Ok(key.into()),
    })
}

/// Known objects that never change, as in a test of client-go.
pub(crate) struct Known(pub(crate) Vec<Thing>);

impl KnownObjects<Thing> for Known {
    fn list_keys(&self) -> Vec<Key> {
        self.0.iter().map(|thing| thing.0.into()).collect()
    }

    fn lookup(&self, key: &str) -> Result<Option<Arc<Thing>>, StoreError> {
        match self.0.iter().find(|thing| thing.0 == key) {
            // A thing with the value 0 is listed but not found. The lookup of one with the value 99
            // fails.
            Some((_, 0)) | None => Ok(None),
            Some((_, 99)) => Err(StoreError::other("broken")),
            Some(thing) => Ok(Some(Arc::new(*thing))),
        }
    }
}

fn entry(key: &'static str, value: u32) -> Entry<Thing> {
    Entry::new(key.into(), thing(key, value))
}

pub(crate) fn added(key: &'static str, value: u32) -> Delta<Thing> {
    Delta::Added(entry(key, value))
}

pub(crate) fn updated(key: &'static str, value: u32) -> Delta<Thing> {
    Delta::Updated(entry(key, value))
}

pub(crate) fn replaced(key: &'static str, value: u32) -> Delta<Thing> {
    Delta::Replaced(entry(key, value))
}

pub(crate) fn sync(key: &'static str, value: u32) -> Delta<Thing> {
    Delta::Sync(entry(key, value))
}

pub(crate) fn deleted(key: &'static str, value: u32) -> Delta<Thing> {
    Delta::Deleted {
        key: key.into(),
        version: None,
        gone: gone(key, value),
    }
}

pub(crate) fn gone(key: &'static str, value: u32) -> Deleted<Thing> {
    Deleted::Final(thing(key, value))
}

pub(crate) fn tombstone(key: &str, last_known: Option<Arc<Thing>>) -> Delta<Thing> {
    Delta::Deleted {
        key: key.into(),
        version: None,
        gone: Deleted::FinalStateUnknown {
            key: key.into(),
            last_known,
        },
    }
}

/// Runs a test that would hang if a lock were held or a wake-up were lost.
pub(crate) fn with_timeout(test: impl FnOnce() + Send + 'static) {
    let (done, finished) = mpsc::channel();
    let thread = thread::spawn(move || {
        test();
        let _ = done.send(());
    });
    let outcome = finished.recv_timeout(Duration::from_secs(120));
    if outcome != Err(mpsc::RecvTimeoutError::Timeout) {
        thread.join().unwrap();
    }
    outcome.unwrap();
}
