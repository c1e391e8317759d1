use std::io::{self, Cursor, Read};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, select};

use crate::base::derive::debug_fields;
use crate::error::Error;
use crate::object::GroupVersionResource;
use crate::stop::{Stop, Subscription};
use crate::wire::ListOptions;

/// The two requests of a reflector: all objects of a kind, and their changes from then on.
///
/// A lister-watcher returns bytes instead of objects, because the reflector decodes them. The
/// client's resources implement this trait. You can also use a custom transport, a script for
/// tests, or a pair of closures ([`ListWatch`]).
///
/// Both methods block until the head of the response is available. When `stop` is stopped, they
/// return immediately with [`Error::is_stopped`]. Each read of the body then returns immediately
/// too, with any error.
///
/// This trait corresponds to client-go's `ListerWatcherWithContext`.
///
/// ```
/// use k8s_informer::{Error, Stop};
/// use k8s_informer::reflector::{Body, ListOptions, ListerWatcher};
///
/// /// A list that never changes.
/// struct Fixed(&'static str);
///
/// impl ListerWatcher for Fixed {
///     fn list(&self, _options: &ListOptions, _stop: &Stop) -> Result<Body, Error> {
///         Ok(Body::from(self.0))
///     }
///
///     fn watch(&self, _options: &ListOptions, stop: &Stop) -> Result<Body, Error> {
///         stop.wait();
///         Err(Error::stopped())
///     }
/// }
///
/// let body = Fixed(r#"{"items": []}"#).list(&ListOptions::default(), &Stop::never())?;
/// assert_eq!(std::io::read_to_string(body).unwrap(), r#"{"items": []}"#);
/// # Ok::<(), Error>(())
/// ```
pub trait ListerWatcher: Send + Sync {
    /// Sends a LIST. The body is one JSON list:
    /// `{"kind": "List", "metadata": {"resourceVersion": …}, "items": […]}`.
    ///
    /// A list is also requested after errors and long silences. It must contain the current
    /// objects: the cache drops all others.
    ///
    /// # Errors
    ///
    /// Returns the server's response if its status is not 2xx, or the reason for a missing
    /// response.
    fn list(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error>;

    /// Sends a WATCH. The body is a stream of JSON events, one per line:
    /// `{"type": "ADDED", "object": {…}}`. For events that your program produces, see
    /// [`Body::from_channel`].
    ///
    /// # Errors
    ///
    /// Returns the server's response if its status is not 2xx, or the reason for a missing
    /// response.
    fn watch(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error>;

    /// Whether a WATCH may also request the initial objects
    /// ([`send_initial_events`](ListOptions::send_initial_events)).
    ///
    /// If so, the reflector sends no LIST to a server that supports watch-lists. The default is
    /// `false`.
    fn supports_watch_list(&self) -> bool {
        false
    }

    /// Returns a description of the objects for messages: `pods in namespace "default"`.
    fn description(&self) -> String {
        "objects".to_owned()
    }
}

/// Creates the lister-watchers for the informers of a factory. A client is such a source.
///
/// ```
/// use k8s_informer::informer::Source;
/// use k8s_informer::object::GroupVersionResource;
/// use k8s_informer::reflector::{ListerWatcher, ListerWatcherSource};
/// use k8s_informer::{Object, SharedInformerFactory, Stop};
/// use k8s_informer_testing::{Answer, ScriptedListerWatcher};
/// use std::sync::Arc;
///
/// /// A source with one object of each resource.
/// struct OneOfEach;
///
/// impl ListerWatcherSource for OneOfEach {
///     fn lister_watcher(&self, of: &GroupVersionResource, _: Option<&str>) -> Arc<dyn ListerWatcher> {
///         let item = format!(r#"{{"metadata": {{"name": "one-of-{}"}}}}"#, of.resource);
///         let list = format!(r#"{{"kind": "List", "metadata": {{"resourceVersion": "7"}}, "items": [{item}]}}"#);
///         Arc::new(ScriptedListerWatcher::new([Answer::body(list), Answer::open("")]))
///     }
/// }
///
/// let factory = SharedInformerFactory::new(OneOfEach);
/// let pods = factory.informer_for(Source::dynamic(GroupVersionResource::new("", "v1", "pods")));
/// let stop = Stop::never();
/// factory.start(&stop)?;
/// factory.wait_for_cache_sync(None, &stop)?;
/// assert_eq!(pods.lister().list()[0].name(), "one-of-pods");
/// factory.shut_down(None)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait ListerWatcherSource: Send + Sync {
    /// Returns a lister-watcher for a resource in one namespace, or in all namespaces (`None`).
    fn lister_watcher(
        &self,
        resource: &GroupVersionResource,
        namespace: Option<&str>,
    ) -> Arc<dyn ListerWatcher>;

    /// Returns a lister-watcher for metadata only
    /// ([`PartialObjectMetadata`](crate::object::PartialObjectMetadata)), which requests that the
    /// server omit the other fields.
    ///
    /// The default implementation returns [`lister_watcher`](Self::lister_watcher), for sources
    /// that cannot request this. The other fields are then dropped while decoding.
    fn metadata_lister_watcher(
        &self,
        resource: &GroupVersionResource,
        namespace: Option<&str>,
    ) -> Arc<dyn ListerWatcher> {
        self.lister_watcher(resource, namespace)
    }

    /// Finds a resource by its name or by the kind of its objects: `deployments.apps`, `deploy`,
    /// `Deployment`. The resource must support list and watch. May block.
    ///
    /// A client looks the name up on the server (`Client::discover`). The default implementation
    /// returns an error, for sources without names.
    ///
    /// # Errors
    ///
    /// Returns [`is_no_match`](Error::is_no_match) if there is no such resource, or another error
    /// if the lookup fails.
    fn find_resource(&self, name: &str, _stop: &Stop) -> Result<GroupVersionResource, Error> {
        Err(Error::other(format!(
            "{name:?} can't be looked up: this source has no discovery; pass a group, version and resource"
        )))
    }
}

/// The body of a response: a blocking stream of bytes.
///
/// [`Read::read`] waits for data as long as the underlying reader does. To limit the wait, call
/// [`read_within`](Self::read_within).
pub struct Body {
    reader: Box<dyn TimedRead>,
}

/// A reader with a time limit for each read.
///
/// Implement it for the bodies of a custom transport, so that a reflector can detect a silent
/// watch. See [`Body::timed`].
///
/// ```
/// use k8s_informer::reflector::{Body, TimedRead};
/// use std::io;
/// use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
/// use std::time::Duration;
///
/// /// A reader of the bytes from a channel.
/// struct Bytes(Receiver<u8>);
///
/// impl TimedRead for Bytes {
///     fn read_within(&mut self, buffer: &mut [u8], timeout: Option<Duration>) -> io::Result<usize> {
///         let Some(first) = buffer.first_mut() else { return Ok(0) };
///         match self.0.recv_timeout(timeout.unwrap_or(Duration::MAX)) {
///             Ok(byte) => *first = byte,
///             Err(RecvTimeoutError::Timeout) => return Err(io::ErrorKind::TimedOut.into()),
///             Err(RecvTimeoutError::Disconnected) => return Ok(0),
///         }
///         Ok(1)
///     }
/// }
///
/// let (sender, receiver) = channel();
/// let mut body = Body::timed(Bytes(receiver));
/// let silence = body.read_within(&mut [0; 8], Some(Duration::from_millis(1)));
/// assert_eq!(silence.unwrap_err().kind(), io::ErrorKind::TimedOut);
/// sender.send(b'x')?;
/// assert_eq!(body.read_within(&mut [0; 8], None)?, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait TimedRead: Send {
    /// Reads some bytes, like [`Read::read`], and waits at most `timeout` for them. With `None`,
    /// the reader chooses how long to wait.
    ///
    /// # Errors
    ///
    /// Returns [`io::ErrorKind::TimedOut`] if no bytes arrived in time. No data is lost, and you
    /// can try again.
    fn read_within(&mut self, buffer: &mut [u8], timeout: Option<Duration>) -> io::Result<usize>;
}

impl Body {
    /// Creates a body from any reader. If the body ends too early, for example because the
    /// connection broke, the reader must return an error instead of `Ok(0)`.
    ///
    /// Time limits have no effect on this reader. It must return an error on its own after a long
    /// silence.
    pub fn new(reader: impl Read + Send + 'static) -> Self {
        Self::timed(Untimed(reader))
    }

    /// Creates a body from a reader with time limits.
    pub fn timed(reader: impl TimedRead + 'static) -> Self {
        Self {
            reader: Box::new(reader),
        }
    }

    /// Creates a body from a channel of bytes, for the watch of a source that produces its own
    /// events. Each message can have any number of bytes.
    ///
    /// The body ends when all senders were dropped and all messages have been read. Then the
    /// reflector watches again, so keep a sender while the watch is open. When `stop` is set, a
    /// read fails immediately with [`Error::stopped`].
    ///
    /// The guide has a [complete
    /// source](https://docs.rs/k8s-informer-controller/0.1/k8s_informer_controller/guide/coming_from/index.html#your-own-source-of-objects).
    ///
    /// ```
    /// use k8s_informer::Stop;
    /// use k8s_informer::crossbeam_channel::unbounded;
    /// use k8s_informer::reflector::Body;
    ///
    /// let (events, receiver) = unbounded();
    /// let body = Body::from_channel(receiver, &Stop::never());
    /// events.send(br#"{"type": "ADDED", "object": "#.to_vec())?;
    /// events.send(br#"{"metadata": {"name": "a"}}}"#.to_vec())?;
    /// drop(events);
    /// assert!(std::io::read_to_string(body)?.ends_with(r#""name": "a"}}}"#));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_channel(receiver: Receiver<Vec<u8>>, stop: &Stop) -> Self {
        let (sender, stopped) = crossbeam_channel::bounded(0);
        Self::timed(ChannelBody {
            receiver,
            message: Cursor::default(),
            stop: stop.clone(),
            stopped,
            _disconnect: stop.on_stop(move || drop(sender)),
        })
    }

    /// Reads some bytes and waits at most `timeout` for them. With `None`, it waits as long as
    /// [`Read::read`].
    ///
    /// # Errors
    ///
    /// Returns [`io::ErrorKind::TimedOut`] if no bytes arrived in time. No data is lost, and you
    /// can try again. Any other error ends the body; [`Error::from`] classifies it.
    ///
    /// ```
    /// use k8s_informer::reflector::Body;
    /// use std::time::Duration;
    ///
    /// let (mut body, mut buffer) = (Body::from("abc"), [0; 8]);
    /// assert_eq!(body.read_within(&mut buffer, Some(Duration::from_secs(1)))?, 3);
    /// assert_eq!(&buffer[..3], b"abc");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn read_within(
        &mut self,
        buffer: &mut [u8],
        timeout: Option<Duration>,
    ) -> io::Result<usize> {
        self.reader.read_within(buffer, timeout)
    }
}

/// A reader without time limits.
struct Untimed<R>(R);

impl<R: Read + Send> TimedRead for Untimed<R> {
    fn read_within(&mut self, buffer: &mut [u8], timeout: Option<Duration>) -> io::Result<usize> {
        match self.0.read(buffer) {
            // The reader's own timeout ends the body, so it must not look like an expired
            // `timeout`.
            Err(error) if error.kind() == io::ErrorKind::TimedOut && timeout.is_some() => {
                Err(io::Error::other(Error::from(error)))
            }
            read => read,
        }
    }
}

struct ChannelBody {
    receiver: Receiver<Vec<u8>>,
    /// The unread part of the current message.
    message: Cursor<Vec<u8>>,
    stop: Stop,
    /// Disconnected when `stop` is set.
    stopped: Receiver<()>,
    _disconnect: Subscription,
}

impl TimedRead for ChannelBody {
    fn read_within(&mut self, buffer: &mut [u8], timeout: Option<Duration>) -> io::Result<usize> {
        let timeout = timeout.map_or_else(crossbeam_channel::never, crossbeam_channel::after);
        loop {
            let count = self.message.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            if self.stop.is_stopped() {
                return Err(io::Error::other(Error::stopped()));
            }
            select! {
                recv(self.stopped) -> _ => {}
                recv(self.receiver) -> message => match message {
                    Ok(message) => self.message = Cursor::new(message),
                    Err(_) => return Ok(0),
                },
                recv(timeout) -> _ => return Err(io::ErrorKind::TimedOut.into()),
            }
        }
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Self::new(Cursor::new(bytes))
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Self::from(text.into_bytes())
    }
}

impl From<&[u8]> for Body {
    /// Copies the bytes.
    fn from(bytes: &[u8]) -> Self {
        Self::from(bytes.to_vec())
    }
}

impl From<&str> for Body {
    /// Copies the text.
    fn from(text: &str) -> Self {
        Self::from(text.as_bytes())
    }
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reader.read_within(buffer, None)
    }
}

debug_fields!(Body:);

/// A [`ListerWatcher`] made of two closures.
///
/// It corresponds to client-go's `ListWatch`.
///
/// ```
/// use k8s_informer::Stop;
/// use k8s_informer::reflector::{Body, ListOptions, ListWatch, ListerWatcher};
///
/// let one_list = ListWatch::new(
///     |_: &ListOptions, _: &Stop| Ok(Body::from(r#"{"kind": "List", "metadata": {"resourceVersion": "7"}, "items": []}"#)),
///     |_: &ListOptions, stop: &Stop| {
///         stop.wait(); // This watch never has events.
///         Ok(Body::from(""))
///     },
/// );
/// let body = one_list.list(&ListOptions::default(), &Stop::never())?;
/// assert!(std::io::read_to_string(body).unwrap().contains("\"7\""));
/// # Ok::<(), k8s_informer::Error>(())
/// ```
pub struct ListWatch<L, W> {
    list: L,
    watch: W,
    watch_list: bool,
}

impl<L, W> ListWatch<L, W>
where
    L: Fn(&ListOptions, &Stop) -> Result<Body, Error> + Send + Sync,
    W: Fn(&ListOptions, &Stop) -> Result<Body, Error> + Send + Sync,
{
    /// Creates a lister-watcher from the closures for LIST and WATCH.
    pub fn new(list: L, watch: W) -> Self {
        Self {
            list,
            watch,
            watch_list: false,
        }
    }

    /// Declares that the WATCH closure handles
    /// [`send_initial_events`](ListOptions::send_initial_events): it responds like a server, or
    /// returns an error.
    #[must_use]
    pub fn with_watch_list(self) -> Self {
        Self {
            watch_list: true,
            ..self
        }
    }
}

impl<L, W> ListerWatcher for ListWatch<L, W>
where
    L: Fn(&ListOptions, &Stop) -> Result<Body, Error> + Send + Sync,
    W: Fn(&ListOptions, &Stop) -> Result<Body, Error> + Send + Sync,
{
    fn list(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error> {
        (self.list)(options, stop)
    }

    fn watch(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error> {
        (self.watch)(options, stop)
    }

    fn supports_watch_list(&self) -> bool {
        self.watch_list
    }
}

debug_fields!(ListWatch<L, W>:);
