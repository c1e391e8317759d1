use std::io;
use std::iter::FusedIterator;
use std::ops::Range;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::Api;
use super::lister_watcher::ResourceListerWatcher;
use crate::base::derive::debug_fields;
use crate::client::exchange::READ_BUFFER;
use crate::error::Error;
use crate::object::Object;
use crate::reflector::{Body, ListerWatcher};
use crate::resource_version::ResourceVersion;
use crate::stop::Stop;
use crate::wire::{
    BadFrame, Decoded, DecodedObject, Decoder, EventKind, FrameSplitter, ListOptions, Piece,
    Unreadable, WATCH_SLACK,
};

/// An event of a watch. The client-go counterpart is `watch.Event`, whose error events are
/// [`Error`]s here.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WatchEvent<T> {
    /// The object was added, or it matches the selectors now.
    Added(T),
    /// The object was modified. Contains the new state.
    Modified(T),
    /// The object was deleted, or it does not match the selectors any more. Contains the last
    /// state.
    Deleted(T),
    /// All events up to this version have been sent. The server sends bookmarks only if
    /// [`allow_watch_bookmarks`](ListOptions::allow_watch_bookmarks) is set.
    Bookmark {
        /// The resource version that the watch has reached.
        resource_version: Option<ResourceVersion>,
        /// Whether the server has sent all initial objects. Servers set this only if
        /// [`send_initial_events`](ListOptions::send_initial_events) is set.
        initial_events_end: bool,
    },
}

impl<T: Object + DeserializeOwned> Api<T> {
    /// Watches objects for changes. The client-go counterpart is `Watch`.
    ///
    /// The watch starts at the resource version of the options, for example that of a
    /// [list](Self::list). Without a version it starts with an `Added` event for each existing
    /// object, in no particular order.
    ///
    /// Use this method if you need no cache. An [informer](crate::SharedIndexInformer) lists and
    /// watches, and restarts both after an error.
    ///
    /// This call blocks until the head of the response has arrived. The returned [`WatchEvents`]
    /// reads the events on demand.
    ///
    /// ```
    /// use k8s_informer::client::api::WatchEvent;
    /// use k8s_informer::reflector::ListOptions;
    /// use k8s_informer::{Client, Config, Object, Stop};
    /// use k8s_informer_testing::ApiServer;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use serde_json::json;
    ///
    /// let server = ApiServer::start()?;
    /// let client = Client::new(Config::new(server.url()))?;
    /// let (maps, stop) = (client.api::<ConfigMap>(Some("default")), Stop::never());
    /// let list = maps.list(&ListOptions::default(), &stop)?;
    ///
    /// let mut options = ListOptions::default();
    /// options.resource_version = list.resource_version;
    /// options.timeout_seconds = Some(300); // The server then ends the watch.
    /// let mut events = maps.watch(&options, &stop)?;
    /// maps.create(&json!({"metadata": {"name": "a"}}), &stop)?;
    /// for event in &mut events {
    ///     if let WatchEvent::Added(map) = event? {
    ///         assert_eq!(map.name(), "a");
    ///         break;
    ///     }
    /// }
    /// // The version to resume from.
    /// let version = events.resource_version().map(ToString::to_string);
    /// assert_eq!(version.as_deref(), Some(maps.get("a", &stop)?.resource_version()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`list`](Self::list). If the resource version is too old, the server can also
    /// send this error as the first event; then the iterator returns it.
    pub fn watch(&self, options: &ListOptions, stop: &Stop) -> Result<WatchEvents<T>, Error> {
        let lister_watcher = self.with_context("watch", "", || self.lister_watcher())?;
        self.watch_from(&lister_watcher.retrying(), options, stop)
    }

    pub(super) fn watch_from(
        &self,
        lister_watcher: &ResourceListerWatcher,
        options: &ListOptions,
        stop: &Stop,
    ) -> Result<WatchEvents<T>, Error> {
        let body = lister_watcher.watch(options, stop)?;
        let decoder = self.decoder();
        // Without a version, the watch starts with `ADDED` events in no particular order.
        let version = match options.send_initial_events {
            true => None,
            false => options
                .resource_version
                .clone()
                .filter(|version| !version.is_any()),
        };
        let seconds = options.timeout_seconds.filter(|seconds| *seconds > 0);
        Ok(WatchEvents {
            frames: FrameSplitter::new(decoder.limits().object_bytes),
            decoder,
            body: Some(body),
            buffer: vec![0; READ_BUFFER],
            unread: 0..0,
            has_ended: false,
            tracks_versions: version.is_some(),
            version,
            idle_timeout: seconds.map(|seconds| Duration::from_secs(seconds.into()) + WATCH_SLACK),
            description: lister_watcher.description(),
        })
    }
}

/// The events of a watch, created by [`Api::watch`]. The iterator blocks until the next event.
///
/// The iterator ends when the server ends the watch: after
/// [`timeout_seconds`](ListOptions::timeout_seconds), or, if that is not set, after a random time,
/// by default 30 to 60 minutes. Then watch again from [`resource_version`](Self::resource_version).
///
/// The iterator also ends after an error, with one exception: an event whose object is too large or
/// cannot be decoded is an [`is_decode`](Error::is_decode) error that names the object, and the watch
/// continues. An `ERROR` event is returned as the error that the server sends. If the requested
/// version is too old, this is an [`is_gone`](Error::is_gone) error, and you need a new list.
///
/// The watch is a stream: its total time and size are unlimited. The size of one event is limited
/// to the 32 MiB of [`DecodeLimits`](crate::reflector::DecodeLimits). Silence ends the watch only
/// if it has an [`idle_timeout`](Self::idle_timeout). There is one by default only if
/// `timeout_seconds` is set.
///
/// The [`Stop`] passed to [`Api::watch`] ends the iterator immediately with an
/// [`is_stopped`](Error::is_stopped) error. Dropping the iterator closes its connection.
///
/// [`Api::watch`] has an example. To wait until one object reaches a certain state, use
/// [`Api::wait_for`], which watches again after errors.
#[must_use = "events are received only when you iterate"]
pub struct WatchEvents<T> {
    /// The response body. `None` after its end.
    body: Option<Body>,
    frames: FrameSplitter,
    decoder: Decoder<T>,
    buffer: Vec<u8>,
    /// The part of the buffer that has not been split yet.
    unread: Range<usize>,
    /// Whether everything has been returned, or an error has ended the watch.
    has_ended: bool,
    /// The result of [`resource_version`](Self::resource_version).
    version: Option<ResourceVersion>,
    /// Whether the version of an event is one to resume from. False during the unordered initial
    /// `ADDED` events of a watch that started without a version (W10).
    tracks_versions: bool,
    idle_timeout: Option<Duration>,
    /// What is watched, for error messages.
    description: String,
}

impl<T> WatchEvents<T> {
    /// Returns the version to resume from: the newest resource version of the events so far. An event
    /// with an older version does not change it. Only the bookmark that ends the initial events of a
    /// watch-list may set an older one, as after a restore of etcd.
    ///
    /// Before the first event, it is the version from which the watch started. Returns `None` while no
    /// version is known: during the initial objects of a watch-list, or of a watch that started
    /// without a version or at `0`.
    pub fn resource_version(&self) -> Option<&ResourceVersion> {
        self.version.as_ref()
    }

    /// Sets how long the watch may be silent; `None` for no limit.
    ///
    /// A longer silence is an [`is_timeout`](Error::is_timeout) error, which ends the watch. The
    /// default is [`timeout_seconds`](ListOptions::timeout_seconds) plus 30 seconds if you set that
    /// option, and no limit otherwise. API servers send a bookmark about once a minute if
    /// [`allow_watch_bookmarks`](ListOptions::allow_watch_bookmarks) is set.
    ///
    /// ```
    /// # use k8s_informer::reflector::ListOptions;
    /// # use k8s_informer::{Client, Config, Stop};
    /// # use k8s_informer_testing::ApiServer;
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use std::time::Duration;
    /// # let server = ApiServer::start()?;
    /// # let client = Client::new(Config::new(server.url()))?;
    /// # let maps = client.api::<ConfigMap>(Some("default"));
    /// let events = maps.watch(&ListOptions::default(), &Stop::never())?;
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
    /// Decodes a frame, or reads if there is none. Returns the event of the frame, or the reason why
    /// its object cannot be decoded. An error ends the watch.
    fn step(&mut self) -> Result<Option<Result<WatchEvent<T>, Error>>, Error> {
        let input = &self.buffer[self.unread.clone()];
        let (consumed, piece) = match &self.body {
            Some(_) => self.frames.next(input)?,
            None => (0, self.frames.next_at_end()?),
        };
        self.unread.start += consumed;
        let Some(piece) = piece else {
            return self.read().map(|()| None);
        };
        let frame = self.frames.piece(input, piece);
        let decoded = match piece {
            Piece::Head => self.decoder.large_event(frame),
            _ => self.decoder.event(frame, None),
        };
        let decoded = match decoded {
            Ok(decoded) => decoded,
            Err(BadFrame::Several) => {
                self.frames.split_line();
                return Ok(None);
            }
            Err(BadFrame::Malformed(error)) => return Err(error),
        };
        Ok(Some(match decoded {
            Decoded::Error(error) => return Err(error),
            Decoded::Bookmark {
                resource_version,
                initial_events_end,
            } => {
                // This version is that of a list: it may be older, as after a restore of etcd.
                if initial_events_end && !resource_version.is_empty() {
                    self.version = None;
                }
                self.advance(EventKind::Bookmark, &resource_version);
                Ok(WatchEvent::Bookmark {
                    resource_version: ResourceVersion::new(&resource_version),
                    initial_events_end,
                })
            }
            Decoded::Change(kind, DecodedObject::Object(object, _)) => {
                self.advance(kind, object.resource_version());
                Ok(match kind {
                    EventKind::Added => WatchEvent::Added(object),
                    EventKind::Deleted => WatchEvent::Deleted(object),
                    _ => WatchEvent::Modified(object),
                })
            }
            Decoded::Change(kind, DecodedObject::Unreadable(object))
            | Decoded::OtherKind(kind, object) => self.unreadable(kind, &object),
            // Unreachable: this decoder has no store to compare with and no shard selector.
            Decoded::Change(..) => return Ok(None),
        }))
    }

    /// Reads once. Blocks until data arrives or the idle timeout has passed.
    fn read(&mut self) -> Result<(), Error> {
        let Some(body) = &mut self.body else {
            self.has_ended = true;
            return Ok(());
        };
        match body.read_within(&mut self.buffer, self.idle_timeout) {
            Ok(0) => self.body = None,
            Ok(length) => self.unread = 0..length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Records the version of an event, which may be empty.
    fn advance(&mut self, kind: EventKind, version: &str) {
        self.tracks_versions |= kind != EventKind::Added;
        if let Some(version) = ResourceVersion::new(version)
            && self.tracks_versions
        {
            version.advance(&mut self.version);
        }
    }

    fn unreadable(&mut self, kind: EventKind, object: &Unreadable) -> Result<WatchEvent<T>, Error> {
        if let Some(version) = &object.resource_version {
            self.advance(kind, version);
        }
        let what = match kind {
            EventKind::Deleted => "a deletion",
            _ => "an event",
        };
        Err(object.error_at(|| what.to_owned()))
    }
}

impl<T: Object> Iterator for WatchEvents<T> {
    type Item = Result<WatchEvent<T>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.has_ended {
            let event = match self.step() {
                Ok(None) => continue,
                Ok(Some(event)) => event,
                Err(error) => {
                    (self.body, self.has_ended) = (None, true);
                    Err(error)
                }
            };
            let watch = || format!("watch {}", self.description);
            return Some(event.map_err(|error| error.context(watch())));
        }
        None
    }
}

impl<T: Object> FusedIterator for WatchEvents<T> {}

debug_fields!(WatchEvents<T>, this,
    watching: this.description,
    resource_version: this.version,
    ended: this.has_ended
);
