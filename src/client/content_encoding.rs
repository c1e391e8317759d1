use std::io::{self, Read};

#[cfg(feature = "gzip")]
use flate2::read::MultiGzDecoder;

use super::response_checks::Encoding;
#[cfg(feature = "gzip")]
use crate::error::Error;

/// The body of a response without its content encoding.
///
/// After a [timeout](Error::is_timeout) it can be read on; ureq and rustls hold what has come so far.
pub(super) enum DecodedBody {
    Plain(ureq::BodyReader<'static>),
    #[cfg(feature = "gzip")]
    Gzip(Box<Gunzip>),
}

/// How many times its size a compressed body may unpack to, whatever the limit. A list of similar objects unpacks to 10
/// or 20 times.
#[cfg(feature = "gzip")]
const RATIO: u64 = 100;

#[cfg(feature = "gzip")]
pub(super) struct Gunzip {
    decoder: MultiGzDecoder<CountingReader>,
    unpacked: u64,
    /// How large it may be whatever the ratio.
    limit: u64,
}

#[cfg(feature = "gzip")]
impl Gunzip {
    /// A few bytes must not become gigabytes.
    fn check(&mut self, length: usize) -> io::Result<usize> {
        self.unpacked = self.unpacked.saturating_add(length as u64);
        let packed = self.decoder.get_ref().bytes;
        if self.unpacked <= self.limit.max(packed.saturating_mul(RATIO)) {
            return Ok(length);
        }
        Err(damaged(format!(
            "its compressed body unpacks to more than {} bytes, and to more than {RATIO} times its size",
            self.limit
        )))
    }
}

impl DecodedBody {
    /// `limit` is for a body that has to be unpacked.
    #[cfg_attr(
        not(feature = "gzip"),
        expect(unused_variables, reason = "nothing is unpacked")
    )]
    pub(super) fn new(body: ureq::Body, encoding: Encoding, limit: u64) -> Self {
        let reader = body.into_reader();
        match encoding {
            #[cfg(feature = "gzip")]
            Encoding::Gzip => {
                let decoder = MultiGzDecoder::new(CountingReader {
                    reader,
                    bytes: 0,
                    failed: None,
                });
                Self::Gzip(Box::new(Gunzip {
                    decoder,
                    unpacked: 0,
                    limit,
                }))
            }
            _ => Self::Plain(reader),
        }
    }
}

/// What is wrong with the encoding is an [`Error`] in the [`io::Error`].
impl Read for DecodedBody {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(reader) => reader.read(buffer),
            #[cfg(feature = "gzip")]
            Self::Gzip(gunzip) => {
                let decoder = &mut gunzip.decoder;
                let read = decoder.read(buffer).map_err(|error| {
                    match (decoder.get_mut().failed.take(), error.kind()) {
                        (Some(error), _) => error,
                        (None, io::ErrorKind::UnexpectedEof) => {
                            damaged("its compressed body ends before its end")
                        }
                        (None, _) => damaged("its compressed body is damaged"),
                    }
                });
                gunzip.check(read?)
            }
        }
    }
}

#[cfg(feature = "gzip")]
fn damaged(message: impl Into<String>) -> io::Error {
    io::Error::other(Error::decode(message))
}

/// Keeps what went wrong on the way apart from what is wrong with what came. The decoder goes on where it was
/// after either.
#[cfg(feature = "gzip")]
pub(super) struct CountingReader {
    reader: ureq::BodyReader<'static>,
    /// How many have come.
    bytes: u64,
    failed: Option<io::Error>,
}

#[cfg(feature = "gzip")]
impl Read for CountingReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.reader.read(buffer) {
            Ok(length) => {
                self.bytes = self.bytes.saturating_add(length as u64);
                Ok(length)
            }
            Err(error) => {
                self.failed = Some(error);
                Err(io::ErrorKind::WouldBlock.into())
            }
        }
    }
}
