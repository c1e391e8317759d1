use std::fmt;
use std::io::{self, Cursor, Read};
use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::object::GroupVersionResource;
use crate::stop::Stop;
use crate::wire::ListOptions;

/// The two requests that a reflector makes: all objects of a kind, and their changes from there on.
///
/// It speaks bytes, not objects: decoding happens once, in the reflector. The client's resources implement
/// it; a transport of your own, a script or a pair of closures ([`ListWatch`]) can stand in.
///
/// Both calls block until the head of the answer is there. `stop` ends them, and every later read of the
/// body, at once: with [`Error::is_stopped`] here, with any error there. client-go's
/// `ListerWatcherWithContext`.
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
///         Err(Error::other("stopped"))
///     }
/// }
///
/// let body = Fixed(r#"{"items": []}"#).list(&ListOptions::default(), &Stop::new())?;
/// assert_eq!(std::io::read_to_string(body).unwrap(), r#"{"items": []}"#);
/// # Ok::<(), Error>(())
/// ```
pub trait ListerWatcher: Send + Sync {
    /// LIST: the body is one JSON list, `{"kind": "List", "metadata": {"resourceVersion": …}, "items": […]}`.
    ///
    /// # Errors
    ///
    /// What the server answered if not 2xx, or why there is no answer.
    fn list(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error>;

    /// WATCH: the body is a stream of JSON events, one a line, `{"type": "ADDED", "object": {…}}`.
    ///
    /// # Errors
    ///
    /// What the server answered if not 2xx, or why there is no answer.
    fn watch(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error>;

    /// Whether a WATCH may ask for the objects that are there, too
    /// ([`send_initial_events`](ListOptions::send_initial_events)): a reflector then does without LIST where
    /// the server can do that. Not unless it says so (WL1).
    fn supports_watch_list(&self) -> bool {
        false
    }

    /// What is listed, for messages: `pods in namespace "default"`.
    fn description(&self) -> String {
        "objects".to_owned()
    }
}

/// Where a factory gets the lister-watchers of its informers: a client, or anything else.
///
/// ```
/// use k8s_informer::testing::{Answer, ScriptedListerWatcher};
/// use k8s_informer::{Object, SharedInformerFactory, Stop};
/// use k8s_informer::object::GroupVersionResource;
/// use k8s_informer::reflector::{ListerWatcher, ListerWatcherSource};
/// use std::sync::Arc;
///
/// /// One object of whatever is asked for.
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
/// let factory = SharedInformerFactory::builder(OneOfEach).build();
/// let pods = factory.dynamic(GroupVersionResource::new("", "v1", "pods"));
/// let stop = Stop::new();
/// factory.start(&stop)?;
/// factory.wait_for_cache_sync(&stop)?;
/// assert_eq!(pods.lister().list()[0].name(), "one-of-pods");
/// factory.shutdown();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait ListerWatcherSource: Send + Sync {
    /// For one resource, in one namespace or (`None`) in all of them.
    fn lister_watcher(
        &self,
        resource: &GroupVersionResource,
        namespace: Option<&str>,
    ) -> Arc<dyn ListerWatcher>;

    /// The same for the objects' metadata alone
    /// ([`PartialObjectMetadata`](crate::object::PartialObjectMetadata)): one that asks the server to leave the rest
    /// out. What knows no way to ask for that gives whole objects, as this does unless implemented: what is
    /// not metadata is dropped as it is decoded.
    fn metadata_lister_watcher(
        &self,
        resource: &GroupVersionResource,
        namespace: Option<&str>,
    ) -> Arc<dyn ListerWatcher> {
        self.lister_watcher(resource, namespace)
    }

    /// The resource that goes by this name, or whose objects are of this kind, and can be listed and watched:
    /// `deployments.apps`, `deploy`, `Deployment`. May block. A client asks the server
    /// (`Client::discover`); what knows no names says so, as this does unless implemented.
    ///
    /// # Errors
    ///
    /// [`is_no_match`](Error::is_no_match) if there is none; why it can't be told.
    fn find_resource(&self, name: &str, _stop: &Stop) -> Result<GroupVersionResource, Error> {
        Err(Error::other(format!(
            "{name:?} is no group, version and resource, and what is asked here knows nothing of names"
        )))
    }
}

/// The body of an answer: a stream of bytes that blocks.
///
/// Reads of it are limited in time by its own idea of that, or by the argument of [`read_within`](Self::read_within).
pub struct Body {
    reader: Box<dyn TimedRead>,
}

/// A reader whose single reads can be limited in time: what a transport of your own implements for its bodies, so
/// that a reflector can notice a watch that has gone silent. See [`Body::timed`].
///
/// ```
/// use k8s_informer::reflector::{Body, TimedRead};
/// use std::io;
/// use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
/// use std::time::Duration;
///
/// /// The bytes that come through a channel.
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
    /// Reads some bytes, as [`Read::read`] does. `timeout` is how long it may wait for them; with `None` the reader
    /// decides.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::TimedOut`] if none came in time: nothing is lost, and the read can be tried again.
    fn read_within(&mut self, buffer: &mut [u8], timeout: Option<Duration>) -> io::Result<usize>;
}

impl Body {
    /// Creates a body from any reader. A body that ends too early (a connection that broke) must be an error of it,
    /// not `Ok(0)`.
    ///
    /// Time limits have no effect on such a reader: it has to fail on its own when it has been silent for too long.
    pub fn new(reader: impl Read + Send + 'static) -> Self {
        Self::timed(Untimed(reader))
    }

    /// Creates a body from a reader that takes time limits.
    pub fn timed(reader: impl TimedRead + 'static) -> Self {
        Self {
            reader: Box::new(reader),
        }
    }

    /// Reads some bytes, and waits for them no longer than `timeout`; with `None` for as long as [`Read::read`] does.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::TimedOut`] if none came in time: nothing is lost, and the read can be tried again. Other errors
    /// end the body; [`Error::from`] tells their class.
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

/// A reader that knows no time limits.
struct Untimed<R>(R);

impl<R: Read + Send> TimedRead for Untimed<R> {
    fn read_within(&mut self, buffer: &mut [u8], timeout: Option<Duration>) -> io::Result<usize> {
        match self.0.read(buffer) {
            // A limit of the reader's own, which is an end, and not the one that was given.
            Err(error) if error.kind() == io::ErrorKind::TimedOut && timeout.is_some() => {
                Err(io::Error::other(Error::from(error)))
            }
            read => read,
        }
    }
}

impl<B: Into<Vec<u8>>> From<B> for Body {
    fn from(bytes: B) -> Self {
        Self::new(Cursor::new(bytes.into()))
    }
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reader.read_within(buffer, None)
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").finish_non_exhaustive()
    }
}

/// A [`ListerWatcher`] from two closures. client-go's `ListWatch`.
///
/// ```
/// use k8s_informer::Stop;
/// use k8s_informer::reflector::{Body, ListOptions, ListWatch, ListerWatcher};
///
/// let one_list = ListWatch::new(
///     |_: &ListOptions, _: &Stop| Ok(Body::from(r#"{"kind": "List", "metadata": {"resourceVersion": "7"}, "items": []}"#)),
///     |_: &ListOptions, stop: &Stop| {
///         stop.wait(); // A watch on which nothing ever happens.
///         Ok(Body::from(""))
///     },
/// );
/// let body = one_list.list(&ListOptions::default(), &Stop::new())?;
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
    /// What answers LIST, and what answers WATCH.
    pub fn new(list: L, watch: W) -> Self {
        Self {
            list,
            watch,
            watch_list: false,
        }
    }

    /// With a WATCH that answers a request for
    /// [`send_initial_events`](ListOptions::send_initial_events), as a server or with an error.
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

impl<L, W> fmt::Debug for ListWatch<L, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListWatch").finish_non_exhaustive()
    }
}
