//! Connections, their threads, and the requests on each connection.

use std::collections::HashMap;
use std::io::{self, Read};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::reader::{Reader, Refusal};
use crate::apiserver::engine::shared::Shared;
use crate::apiserver::handlers::api::{self, Answer};
use crate::apiserver::handlers::body_writer::{BodyWriter, End, Line};
use crate::apiserver::handlers::watch::Watch;
use crate::apiserver::model::faults::{Action, FaultEffect};
use crate::apiserver::model::http::{Head, Response, stream_head};
use crate::apiserver::model::log::{RequestRecord, Verb};
use crate::apiserver::model::resources::Route;
use crate::apiserver::model::status::StatusError;
use crate::apiserver::model::write_record::WriteRecord;

/// The maximum size of a request body, as in kube-apiserver.
const MAX_BODY: usize = 3 << 20;

/// The open connections of a server. Each has its own thread.
#[derive(Default)]
pub(crate) struct Connections {
    /// No other lock is taken, and no thread is joined, while this lock is held.
    open: Mutex<Open>,
    /// Notified when a connection opens or ends. Tests wait here, with `open`.
    changed: Condvar,
}

#[derive(Default)]
struct Open {
    last_id: u64,
    by_id: HashMap<u64, Connection>,
    /// Threads that have finished their work but are not joined yet.
    finished: Vec<JoinHandle<()>>,
}

struct Connection {
    stream: TcpStream,
    /// Whether the client is gone. The [`Line`] of the connection shares this flag.
    gone: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Connections {
    /// Serves `stream` on its own thread.
    pub(crate) fn start(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        stream: TcpStream,
    ) -> io::Result<()> {
        // Send small events at once, instead of waiting to merge several into one packet.
        stream.set_nodelay(true)?;
        let handle = stream.try_clone()?;
        let mut open = self.open.lock();
        open.last_id += 1;
        let id = open.last_id;
        let shared = shared.clone();
        let connections = Arc::clone(self);
        let gone = Arc::new(AtomicBool::new(false));
        let its_gone = gone.clone();
        let thread = thread::Builder::new()
            .name("api-server-conn".to_owned())
            .spawn(move || {
                let line = Line::new(&shared, &stream, its_gone);
                // Cleans up even if the thread panics.
                let _finish = Finish {
                    connections: &connections,
                    line: &line,
                    id,
                };
                serve(&line);
            })?;
        // The thread cannot have finished before this insert: finishing takes the lock.
        open.by_id.insert(
            id,
            Connection {
                stream: handle,
                gone,
                thread,
            },
        );
        self.changed.notify_all();
        let finished = std::mem::take(&mut open.finished);
        drop(open);
        join(finished);
        Ok(())
    }

    fn finish(&self, id: u64) {
        let mut open = self.open.lock();
        if let Some(connection) = open.by_id.remove(&id) {
            open.finished.push(connection.thread);
            self.changed.notify_all();
        }
    }

    /// Closes all connections and joins their threads. No connection may be started meanwhile.
    pub(crate) fn close(&self, shared: &Shared) {
        let mut open = self.open.lock();
        let mut threads = std::mem::take(&mut open.finished);
        let mut gone = Vec::new();
        for (_, connection) in open.by_id.drain() {
            // Ends any read or write that blocks the thread. The call fails if the connection is
            // closed already.
            let _ = connection.stream.shutdown(Shutdown::Both);
            gone.push(connection.gone);
            threads.push(connection.thread);
        }
        self.changed.notify_all();
        drop(open);
        // Ends the waits of the threads that are not reads or writes, such as a watch that waits
        // for changes.
        shared.hang_up(gone.iter().map(|gone| &**gone));
        join(threads);
    }

    /// Blocks until exactly `count` connections are open. Returns `false` after `timeout`.
    pub(crate) fn wait(&self, count: usize, timeout: Duration) -> bool {
        let deadline = Instant::now().checked_add(timeout);
        let mut open = self.open.lock();
        while open.by_id.len() != count {
            match deadline {
                None => self.changed.wait(&mut open),
                Some(deadline) if Instant::now() >= deadline => return false,
                Some(deadline) => {
                    self.changed.wait_until(&mut open, deadline);
                }
            }
        }
        true
    }

    pub(crate) fn len(&self) -> usize {
        self.open.lock().by_id.len()
    }
}

fn join(threads: Vec<JoinHandle<()>>) {
    for thread in threads {
        // Skip the current thread, which cannot join itself: if the condition of a fault owns the
        // server, the server can be dropped on one of its own threads.
        if thread.thread().id() != thread::current().id() {
            // The panic hook has already reported a panic.
            let _ = thread.join();
        }
    }
}

struct Finish<'a> {
    connections: &'a Connections,
    line: &'a Line<'a>,
    id: u64,
}

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        self.line.close();
        self.connections.finish(self.id);
    }
}

/// Answers requests until the connection ends.
fn serve(line: &Line<'_>) {
    let mut reader = Reader::new(line.stream);
    loop {
        match serve_one(line, &mut reader) {
            Ok(true) => {}
            Ok(false) => return linger(line.stream),
            Err(Refusal::Gone) => return,
            Err(Refusal::Bad(status, message)) => {
                let head = Head {
                    method: String::new(),
                    path: String::new(),
                    query: Vec::new(),
                    headers: Vec::new(),
                };
                let response = Response::text(status, &format!("{status} {message}"));
                if BodyWriter::new(line)
                    .respond(&response, &head, false)
                    .is_ok()
                {
                    linger(line.stream);
                }
                return;
            }
        }
    }
}

/// Answers one request. Returns whether another one may follow on the connection.
fn serve_one(line: &Line<'_>, reader: &mut Reader<'_>) -> Result<bool, Refusal> {
    let head = reader.head()?;
    let body = reader.body(&head, MAX_BODY)?;
    let keep_alive = head.keep_alive() && body.is_some() && head.method != "HEAD";
    let shared = line.shared;
    let route = shared.resources.route(&head.path);
    let resource = match &route {
        Route::Object(target) => Some(target.resource.plural.clone()),
        _ => None,
    };
    let verb = api::verb(&head, &route);
    let request = RequestRecord::new(head, verb, resource);
    // Take the fault before the request is logged, so that it is no longer pending when
    // `wait_for_requests` sees the request.
    let effect = shared.faults.take_matching(&request);
    shared.log.push(request.clone());
    let takes_time = effect.is_some() || verb == Verb::Watch;
    let exchange = Exchange {
        line,
        request,
        route,
        body,
        keep_alive,
    };
    let answered = if takes_time {
        respond_in_background(line, reader, || exchange.handle(effect))
    } else {
        exchange.handle(None)
    };
    // After an error nothing more may be written, so treat the client as gone.
    answered.map_err(|_| Refusal::Gone)
}

/// Answers on another thread, while this thread waits for the client to close the connection. The
/// answering thread can wait for changes of objects or for the end of a fault, and would not notice
/// a disconnect.
fn respond_in_background(
    line: &Line<'_>,
    reader: &mut Reader<'_>,
    respond: impl FnOnce() -> Result<bool, End> + Send,
) -> Result<bool, End> {
    thread::scope(|scope| {
        let writer = thread::Builder::new()
            .name("api-server-answer".to_owned())
            .spawn_scoped(scope, move || {
                let answered = respond();
                match answered {
                    Ok(true) => {}
                    Ok(false) => drop(line.stream.shutdown(Shutdown::Write)),
                    Err(_) => line.close(),
                }
                answered
            });
        let Ok(writer) = writer else {
            return Err(End::Cut);
        };
        if !reader.wait() {
            line.hang_up();
        }
        writer.join().unwrap_or(Err(End::Cut))
    })
}

/// A request that has been read, with its context.
struct Exchange<'a> {
    line: &'a Line<'a>,
    request: RequestRecord,
    route: Route,
    /// `None` if the body was too large.
    body: Option<Vec<u8>>,
    keep_alive: bool,
}

impl Exchange<'_> {
    /// Answers the request or applies the fault. Returns whether another request may follow.
    fn handle(&self, effect: Option<FaultEffect>) -> Result<bool, End> {
        let mut writer = BodyWriter::new(self.line);
        let mut bookmarks = true;
        let (within, before) = match effect {
            Some(effect) if effect.within_response() => (Some(effect), None),
            before => (None, before),
        };
        if let Some(effect) = before {
            writer.delay(&effect)?;
            match effect.action {
                Action::Status(status, headers) => {
                    let mut response = Response::from(status);
                    response.headers.extend(headers);
                    return self.respond(&mut writer, &response);
                }
                Action::Respond(response) => return self.respond(&mut writer, &response),
                Action::Garbage(bytes) => {
                    writer.write(&bytes)?;
                    return Err(End::Cut);
                }
                Action::NoBookmarks => bookmarks = false,
                action => writer.act(action)?,
            }
        }
        match self.regular_answer() {
            Answer::Response(response) => {
                // Ignore faults for watches: this response may be a rejected watch, which has no
                // events.
                if let Some(effect) = within.filter(|effect| !effect.for_watches()) {
                    writer.plan(effect);
                }
                self.respond(&mut writer, &response)
            }
            Answer::Watch(mut watch) => {
                if let Some(effect) = within {
                    writer.plan(effect);
                }
                if !bookmarks {
                    watch.forget_bookmarks();
                }
                self.watch(&mut writer, watch)
            }
        }
    }

    fn regular_answer(&self) -> Answer<'_> {
        let Some(body) = &self.body else {
            return Answer::Response(StatusError::too_large(MAX_BODY).into());
        };
        let answer = api::respond(self.line.shared, &self.request, &self.route, body);
        if let (Some(observe), Route::Object(target), Answer::Response(response)) =
            (self.line.shared.write_observer.get(), &self.route, &answer)
            && self.request.verb().is_write()
            && let Some(write) = WriteRecord::new(&self.request, target, body, response)
        {
            observe(&self.request, write);
        }
        answer
    }

    fn respond(&self, writer: &mut BodyWriter<'_>, response: &Response) -> Result<bool, End> {
        writer.respond(response, self.request.head(), self.keep_alive)?;
        Ok(self.keep_alive)
    }

    fn watch(&self, writer: &mut BodyWriter<'_>, mut watch: Watch<'_>) -> Result<bool, End> {
        let begun = writer
            .head(&stream_head(self.keep_alive), true)
            .and_then(|()| writer.flush());
        let end = match begun {
            Ok(()) => watch.run(writer),
            Err(end) => end,
        };
        // Drop the watch before the response ends, so that it no longer counts as open when the
        // client sees the end.
        drop(watch);
        match end {
            End::Clean => writer.finish().map(|()| self.keep_alive),
            End::Cut => Err(End::Cut),
        }
    }
}

/// Lets the client read the last response before the connection closes. Closing a socket with
/// unread input would reset the connection.
fn linger(mut stream: &TcpStream) {
    const LIMIT: usize = 1 << 20;
    if stream.shutdown(Shutdown::Write).is_err()
        || stream
            .set_read_timeout(Some(Duration::from_millis(500)))
            .is_err()
    {
        return;
    }
    let mut seen = 0;
    let mut unread = [0; 8192];
    while seen < LIMIT {
        match stream.read(&mut unread) {
            Ok(count) if count > 0 => seen += count,
            _ => return,
        }
    }
}
