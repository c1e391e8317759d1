//! Converts the errors of ureq and sockets to [`Error`].

use std::io;

use ureq::Timeout;

use super::sizes::BUFFER;
use crate::error::{Error, ErrorKind};

pub(in crate::client) fn from_ureq(error: ureq::Error) -> Error {
    let kind = match error {
        ureq::Error::Io(error) => return from_io(error),
        ureq::Error::Timeout(timeout) => ErrorKind::Timeout(
            match timeout {
                Timeout::Resolve => "the server's name was not resolved in time",
                Timeout::Connect => "the connection was not established in time",
                Timeout::SendRequest | Timeout::SendBody | Timeout::PerWrite => {
                    "the server did not accept the request in time"
                }
                Timeout::RecvResponse => "the server did not respond in time",
                Timeout::PerRead => "the server sent no data for too long",
                _ => "timed out",
            }
            .to_owned(),
        ),
        ureq::Error::HostNotFound => {
            ErrorKind::Connection("the server's name has no address".to_owned())
        }
        ureq::Error::LargeResponseHeader(..) => ErrorKind::TooLarge(format!(
            "the head of the response, or of a chunk, is larger than {} KiB",
            BUFFER / 1024
        )),
        ureq::Error::TlsRequired => ErrorKind::Tls("not configured".to_owned()),
        // The messages of the original errors are omitted, because they could quote request or
        // response data.
        ureq::Error::Protocol(_) => ErrorKind::Connection(
            "the response is not HTTP/1.1, or the request is too large".to_owned(),
        ),
        ureq::Error::Http(_) | ureq::Error::BadUri(_) => {
            ErrorKind::Config("not a valid HTTP request".to_owned())
        }
        other => ErrorKind::Connection(other.to_string()),
    };
    Error::new(kind)
}

/// Converts an IO error. ureq and our own transports wrap their errors in IO errors, so a wrapped
/// error is unwrapped first.
pub(in crate::client) fn from_io(error: io::Error) -> Error {
    let error = match error.downcast::<Error>() {
        Ok(original) => return original,
        Err(error) => error,
    };
    if let Some(inner) = error.get_ref()
        && inner.is::<ureq::Error>()
    {
        // This conversion returns the ureq error that is wrapped in the IO error.
        match ureq::Error::from(error) {
            ureq::Error::Io(error) => return Error::connection(error.to_string()),
            error => return from_ureq(error),
        }
    }
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Error::new(ErrorKind::Refused(error.to_string())),
        io::ErrorKind::UnexpectedEof => {
            Error::connection("the server closed the connection before the end of its response")
        }
        _ => Error::connection(error.to_string()),
    }
}

/// Whether the connection was broken. A request on a pooled connection fails like this if the
/// server has just closed it.
pub(in crate::client) fn is_broken_connection(error: &ureq::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(error, ureq::Error::Io(error) if matches!(
        error.kind(),
        Kind::UnexpectedEof | Kind::ConnectionReset | Kind::ConnectionAborted | Kind::BrokenPipe | Kind::NotConnected
    ))
}
