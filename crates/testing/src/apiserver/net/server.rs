//! The server: its shared state, and its lifecycle from start to drop.

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
use crate::apiserver::engine::list::Options;
use crate::apiserver::engine::shared::Shared;
#[cfg(feature = "controller")]
use crate::apiserver::engine::shared::WriteObserver;
use crate::apiserver::engine::store::Store;
use crate::apiserver::engine::write::{Author, Writer};
use crate::apiserver::handlers::read;
use crate::apiserver::model::delete_options::DeleteOptions;
use crate::apiserver::model::faults::Fault;
use crate::apiserver::model::http::{Head, parse_query};
use crate::apiserver::model::log::RequestRecord;
use crate::apiserver::model::object::{Form, Object};
use crate::apiserver::model::patch::Patch;
use crate::apiserver::model::resources::{ApiResource, Route, Target};
use crate::apiserver::model::status::StatusError;
use crate::wait::check;
use k8s_informer::error::WaitError;

/// A Kubernetes API server on a loopback port, in this process. See the [crate](crate)
/// for its features.
///
/// **Threads.** The server starts one thread to accept connections and one per connection. Each
/// open watch, and each request that a fault strikes, has one more thread. No thread polls.
/// Dropping the server closes all connections and joins all threads.
///
/// **Direct access.** The methods of the server act as the cluster, not as a client. They need no
/// token, are not affected by faults and are not recorded as requests. They may also set system
/// fields (`status`, `uid`, `creationTimestamp`, `deletionTimestamp`).
pub struct ApiServer {
    shared: Arc<Shared>,
    connections: Arc<Connections>,
    address: SocketAddr,
    /// `None` while paused. The lock is held during a whole pause or resume, so it is taken before
    /// all other locks.
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

    /// Returns the URL of the server, such as `http://127.0.0.1:41234`. It stays the same across
    /// pauses.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Creates an object in a collection, such as `/api/v1/namespaces/default/pods`, and returns
    /// the stored object. The namespace need not exist.
    ///
    /// # Errors
    ///
    /// Returns the error of the API: 409 if the object exists, 422 for an invalid name, 404 or 405
    /// for a path that is not a collection.
    pub fn create(&self, collection: &str, object: Value) -> Result<Value, StatusError> {
        self.write(collection, |writer, target| writer.create(target, object))
    }

    /// Replaces an object, such as `/api/v1/namespaces/default/pods/web-0`, and returns the stored
    /// object. If the new object has a resourceVersion, it must equal that of the stored object. If
    /// the path ends in `/status`, only the status is replaced.
    ///
    /// # Errors
    ///
    /// Returns the error of the API: 404 if the object does not exist, 409 if it has changed, 400
    /// if the name in the new object differs from the path. A missing Lease or Event is created, as
    /// in kube-apiserver.
    pub fn update(&self, path: &str, object: Value) -> Result<Value, StatusError> {
        self.write(path, |writer, target| writer.update(target, object))
    }

    /// Applies a JSON merge patch to an object and returns the stored object.
    ///
    /// # Errors
    ///
    /// Returns the error of the API: 404 if the object does not exist, 409 if the patch contains a
    /// resourceVersion that differs from the stored one.
    pub fn patch(&self, path: &str, merge_patch: Value) -> Result<Value, StatusError> {
        let patch = Patch::Merge(merge_patch);
        self.write(path, |writer, target| writer.patch(target, patch))
    }

    /// Deletes an object and returns its last state. An object with finalizers stays, with a
    /// `deletionTimestamp`, until an update removes the last finalizer. Grace periods are ignored.
    ///
    /// # Errors
    ///
    /// Returns 404 if the object does not exist.
    pub fn delete(&self, path: &str) -> Result<Value, StatusError> {
        let options = DeleteOptions::default();
        self.write(path, |writer, target| {
            Ok(writer.delete(target, &options)?.object)
        })
    }

    /// Removes an object although it has finalizers, and returns its last state. The watch delivers
    /// this state, with the finalizers and without a `deletionTimestamp`.
    ///
    /// kube-apiserver can do this with an object whose first finalizer was added a moment before
    /// ([kubernetes/kubernetes#77988](https://github.com/kubernetes/kubernetes/issues/77988)): the DELETE
    /// has read the object before.
    ///
    /// ```
    /// use k8s_informer_testing::ApiServer;
    /// use serde_json::json;
    ///
    /// let server = ApiServer::start()?;
    /// let maps = "/api/v1/namespaces/default/configmaps";
    /// let map = json!({"metadata": {"name": "a", "finalizers": ["example.com/bucket"]}});
    /// server.create(maps, map)?;
    /// let last = server.vanish(&format!("{maps}/a"))?;
    /// assert!(last["metadata"]["deletionTimestamp"].is_null());
    /// assert_eq!(server.get(&format!("{maps}/a")).unwrap_err().code(), 404);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns 404 if the object does not exist.
    pub fn vanish(&self, path: &str) -> Result<Value, StatusError> {
        self.write(path, |writer, target| writer.vanish(target))
    }

    /// Returns the object at `path`.
    ///
    /// # Errors
    ///
    /// Returns 404 if the object does not exist.
    pub fn get(&self, path: &str) -> Result<Value, StatusError> {
        let (target, _) = self.target(path)?;
        Ok(read::get(&self.shared, &target, None)?.to_value(&target.resource))
    }

    /// Returns the list at `path`. The path may have a query as in HTTP
    /// (`?labelSelector=app%3Dweb&limit=10`).
    ///
    /// # Errors
    ///
    /// Returns the error of the API: 400 for an invalid selector, 410 for a version that is not
    /// available anymore.
    pub fn list(&self, path: &str) -> Result<Value, StatusError> {
        let (target, head) = self.target(path)?;
        let page = read::list_page(&self.shared, &target, &Options::parse(&head)?)?;
        let body = page.body(&target.resource, Form::Full);
        serde_json::from_slice(&body).map_err(|error| StatusError::internal(error.to_string()))
    }

    /// Returns the resource version of the newest change.
    pub fn resource_version(&self) -> u64 {
        self.shared.state.lock().store.version()
    }

    /// Compacts the history: lists, pages and watches that start before the current version fail
    /// with 410 from now on. Open watches continue and lose nothing.
    pub fn compact(&self) {
        self.shared.state.lock().store.compact();
    }

    /// Fails watches that start before the current version with 410 from now on, as kube-apiserver
    /// does after a restart: its watch cache is empty, but etcd still has older states. Lists and
    /// pages at an older version are still served. Open watches continue and lose nothing.
    ///
    /// See [`compact`](Self::compact) to drop the older states as well.
    pub fn forget_events(&self) {
        self.shared.state.lock().store.forget_events();
    }

    /// Returns a copy of all stored objects, with their version and history.
    pub fn backup(&self) -> Backup {
        let store = self.shared.state.lock().store.clone();
        Backup {
            store,
            fixed: self.shared.resources.by_origin().0,
        }
    }

    /// Restores a backup, as when etcd is restored: the resourceVersion goes back, and later writes
    /// get versions that were used before. Open watches are cut.
    ///
    /// Requests at a version that does not exist anymore behave as in a kube-apiserver that has not
    /// reached it yet. Lists fail with 504 (`Too large resource version`). Watches send nothing
    /// until the version is reached.
    ///
    /// ```
    /// use k8s_informer_testing::ApiServer;
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
    /// Returns [`InvalidInput`](io::ErrorKind::InvalidInput) if the backup belongs to a server with
    /// other resources.
    pub fn restore(&self, backup: &Backup) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        if self.shared.resources.by_origin().0 != backup.fixed {
            let why = "the backup belongs to a server with other resources";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        state.store.restore(&backup.store);
        self.shared.reconcile(&mut state, None);
        state.watches.cancel_all();
        self.shared.changed.notify_all();
        Ok(())
    }

    /// Closes the port and all connections, and joins their threads. New connections are refused
    /// until [`resume`](Self::resume). Objects and history are kept and can be changed meanwhile.
    /// Does nothing if the server is paused.
    pub fn pause(&self) {
        let mut acceptor = self.acceptor.lock();
        if let Some(acceptor) = acceptor.take() {
            acceptor.stop(self.address);
            self.connections.close(&self.shared);
        }
    }

    /// Listens again, on the same port. Does nothing if the server is not paused.
    ///
    /// # Errors
    ///
    /// Fails if the port is in use by now, or no thread can be started.
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

    /// Grants rights only to these tokens from now on; see
    /// [`ApiServerBuilder::token`](super::builder::ApiServerBuilder::token). Use it to test tokens
    /// that expire. Running requests and open watches are not affected.
    pub fn set_tokens<T: Into<String>>(&self, tokens: impl IntoIterator<Item = T>) {
        self.shared
            .auth
            .allow_only(tokens.into_iter().map(Into::into));
    }

    /// Injects a fault into the next requests that match. If several faults match a request, the
    /// oldest one strikes. Faults that strike once therefore form a script: the first one for the
    /// first request, the second one for the second request.
    pub fn fail_next(&self, fault: Fault) {
        self.shared.faults.add(fault);
    }

    /// Removes all faults that are still pending.
    pub fn clear_faults(&self) {
        self.shared.faults.clear();
    }

    /// Returns the number of pending faults.
    pub fn pending_faults(&self) -> usize {
        self.shared.faults.len()
    }

    /// Injects a fault into all open watches that match, and returns their number. The fault
    /// strikes each of these watches once.
    ///
    /// Changes up to this call are still sent before the fault strikes. The counts of the fault
    /// (`after_events`, `after_bytes`) begin after these changes. This method does not wait for the
    /// fault to strike. `times` and `skip` have no effect here.
    ///
    /// A fault without a position strikes right after these changes. A [`Fault::status`] is sent as
    /// an event. A [`Fault::response`] has no effect.
    ///
    /// ```
    /// use k8s_informer_testing::{ApiServer, Fault};
    /// use std::io::{Write, read_to_string};
    /// use std::time::Duration;
    ///
    /// let server = ApiServer::start()?;
    /// let mut stream = std::net::TcpStream::connect(server.address())?;
    /// stream.write_all(b"GET /api/v1/pods?watch=1 HTTP/1.1\r\nConnection: close\r\n\r\n")?;
    /// server.wait_for_watches(1, Duration::from_secs(5)).unwrap();
    /// assert_eq!(server.fail_watches(&Fault::status(410).resource("nodes")), 0);
    /// assert_eq!(server.fail_watches(&Fault::status(410).resource("pods")), 1);
    /// assert!(read_to_string(stream)?.contains(r#"{"type":"ERROR","object":{"kind":"Status","#));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn fail_watches(&self, fault: &Fault) -> usize {
        let open = self.shared.state.lock().watches.requests();
        // Conditions are user code, so they run without the lock.
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

    /// Ends all open watches cleanly: [`fail_watches`](Self::fail_watches) with
    /// [`Fault::end_watch`]. Returns the number of watches.
    pub fn close_watches(&self) -> usize {
        self.fail_watches(&Fault::end_watch())
    }

    /// Closes the connections of all open watches in the middle of the response:
    /// [`fail_watches`](Self::fail_watches) with [`Fault::close`]. Returns the number of watches.
    pub fn cut_watches(&self) -> usize {
        self.fail_watches(&Fault::close())
    }

    /// Writes `bytes` as one chunk into all open watches: [`fail_watches`](Self::fail_watches) with
    /// [`Fault::garbage`]. Returns the number of watches.
    pub fn write_to_watches(&self, bytes: impl Into<Vec<u8>>) -> usize {
        self.fail_watches(&Fault::garbage(bytes))
    }

    /// Returns the number of open watches. A watch whose client has disconnected does not count.
    pub fn open_watches(&self) -> usize {
        self.shared.state.lock().watches.len()
    }

    /// Blocks until exactly `count` watches are open.
    ///
    /// # Errors
    ///
    /// Fails after `timeout`.
    pub fn wait_for_watches(&self, count: usize, timeout: Duration) -> Result<(), WaitError> {
        let deadline = Instant::now().checked_add(timeout);
        let mut state = self.shared.state.lock();
        while state.watches.len() != count {
            match deadline {
                None => self.shared.watches_changed.wait(&mut state),
                Some(deadline) if Instant::now() >= deadline => {
                    let open = state.watches.len();
                    return check(false, timeout, || {
                        (format!("{count} open watches"), open.to_string())
                    });
                }
                Some(deadline) => {
                    self.shared.watches_changed.wait_until(&mut state, deadline);
                }
            }
        }
        Ok(())
    }

    /// Returns the number of open connections, including idle ones.
    pub fn open_connections(&self) -> usize {
        self.connections.len()
    }

    /// Blocks until exactly `count` connections are open.
    ///
    /// # Errors
    ///
    /// Fails after `timeout`.
    pub fn wait_for_connections(&self, count: usize, timeout: Duration) -> Result<(), WaitError> {
        let are_open = self.connections.wait(count, timeout);
        check(are_open, timeout, || {
            let open = self.connections.len();
            (format!("{count} open connections"), open.to_string())
        })
    }

    /// Returns all requests received so far, oldest first, including failed ones. The server keeps
    /// the last 65536 requests.
    pub fn requests(&self) -> Vec<RequestRecord> {
        self.shared.log.all()
    }

    /// Clears the record of received requests.
    pub fn clear_requests(&self) {
        self.shared.log.clear();
    }

    /// Blocks until `enough` returns `true` for the requests received so far.
    ///
    /// `enough` is called once at the start and again after every request, on the calling thread
    /// and without any lock. A fault that strikes a request is no longer pending at that time.
    ///
    /// # Errors
    ///
    /// Fails after `timeout`. The error has the number of requests.
    pub fn wait_for_requests(
        &self,
        enough: impl FnMut(&[RequestRecord]) -> bool,
        timeout: Duration,
    ) -> Result<(), WaitError> {
        let are_enough = self.shared.log.wait(enough, timeout);
        check(are_enough, timeout, || {
            let requests = self.shared.log.all().len();
            (
                "certain requests".to_owned(),
                format!("{requests} requests"),
            )
        })
    }

    /// Makes every watch send a bookmark with the current version.
    #[cfg(feature = "controller")]
    pub(crate) fn request_progress(&self) {
        self.shared.state.lock().watches.progress_requests += 1;
        self.shared.changed.notify_all();
    }

    /// Sets the function that is called with each request that has written. Later calls do nothing.
    #[cfg(feature = "controller")]
    pub(crate) fn observe_writes(&self, observer: Box<WriteObserver>) {
        let _ = self.shared.write_observer.set(observer);
    }

    /// Writes as the cluster. Returns the object.
    fn write(
        &self,
        path: &str,
        write: impl FnOnce(&mut Writer<'_>, &Target) -> Result<Arc<Object>, StatusError>,
    ) -> Result<Value, StatusError> {
        let (target, _) = self.target(path)?;
        let stored = self
            .shared
            .write(Author::Cluster, false, |writer| write(writer, &target))?;
        Ok(stored.to_value(&target.resource))
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

/// A copy of the objects of an [`ApiServer`] at one point in time. Create it with
/// [`ApiServer::backup`]. It is cheap, because it shares the objects with the server.
#[derive(Clone)]
pub struct Backup {
    store: Store,
    /// The resources of its server, except those with a definition.
    fixed: Vec<Arc<ApiResource>>,
}

impl Backup {
    /// Returns the resource version of the backup.
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

/// The thread that accepts connections. It owns the listener, so the port is closed when the thread
/// ends.
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
                    // `accept` fails without free file descriptors, and `start` without free
                    // threads. The pause after an error lets other threads release some.
                    let served = listener.accept().and_then(|(stream, _)| {
                        // This connection may be from `Acceptor::stop`, which connects only to wake
                        // this thread.
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
        // Connect to the port, because a thread blocked in `accept` wakes only for a connection.
        while !self.thread.is_finished()
            && TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_err()
        {
            thread::sleep(Duration::from_millis(10));
        }
        let _ = self.thread.join();
    }
}
