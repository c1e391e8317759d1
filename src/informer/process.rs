//! From an informer's queue to its cache: client-go's `processDeltas` and `processDeltasInBatch`.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::handler::{KeyedNotification, Notification};
use crate::object::{Accessor, Deleted, Key, KeyError, Object};
use crate::panic;
use crate::queue::{BatchError, Delta, Deltas, ProcessError, ReplacedAll};
use crate::store::{Change, Gaps, Indexer, KnownObjects, StoreError};

/// A callback for each notification. Its second argument is client-go's `isSync`: the old and the new object have the
/// same resourceVersion, so only handlers that are resyncing get it (I16). Returns whether to go on: not after a stop,
/// however much is left (C3).
pub(super) type Notify<'a, T> = dyn FnMut(KeyedNotification<T>, bool) -> bool + 'a;

/// The part of an informer's cache that one reflector fills: all of it, or what is in one namespace.
pub(super) struct IndexerPart<T> {
    cache: Arc<Indexer<T>>,
    /// What the keys of the part begin with: a namespace and a slash. `None` for all.
    prefix: Option<String>,
    /// Whether another object under the same key is told as a deletion and an add.
    recreation_as_delete_and_add: bool,
}

impl<T: Object> IndexerPart<T> {
    /// All of the cache, or one namespace.
    pub(super) fn new(
        cache: Arc<Indexer<T>>,
        namespace: Option<&str>,
        recreation_as_delete_and_add: bool,
    ) -> Self {
        Self {
            cache,
            prefix: namespace.map(|namespace| format!("{namespace}/")),
            recreation_as_delete_and_add,
        }
    }

    /// Applies the changes of one object to the cache, oldest first, and tells each one (P1–P3); or a whole
    /// list (P6, P7), a resync of everything (P5), a bookmark (P4). Whether an object was added or updated is
    /// for the cache to say, not for the kind of change.
    pub(super) fn process(
        &self,
        deltas: &Deltas<T>,
        is_in_initial_list: bool,
        notify: &mut Notify<'_, T>,
    ) -> Result<(), StoreError> {
        let mut go_on = true;
        // What has been popped gets to the cache, also after a stop: the queue counts it as processed.
        let notify = &mut |notification, is_sync| {
            go_on = go_on && notify(notification, is_sync);
            go_on
        };
        // A change that is refused costs only itself: the ones after it may be good.
        let mut failed = None;
        for delta in deltas.iter() {
            if let Err(error) = self.process_one(deltas, delta, is_in_initial_list, notify) {
                failed.get_or_insert(error);
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn process_one(
        &self,
        deltas: &Deltas<T>,
        delta: &Delta<T>,
        is_in_initial_list: bool,
        notify: &mut Notify<'_, T>,
    ) -> Result<(), StoreError> {
        match delta {
            Delta::Deleted(gone) => {
                let key = self.key(deltas, delta)?;
                let old = self.cache.get_by_key(&key);
                self.cache.delete_keyed(&key, gone)?;
                notify(
                    KeyedNotification {
                        key,
                        event: Notification::deleted(gone.clone(), old),
                    },
                    false,
                );
            }
            Delta::Added(object)
            | Delta::Updated(object)
            | Delta::Replaced(object)
            | Delta::Sync(object) => {
                let key = self.key(deltas, delta)?;
                let old = self.cache.add_keyed(Key::clone(&key), Arc::clone(object))?;
                self.notify_object(key, old, Arc::clone(object), is_in_initial_list, notify);
            }
            Delta::ReplacedAll(list) => self.replace_all(list, is_in_initial_list, notify)?,
            Delta::SyncAll => {
                self.known().into_iter().all(|(key, object)| {
                    let event = Notification::Modified {
                        old: Arc::clone(&object),
                        new: object,
                    };
                    notify(KeyedNotification { key, event }, true)
                });
            }
            Delta::Bookmark(resource_version) => self.cache.set_resource_version(resource_version),
        }
        Ok(())
    }

    /// [`process`](Self::process) for each item of a batch. An item that fails costs only itself.
    pub(super) fn process_each(
        &self,
        batch: &[Deltas<T>],
        is_in_initial_list: bool,
        notify: &mut Notify<'_, T>,
    ) -> Result<(), ProcessError> {
        let mut errors = BatchError::new();
        for (position, deltas) in batch.iter().enumerate() {
            match panic::catch(|| self.process(deltas, is_in_initial_list, notify)) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => errors.add(position, error),
                Err(panic) => errors.add(position, panic),
            }
        }
        errors.into_result()
    }

    /// The same for many changes, each of another object: the cache has all of them at once, and then each is
    /// told (P10, P11).
    pub(super) fn process_batch(
        &self,
        batch: &[Deltas<T>],
        is_in_initial_list: bool,
        notify: &mut Notify<'_, T>,
    ) -> Result<(), StoreError> {
        let mut failed = None;
        let mut changes = Vec::with_capacity(batch.len());
        let mut before = Vec::with_capacity(batch.len());
        for deltas in batch {
            for delta in deltas.iter() {
                let change = match delta {
                    Delta::Deleted(gone) => Change::Delete(gone.clone()),
                    Delta::Added(object)
                    | Delta::Updated(object)
                    | Delta::Replaced(object)
                    | Delta::Sync(object) => Change::Update(Arc::clone(object)),
                    Delta::ReplacedAll(_) | Delta::SyncAll | Delta::Bookmark(_) => {
                        failed = Some(StoreError::other(
                            "a batch has changes of single objects only",
                        ));
                        continue;
                    }
                };
                match self.key(deltas, delta) {
                    Ok(key) => {
                        before.push(self.cache.get_by_key(&key));
                        changes.push((key, change));
                    }
                    Err(error) => failed = Some(error),
                }
            }
        }
        let (made, errors) = self.cache.transact_keyed(changes.clone());
        let (mut changes, mut at) = (changes.into_iter().zip(before), 0);
        for position in made {
            let Some(((key, change), old)) = changes.nth(position - at) else {
                break;
            };
            at = position + 1;
            let go_on = match change {
                Change::Delete(gone) => notify(
                    KeyedNotification {
                        key,
                        event: Notification::deleted(gone, old),
                    },
                    false,
                ),
                Change::Add(new) | Change::Update(new) => {
                    self.notify_object(key, old, new, is_in_initial_list, notify)
                }
                Change::Bookmark(_) => true,
            };
            if !go_on {
                break;
            }
        }
        errors
            .into_iter()
            .next()
            .map(|(_, error)| error)
            .or(failed)
            .map_or(Ok(()), Err)
    }

    /// A whole list: it is in the cache before anything is told, deletions first. An object without a key, or
    /// that an index function fails on, costs only itself.
    fn replace_all(
        &self,
        list: &ReplacedAll<T>,
        is_in_initial_list: bool,
        notify: &mut Notify<'_, T>,
    ) -> Result<(), StoreError> {
        let mut failed = None;
        let mut gaps = list.gaps.clone();
        let mut listed: HashMap<Key, usize> = HashMap::with_capacity(list.objects.len());
        let mut keyed = Vec::with_capacity(list.objects.len());
        for object in &list.objects {
            match self.cache.accessor().key(object) {
                Ok(key) if !self.has(&key) => failed = Some(self.not_in_it(&key).into()),
                Ok(key) => {
                    // Of several with one key the last counts, as in the store (S4).
                    match listed.get(&key) {
                        Some(at) => keyed[*at] = (key, Arc::clone(object)),
                        None => {
                            listed.insert(Key::clone(&key), keyed.len());
                            keyed.push((key, Arc::clone(object)));
                        }
                    }
                }
                Err(error) => {
                    gaps.add(None);
                    failed = Some(StoreError::from(error));
                }
            }
        }
        let old: HashMap<Key, Arc<T>> = self.known().into_iter().collect();
        let gone: Vec<(&Key, &Arc<T>)> = old
            .iter()
            .filter(|(key, _)| !listed.contains_key(*key) && !gaps.cover(key))
            .collect();
        let refused = self.write_list(&keyed, &gone, &gaps, &list.resource_version);
        let refused_at: HashSet<usize> = refused.iter().map(|(at, _)| *at).collect();
        for (key, object) in gone {
            let gone = Deleted::FinalStateUnknown {
                key: Key::clone(key),
                last_known: Some(Arc::clone(object)),
            };
            if !notify(
                KeyedNotification {
                    key: Key::clone(key),
                    event: Notification::deleted(gone, None),
                },
                false,
            ) {
                return Ok(());
            }
        }
        for (at, (key, new)) in keyed.into_iter().enumerate() {
            if refused_at.contains(&at) {
                continue;
            }
            let before = old.get(&key).cloned();
            if !self.notify_object(key, before, new, is_in_initial_list, notify) {
                return Ok(());
            }
        }
        refused
            .into_iter()
            .next()
            .map(|(_, error)| error)
            .or(failed)
            .map_or(Ok(()), Err)
    }

    /// Puts a list into the cache at once; answers what was refused, by the place in the list.
    fn write_list(
        &self,
        keyed: &[(Key, Arc<T>)],
        gone: &[(&Key, &Arc<T>)],
        gaps: &Gaps,
        resource_version: &str,
    ) -> Vec<(usize, StoreError)> {
        if self.prefix.is_none() {
            let mut kept = keyed.to_vec();
            self.cache.keep_in_gaps(&mut kept, gaps);
            // It is all or nothing, so one bad object must not be the end of it.
            if self.cache.replace_keyed(kept, resource_version).is_ok() {
                return Vec::new();
            }
        }
        let updates = keyed
            .iter()
            .map(|(key, new)| (Key::clone(key), Change::Update(Arc::clone(new))));
        let deletions = gone.iter().map(|(key, object)| {
            let gone = Deleted::Final(Arc::clone(object));
            (Key::clone(key), Change::Delete(gone))
        });
        let (_, refused) = self
            .cache
            .transact_keyed(updates.chain(deletions).collect());
        self.cache.set_resource_version(resource_version);
        refused
    }

    /// An object that is in the cache now, where `old` was before.
    fn notify_object(
        &self,
        key: Key,
        old: Option<Arc<T>>,
        new: Arc<T>,
        is_in_initial_list: bool,
        notify: &mut Notify<'_, T>,
    ) -> bool {
        let added = |object| Notification::Added {
            object,
            is_in_initial_list,
        };
        let Some(old) = old else {
            return notify(
                KeyedNotification {
                    key,
                    event: added(new),
                },
                false,
            );
        };
        if self.recreation_as_delete_and_add && is_recreated(&*old, &*new) {
            let gone = Deleted::FinalStateUnknown {
                key: Key::clone(&key),
                last_known: Some(old),
            };
            return notify(
                KeyedNotification {
                    key: Key::clone(&key),
                    event: Notification::deleted(gone, None),
                },
                false,
            ) && notify(
                KeyedNotification {
                    key,
                    event: added(new),
                },
                false,
            );
        }
        let is_sync = old.resource_version() == new.resource_version();
        notify(
            KeyedNotification {
                key,
                event: Notification::Modified { old, new },
            },
            is_sync,
        )
    }

    /// Under which key a change was queued: one of this part.
    fn key(&self, deltas: &Deltas<T>, delta: &Delta<T>) -> Result<Key, StoreError> {
        let key = match (deltas.key(), delta) {
            (Some(key), _) => Key::clone(key),
            (None, Delta::Deleted(gone)) => self.cache.accessor().key_of_deleted(gone)?,
            (None, delta) => match delta.object() {
                Some(object) => self.cache.accessor().key(object)?,
                None => return Err(StoreError::other("a change of no object")),
            },
        };
        if self.has(&key) {
            Ok(key)
        } else {
            Err(self.not_in_it(&key).into())
        }
    }

    /// How the queue before this part reads objects: one of another namespace has no key, so it is reported
    /// and left out.
    pub(super) fn accessor(self: &Arc<Self>) -> Accessor<T> {
        let accessor = Accessor::object();
        if self.prefix.is_none() {
            return accessor;
        }
        let part = Arc::clone(self);
        accessor.with_check(move |key| {
            if part.has(key) {
                Ok(())
            } else {
                Err(part.not_in_it(key))
            }
        })
    }

    fn not_in_it(&self, key: &str) -> KeyError {
        let namespace = self
            .prefix
            .as_deref()
            .unwrap_or_default()
            .trim_end_matches('/');
        KeyError::new(format!("{key:?} is not in the namespace {namespace}"))
    }

    /// What the cache has of this part.
    pub(super) fn known(&self) -> Vec<(Key, Arc<T>)> {
        let mut known = self.cache.entries();
        if self.prefix.is_some() {
            known.retain(|(key, _)| self.has(key));
        }
        known
    }

    fn has(&self, key: &str) -> bool {
        self.prefix
            .as_ref()
            .is_none_or(|prefix| key.starts_with(prefix))
    }
}

/// Whether these, under one key, are not the same object: it was deleted and created again.
fn is_recreated<T: Object>(old: &T, new: &T) -> bool {
    !old.uid().is_empty() && !new.uid().is_empty() && old.uid() != new.uid()
}

impl<T: Object> KnownObjects<T> for IndexerPart<T> {
    fn list_keys(&self) -> Vec<Key> {
        let mut keys = self.cache.list_keys();
        keys.retain(|key| self.has(key));
        keys
    }

    fn lookup(&self, key: &str) -> Result<Option<Arc<T>>, StoreError> {
        Ok(self.has(key).then(|| self.cache.get_by_key(key)).flatten())
    }
}

#[cfg(test)]
mod tests;
