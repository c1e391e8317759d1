//! Watches. Each one is a cursor into the history, which a thread follows until the watch ends.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::body_writer::{BodyWriter, End, Line};
use crate::apiserver::engine::list::Options;
use crate::apiserver::engine::shared::Shared;
use crate::apiserver::engine::store::{Change, NewState, Store};
use crate::apiserver::engine::watches::Entry;
use crate::apiserver::model::faults::{Action, FaultEffect};
use crate::apiserver::model::log::RequestRecord;
use crate::apiserver::model::object::{Form, Object};
use crate::apiserver::model::resources::{ApiResource, Target};
use crate::apiserver::model::select::Selection;
use crate::apiserver::model::status::{StatusError, error_line};

/// The maximum number of changes to read under the lock at once, and of lines to write at once.
const BATCH: usize = 256;

/// The time between the last bookmark and the end of a watch. kube-apiserver sends it in the last two
/// seconds, but not in shorter watches.
const LAST_BOOKMARK: Duration = Duration::from_millis(1500);

/// One open watch. It counts as open until it is dropped.
pub(crate) struct Watch<'a> {
    shared: &'a Shared,
    id: u64,
    resource: Arc<ApiResource>,
    prefix: String,
    selection: Selection,
    form: Form,
    /// Changes up to this version have been sent or skipped.
    cursor: u64,
    bookmarks: bool,
    deadline: Instant,
    /// The time of the last bookmark.
    last_bookmark: Option<Instant>,
    /// The initial objects, which are sent first.
    initial: Vec<Arc<Object>>,
    /// The line after the initial objects, if any: the bookmark that ends them, or the error that
    /// ends the watch.
    after_initial: Option<Vec<u8>>,
    failed: bool,
    /// The number of progress requests that this watch has answered.
    progress_requests: u64,
}

/// The next step. It is determined under the lock and performed without it.
enum Work {
    Changes(Vec<Arc<Change>>),
    Bookmark(u64),
    Fault(FaultEffect),
    TimeIsUp,
    /// The watch needs changes that the history has dropped. It ends, as in kube-apiserver.
    Behind,
    Cancelled,
}

impl<'a> Watch<'a> {
    /// Validates the request and captures the initial objects. The watch counts as open from here
    /// on.
    pub(crate) fn open(
        shared: &'a Shared,
        target: &Target,
        selection: Selection,
        form: Form,
        options: &Options,
        request: RequestRecord,
    ) -> Result<Self, StatusError> {
        options.validate_watch(shared.settings.watch_list)?;
        let requested = options.version();
        let requested = requested.map_err(|invalid| StatusError::internal(invalid.to_string()))?;
        let timeout = options
            .timeout_seconds
            .map_or(shared.settings.watch_timeout, Duration::from_secs);
        let now = Instant::now();
        let mut watch = Self {
            shared,
            id: 0,
            resource: target.resource.clone(),
            prefix: target.prefix(),
            selection,
            form,
            cursor: requested,
            bookmarks: options.bookmarks,
            // A timeout that overflows the clock means no timeout.
            deadline: now
                .checked_add(timeout)
                .unwrap_or_else(|| now + Duration::from_secs(u32::MAX.into())),
            last_bookmark: (timeout > Duration::from_secs(2))
                .then(|| now.checked_add(timeout - LAST_BOOKMARK))
                .flatten(),
            initial: Vec::new(),
            after_initial: None,
            failed: false,
            progress_requests: 0,
        };
        let mut state = shared.state.lock();
        watch.prepare(&state.store, requested, options.initial_events);
        state.watches.last_id += 1;
        watch.id = state.watches.last_id;
        let entry = Entry {
            request,
            faults: VecDeque::new(),
            cancelled: false,
        };
        state.watches.open.insert(watch.id, entry);
        shared.watches_changed.notify_all();
        drop(state);
        Ok(watch)
    }

    fn prepare(&mut self, store: &Store, requested: u64, initial_events: Option<bool>) {
        let current = store.version();
        match initial_events {
            Some(true) if requested > current => {
                self.fail(&StatusError::too_large_resource_version(requested, current));
            }
            Some(true) => {
                self.add_initial(store);
                if self.bookmarks {
                    self.after_initial = Some(self.bookmark(current, true));
                }
            }
            Some(false) if requested == 0 => self.cursor = current,
            None if requested == 0 => self.add_initial(store),
            _ if requested < store.watch_floor() => {
                self.fail(&StatusError::watch_expired(requested, store.watch_floor()));
            }
            _ => {}
        }
    }

    fn add_initial(&mut self, store: &Store) {
        self.cursor = store.version();
        let all = store.objects(&self.prefix).map(|(_, object)| object);
        let selected = all.filter(|object| self.selection.matches(object.content()));
        self.initial = selected.cloned().collect();
    }

    fn fail(&mut self, status: &StatusError) {
        self.after_initial = Some(error_line(status));
        self.failed = true;
    }

    /// Suppresses all bookmarks from now on, including the one that ends the initial objects.
    pub(crate) fn forget_bookmarks(&mut self) {
        self.bookmarks = false;
        if !self.failed {
            self.after_initial = None;
        }
    }

    /// Sends events and blocks until the watch ends. The thread wakes only for changes, faults and
    /// the timers of the watch.
    pub(crate) fn run(&mut self, writer: &mut BodyWriter<'_>) -> End {
        match self.send_events(writer) {
            Ok(end) | Err(end) => end,
        }
    }

    fn send_events(&mut self, writer: &mut BodyWriter<'_>) -> Result<End, End> {
        for objects in std::mem::take(&mut self.initial).chunks(BATCH) {
            let lines: Vec<Vec<u8>> = objects
                .iter()
                .map(|object| self.line("ADDED", object))
                .collect();
            writer.send(&lines)?;
        }
        if let Some(line) = self.after_initial.take() {
            writer.send(&[line])?;
        }
        if self.failed {
            return Ok(End::Clean);
        }
        let interval = self.shared.settings.bookmark_interval;
        let mut next_bookmark = Instant::now().checked_add(interval);
        loop {
            let due = next_bookmark.into_iter().chain(self.last_bookmark);
            let due = due.min().filter(|_| self.bookmarks);
            match self.next_work(due, writer.line()) {
                Work::Changes(changes) => {
                    let lines: Vec<Vec<u8>> = changes
                        .iter()
                        .filter_map(|change| self.event(change))
                        .collect();
                    if let Some(last) = changes.last() {
                        self.cursor = last.version;
                    }
                    writer.send(&lines)?;
                }
                Work::Bookmark(version) => {
                    let now = Instant::now();
                    next_bookmark = now.checked_add(interval);
                    self.last_bookmark.take_if(|due| *due <= now);
                    writer.send(&[self.bookmark(version, false)])?;
                }
                Work::Fault(FaultEffect {
                    action: Action::NoBookmarks,
                    ..
                }) => self.forget_bookmarks(),
                Work::Fault(effect) => writer.plan_now(effect)?,
                Work::Behind | Work::TimeIsUp => return Ok(End::Clean),
                Work::Cancelled => return Ok(End::Cut),
            }
        }
    }

    fn next_work(&mut self, next_bookmark: Option<Instant>, line: &Line<'_>) -> Work {
        let mut state = self.shared.state.lock();
        loop {
            let version = state.store.version();
            let Some(changes) = state.store.changes_after(self.cursor, BATCH) else {
                return Work::Behind;
            };
            let Some(entry) = state.watches.open.get_mut(&self.id) else {
                return Work::Cancelled;
            };
            if entry.cancelled || line.is_gone() {
                return Work::Cancelled;
            }
            let mut changes = changes;
            if let Some(&(after, _)) = entry.faults.front() {
                changes.retain(|change| change.version <= after);
                if changes.is_empty()
                    && let Some((_, effect)) = entry.faults.pop_front()
                {
                    return Work::Fault(effect);
                }
            }
            if !changes.is_empty() {
                return Work::Changes(changes);
            }
            let now = Instant::now();
            if now >= self.deadline {
                return Work::TimeIsUp;
            }
            // A watch that starts at a future version sends no bookmarks before the server reaches
            // this version.
            let next_bookmark = next_bookmark.filter(|_| self.cursor <= version);
            let requested = state.watches.progress_requests;
            let is_requested = next_bookmark.is_some() && requested > self.progress_requests;
            if is_requested || next_bookmark.is_some_and(|due| now >= due) {
                self.progress_requests = requested;
                return Work::Bookmark(version);
            }
            let until = next_bookmark.map_or(self.deadline, |due| due.min(self.deadline));
            self.shared.changed.wait_until(&mut state, until);
        }
    }

    /// Returns the event of a change for this watch, if any. An object that leaves the selection
    /// gets a `DELETED` event, and one that enters it an `ADDED` event.
    fn event(&self, change: &Change) -> Option<Vec<u8>> {
        if !change.key.starts_with(&self.prefix) {
            return None;
        }
        let old = change
            .old
            .as_ref()
            .filter(|old| self.selection.matches(old.content()));
        match &change.new {
            NewState::Deleted(last) => old.map(|_| self.line("DELETED", last)),
            NewState::Stored(new) => match (old, self.selection.matches(new.content())) {
                (Some(_), true) => Some(self.line("MODIFIED", new)),
                (None, true) => Some(self.line("ADDED", new)),
                (Some(old), false) => Some(self.line("DELETED", &old.at_version(change.version))),
                (None, false) => None,
            },
        }
    }

    fn line(&self, event: &str, object: &Object) -> Vec<u8> {
        let mut line = format!(r#"{{"type":"{event}","object":"#).into_bytes();
        object.write(&self.resource, self.form, &mut line);
        line.extend_from_slice(b"}\n");
        line
    }

    fn bookmark(&self, version: u64, initial_events_end: bool) -> Vec<u8> {
        let resource = &*self.resource;
        let (kind, api_version) = match self.form {
            Form::Full => (resource.kind.as_str(), resource.api_version()),
            Form::Metadata => ("PartialObjectMetadata", "meta.k8s.io/v1".to_owned()),
        };
        let end = if initial_events_end {
            r#","annotations":{"k8s.io/initial-events-end":"true"}"#
        } else {
            ""
        };
        let metadata = format!(r#"{{"resourceVersion":"{version}"{end}}}"#);
        let object =
            format!(r#"{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{metadata}}}"#);
        format!("{{\"type\":\"BOOKMARK\",\"object\":{object}}}\n").into_bytes()
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.shared.state.lock().watches.open.remove(&self.id);
        self.shared.watches_changed.notify_all();
    }
}
