use std::io::{self, Read};

#[cfg(feature = "gzip")]
use flate2::read::MultiGzDecoder;

#[cfg(feature = "gzip")]
use crate::error::{Error, ErrorKind};

/// The body of a response after its content encoding is decoded.
///
/// After a [timeout](Error::is_timeout), reading can continue: ureq and rustls keep the data
/// received so far.
pub(super) enum DecodedBody {
    Plain(ureq::BodyReader<'static>),
    #[cfg(feature = "gzip")]
    Gzip(Box<Gunzip>),
}

/// The ratio of the decompressed to the compressed size that is always allowed. A list of similar
/// objects has a ratio of 10 to 20.
#[cfg(feature = "gzip")]
const RATIO: u64 = 100;

#[cfg(feature = "gzip")]
pub(super) struct Gunzip {
    decoder: MultiGzDecoder<CountingReader>,
    unpacked: u64,
    /// The decompressed size that is always allowed.
    limit: u64,
}

#[cfg(feature = "gzip")]
impl Gunzip {
    /// Counts the decompressed bytes. Returns an error if they exceed both `limit` and `RATIO`
    /// times the compressed size, because a few compressed bytes can become gigabytes.
    fn check(&mut self, length: usize) -> io::Result<usize> {
        self.unpacked = self.unpacked.saturating_add(length as u64);
        let packed = self.decoder.get_ref().bytes;
        if self.unpacked <= self.limit.max(packed.saturating_mul(RATIO)) {
            return Ok(length);
        }
        let message = format!(
            "the compressed body expands to more than {} bytes, and to more than {RATIO} times its size",
            self.limit
        );
        Err(io::Error::other(Error::new(ErrorKind::TooLarge(message))))
    }
}

impl DecodedBody {
    /// Creates a reader that decodes the body. `limit` applies only to a compressed body.
    #[cfg_attr(
        not(feature = "gzip"),
        expect(unused_variables, reason = "only the feature `gzip` decompresses")
    )]
    pub(super) fn new(body: ureq::Body, gzip: bool, limit: u64) -> Self {
        let reader = body.into_reader();
        match gzip {
            #[cfg(feature = "gzip")]
            true => {
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

/// Reads decoded bytes. If the compressed data is damaged or too large, the [`io::Error`] contains
/// an [`Error`].
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
                            damaged("the compressed body is truncated")
                        }
                        (None, _) => damaged("the compressed body is corrupt"),
                    }
                });
                gunzip.check(read?)
            }
        }
    }
}

#[cfg(feature = "gzip")]
fn damaged(message: impl Into<String>) -> io::Error {
    io::Error::other(Error::invalid(message))
}

/// Counts the compressed bytes. Keeps the error of a failed read, so that [`DecodedBody`] returns
/// this error and does not report damaged data. The decoder can continue after a failed read.
#[cfg(feature = "gzip")]
pub(super) struct CountingReader {
    reader: ureq::BodyReader<'static>,
    /// The number of compressed bytes.
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
