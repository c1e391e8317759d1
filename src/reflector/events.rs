//! What a machine makes of the events of a watch (W8–W10), and of those that begin a watch-list (WL3–WL6).

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::decode::{BadFrame, Read, Unreadable, prepared};
use super::listing::Listing;
use super::machine::Machine;
use super::watching::{Broken, QUIET, Watching};
use crate::error::Error;
use crate::object::{Deleted, Object};
use crate::store::{ReflectorStore, StoreError};
use crate::wire::{EventKind, FrameSplitter, Shown, Taken};

type Frame<'a> = dyn FnMut(&[u8]) -> Result<Taken, Broken> + 'a;

impl<T: Object> Machine<'_, T> {
    /// Hands what `read` finds in the stream to the store, or to the objects of a watch-list.
    pub(super) fn read_frames(
        &mut self,
        watching: &mut Watching<T>,
        store: &dyn ReflectorStore<T>,
        now: Instant,
        read: impl FnOnce(&mut FrameSplitter, &mut Frame<'_>) -> Result<(), Broken>,
    ) -> Result<(), Broken> {
        let mut frames = std::mem::take(&mut watching.frames);
        let result = read(&mut frames, &mut |frame| {
            self.event(frame, watching, store, now)
        });
        watching.frames = frames;
        result
    }

    fn event(
        &mut self,
        frame: &[u8],
        watching: &mut Watching<T>,
        store: &dyn ReflectorStore<T>,
        now: Instant,
    ) -> Result<Taken, Broken> {
        let reuse = watching
            .initial
            .as_ref()
            .is_some_and(|initial| initial.reuse);
        if watching.initial.is_some() {
            self.decoder.stays(frame.len());
        }
        let (kind, read) = match self.decoder.event(frame, reuse.then_some(store)) {
            Ok(event) => event,
            Err(BadFrame::Several) => return Ok(Taken::Several),
            Err(BadFrame::Malformed(error)) => {
                return Err(Broken::Frame(error.context(self.place(watching))));
            }
        };
        match read {
            Read::Error(error) => return Err(Broken::Event(error)),
            // W9: told, not counted, and its version does not count either.
            Read::OtherKind(other) => {
                match &watching.initial {
                    // It stands where one of them should: that one, if there is one, is not to be deleted,
                    // whatever happened to this one.
                    Some(_) if kind != EventKind::Bookmark && store.staging().is_some() => {
                        self.unreadable(EventKind::Modified, &other, watching, store);
                    }
                    _ => self.report(other.error.context(self.place(watching)), false),
                }
                return Ok(Taken::Whole);
            }
            Read::Object(object) if object.name().is_empty() => {
                self.unreadable(kind, &Unreadable::nameless(&object), watching, store);
                return Ok(Taken::Whole);
            }
            Read::Bookmark {
                mut resource_version,
                initial_events_end,
            } => {
                self.drop_long_version(&mut resource_version);
                if watching.initial.is_none() && !resource_version.is_empty() {
                    self.stored(store.bookmark(&resource_version));
                }
                if watching.initial.is_none() {
                    let last = watching.last_bookmark.replace(now);
                    self.bookmarks_come |=
                        last.is_some_and(|last| now.duration_since(last) <= QUIET);
                }
                self.count(kind, &resource_version, watching, now);
                if initial_events_end && watching.initial.is_some() {
                    self.initial_events_end(watching, store, now)?;
                }
            }
            Read::Unreadable(mut unreadable) => {
                self.drop_long_version(&mut unreadable.resource_version);
                self.unreadable(kind, &unreadable, watching, store);
                self.count(kind, &unreadable.resource_version, watching, now);
            }
            Read::Unchanged(key, object) => {
                if let Some(initial) = &mut watching.initial {
                    initial.keep(key, object);
                }
                self.count(kind, "", watching, now);
            }
            Read::Elsewhere {
                mut resource_version,
            } => {
                self.drop_long_version(&mut resource_version);
                self.shard_applied = Some(false);
                self.count(kind, &resource_version, watching, now);
                match &mut watching.initial {
                    Some(initial) if kind == EventKind::Added => initial.pass(),
                    // Nothing is told but what a bookmark would tell: that everything up to here is known.
                    None if watching.versions_count && !resource_version.is_empty() => {
                        self.stored(store.bookmark(&resource_version));
                    }
                    _ => {}
                }
            }
            Read::Object(object) => {
                let mut version = std::mem::take(&mut self.room_for_a_version);
                object.resource_version().clone_into(&mut version);
                self.drop_long_version(&mut version);
                let (key, unreadable) = (self.repair.key_to_watch(&object), self.view.unreadable);
                self.object(kind, object, watching, store);
                if let Some(key) = key.filter(|_| unreadable == self.view.unreadable) {
                    self.repair.came(&key, self.now);
                }
                self.count(kind, &version, watching, now);
                self.room_for_a_version = version;
            }
        }
        Ok(Taken::Whole)
    }

    fn object(
        &mut self,
        kind: EventKind,
        object: T,
        watching: &mut Watching<T>,
        store: &dyn ReflectorStore<T>,
    ) {
        let Some(initial) = &mut watching.initial else {
            let object = Arc::new(object);
            return match kind {
                EventKind::Added => self.stored(store.add(object)),
                EventKind::Deleted => self.delete(object, store),
                _ => self.stored(store.update(object)),
            };
        };
        match prepared(object, store) {
            Ok((key, _)) if kind == EventKind::Deleted => initial.remove(&key),
            Ok((key, object)) => initial.put(key, object),
            Err(unreadable) => self.unreadable(kind, &unreadable, watching, store),
        }
    }

    /// A deletion whose object the store does not take still deletes.
    fn delete(&mut self, object: Arc<T>, store: &dyn ReflectorStore<T>) {
        match store.delete(Deleted::Final(Arc::clone(&object))) {
            Err(error @ (StoreError::Transform { .. } | StoreError::Key(_))) => {
                self.delete_unread(&Unreadable::refused(&*object, &error), store);
            }
            result => self.stored(result),
        }
    }

    /// An object that can't be read: its cached copy stays, unless it is deleted.
    fn unreadable(
        &mut self,
        kind: EventKind,
        unreadable: &Unreadable,
        watching: &mut Watching<T>,
        store: &dyn ReflectorStore<T>,
    ) {
        match (&mut watching.initial, kind) {
            (Some(initial), EventKind::Deleted) => match unreadable.key(store) {
                Some(key) => initial.remove(&key),
                None => initial.leave_gap(unreadable, store),
            },
            (Some(initial), _) => initial.leave_gap(unreadable, store),
            (None, EventKind::Deleted) => return self.delete_unread(unreadable, store),
            (None, _) => {}
        }
        let place = self.place(watching);
        let error = unreadable.at(|| place);
        if let Some(initial) = &mut watching.initial {
            initial.undecoded.add(&error);
        }
        self.report_missed(unreadable.namespaced_key(), error);
    }

    /// A deletion of what can't be read: by the key, where that can be told.
    fn delete_unread(&mut self, unreadable: &Unreadable, store: &dyn ReflectorStore<T>) {
        if let Some(key) = unreadable.key(store) {
            let last_known = store.staging().and_then(|staging| staging.cached(&key));
            self.stored(store.delete(Deleted::FinalStateUnknown { key, last_known }));
        }
        let key = unreadable.namespaced_key();
        self.report_missed(key.clone(), unreadable.at(|| "a deletion".to_owned()));
        // Nothing of it is missing any more.
        if let Some(key) = key {
            self.repair.came(&key, self.now);
        }
    }

    /// Takes note of an event that counts, and of its version.
    fn count(&mut self, kind: EventKind, version: &str, watching: &mut Watching<T>, now: Instant) {
        watching.events += 1;
        watching.heard = now;
        self.quiet = Duration::ZERO;
        if watching.initial.is_none() {
            self.silent_lists = 0;
        }
        watching.versions_count |= kind != EventKind::Added;
        // An event without a version leaves the last one as it is: client-go would lose it (W10).
        if version.is_empty() {
            return;
        }
        match &mut watching.initial {
            Some(initial) if kind != EventKind::Added => version.clone_into(&mut initial.version),
            Some(_) => {}
            None if watching.versions_count => version.clone_into(&mut self.version),
            None => {}
        }
    }

    /// Leaves nothing of a version that is too long to be requested: as of an event without one, the last one
    /// stays.
    fn drop_long_version(&mut self, version: &mut String) {
        if let Err(error) = self.decoder.limits().check_resource_version(version) {
            *version = String::new();
            self.report(Error::from(error).context("an event"), false);
        }
    }

    /// The objects of a watch-list are complete: they reach the store, and what follows are their changes
    /// (WL6).
    fn initial_events_end(
        &mut self,
        watching: &mut Watching<T>,
        store: &dyn ReflectorStore<T>,
        now: Instant,
    ) -> Result<(), Broken> {
        if watching
            .initial
            .as_ref()
            .is_some_and(|initial| initial.has_gone_back(&self.version))
        {
            let what = "the objects of the watch-list are older than what has been seen";
            return Err(Broken::Frame(Error::decode(what)));
        }
        let Some(mut initial) = watching
            .initial
            .take_if(|initial| !initial.version.is_empty())
        else {
            let what = "the bookmark that ends the initial events has no resourceVersion";
            return Err(Broken::Frame(Error::decode(what)));
        };
        self.version_unavailable = false;
        (watching.started, watching.events, watching.versions_count) = (now, 0, true);
        let (received, up_to_date) = (initial.received(), initial.is_up_to_date());
        let undecoded = std::mem::take(&mut initial.undecoded);
        self.replace(initial.into_list(), received, up_to_date, undecoded, store)
            .map_err(Broken::Refused)
    }

    /// What the store says to an event is told, and the watch goes on (W8).
    fn stored(&mut self, result: Result<(), StoreError>) {
        if let Err(error) = result {
            let failed = Error::other(format!("the store did not take an event: {error}"));
            match error {
                StoreError::Transform { key, .. } => self.report_missed(key, failed),
                StoreError::Key(_) => self.report_missed(None, failed),
                _ => self.report(failed, false),
            }
        }
    }

    pub(super) fn report_unreadable_of(&mut self, listing: &mut Listing<T>) {
        for (place, unreadable) in listing.unreadable() {
            let error = unreadable.at(|| format!("item {place} of the list"));
            listing.undecoded.add(&error);
            self.report_missed(unreadable.namespaced_key(), error);
        }
    }

    /// Where in the stream the next event is.
    fn place(&self, watching: &Watching<T>) -> String {
        let at = if self.version.is_empty() {
            "the beginning"
        } else {
            &self.version
        };
        format!("event {} after version {}", watching.events + 1, Shown(at))
    }
}
