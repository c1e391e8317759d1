//! The server itself: what its threads share, and its life from start to drop.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::Value;

use super::connection::Connections;
use crate::testing::apiserver::engine::list::Options;
use crate::testing::apiserver::engine::shared::Shared;
use crate::testing::apiserver::engine::store::Store;
use crate::testing::apiserver::handlers::read;
use crate::testing::apiserver::model::faults::Fault;
use crate::testing::apiserver::model::http::{Head, parse_query};
use crate::testing::apiserver::model::log::RequestRecord;
use crate::testing::apiserver::model::object::Form;
use crate::testing::apiserver::model::patch::Patch;
use crate::testing::apiserver::model::preconditions::Preconditions;
use crate::testing::apiserver::model::resources::{ApiResource, Route, Target};
use crate::testing::apiserver::model::status::StatusError;

/// A Kubernetes API server on a loopback port, in this process. See the [module](crate::testing) for what it
/// can do.
///
/// It starts one thread to accept connections, one for each connection and one more for each open watch and
/// each answer that a fault disturbs. None of them polls. Dropping it closes everything and waits for all
/// threads, which takes no longer than they need to notice.
///
/// Its own methods act as the cluster does, not as a client: no token, no fault, no entry in the log, and
/// what only the system may set (`status`, `uid`, `creationTimestamp`, `deletionTimestamp`) is taken as
/// given.
pub struct ApiServer {
    shared: Arc<Shared>,
    connections: Arc<Connections>,
    address: SocketAddr,
    /// `None` while paused. Held over a whole pause or resume, so it comes before all other locks.
    acceptor: Mutex<Option<Acceptor>>,
}

impl ApiServer {
    pub(crate) fn listen(shared: Arc<Shared>, listener: TcpListener) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let connections = Arc::default();
        let acceptor = Acceptor::start(&shared, &connections, listener)?;
        Ok(Self {
            shared,
            connections,
            address,
            acceptor: Mutex::new(Some(acceptor)),
        })
    }

    /// Where it is: `http://127.0.0.1:41234`. The same through all pauses.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Creates an object in a collection, such as `/api/v1/namespaces/default/pods`, and returns it as
    /// stored. The namespace need not exist.
    ///
    /// # Errors
    ///
    /// Those of the API: 409 if it exists, 422 for an invalid name, 404 and 405 for a path that is not a
    /// collection.
    pub fn create(&self, collection: &str, object: Value) -> Result<Value, StatusError> {
        let (target, _) = self.target(collection)?;
        let stored = self
            .shared
            .write(false, false, |writer| writer.create(&target, object))?;
        Ok(stored.to_value(self.resource(&target)))
    }

    /// Replaces an object, such as `/api/v1/namespaces/default/pods/web-0`, and returns it as stored. Its
    /// resourceVersion is checked if it has one. With `/status` after the path only the status is replaced.
    ///
    /// # Errors
    ///
    /// Those of the API: 404 if it is not there, 409 if it has been changed, 400 for another name.
    pub fn update(&self, path: &str, object: Value) -> Result<Value, StatusError> {
        let (target, _) = self.target(path)?;
        let stored = self
            .shared
            .write(false, false, |writer| writer.update(&target, object))?;
        Ok(stored.to_value(self.resource(&target)))
    }

    /// Applies a JSON merge patch to an object, and returns it as stored.
    ///
    /// # Errors
    ///
    /// Those of the API: 404 if it is not there, 409 if the patch names another resourceVersion.
    pub fn patch(&self, path: &str, merge_patch: Value) -> Result<Value, StatusError> {
        let (target, _) = self.target(path)?;
        let patch = Patch::Merge(merge_patch);
        let stored = self
            .shared
            .write(false, false, |writer| writer.patch(&target, patch))?;
        Ok(stored.to_value(self.resource(&target)))
    }

    /// Deletes an object and returns its last state. If it has finalizers it stays, with a
    /// `deletionTimestamp`, until an update takes the last of them away. Grace periods are not waited
    /// for.
    ///
    /// # Errors
    ///
    /// 404 if it is not there.
    pub fn delete(&self, path: &str) -> Result<Value, StatusError> {
        let (target, _) = self.target(path)?;
        let all = Preconditions::default();
        let deleted = self
            .shared
            .write(false, false, |writer| writer.delete(&target, &all))?;
        Ok(deleted.object.to_value(self.resource(&target)))
    }

    /// The object at this path.
    ///
    /// # Errors
    ///
    /// 404 if it is not there.
    pub fn get(&self, path: &str) -> Result<Value, StatusError> {
        let (target, _) = self.target(path)?;
        Ok(read::get(&self.shared, &target, None)?.to_value(self.resource(&target)))
    }

    /// The list at this path, which may have a query as over HTTP (`?labelSelector=app%3Dweb&limit=10`).
    ///
    /// # Errors
    ///
    /// Those of the API: 400 for a bad selector, 410 for a version that is forgotten.
    pub fn list(&self, path: &str) -> Result<Value, StatusError> {
        let (target, head) = self.target(path)?;
        let page = read::list_page(&self.shared, &target, &Options::parse(&head)?)?;
        let body = page.body(self.resource(&target), Form::Full);
        serde_json::from_slice(&body).map_err(|error| StatusError::internal(error.to_string()))
    }

    /// The version of the newest change.
    pub fn resource_version(&self) -> u64 {
        self.shared.state.lock().store.version()
    }

    /// Forgets the past: lists, pages and watches that start before the current version are answered with 410
    /// from now on. Watches that are open already go on, and lose nothing.
    pub fn compact(&self) {
        self.shared.state.lock().store.compact();
    }

    /// Answers watches that start before the current version with 410 from now on, as a kube-apiserver does
    /// after a restart: its watch cache is empty, but etcd still has older states. Lists and pages at an older
    /// version are still served. Open watches continue and lose nothing.
    ///
    /// See [`compact`](Self::compact) to forget the older states as well.
    pub fn forget_events(&self) {
        self.shared.state.lock().store.forget_events();
    }

    /// A copy of all that is stored, its version and its history.
    pub fn backup(&self) -> Backup {
        let store = self.shared.state.lock().store.clone();
        Backup {
            store,
            resources: self.shared.resources.known(),
        }
    }

    /// Puts everything back to what it was at the backup, as when etcd is restored: the resourceVersion goes
    /// back, and what is written from now on gets versions that were given before. Open watches are cut.
    /// Requests at a version that is lost are answered as by a kube-apiserver that has not come so far: lists
    /// with 504 (`Too large resource version`), watches with silence until it has.
    ///
    /// ```
    /// use k8s_informer::testing::ApiServer;
    /// use serde_json::json;
    ///
    /// let server = ApiServer::start()?;
    /// let pods = "/api/v1/namespaces/default/pods";
    /// let backup = server.backup();
    /// let lost = server.create(pods, json!({ "metadata": { "name": "lost" } }))?;
    /// server.restore(&backup)?;
    /// assert_eq!(server.get(&format!("{pods}/lost")).unwrap_err().code(), 404);
    /// let other = server.create(pods, json!({ "metadata": { "name": "other" } }))?;
    /// assert_eq!(other["metadata"]["resourceVersion"], lost["metadata"]["resourceVersion"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) if the backup is of a server with other resources.
    pub fn restore(&self, backup: &Backup) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        if !self.shared.resources.has_place_for(&backup.resources) {
            let why = "the backup is of a server with other resources";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        state.store.restore(&backup.store);
        self.shared.reconcile(&mut state);
        state.watches.cancel_all();
        self.shared.changed.notify_all();
        Ok(())
    }

    /// Closes the port and all connections and waits for their threads. Connecting is refused until
    /// [`resume`](Self::resume); objects and history are kept, and can be changed meanwhile. Does nothing if
    /// paused.
    pub fn pause(&self) {
        let mut acceptor = self.acceptor.lock();
        if let Some(acceptor) = acceptor.take() {
            acceptor.stop(self.address);
            self.connections.close(&self.shared);
        }
    }

    /// Listens again, on the same port. Does nothing if not paused.
    ///
    /// # Errors
    ///
    /// When somebody else has taken the port meanwhile, or no thread can be started.
    pub fn resume(&self) -> io::Result<()> {
        let mut acceptor = self.acceptor.lock();
        if acceptor.is_none() {
            *acceptor = Some(Acceptor::start(
                &self.shared,
                &self.connections,
                TcpListener::bind(self.address)?,
            )?);
        }
        Ok(())
    }

    /// From now on only these tokens have rights; see
    /// [`ApiServerBuilder::token`](super::builder::ApiServerBuilder::token). For tests of
    /// tokens that expire. Requests under way and open watches are not affected.
    pub fn set_tokens<T: Into<String>>(&self, tokens: impl IntoIterator<Item = T>) {
        self.shared
            .auth
            .allow_only(tokens.into_iter().map(Into::into));
    }

    /// Plants a fault for the next requests that match. Of several it is the one planted first that strikes,
    /// so faults that strike once each are a script: one for the first request, one for the second.
    pub fn fail_next(&self, fault: Fault) {
        self.shared.faults.plant(fault);
    }

    /// Takes all faults away that have not struck yet.
    pub fn clear_faults(&self) {
        self.shared.faults.clear();
    }

    /// How many faults are still to strike.
    pub fn pending_faults(&self) -> usize {
        self.shared.faults.len()
    }

    /// Lets a fault strike all open watches that it matches, once, and says how many there were. All changes
    /// up to now still go out before; what it counts (`after_events`, `after_bytes`) it counts from there.
    /// Does not wait for that. `times` and `skip` don't count here.
    ///
    /// A fault that is made to strike before an answer strikes at once, and what would be an answer of its
    /// own comes as an event, if it is a [`Fault::status`], or not at all, if it is a [`Fault::response`].
    ///
    /// ```
    /// use k8s_informer::testing::{ApiServer, Fault};
    /// use std::io::{Write, read_to_string};
    /// use std::time::Duration;
    ///
    /// let server = ApiServer::start()?;
    /// let mut stream = std::net::TcpStream::connect(server.address())?;
    /// stream.write_all(b"GET /api/v1/pods?watch=1 HTTP/1.1\r\nConnection: close\r\n\r\n")?;
    /// assert!(server.wait_for_watches(1, Duration::from_secs(5)));
    /// assert_eq!(server.fail_watches(&Fault::status(410).resource("nodes")), 0);
    /// assert_eq!(server.fail_watches(&Fault::status(410).resource("pods")), 1);
    /// assert!(read_to_string(stream)?.contains(r#"{"type":"ERROR","object":{"kind":"Status","#));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn fail_watches(&self, fault: &Fault) -> usize {
        let open = self.shared.state.lock().watches.requests();
        // Conditions are the user's own code, so without the lock.
        let struck: Vec<u64> = open
            .into_iter()
            .filter(|(_, request)| fault.matches(request))
            .map(|(id, _)| id)
            .collect();
        let mut state = self.shared.state.lock();
        let after = state.store.version();
        let count = state.watches.fail(&struck, after, fault);
        self.shared.changed.notify_all();
        count
    }

    /// Ends all open watches in order: [`fail_watches`](Self::fail_watches) with [`Fault::end_watch`].
    pub fn close_watches(&self) -> usize {
        self.fail_watches(&Fault::end_watch())
    }

    /// Closes the connections of all open watches in the middle of the answer:
    /// [`fail_watches`](Self::fail_watches) with [`Fault::close`].
    pub fn cut_watches(&self) -> usize {
        self.fail_watches(&Fault::close())
    }

    /// Writes these bytes, as one chunk, into all open watches: [`fail_watches`](Self::fail_watches) with
    /// [`Fault::garbage`].
    pub fn write_to_watches(&self, bytes: impl Into<Vec<u8>>) -> usize {
        self.fail_watches(&Fault::garbage(bytes))
    }

    /// How many watches are open. One whose client has gone is not.
    pub fn open_watches(&self) -> usize {
        self.shared.state.lock().watches.len()
    }

    /// Waits until exactly so many watches are open; false if that takes longer than `timeout`.
    pub fn wait_for_watches(&self, count: usize, timeout: Duration) -> bool {
        let deadline = Instant::now().checked_add(timeout);
        let mut state = self.shared.state.lock();
        while state.watches.len() != count {
            match deadline {
                None => self.shared.watches_changed.wait(&mut state),
                Some(deadline) if Instant::now() >= deadline => return false,
                Some(deadline) => {
                    self.shared.watches_changed.wait_until(&mut state, deadline);
                }
            }
        }
        true
    }

    /// How many connections are open, idle ones included.
    pub fn open_connections(&self) -> usize {
        self.connections.len()
    }

    /// Waits until exactly so many connections are open; false if that takes longer than `timeout`.
    pub fn wait_for_connections(&self, count: usize, timeout: Duration) -> bool {
        self.connections.wait(count, timeout)
    }

    /// All requests received so far, oldest first, faults and failures included. Only the last 65536 are
    /// kept.
    pub fn requests(&self) -> Vec<RequestRecord> {
        self.shared.log.all()
    }

    /// Forgets all requests received so far.
    pub fn clear_requests(&self) {
        self.shared.log.clear();
    }

    /// Waits until `enough` says so of the requests received so far; false if that takes longer than
    /// `timeout`. It is called once at the start and again after every request, on this thread and
    /// without any lock. A fault that strikes a request is no longer pending by then.
    pub fn wait_for_requests(
        &self,
        enough: impl FnMut(&[RequestRecord]) -> bool,
        timeout: Duration,
    ) -> bool {
        self.shared.log.wait(enough, timeout)
    }

    fn resource(&self, target: &Target) -> &ApiResource {
        self.shared.resources.get(target.resource)
    }

    fn target(&self, path: &str) -> Result<(Target, Head), StatusError> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let Route::Object(target) = self.shared.resources.route(path) else {
            return Err(StatusError::no_such_resource());
        };
        if target.sub.is_some() {
            return Err(StatusError::method_not_allowed());
        }
        let head = Head {
            method: String::new(),
            path: path.to_owned(),
            query: parse_query(query),
            headers: Vec::new(),
            http11: true,
        };
        Ok((target, head))
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.pause();
    }
}

impl fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiServer")
            .field("url", &self.url())
            .finish_non_exhaustive()
    }
}

/// All that an [`ApiServer`] has stored at some time; made by [`ApiServer::backup`]. Cheap: it shares the
/// objects with the server.
#[derive(Clone)]
pub struct Backup {
    store: Store,
    resources: Vec<ApiResource>,
}

impl Backup {
    /// The version to which it leads back.
    pub fn resource_version(&self) -> u64 {
        self.store.version()
    }
}

impl fmt::Debug for Backup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backup")
            .field("resource_version", &self.resource_version())
            .finish_non_exhaustive()
    }
}

/// The thread that accepts connections. It owns the listener: when it has ended, the port is closed.
struct Acceptor {
    stopping: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Acceptor {
    fn start(
        shared: &Arc<Shared>,
        connections: &Arc<Connections>,
        listener: TcpListener,
    ) -> io::Result<Self> {
        let stopping = Arc::new(AtomicBool::new(false));
        let (shared, connections) = (shared.clone(), connections.clone());
        let stop = stopping.clone();
        let thread = thread::Builder::new()
            .name("api-server".to_owned())
            .spawn(move || {
                while !stop.load(Ordering::Acquire) {
                    // Both fail when the process is out of files or threads; then others need time to give some
                    // back.
                    let served = listener.accept().and_then(|(stream, _)| {
                        // What stopping sends to wake this thread is no client.
                        if stop.load(Ordering::Acquire) {
                            Ok(())
                        } else {
                            connections.start(&shared, stream)
                        }
                    });
                    if let Err(error) = served {
                        log::warn!("the embedded API server can't accept a connection: {error}");
                        thread::park_timeout(Duration::from_millis(50));
                    }
                }
            })?;
        Ok(Self { stopping, thread })
    }

    fn stop(self, address: SocketAddr) {
        self.stopping.store(true, Ordering::Release);
        self.thread.thread().unpark();
        // A blocked accept wakes for a connection only.
        while !self.thread.is_finished()
            && TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_err()
        {
            thread::sleep(Duration::from_millis(10));
        }
        let _ = self.thread.join();
    }
}
