#[cfg(feature = "gzip")]
use std::io;
use std::io::Read;

#[cfg(feature = "gzip")]
use flate2::read::MultiGzDecoder;

use super::answer::Encoding;
use super::failure;
use crate::error::Error;

/// A body as it was before it was encoded for its way.
///
/// After a [timeout](Error::is_timeout) it can be read on; ureq and rustls hold what has come so far.
pub(super) enum Decoded {
    AsItCame(ureq::BodyReader<'static>),
    #[cfg(feature = "gzip")]
    Gzip(Box<MultiGzDecoder<Wire>>),
}

impl Decoded {
    pub(super) fn new(body: ureq::Body, encoding: Encoding) -> Self {
        let reader = body.into_reader();
        match encoding {
            #[cfg(feature = "gzip")]
            Encoding::Gzip => Self::Gzip(Box::new(MultiGzDecoder::new(Wire { reader, failed: None }))),
            _ => Self::AsItCame(reader),
        }
    }

    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Error> {
        match self {
            Self::AsItCame(reader) => reader.read(buffer).map_err(failure::from_io),
            #[cfg(feature = "gzip")]
            Self::Gzip(decoder) => {
                decoder.read(buffer).map_err(|error| match (decoder.get_mut().failed.take(), error.kind()) {
                    (Some(error), _) => failure::from_io(error),
                    (None, io::ErrorKind::UnexpectedEof) => {
                        Error::decode("its compressed body ends before its end")
                    }
                    (None, _) => Error::decode("its compressed body is damaged"),
                })
            }
        }
    }
}

/// Keeps what went wrong on the way apart from what is wrong with what came. The decoder goes on where it was
/// after either.
#[cfg(feature = "gzip")]
pub(super) struct Wire {
    reader: ureq::BodyReader<'static>,
    failed: Option<io::Error>,
}

#[cfg(feature = "gzip")]
impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reader.read(buffer).map_err(|error| {
            self.failed = Some(error);
            io::ErrorKind::WouldBlock.into()
        })
    }
}
