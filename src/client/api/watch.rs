use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::iter::FusedIterator;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::Api;
use crate::client::response::READ_BUFFER;
use crate::error::Error;
use crate::object::Object;
use crate::reflector::{Body, ListerWatcher};
use crate::stop::Stop;
use crate::wire::{
    BadFrame, Decoded, Decoder, EventKind, FrameSplitter, ListOptions, Unreadable, WATCH_SLACK,
};

/// What a watch tells. client-go's `watch.Event`, whose errors are [`Error`]s here.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WatchEvent<T> {
    /// It is there, or is selected from now on.
    Added(T),
    /// It has changed: this is what it is now.
    Modified(T),
    /// It is gone, or not selected any more: this is what it was last.
    Deleted(T),
    /// Nothing has happened up to here, where
    /// [`allow_watch_bookmarks`](ListOptions::allow_watch_bookmarks) asks to be told.
    Bookmark {
        /// Up to where.
        resource_version: String,
        /// Whether what was there has been told by now, where
        /// [`send_initial_events`](ListOptions::send_initial_events) asks for it.
        initial_events_end: bool,
    },
}

impl<T: Object + DeserializeOwned> Api<T> {
    /// Watches objects: what happens to them from a resourceVersion on, that of a [list](Self::list) for
    /// example; without one it begins with all that are there, in no order, as if they had just been added.
    /// For those who need no cache: an [informer](crate::SharedIndexInformer) lists, watches, and begins anew
    /// where that breaks. client-go's `Watch`.
    ///
    /// Blocks until the head of the answer is there. The [events](WatchEvents) are read as they are asked
    /// for.
    ///
    /// ```
    /// use k8s_informer::testing::ApiServer;
    /// use k8s_informer::{Client, Config, Object, Stop};
    /// use k8s_informer::client::api::WatchEvent;
    /// use k8s_informer::reflector::ListOptions;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use serde_json::json;
    ///
    /// let server = ApiServer::start()?;
    /// let client = Client::new(Config::new(server.url()))?;
    /// let (maps, stop) = (client.api::<ConfigMap>(Some("default")), Stop::new());
    /// let list = maps.list(&ListOptions::default(), &stop)?;
    ///
    /// let mut options = ListOptions::default();
    /// options.resource_version = Some(list.resource_version);
    /// options.timeout_seconds = Some(300); // The server ends it then, and it can be opened anew.
    /// let mut events = maps.watch(&options, &stop)?;
    /// maps.create(&json!({"metadata": {"name": "a"}}), &stop)?;
    /// for event in &mut events {
    ///     if let WatchEvent::Added(map) = event? {
    ///         assert_eq!(map.name(), "a");
    ///         break;
    ///     }
    /// }
    /// // Where to go on from.
    /// assert_eq!(events.resource_version(), maps.get("a", &stop)?.resource_version());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`list`](Self::list); a resourceVersion that is too old may also be told by the first event.
    pub fn watch(&self, options: &ListOptions, stop: &Stop) -> Result<WatchEvents<T>, Error> {
        let lister_watcher = self.about("watch", "", || self.lister_watcher())?;
        let body = lister_watcher.watch(options, stop)?;
        let decoder = self.decoder();
        // Otherwise it begins with ADDED events that are in no order.
        let version = options
            .resource_version
            .as_deref()
            .filter(|version| !["", "0"].contains(version));
        let version = version.filter(|_| !options.send_initial_events);
        let seconds = options.timeout_seconds.filter(|seconds| *seconds > 0);
        Ok(WatchEvents {
            frames: FrameSplitter::new(decoder.limits().object_bytes),
            decoder,
            body: Some(body),
            buffer: vec![0; READ_BUFFER],
            pending: VecDeque::new(),
            versions_count: version.is_some(),
            version: version.unwrap_or_default().to_owned(),
            idle_timeout: seconds.map(|seconds| Duration::from_secs(seconds.into()) + WATCH_SLACK),
            description: lister_watcher.description(),
        })
    }
}

/// The events of a watch, made by [`Api::watch`]: an iterator that blocks until something happens.
///
/// It is over when the server ends the watch, which it does at its time
/// ([`timeout_seconds`](ListOptions::timeout_seconds), or after some half an hour): watch again from
/// [`resource_version`](Self::resource_version) then. An error is the last item, but for one: an event whose
/// object can't be decoded is an error that [`is_decode`](Error::is_decode) and names it, and the watch goes
/// on. An ERROR event is the error that the server says; [`is_gone`](Error::is_gone) if the version that
/// was asked for is too old, so that a new list is needed.
///
/// It is a stream, with no limit of time or size for the whole: an event has at most the 32 MiB of
/// [`DecodeLimits`](crate::reflector::DecodeLimits), and silence ends the watch only if it has a timeout of its own.
///
/// The [`Stop`] of the request ends it at once, with an error that [`is_stopped`](Error::is_stopped).
/// Dropping it closes its connection.
///
/// Waits until an object is as it should be, as `kubectl wait` does:
///
/// ```
/// use k8s_informer::testing::ApiServer;
/// use k8s_informer::{Client, Config, Error, Stop};
/// use k8s_informer::client::api::{Api, Patch, WatchEvent};
/// use k8s_informer::reflector::ListOptions;
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use serde_json::json;
///
/// /// `None` if it is not red within a minute.
/// fn wait_for_red(maps: &Api<ConfigMap>, name: &str, stop: &Stop) -> Result<Option<ConfigMap>, Error> {
///     let mut one = ListOptions::default();
///     one.field_selector = format!("metadata.name={name}");
///     one.timeout_seconds = Some(60);
///     // Without a resourceVersion it begins with what is there: nothing is missed.
///     for event in maps.watch(&one, stop)? {
///         if let WatchEvent::Added(map) | WatchEvent::Modified(map) = event? {
///             let colour = map.data.as_ref().and_then(|data| data.get("colour"));
///             if colour.is_some_and(|colour| colour == "red") {
///                 return Ok(Some(map));
///             }
///         }
///     }
///     Ok(None)
/// }
///
/// let server = ApiServer::start()?;
/// let client = Client::new(Config::new(server.url()))?;
/// let (maps, stop) = (client.api::<ConfigMap>(Some("default")), Stop::new());
/// maps.create(&json!({"metadata": {"name": "settings"}}), &stop)?;
/// let red = std::thread::scope(|scope| {
///     let waiter = scope.spawn(|| wait_for_red(&maps, "settings", &stop));
///     maps.patch("settings", &Patch::merge(json!({"data": {"colour": "red"}})), &stop)?;
///     waiter.join().unwrap()
/// })?;
/// assert_eq!(red.unwrap().data.unwrap()["colour"], "red");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a watch tells nothing unless its events are read"]
pub struct WatchEvents<T> {
    /// `None` once it has ended.
    body: Option<Body>,
    frames: FrameSplitter,
    decoder: Decoder<T>,
    buffer: Vec<u8>,
    /// What has been read and not been handed out.
    pending: VecDeque<Pending<T>>,
    /// Of what was handed out last.
    version: String,
    /// Not those of the unordered ADDED events at the beginning of a watch that did not start from a version
    /// (W10).
    versions_count: bool,
    idle_timeout: Option<Duration>,
    /// What is watched, for messages.
    description: String,
}

enum Pending<T> {
    Event(WatchEvent<T>),
    /// One whose object can't be read, and its version.
    Unreadable(EventKind, String, Error),
    /// The end.
    Failed(Error),
}

impl<T> WatchEvents<T> {
    /// The resourceVersion of the last event that was handed out, to go on from; at first that from which the
    /// watch started. It is empty as long as there is none that a watch could go on from: among the objects
    /// with which a watch begins that started from none.
    pub fn resource_version(&self) -> &str {
        &self.version
    }

    /// How long it may be silent, in place of the time after which the server was asked to end it
    /// ([`timeout_seconds`](ListOptions::timeout_seconds)) and half a minute; `None` is for ever, which it is
    /// unless that was asked for. A silence that is longer is an error that
    /// [`is_timeout`](Error::is_timeout), and ends it. API servers send a bookmark about once a minute to who
    /// allows it.
    ///
    /// ```
    /// # use k8s_informer::testing::ApiServer;
    /// # use k8s_informer::{Client, Config, Stop};
    /// # use k8s_informer::reflector::ListOptions;
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use std::time::Duration;
    /// # let server = ApiServer::start()?;
    /// # let client = Client::new(Config::new(server.url()))?;
    /// # let maps = client.api::<ConfigMap>(Some("default"));
    /// let events = maps.watch(&ListOptions::default(), &Stop::new())?;
    /// let mut events = events.idle_timeout(Duration::from_millis(20));
    /// assert!(events.next().unwrap().unwrap_err().is_timeout());
    /// assert!(events.next().is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn idle_timeout(self, timeout: impl Into<Option<Duration>>) -> Self {
        Self {
            idle_timeout: timeout.into(),
            ..self
        }
    }
}

impl<T: Object> WatchEvents<T> {
    /// Reads what there is, or waits until there is something; the body is gone when nothing follows.
    fn read(&mut self, mut body: Body) {
        match body.read_within(&mut self.buffer, self.idle_timeout) {
            Ok(0) => self.take_rest(),
            Ok(length) => {
                if self.take_frames(length) {
                    self.body = Some(body);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => self.body = Some(body),
            Err(error) => self.pending.push_back(Pending::Failed(error.into())),
        }
    }

    /// Takes the frames in what has been read. Returns whether the watch goes on.
    fn take_frames(&mut self, length: usize) -> bool {
        let buffer = std::mem::take(&mut self.buffer);
        let mut input = &buffer[..length];
        let taken = loop {
            match self.frames.next(input) {
                Ok((_, None)) => break Ok(()),
                Ok((consumed, Some(piece))) => {
                    let frame = self.frames.piece(input, piece);
                    match take(&mut self.decoder, frame, &mut self.pending) {
                        Ok(false) => {}
                        Ok(true) => {
                            self.frames.several();
                        }
                        Err(error) => break Err(error),
                    }
                    input = &input[consumed..];
                }
                Err(error) => break Err(error.into()),
            }
        };
        self.buffer = buffer;
        match taken {
            Ok(()) => true,
            Err(error) => {
                self.pending.push_back(Pending::Failed(error));
                false
            }
        }
    }

    /// Takes what is left at the end.
    fn take_rest(&mut self) {
        loop {
            let taken = match self.frames.next_at_end() {
                Ok(None) => return,
                Ok(Some(piece)) => {
                    let frame = self.frames.piece(&[], piece);
                    take(&mut self.decoder, frame, &mut self.pending)
                }
                Err(error) => Err(error.into()),
            };
            match taken {
                Ok(false) => {}
                Ok(true) => {
                    self.frames.several();
                }
                Err(error) => return self.pending.push_back(Pending::Failed(error)),
            }
        }
    }

    fn hand_out(&mut self, pending: Pending<T>) -> Result<WatchEvent<T>, Error> {
        let (kind, version) = match &pending {
            Pending::Event(WatchEvent::Added(object)) => {
                (EventKind::Added, object.resource_version())
            }
            Pending::Event(WatchEvent::Modified(object)) => {
                (EventKind::Modified, object.resource_version())
            }
            Pending::Event(WatchEvent::Deleted(object)) => {
                (EventKind::Deleted, object.resource_version())
            }
            Pending::Event(WatchEvent::Bookmark {
                resource_version, ..
            }) => (EventKind::Bookmark, &**resource_version),
            Pending::Unreadable(kind, version, _) => (*kind, &**version),
            Pending::Failed(_) => (EventKind::Error, ""),
        };
        self.versions_count |= !matches!(kind, EventKind::Added | EventKind::Error);
        if self.versions_count && !version.is_empty() {
            version.clone_into(&mut self.version);
        }
        match pending {
            Pending::Event(event) => Ok(event),
            Pending::Unreadable(_, _, error) | Pending::Failed(error) => {
                Err(error.context(format!("watch {}", self.description)))
            }
        }
    }
}

/// Takes a frame. Returns whether it has several events and must be split; an error if no frame can follow.
fn take<T: Object>(
    decoder: &mut Decoder<T>,
    frame: &[u8],
    pending: &mut VecDeque<Pending<T>>,
) -> Result<bool, Error> {
    let (kind, decoded) = match decoder.event(frame, None) {
        Ok(event) => event,
        Err(BadFrame::Several) => return Ok(true),
        Err(BadFrame::Malformed(error)) => return Err(error),
    };
    pending.push_back(match decoded {
        Decoded::Error(error) => return Err(error),
        Decoded::Bookmark {
            resource_version,
            initial_events_end,
        } => Pending::Event(WatchEvent::Bookmark {
            resource_version,
            initial_events_end,
        }),
        Decoded::Object(object) if object.name().is_empty() => {
            unreadable(kind, String::new(), &Unreadable::nameless(&object))
        }
        Decoded::Object(object) => Pending::Event(match kind {
            EventKind::Added => WatchEvent::Added(object),
            EventKind::Deleted => WatchEvent::Deleted(object),
            _ => WatchEvent::Modified(object),
        }),
        // W9: its version does not count.
        Decoded::OtherKind(other) => unreadable(kind, String::new(), &other),
        Decoded::Unreadable(object) => unreadable(kind, object.resource_version.clone(), &object),
        // There is no store and no shard.
        Decoded::Unchanged(..) | Decoded::OtherShard { .. } => return Ok(false),
    });
    Ok(false)
}

fn unreadable<T>(kind: EventKind, version: String, object: &Unreadable) -> Pending<T> {
    let what = match kind {
        EventKind::Deleted => "a deletion",
        _ => "an event",
    };
    Pending::Unreadable(kind, version, object.error_at(|| what.to_owned()))
}

impl<T: Object> Iterator for WatchEvents<T> {
    type Item = Result<WatchEvent<T>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(pending) = self.pending.pop_front() {
                return Some(self.hand_out(pending));
            }
            let body = self.body.take()?;
            self.read(body);
        }
    }
}

impl<T: Object> FusedIterator for WatchEvents<T> {}

impl<T> fmt::Debug for WatchEvents<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchEvents")
            .field("watching", &self.description)
            .field("resource_version", &self.version)
            .field("ended", &self.body.is_none())
            .finish_non_exhaustive()
    }
}
