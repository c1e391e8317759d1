use std::fmt;
use std::io::{self, Cursor, Read};
use std::sync::Arc;

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

    /// What is listed, for messages: `pods in namespace "default"`.
    fn description(&self) -> String {
        "objects".to_owned()
    }
}

/// Where a factory gets the lister-watchers of its informers: a client, or anything else.
pub trait ListerWatcherSource: Send + Sync {
    /// For one resource, in one namespace or (`None`) in all of them.
    fn lister_watcher(
        &self,
        resource: &GroupVersionResource,
        namespace: Option<&str>,
    ) -> Arc<dyn ListerWatcher>;
}

/// The body of an answer: a stream of bytes that blocks.
pub struct Body {
    reader: Box<dyn Read + Send>,
}

impl Body {
    /// From any reader. An end before the end (a connection that broke) must be an error of it, not `Ok(0)`.
    pub fn new(reader: impl Read + Send + 'static) -> Self {
        Self { reader: Box::new(reader) }
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
}

impl<L, W> ListWatch<L, W>
where
    L: Fn(&ListOptions, &Stop) -> Result<Body, Error> + Send + Sync,
    W: Fn(&ListOptions, &Stop) -> Result<Body, Error> + Send + Sync,
{
    /// What answers LIST, and what answers WATCH.
    pub fn new(list: L, watch: W) -> Self {
        Self { list, watch }
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
}

impl<L, W> fmt::Debug for ListWatch<L, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListWatch").finish_non_exhaustive()
    }
}
