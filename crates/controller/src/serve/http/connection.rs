use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use super::{Request, Response, Routes};
use crate::log;
use k8s_informer::__private::catch;

/// The time that a client has to send the head of its request.
pub(super) const HEAD_TIME: Duration = Duration::from_secs(2);

/// The time that a client has to receive the response.
pub(super) const WRITE_TIME: Duration = Duration::from_secs(5);

/// The maximum size of the head of a request, in bytes.
const MAX_HEAD: usize = 8 << 10;

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The client, which sends its request or receives the response.
    Client,
    /// A route.
    Route,
    /// The thread, because the server has closed the connection for another client.
    Closed,
}

/// Reads one request and writes the response. `enter` is called at the start of each phase. Fails if
/// the client is gone, or if the server closes the connection.
pub(super) fn serve(
    connection: &TcpStream,
    routes: &dyn Routes,
    enter: impl Fn(Phase) -> io::Result<()>,
) -> io::Result<()> {
    connection.set_nodelay(true)?;
    let request = match read_head(connection)? {
        Ok(head) if head.is_empty() => return Ok(()),
        Ok(head) => Request::parse(&head),
        Err(response) => Err(response),
    };
    enter(Phase::Route)?;
    let (is_head, response) = match request {
        Ok(request) => (request.is_head, respond(&request, routes)),
        Err(response) => (false, response),
    };
    let bytes = response.into_bytes(is_head);
    enter(Phase::Client)?;
    write(connection, &bytes)?;
    close(connection)
}

fn respond(request: &Request, routes: &dyn Routes) -> Response {
    match catch(|| routes.get(request)) {
        Ok(response) => response.unwrap_or_else(|| Response::of_status(404)),
        Err(panic) => {
            log::error!("the HTTP server: a route {panic}");
            Response::of_status(500)
        }
    }
}

/// Returns the head of a request, which is empty if the client sent nothing, or the response to an
/// invalid one.
fn read_head(connection: &TcpStream) -> io::Result<Result<Vec<u8>, Response>> {
    let deadline = Instant::now() + HEAD_TIME;
    let (mut head, mut more) = (Vec::new(), [0; 1024]);
    loop {
        match read(connection, &mut more, deadline) {
            Ok(0) if head.is_empty() => return Ok(Ok(head)),
            Ok(0) => return Ok(Err(Response::of_status(400))),
            Ok(count) => head.extend_from_slice(&more[..count]),
            Err(error) if error.kind() == ErrorKind::TimedOut => {
                return Ok(Err(Response::of_status(408)));
            }
            Err(error) => return Err(error),
        }
        // A TLS client would wait for an answer.
        if !head.first().is_some_and(u8::is_ascii_alphabetic) {
            return Ok(Err(Response::of_status(400)));
        }
        if is_complete(&head) {
            return Ok(Ok(head));
        }
        if head.len() >= MAX_HEAD {
            return Ok(Err(Response::of_status(431)));
        }
    }
}

/// Whether the bytes contain an empty line.
fn is_complete(head: &[u8]) -> bool {
    let ends = |end: &[u8]| head.windows(end.len()).any(|window| window == end);
    ends(b"\n\r\n") || ends(b"\n\n")
}

fn write(mut connection: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    let deadline = Instant::now() + WRITE_TIME;
    while !bytes.is_empty() {
        connection.set_write_timeout(Some(time_left(deadline)?))?;
        match connection.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(error) if is_retried(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Closes the connection. A close with unread input would reset it, and the client could lose the
/// response. So this waits for the client's end, but not for long.
fn close(connection: &TcpStream) -> io::Result<()> {
    const MAX_UNREAD: usize = 64 << 10;
    connection.shutdown(Shutdown::Write)?;
    let deadline = Instant::now() + Duration::from_millis(500);
    let (mut unread, mut more) = (0, [0; 1024]);
    while unread < MAX_UNREAD {
        match read(connection, &mut more, deadline)? {
            0 => break,
            count => unread += count,
        }
    }
    Ok(())
}

/// Reads once. Fails with [`ErrorKind::TimedOut`] at the deadline.
fn read(mut connection: &TcpStream, bytes: &mut [u8], deadline: Instant) -> io::Result<usize> {
    loop {
        connection.set_read_timeout(Some(time_left(deadline)?))?;
        match connection.read(bytes) {
            Err(error) if is_retried(&error) => {}
            result => return result,
        }
    }
}

fn time_left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(ErrorKind::TimedOut.into()),
        false => Ok(left),
    }
}

/// Whether the call was interrupted or reached its timeout. The loops check their deadlines.
fn is_retried(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::TimedOut
    )
}
