//! The state that all threads of a server share, and its locks.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::store::Store;
use super::watches::Watches;
use super::write::{Author, Writer};
use super::{crd, garbage};
use crate::apiserver::model::auth::Auth;
use crate::apiserver::model::faults::{Fault, Faults};
use crate::apiserver::model::log::{Log, RequestRecord};
use crate::apiserver::model::resources::Resources;
use crate::apiserver::model::write_record::WriteRecord;

pub(crate) struct Shared {
    pub(crate) resources: Resources,
    pub(crate) settings: Settings,
    /// Objects and watches. They share one lock, so that a watch starts at exactly the version of
    /// its initial objects. While the lock is held, no lock is taken but that of the served
    /// resources, nothing is written to a socket, and no user code runs.
    pub(crate) state: Mutex<State>,
    /// Notified of changes, faults for open watches, and disconnected clients. Watches and delayed
    /// faults wait here, with `state`.
    pub(crate) changed: Condvar,
    /// Notified when a watch opens or ends. Tests wait here, with `state`.
    pub(crate) watches_changed: Condvar,
    pub(crate) auth: Auth,
    pub(crate) faults: Faults,
    pub(crate) log: Log,
    /// Called after each request that has written, without a lock.
    pub(crate) write_observer: OnceLock<Box<WriteObserver>>,
}

/// A function that is called with each request that has written.
pub(crate) type WriteObserver = dyn Fn(&RequestRecord, WriteRecord) + Send + Sync;

pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) watches: Watches,
}

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) bookmark_interval: Duration,
    pub(crate) watch_timeout: Duration,
    pub(crate) watch_list: bool,
    pub(crate) shards: bool,
    pub(crate) garbage_collection: bool,
}

impl Shared {
    pub(crate) fn new(resources: Resources, settings: Settings, store: Store) -> Self {
        Self {
            resources,
            settings,
            state: Mutex::new(State {
                store,
                watches: Watches::default(),
            }),
            changed: Condvar::new(),
            watches_changed: Condvar::new(),
            auth: Auth::default(),
            faults: Faults::default(),
            log: Log::default(),
            write_observer: OnceLock::new(),
        }
    }

    /// Runs one write and wakes the watches if it changed anything.
    pub(crate) fn write<R>(
        &self,
        author: Author<'_>,
        dry_run: bool,
        write: impl FnOnce(&mut Writer<'_>) -> R,
    ) -> R {
        let mut state = self.state.lock();
        let before = state.store.version();
        let store = &mut state.store;
        let result = write(&mut Writer {
            store,
            author,
            dry_run,
        });
        if state.store.version() != before {
            self.reconcile(&mut state, Some(before));
            self.changed.notify_all();
        }
        result
    }

    /// Updates the resources from CustomResourceDefinitions, and collects the garbage of the
    /// changes after version `since`, or after a restore. Ends the watches of removed resources.
    pub(crate) fn reconcile(&self, state: &mut State, mut since: Option<u64>) {
        let store = &mut state.store;
        let mut collected = since.unwrap_or(store.version());
        let mut gone = Vec::new();
        while since != Some(store.version()) {
            let before = store.version();
            gone.extend(crd::reconcile(store, &self.resources, since));
            since = Some(before);
            if self.settings.garbage_collection {
                garbage::collect(store, &self.resources, collected);
                collected = store.version();
            }
        }
        if gone.is_empty() {
            return;
        }
        let is_gone = |request: &RequestRecord| {
            let resource = request
                .path()
                .trim_end_matches('/')
                .rsplit('/')
                .next()
                .unwrap_or_default();
            gone.iter().any(|gone| {
                let root = format!("/apis/{}/", gone.api_version());
                gone.plural == resource && request.path().starts_with(&root)
            })
        };
        let open = state.watches.requests();
        let ended: Vec<u64> = open
            .into_iter()
            .filter(|(_, request)| is_gone(request))
            .map(|(id, _)| id)
            .collect();
        state
            .watches
            .fail(&ended, state.store.version(), &Fault::end_watch());
    }

    /// Sets the `gone` flags of disconnected clients, and wakes the threads that wait for
    /// `changed`.
    pub(crate) fn hang_up<'a>(&self, gone: impl IntoIterator<Item = &'a AtomicBool>) {
        let _state = self.state.lock();
        gone.into_iter()
            .for_each(|gone| gone.store(true, Ordering::Release));
        self.changed.notify_all();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::apiserver::model::resources::Route;
    use serde_json::{Value, json};
    use std::sync::Arc;

    #[test]
    fn only_writes_to_definitions_replace_served_resources() {
        let settings = Settings {
            bookmark_interval: Duration::MAX,
            watch_timeout: Duration::MAX,
            watch_list: true,
            shards: true,
            garbage_collection: true,
        };
        let store = Store::new(1, 100);
        let shared = Shared::new(Resources::new(Vec::new()), settings, store);
        let create = |path: &str, object: Value| {
            let Route::Object(target) = shared.resources.route(path) else {
                panic!("{path} is not served");
            };
            let created = shared.write(Author::Cluster, false, |writer| {
                writer.create(&target, object)
            });
            created.unwrap();
        };
        let define = |plural: &str| {
            let definition = json!({
                "metadata": {"name": format!("{plural}.example.com")},
                "spec": {
                    "group": "example.com", "names": {"plural": plural, "kind": plural},
                    "versions": [{"name": "v1", "served": true, "storage": true}],
                },
            });
            let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            create(path, definition);
        };
        define("as");
        let served = shared.resources.served();
        for path in ["/api/v1", "/apis/example.com/v1"] {
            let plural = if path == "/api/v1" { "pods" } else { "as" };
            let path = format!("{path}/namespaces/default/{plural}");
            create(&path, json!({"metadata": {"name": "a"}}));
        }
        assert!(Arc::ptr_eq(&served, &shared.resources.served()));
        define("bs");
        assert_eq!(shared.resources.served().len(), served.len() + 1);
    }
}
