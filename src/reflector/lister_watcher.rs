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
/// use k8s_informer::{Body, Error, ListOptions, ListerWatcher, Stop};
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
/// use k8s_informer::{
///     GroupVersionResource, ListerWatcher, ListerWatcherSource, Object, SharedInformerFactory, Stop,
/// };
/// use std::sync::Arc;
///
/// /// One object of whatever is asked for.
/// struct OneOfEach;
///
/// impl ListerWatcherSource for OneOfEach {
///     fn lister_watcher(&self, of: &GroupVersionResource, _: Option<&str>) -> Arc<dyn ListerWatcher> {
///         let item = format!(r#"{{"metadata": {{"name": "one-of-{}"}}}}"#, of.resource());
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
    /// ([`PartialObjectMetadata`](crate::PartialObjectMetadata)): one that asks the server to leave the rest
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
pub struct Body {
    reader: Box<dyn Read + Send>,
    set_read_timeout: Option<Box<SetReadTimeout>>,
    /// What was set last.
    read_timeout: Option<Duration>,
    /// Whether it can be zero: such a read takes what is there, and does not wait.
    glances: bool,
}

type SetReadTimeout = dyn FnMut(Option<Duration>) + Send;

impl Body {
    /// From any reader. An end before the end (a connection that broke) must be an error of it, not `Ok(0)`.
    pub fn new(reader: impl Read + Send + 'static) -> Self {
        Self {
            reader: Box::new(reader),
            set_read_timeout: None,
            read_timeout: None,
            glances: false,
        }
    }

    /// Says how the time is set that a read may wait for bytes: from then on one that has waited for so long
    /// fails with [`io::ErrorKind::TimedOut`], and can be tried again. `None` is for ever.
    ///
    /// A reflector needs it to notice a watch that has gone silent; without it the reader has to see to that
    /// itself.
    #[must_use]
    pub fn with_read_timeout(mut self, set: impl FnMut(Option<Duration>) + Send + 'static) -> Self {
        self.set_read_timeout = Some(Box::new(set));
        self
    }

    /// Puts a reader around it, which sees every byte; read timeouts go on to work.
    ///
    /// ```
    /// use k8s_informer::Body;
    /// use std::io::Read;
    ///
    /// let mut short = Body::from("abcdef").map(|reader| reader.take(3));
    /// assert_eq!(std::io::read_to_string(&mut short).unwrap(), "abc");
    /// ```
    #[must_use]
    pub fn map<R: Read + Send + 'static>(
        self,
        around: impl FnOnce(Box<dyn Read + Send>) -> R,
    ) -> Self {
        Self {
            reader: Box::new(around(self.reader)),
            ..self
        }
    }

    /// Says that a read with a timeout of zero takes what is there.
    #[cfg(feature = "client")]
    pub(crate) fn glancing(self) -> Self {
        Self {
            glances: true,
            ..self
        }
    }

    pub(crate) fn glances(&self) -> bool {
        self.glances
    }

    /// Sets how long a read may wait for bytes; says whether that can be set.
    pub(crate) fn set_read_timeout(&mut self, timeout: Duration) -> bool {
        let Some(set) = &mut self.set_read_timeout else {
            return false;
        };
        if self.read_timeout != Some(timeout) {
            set(Some(timeout));
            self.read_timeout = Some(timeout);
        }
        true
    }
}

impl<B: Into<Vec<u8>>> From<B> for Body {
    fn from(bytes: B) -> Self {
        Self::new(Cursor::new(bytes.into()))
    }
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reader.read(buffer)
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
/// use k8s_informer::{Body, ListOptions, ListWatch, ListerWatcher, Stop};
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
