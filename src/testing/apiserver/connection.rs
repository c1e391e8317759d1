//! Connections: their threads, and the conversation on each of them.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;

use super::api::{self, Answer};
use super::faults::Action;
use super::http::{Head, LAST_CHUNK, Reader, Refusal, Response, push_chunk, stream_head};
use super::log::RequestRecord;
use super::resources::Route;
use super::server::Shared;
use super::status::StatusError;
use super::watch::{End, Sink, Watch};

/// The largest body of a request, as of kube-apiserver.
const MAX_BODY: usize = 3 << 20;

/// The open connections of a server, each with its thread.
#[derive(Default)]
pub(crate) struct Connections {
    /// Nothing else is locked while it is held, and nobody is waited for.
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    last_id: u64,
    by_id: HashMap<u64, (TcpStream, JoinHandle<()>)>,
    /// Threads that are as good as done.
    finished: Vec<JoinHandle<()>>,
}

impl Connections {
    /// Serves `stream` on a thread of its own.
    pub(crate) fn start(&self, shared: &Arc<Shared>, stream: TcpStream) -> io::Result<()> {
        // Events are small and must not wait for one another.
        stream.set_nodelay(true)?;
        let handle = stream.try_clone()?;
        let mut open = self.open.lock();
        open.last_id += 1;
        let id = open.last_id;
        let shared = shared.clone();
        let thread = thread::Builder::new().name("api-server-conn".to_owned()).spawn(move || {
            // Even a panic must leave no dead connection behind.
            let _finish = Finish { shared: &shared, stream: &stream, id };
            serve(&shared, &stream);
        })?;
        // The thread can't have finished before this: finishing takes the lock.
        open.by_id.insert(id, (handle, thread));
        let finished = std::mem::take(&mut open.finished);
        drop(open);
        join(finished);
        Ok(())
    }

    fn finish(&self, id: u64) {
        let mut open = self.open.lock();
        if let Some((_, thread)) = open.by_id.remove(&id) {
            open.finished.push(thread);
        }
    }

    /// Closes all connections and waits for their threads. No new ones may be started meanwhile.
    pub(crate) fn close(&self, shared: &Shared) {
        let mut open = self.open.lock();
        let mut threads = std::mem::take(&mut open.finished);
        for (_, (stream, thread)) in open.by_id.drain() {
            // Wakes the thread from any read or write; one that is closed already needs no waking.
            let _ = stream.shutdown(Shutdown::Both);
            threads.push(thread);
        }
        drop(open);
        // Only after the sockets: a watch that opens from now on can't write and ends by itself.
        shared.cancel_watches();
        join(threads);
    }

    pub(crate) fn len(&self) -> usize {
        self.open.lock().by_id.len()
    }
}

fn join(threads: Vec<JoinHandle<()>>) {
    for thread in threads {
        // A condition of a fault may own the server, which is then dropped here: no thread can wait for
        // itself.
        if thread.thread().id() != thread::current().id() {
            // A panic has been reported by the panic hook already.
            let _ = thread.join();
        }
    }
}

struct Finish<'a> {
    shared: &'a Shared,
    stream: &'a TcpStream,
    id: u64,
}

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
        self.shared.connections.finish(self.id);
    }
}

/// Answers requests until the client leaves or must be left.
fn serve(shared: &Shared, stream: &TcpStream) {
    let mut reader = Reader::new(stream);
    loop {
        match serve_one(shared, stream, &mut reader) {
            Ok(true) => {}
            Ok(false) => return linger(stream),
            Err(Refusal::Gone) => return,
            Err(Refusal::Bad(status, message)) => {
                let head = Head {
                    method: String::new(),
                    path: String::new(),
                    query: Vec::new(),
                    headers: Vec::new(),
                    http11: true,
                };
                let response = Response::text(status, &format!("{status} {message}"));
                if response.write(stream, &head, false).is_ok() {
                    linger(stream);
                }
                return;
            }
        }
    }
}

/// Answers one request; whether another may follow on the connection.
fn serve_one(shared: &Shared, stream: &TcpStream, reader: &mut Reader<'_>) -> Result<bool, Refusal> {
    let head = reader.head()?;
    let body = reader.body(&head, MAX_BODY)?;
    let keep_alive = head.keep_alive() && body.is_some() && head.method != "HEAD";
    let route = shared.resources.route(&head.path);
    let resource = match &route {
        Route::Object(target) => Some(shared.resources.get(target.resource).plural.clone()),
        _ => None,
    };
    let verb = api::verb(&head, &route);
    let request = RequestRecord::new(head, verb, resource);
    shared.log.push(request.clone());
    let answer = match (shared.faults.strike(&request), body) {
        (Some(Action::Close), _) => return Err(Refusal::Gone),
        (Some(Action::Respond(response)), _) => Answer::Response(response),
        (None, None) => Answer::Response(StatusError::too_large(MAX_BODY).into()),
        (None, Some(body)) => api::answer(shared, &request, &route, &body),
    };
    match answer {
        Answer::Response(response) => {
            response.write(stream, request.head(), keep_alive)?;
            Ok(keep_alive)
        }
        Answer::Watch(watch) => {
            let sink = StreamSink { stream, chunked: request.head().http11 };
            serve_watch(shared, watch, sink, reader, keep_alive)
        }
    }
}

/// Runs a watch on a thread of its own, while this one waits for the client to close the connection: a thread
/// that sleeps until something happens to objects would not notice.
fn serve_watch(
    shared: &Shared,
    mut watch: Watch<'_>,
    mut sink: StreamSink<'_>,
    reader: &mut Reader<'_>,
    keep_alive: bool,
) -> Result<bool, Refusal> {
    let keep_alive = keep_alive && sink.chunked;
    let id = watch.id();
    let mut stream = sink.stream;
    stream.write_all(&stream_head(sink.chunked, keep_alive))?;
    let end = thread::scope(|scope| {
        let writer =
            thread::Builder::new().name("api-server-watch".to_owned()).spawn_scoped(scope, move || {
                let end = watch.run(&mut sink);
                drop(watch);
                let finished =
                    end == End::Clean && (!sink.chunked || sink.stream.write_all(LAST_CHUNK).is_ok());
                if !finished {
                    let _ = sink.stream.shutdown(Shutdown::Both);
                } else if !keep_alive {
                    let _ = sink.stream.shutdown(Shutdown::Write);
                }
                finished
            });
        let Ok(writer) = writer else { return false };
        if !reader.wait() {
            shared.cancel_watch(id);
        }
        writer.join().unwrap_or(false)
    });
    if end { Ok(keep_alive) } else { Err(Refusal::Gone) }
}

struct StreamSink<'a> {
    stream: &'a TcpStream,
    chunked: bool,
}

impl Sink for StreamSink<'_> {
    /// Every line is a chunk of its own, as with the real one, but one write takes them all.
    fn send(&mut self, lines: &[Vec<u8>]) -> io::Result<()> {
        let mut out = Vec::with_capacity(lines.iter().map(|line| line.len() + 16).sum());
        for line in lines.iter().filter(|line| !line.is_empty()) {
            if self.chunked {
                push_chunk(&mut out, line);
            } else {
                out.extend_from_slice(line);
            }
        }
        let mut stream = self.stream;
        stream.write_all(&out)
    }
}

/// Lets the client read the last answer before the connection goes: closing with unread input would reset it.
fn linger(mut stream: &TcpStream) {
    const LIMIT: usize = 1 << 20;
    if stream.shutdown(Shutdown::Write).is_err()
        || stream.set_read_timeout(Some(Duration::from_millis(500))).is_err()
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
