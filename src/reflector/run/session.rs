use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Reflector;
use crate::base::adaptive_buffer::ReadBuffer;
use crate::base::digest::Digest;
use crate::base::panic;
use crate::error::Error;
use crate::json::Peek;
use crate::object::{Deleted, Key, Object, meta_namespace_key};
use crate::reflector::headroom::Headroom;
use crate::reflector::initial_list::{InitialList, entry, stored_key, unreadable_object};
use crate::reflector::protocol::{Output, Protocol, ReportKind, WatchEnd};
use crate::reflector::reclaim::{Reclaim, ReclaimGuard};
use crate::reflector::undecodable::UndecodableList;
use crate::reflector::{Body, ReflectorOptions};
use crate::stop::Stop;
use crate::store::{Change, Entry, EntryChange, Staging, StoreError};
use crate::wire::{
    BadFrame, Decode, DecodeOptions, Decoded, DecodedItem, Decoder, EventKind, Unreadable,
};

/// One run of a reflector. It performs what the [`Protocol`] requests, decodes objects, and writes
/// them to the store.
pub(super) struct Session<'r, T> {
    pub(super) protocol: Protocol,
    reflector: &'r Reflector<T>,
    store: &'r dyn Staging<T>,
    decoder: Decoder<T>,
    body: Option<Body>,
    buffer: ReadBuffer,
    /// The list or watch-list that is being received.
    pub(super) initial: InitialList<T>,
    /// The number of [records of missing objects](super::Missing::recorded) before this list.
    recorded: u64,
    /// Changes that the store does not have yet. Empty before each read.
    changes: Vec<EntryChange<T>>,
    reclaim: Option<Arc<dyn Reclaim>>,
    headroom: Headroom,
    /// The number of objects in the last list.
    pub(super) received: usize,
    /// Whether every object in the last list and in the events since then could be read. Some may
    /// have been rejected behind the store's queue.
    pub(super) complete: bool,
    /// The total number of objects that could not be read.
    pub(super) unreadable: u64,
    /// Set if none of the objects in the first list could be decoded. Reset by a list with an
    /// object that can be decoded.
    pub(super) undecodable: Option<UndecodableList>,
    /// Whether the server selects the objects of the shard. `None` while this is unknown.
    pub(super) shard_applied: Option<bool>,
}

impl<'r, T: Object> Session<'r, T> {
    pub(super) fn new(
        reflector: &'r Reflector<T>,
        store: &'r dyn Staging<T>,
        decode: Decode<T>,
        reclaim: Option<Arc<dyn Reclaim>>,
        watch_list: bool,
    ) -> Self {
        let options = reflector.options();
        Self {
            protocol: Protocol::new(
                options,
                watch_list,
                Arc::clone(&reflector.missing),
                options.clock.now(),
            ),
            reflector,
            store,
            decoder: Decoder::new(decode, decode_options(options)),
            body: None,
            buffer: read_buffer(),
            initial: InitialList::default(),
            recorded: 0,
            changes: Vec::new(),
            reclaim,
            headroom: Headroom::default(),
            received: 0,
            complete: false,
            unreadable: 0,
            undecodable: None,
            shard_applied: None,
        }
    }

    /// Performs one step: a request, a wait, or one read and the handling of the bytes. If `stop`
    /// is stopped meanwhile, the result of the step is ignored.
    pub(super) fn step(&mut self, stop: &Stop) {
        let reflector = self.reflector;
        let clock = &reflector.options().clock;
        let (_, output) = self.protocol.poll(&[]);
        if !matches!(output, Output::Read(_)) {
            self.body = None;
        }
        match output {
            Output::List(options) => {
                let started = clock.now();
                let opened = reflector.list(&options, stop);
                self.opened(opened, None, started, stop);
            }
            Output::Watch(options) => {
                let started = clock.now();
                let opened = reflector.watch(&options, stop);
                self.opened(opened, options.timeout_seconds, started, stop);
            }
            Output::Wait(duration) => {
                reflector.set_backing_off();
                if clock.wait(duration, stop) {
                    self.protocol.waited(clock.now());
                }
            }
            Output::Read(timeout) => self.read(timeout, stop),
            Output::Item { .. } | Output::Page(_) | Output::Frame(_) | Output::Replace { .. } => {
                self.consume(&[]);
            }
        }
        if !self.protocol.is_receiving_list() {
            self.initial = InitialList::default();
            self.recorded = reflector.missing.recorded();
        }
    }

    /// Begins a new cycle after a back-off. Called when a step panicked or cannot be performed.
    pub(super) fn abort_cycle(&mut self, error: Error, reading: Option<&'static str>) {
        self.body = None;
        // Drop the pending changes: the next list contains them.
        self.changes.clear();
        self.initial = InitialList::default();
        self.protocol.abort_cycle(error, reading);
    }

    fn opened(
        &mut self,
        opened: Result<Body, Error>,
        timeout: Option<u32>,
        started: Instant,
        stop: &Stop,
    ) {
        if stop.is_stopped() {
            return;
        }
        let now = self.reflector.options().clock.now();
        let has_answered = |error: &Error| error.status().is_some();
        if opened.as_ref().map_or_else(has_answered, |_| true) {
            self.reflector.record_contact(now);
        }
        let opened = opened.map(|body| {
            self.body = Some(body);
            self.buffer = read_buffer();
        });
        self.protocol.opened(opened, timeout, started, now);
    }

    fn read(&mut self, timeout: Option<Duration>, stop: &Stop) {
        let clock = &self.reflector.options().clock;
        let read = match &mut self.body {
            Some(body) => read_some(body, self.buffer.free(), timeout),
            None => Ok(Some(0)),
        };
        if stop.is_stopped() {
            return;
        }
        let now = clock.now();
        match read {
            Ok(Some(0)) => self.protocol.ended(Ok(()), now),
            Err(error) => self.protocol.ended(Err(error), now),
            Ok(None) => {
                let is_unprocessed = !self.store.is_settled() && self.reflector.missing.is_empty();
                self.protocol.read_timed_out(is_unprocessed, now);
            }
            Ok(Some(length)) => {
                self.reflector.record_contact(now);
                self.protocol.read(now);
                let was_watching = self.protocol.is_watching();
                let mut buffer = std::mem::replace(&mut self.buffer, read_buffer());
                buffer.received(length);
                self.consume(&buffer);
                buffer.consume(length);
                // After the objects of a watch-list, reads are small: use a new, small buffer.
                if was_watching || !self.protocol.is_watching() {
                    self.buffer = buffer;
                }
                return;
            }
        }
        self.consume(&[]);
    }

    /// Handles the bytes that were read. Any bytes that the protocol does not consume belong to a
    /// body that has ended.
    fn consume(&mut self, mut input: &[u8]) {
        let reclaim = self.reclaim.clone();
        let _reclaim_guard = ReclaimGuard::begin(reclaim.as_deref());
        let store = self.store;
        let unchanged = |identity: &Peek<'_>, digest| unchanged(identity, digest, store);
        // The first list finds nothing.
        let unchanged = (self.protocol.lists_replaced() > 0).then_some(&unchanged as _);
        loop {
            let is_initial = !self.protocol.has_open_watch();
            let (consumed, output) = self.protocol.poll(input);
            match output {
                Output::Item { bytes, head } => {
                    reclaim.as_ref().inspect(|reclaim| reclaim.free_one());
                    self.headroom.record(bytes.len());
                    let decoded = self.decoder.list_item(bytes, head, unchanged);
                    self.item(decoded);
                }
                Output::Frame(bytes) => {
                    reclaim.as_ref().inspect(|reclaim| reclaim.free_one());
                    let unchanged = unchanged.filter(|_| is_initial);
                    let (decoded, length) = (self.decoder.event(bytes, unchanged), bytes.len());
                    match decoded {
                        Ok((kind, decoded)) => self.event(kind, decoded, length),
                        Err(BadFrame::Several) => self.protocol.several_events(),
                        Err(BadFrame::Malformed(error)) => {
                            let error = error.context(self.protocol.event_position());
                            self.protocol.watch_ended(WatchEnd::Malformed(error));
                        }
                    }
                }
                Output::Page(page) => {
                    let (api_version, kind) = page.api_version_and_kind();
                    match self.decoder.check_list(api_version, kind) {
                        Err(error) => self.protocol.list_failed(error),
                        Ok(()) => {
                            let (decoder, door) = (&self.decoder, self.store.door());
                            let unreadable = self.initial.set_kinds(page, decoder, door);
                            for (item, unreadable) in unreadable {
                                self.unreadable_item(item, &unreadable);
                            }
                            self.protocol.page_end(self.initial.distinct_objects());
                        }
                    }
                }
                Output::Replace { version } => {
                    let version = version.to_owned();
                    self.replace(&version);
                }
                _ => break,
            }
            input = &input[consumed..];
        }
        self.flush();
    }

    fn item(&mut self, decoded: Result<DecodedItem<T>, Unreadable>) {
        let item = self.initial.next_item();
        let entry = match decoded {
            Ok(DecodedItem::Object(object, digest)) => entry(object, digest, self.store.door()),
            Ok(DecodedItem::Unchanged(key, object, digest)) => Ok(Entry {
                key,
                object,
                digest,
            }),
            Ok(DecodedItem::WithoutKind(object, digest)) => {
                return self.initial.put_without_kind(item, object, digest);
            }
            Ok(DecodedItem::OtherShard) => return self.initial.add_other_shard(),
            Err(unreadable) => Err(unreadable),
        };
        match entry {
            Ok(entry) => self.initial.put(entry),
            Err(unreadable) => self.unreadable_item(item, &unreadable),
        }
    }

    fn unreadable_item(&mut self, item: usize, unreadable: &Unreadable) {
        let error = unreadable.error_at(|| format!("item {item} of the list"));
        self.initial
            .add_unreadable_item(stored_key(unreadable, self.store.door()));
        self.initial.add_error(&error);
        self.missed(unreadable.namespaced_key(), error);
    }

    /// Handles a watch event, or an initial event of a watch-list.
    fn event(&mut self, kind: EventKind, decoded: Decoded<T>, length: usize) {
        let is_initial = !self.protocol.has_open_watch();
        if is_initial {
            self.headroom.record(length);
        }
        match decoded {
            Decoded::Object(object, _) if object.name().is_empty() => {
                self.unreadable_event(kind, &Unreadable::nameless(&object));
            }
            Decoded::Object(object, digest) if is_initial => {
                let version = self.checked_version(object.resource_version());
                self.protocol.event(kind, version);
                match entry(object, digest, self.store.door()) {
                    Ok(entry) if kind == EventKind::Deleted => self.initial.remove(&entry.key),
                    Ok(entry) => self.initial.put(entry),
                    Err(unreadable) => self.unreadable_event(kind, &unreadable),
                }
            }
            Decoded::Object(object, digest) => {
                let version = self.checked_version(object.resource_version());
                self.protocol.event(kind, version);
                self.change(kind, Arc::new(object), digest);
            }
            Decoded::Unchanged(key, object, digest) => {
                self.initial.put(Entry {
                    key,
                    object,
                    digest,
                });
                self.protocol.event(kind, "");
            }
            Decoded::OtherShard { resource_version } => {
                let version = self.checked_version(&resource_version);
                self.shard_applied = Some(false);
                self.protocol.event(kind, version);
                if is_initial {
                    if kind == EventKind::Added {
                        self.initial.add_other_shard();
                    }
                } else if self.protocol.tracks_versions() && !version.is_empty() {
                    // The object is not stored, so send only its version: the store is then
                    // complete up to this version.
                    self.changes.push(EntryChange::Bookmark(version.to_owned()));
                }
            }
            Decoded::Bookmark {
                resource_version,
                initial_events_end,
            } => {
                let version = self.checked_version(&resource_version);
                if !is_initial && !version.is_empty() {
                    self.changes.push(EntryChange::Bookmark(version.to_owned()));
                }
                self.protocol.bookmark(version, initial_events_end);
            }
            Decoded::Unreadable(unreadable) => {
                self.unreadable_event(kind, &unreadable);
                let version = self.checked_version(&unreadable.resource_version);
                self.protocol.event(kind, version);
            }
            // An object of another kind is reported but not counted, and its version does not count
            // (W9). Among initial events it counts as unreadable: if it were skipped, the cached
            // object would be deleted.
            Decoded::OtherKind(other) => {
                if is_initial && self.store.keeps_gaps() && kind != EventKind::Bookmark {
                    self.unreadable_event(EventKind::Modified, &other);
                } else {
                    let error = other.into_error(self.protocol.event_position());
                    self.protocol.report(error, ReportKind::Other);
                }
            }
            Decoded::Error(error) => self.protocol.watch_ended(WatchEnd::Error(error)),
        }
    }

    /// Returns the version, or `""` if it is too long for a request. The protocol then keeps the
    /// last version.
    fn checked_version<'v>(&mut self, version: &'v str) -> &'v str {
        match self.decoder.limits().check_resource_version(version) {
            Ok(()) => version,
            Err(error) => {
                let error = Error::from(error).context("an event");
                self.protocol.report(error, ReportKind::Other);
                ""
            }
        }
    }

    fn change(&mut self, kind: EventKind, object: Arc<T>, digest: Digest) {
        let missing = &self.reflector.missing;
        let key = (!missing.is_empty()).then(|| meta_namespace_key(&*object));
        let missing = key.filter(|key| missing.contains(key));
        let unreadable = self.unreadable;
        let gone = (kind == EventKind::Deleted).then(|| Arc::clone(&object));
        let change = match kind {
            EventKind::Added => Change::Add(object),
            EventKind::Deleted => Change::Delete(Deleted::Final(object)),
            _ => Change::Update(object),
        };
        match (self.store.door().change(change, digest), gone) {
            (Ok(change), _) => self.changes.push(change),
            // If the door refuses the object of a deletion, the deletion still applies.
            (Err(error), Some(gone)) => {
                self.flush();
                self.delete_unreadable(&unreadable_object(&*gone, &error));
            }
            (Err(error), None) => {
                self.flush();
                self.rejected(&error);
            }
        }
        if let Some(key) = missing {
            self.flush();
            if self.unreadable == unreadable {
                self.protocol.recovered(&key, kind == EventKind::Deleted);
            }
        }
    }

    /// Handles an event whose object cannot be read. The store keeps its copy, unless the event is
    /// a deletion.
    fn unreadable_event(&mut self, kind: EventKind, unreadable: &Unreadable) {
        let (is_initial, is_deleted) =
            (!self.protocol.has_open_watch(), kind == EventKind::Deleted);
        if is_deleted && !is_initial {
            self.flush();
            return self.delete_unreadable(unreadable);
        }
        let error = unreadable.error_at(|| self.protocol.event_position());
        if is_initial {
            match stored_key(unreadable, self.store.door()) {
                Some(key) if is_deleted => self.initial.remove(&key),
                key => self.initial.add_gap(key),
            }
            self.initial.add_error(&error);
        }
        self.missed(unreadable.namespaced_key(), error);
    }

    /// Deletes an object that cannot be read, if its key is known.
    fn delete_unreadable(&mut self, unreadable: &Unreadable) {
        if let Some(key) = stored_key(unreadable, self.store.door()) {
            let last_known = self.store.known(&key).map(|known| known.object);
            let gone = Deleted::FinalStateUnknown {
                key: Key::clone(&key),
                last_known,
            };
            let mut changes = vec![EntryChange::Delete(key, gone, None)];
            for error in self.store.apply_entries(&mut changes) {
                self.rejected(&error);
            }
        }
        let key = unreadable.namespaced_key();
        let error = unreadable.error_at(|| "a deletion".to_owned());
        self.missed(key.clone(), error);
        // A deleted object is no longer missing.
        if let Some(key) = key {
            self.protocol.recovered(&key, true);
        }
    }

    /// Writes the changes to the store.
    fn flush(&mut self) {
        if self.reflector.has_consumer && !self.changes.is_empty() {
            self.protocol.queued();
        }
        if !self.changes.is_empty() {
            for error in self.store.apply_entries(&mut self.changes) {
                self.rejected(&error);
            }
        }
    }

    /// Reports an event that the store rejected. The watch continues (W8).
    fn rejected(&mut self, error: &StoreError) {
        let failed = Error::other(format!("the store rejected an event: {error}"));
        match error {
            StoreError::Transform { key, .. } => self.missed(key.clone(), failed),
            StoreError::Key(_) => self.missed(None, failed),
            // The store lacks this change until the next list. No relist is scheduled for it: a
            // store that rejects an object rejects a list with it as well.
            _ => {
                (self.complete, self.unreadable) = (false, self.unreadable + 1);
                self.protocol.report(failed, ReportKind::Object);
            }
        }
    }

    fn missed(&mut self, key: Option<Key>, error: Error) {
        self.complete = false;
        self.unreadable += 1;
        self.protocol.missed(key, error);
    }

    /// Replaces the content of the store with the complete list.
    fn replace(&mut self, version: &str) {
        let mut initial = std::mem::take(&mut self.initial);
        let (received, complete) = (initial.received(), initial.is_complete());
        let is_first = self.protocol.lists_replaced() == 0 || self.undecodable.is_some();
        let undecodable = initial.take_undecodable().filter(|_| is_first);
        if let Some(shard_confirmed) = self.protocol.list_shard_confirmed() {
            self.shard_applied = match initial.has_other_shard() {
                true => Some(false),
                false => shard_confirmed.then_some(true),
            };
        }
        let (objects, gaps) = initial.into_parts();
        let missing = &self.reflector.missing;
        let obsolete = missing.obsolete_after(&objects, complete, self.recorded);
        let is_empty = objects.is_empty();
        self.reflector
            .announce(self, version, received, complete, undecodable.as_ref());
        if !gaps.is_empty() && !self.store.keeps_gaps() {
            let what = "some objects in the list can't be read, and the store can't keep their cached copies";
            return self.protocol.not_replaced(Error::invalid(what));
        }
        let replaced = self.store.replace_entries(objects, gaps, version);
        if let Err(error) = replaced {
            let error = Error::other(format!("unable to sync list result: {error}"));
            return self.protocol.not_replaced(error);
        }
        self.undecodable = undecodable;
        self.received = received;
        self.complete = complete;
        missing.remove_all(obsolete);
        if self.reflector.has_consumer && !is_empty {
            self.protocol.queued();
        }
        self.protocol.replaced(complete);
    }
}

/// Returns a buffer for a body. It is small for a silent watch and grows for a list, because each
/// read of a list wakes up this thread.
fn read_buffer() -> ReadBuffer {
    ReadBuffer::new(4 << 10, 128 << 10)
}

/// Reads from the body. Returns the number of bytes, which is 0 at the end, or `None` after a
/// timeout.
fn read_some(
    body: &mut Body,
    buffer: &mut [u8],
    timeout: Option<Duration>,
) -> Result<Option<usize>, Error> {
    let read = panic::catch(|| {
        loop {
            match body.read_within(buffer, timeout) {
                Ok(length) => return Ok(Some(length)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::TimedOut && timeout.is_some() => {
                    return Ok(None);
                }
                Err(error) => return Err(Error::from(error)),
            }
        }
    });
    read.unwrap_or_else(|panic| Err(Error::other(format!("the body reader {panic}"))))
}

fn decode_options(options: &ReflectorOptions) -> DecodeOptions {
    DecodeOptions {
        skip: options.skip.clone(),
        limits: options.limits,
        show_custom_errors: options.show_custom_decode_errors,
        expected_kind: options.expected_kind.clone(),
        shard: options.shard.clone(),
        small_stack: false,
    }
}

/// Returns the known object with this identity if it was decoded from the same JSON.
fn unchanged<T: Object>(
    identity: &Peek<'_>,
    digest: Digest,
    store: &dyn Staging<T>,
) -> Option<(Key, Arc<T>)> {
    let accessor = store.door().accessor();
    let known = store.known(&accessor.key_of_name(&identity.namespace, &identity.name)?)?;
    let is_same = known.digest.is_same(digest);
    is_same.then_some((known.key, known.object))
}
