//! A minimal HTTP server for scrapes. It serves one request per connection.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use k8s_informer::Stop;

/// The longest time that one client can delay the next. Clients are served one at a time.
const PATIENCE: Duration = Duration::from_secs(2);

/// The maximum number of bytes of a request head. No scrape needs more.
const MAX_HEAD: u64 = 16 << 10;

/// Serves `text` at `GET /metrics` until `stop` is signalled.
pub(crate) fn serve(listener: &TcpListener, stop: &Stop, text: impl Fn() -> String) {
    let address = listener.local_addr();
    // A connection from this program wakes the thread that blocks in `accept`.
    let _wake = stop.on_stop(move || {
        if let Ok(address) = address {
            let _ = TcpStream::connect(address);
        }
    });
    for connection in listener.incoming() {
        if stop.is_stopped() {
            return;
        }
        match connection.and_then(|connection| reply(connection, &text)) {
            Ok(()) => {}
            Err(error) => {
                eprintln!("metrics: a scrape failed: {error}");
                // Pause, because the next `accept` could fail immediately as well, for example
                // without a free file descriptor.
                stop.wait_timeout(Duration::from_millis(50));
            }
        }
    }
}

fn reply(mut connection: TcpStream, text: &impl Fn() -> String) -> io::Result<()> {
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.set_write_timeout(Some(PATIENCE))?;
    let mut lines = BufReader::new(connection.try_clone()?)
        .take(MAX_HEAD)
        .lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    // Read the rest of the head. Closing a connection with unread data would reset it.
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    let mut words = request.split(' ');
    let path = |word: &str| word.split('?').next().map(str::to_owned);
    let (status, body) = match (words.next(), words.next().and_then(path).as_deref()) {
        (Some("GET"), Some("/metrics")) => ("200 OK", text()),
        (Some("GET"), _) => ("404 Not Found", "the metrics are at /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "GET\n".to_owned()),
    };
    write!(
        connection,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// Returns the body of a GET request. Fails unless the status is 200.
pub(crate) fn get(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut connection = TcpStream::connect(address)?;
    write!(
        connection,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )?;
    let mut reply = String::new();
    connection.read_to_string(&mut reply)?;
    match reply.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 200 ") => Ok(body.to_owned()),
        _ => Err(io::Error::other(
            reply.lines().next().unwrap_or("no response").to_owned(),
        )),
    }
}
