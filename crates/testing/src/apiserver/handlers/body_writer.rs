//! The writing side of a connection. It writes responses and applies faults to them.

use std::io::{self, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::apiserver::engine::shared::Shared;
use crate::apiserver::model::faults::{Action, FaultEffect};
use crate::apiserver::model::http::{Head, LAST_CHUNK, Response, push_chunk, start_line};
use crate::apiserver::model::status::error_line;

/// Go sends bodies below this size with a Content-Length and larger ones in chunks. Clients must
/// support both.
const CHUNKED_FROM: usize = 2048;
/// The size of the chunks of a body.
const CHUNK: usize = 32 << 10;

/// The state that the threads of a connection share.
pub(crate) struct Line<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) stream: &'a TcpStream,
    /// Whether the client is gone or the server stops. It is set while `Shared::state` is locked,
    /// and then `Shared::changed` is notified, so that a thread that is about to wait does not miss
    /// the change.
    pub(crate) gone: Arc<AtomicBool>,
    /// Whether the connection must end with a reset.
    reset: AtomicBool,
}

impl<'a> Line<'a> {
    pub(crate) fn new(shared: &'a Shared, stream: &'a TcpStream, gone: Arc<AtomicBool>) -> Self {
        Self {
            shared,
            stream,
            gone,
            reset: AtomicBool::new(false),
        }
    }

    /// Whether nothing reads from the connection anymore.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Marks the client as gone and ends all waits on this connection.
    pub(crate) fn hang_up(&self) {
        self.shared.hang_up([&*self.gone]);
    }

    /// Closes both directions of the connection, which wakes its reading thread.
    pub(crate) fn close(&self) {
        // Before a reset, close only the reading side, which wakes the reader: closing the writing
        // side would send a FIN, a clean end. Dropping the last handle of the socket sends the
        // reset.
        let how = if self.reset.load(Ordering::Acquire) {
            Shutdown::Read
        } else {
            Shutdown::Both
        };
        let _ = self.stream.shutdown(how);
    }

    /// Waits for this time, or forever. Fails as soon as the client is gone, because the response
    /// cannot continue.
    fn pause(&self, time: Option<Duration>) -> Result<(), End> {
        let deadline = time.and_then(|time| Instant::now().checked_add(time));
        let mut state = self.shared.state.lock();
        loop {
            if self.is_gone() {
                return Err(End::Cut);
            }
            match deadline {
                None => self.shared.changed.wait(&mut state),
                Some(deadline) if Instant::now() >= deadline => return Ok(()),
                Some(deadline) => {
                    self.shared.changed.wait_until(&mut state, deadline);
                }
            }
        }
    }

    fn reset(&self) -> io::Result<()> {
        self.reset.store(true, Ordering::Release);
        socket2::SockRef::from(self.stream).set_linger(Some(Duration::ZERO))
    }
}

/// The end of a response.
#[derive(Debug, PartialEq)]
pub(crate) enum End {
    /// Clean: the last chunk must still be written.
    Clean,
    /// Broken: nothing more may be written.
    Cut,
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> Self {
        Self::Cut
    }
}

/// Writes one response: the head and the framed pieces of the body.
pub(crate) struct BodyWriter<'a> {
    line: &'a Line<'a>,
    chunked: bool,
    /// Framed bytes that are not written yet.
    out: Vec<u8>,
    planned: Option<Planned>,
    drip: Option<(usize, Duration)>,
}

/// A fault that has not reached its position yet.
struct Planned {
    /// The number of events to send before the fault.
    events: usize,
    /// The number of bytes to send after these events.
    bytes: usize,
    effect: FaultEffect,
}

impl<'a> BodyWriter<'a> {
    pub(crate) fn new(line: &'a Line<'a>) -> Self {
        Self {
            line,
            chunked: false,
            out: Vec::new(),
            planned: None,
            drip: None,
        }
    }

    pub(crate) fn line(&self) -> &'a Line<'a> {
        self.line
    }

    /// Plans a fault for a response whose head is not written yet.
    pub(crate) fn plan(&mut self, effect: FaultEffect) {
        let (events, bytes) = (
            effect.events.unwrap_or_default(),
            effect.bytes.unwrap_or_default(),
        );
        self.planned = Some(Planned {
            events,
            bytes,
            effect,
        });
    }

    /// Plans a fault from this position on, for a response that has begun.
    pub(crate) fn plan_now(&mut self, effect: FaultEffect) -> Result<(), End> {
        self.plan(effect);
        self.apply_if_due()?;
        self.flush()
    }

    /// Returns the number of bytes that a fault will add to a body of this length.
    pub(crate) fn extra(&self, length: usize) -> usize {
        match &self.planned {
            Some(Planned {
                bytes,
                effect:
                    FaultEffect {
                        action: Action::Garbage(garbage),
                        ..
                    },
                ..
            }) if *bytes <= length => garbage.len(),
            _ => 0,
        }
    }

    /// Writes the response. `keep_alive` is whether the connection stays open after it.
    pub(crate) fn respond(
        &mut self,
        response: &Response,
        head: &Head,
        keep_alive: bool,
    ) -> Result<(), End> {
        let chunked = response.body.len() >= CHUNKED_FROM;
        let mut start = start_line(response.status, keep_alive);
        start.extend_from_slice(format!("Content-Type: {}\r\n", response.content_type).as_bytes());
        for (name, value) in &response.headers {
            start.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        if chunked {
            start.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
        } else {
            let length = response.body.len() + self.extra(response.body.len());
            start.extend_from_slice(format!("Content-Length: {length}\r\n\r\n").as_bytes());
        }
        self.head(&start, chunked)?;
        if head.method == "HEAD" {
            return self.flush();
        }
        let size = if chunked {
            CHUNK
        } else {
            response.body.len().max(1)
        };
        response
            .body
            .chunks(size)
            .try_for_each(|part| self.send(&[part]))?;
        self.finish()
    }

    /// Starts a response with this head. The head is sent together with the first part of the body,
    /// unless `flush` is called before.
    pub(crate) fn head(&mut self, head: &[u8], chunked: bool) -> Result<(), End> {
        self.chunked = chunked;
        self.out.extend_from_slice(head);
        self.apply_if_due()
    }

    /// Writes pieces of the body, or events. Each becomes its own chunk, but all are sent in one
    /// write.
    pub(crate) fn send<P: AsRef<[u8]>>(&mut self, pieces: &[P]) -> Result<(), End> {
        for piece in pieces
            .iter()
            .map(AsRef::as_ref)
            .filter(|piece| !piece.is_empty())
        {
            self.piece(piece)?;
        }
        self.flush()
    }

    /// Ends a body cleanly.
    pub(crate) fn finish(&mut self) -> Result<(), End> {
        if self.chunked {
            self.out.extend_from_slice(LAST_CHUNK);
        }
        self.flush()
    }

    /// Writes the framed bytes.
    pub(crate) fn flush(&mut self) -> Result<(), End> {
        let out = std::mem::take(&mut self.out);
        self.write(&out)?;
        self.out = out;
        self.out.clear();
        Ok(())
    }

    /// Writes these bytes without framing.
    pub(crate) fn write(&self, bytes: &[u8]) -> Result<(), End> {
        let mut stream = self.line.stream;
        let Some((count, every)) = self.drip else {
            return Ok(stream.write_all(bytes)?);
        };
        for drop in bytes.chunks(count.max(1)) {
            stream.write_all(drop)?;
            self.line.pause(Some(every))?;
        }
        Ok(())
    }

    fn piece(&mut self, piece: &[u8]) -> Result<(), End> {
        match &mut self.planned {
            Some(planned) if planned.events > 0 => planned.events -= 1,
            Some(planned) if planned.bytes < piece.len() => {
                let (before, after) = piece.split_at(planned.bytes);
                planned.bytes = 0;
                return self.write_around_fault(before, after);
            }
            Some(planned) => planned.bytes -= piece.len(),
            None => {}
        }
        self.push(piece);
        self.apply_if_due()
    }

    /// Writes a piece with a fault in its middle.
    fn write_around_fault(&mut self, before: &[u8], after: &[u8]) -> Result<(), End> {
        let breaks = self
            .planned
            .as_ref()
            .is_some_and(|planned| planned.effect.action.ends_connection());
        if breaks && self.chunked {
            // Announce the whole chunk but write only its beginning, as when a real connection
            // breaks.
            self.out
                .extend_from_slice(format!("{:x}\r\n", before.len() + after.len()).as_bytes());
            self.out.extend_from_slice(before);
        } else {
            self.push(before);
        }
        self.apply_if_due()?;
        self.push(after);
        Ok(())
    }

    fn push(&mut self, piece: &[u8]) {
        if self.chunked {
            push_chunk(&mut self.out, piece);
        } else {
            self.out.extend_from_slice(piece);
        }
    }

    fn apply_if_due(&mut self) -> Result<(), End> {
        let due = self
            .planned
            .take_if(|planned| planned.events == 0 && planned.bytes == 0);
        let Some(Planned { effect, .. }) = due else {
            return Ok(());
        };
        self.flush()?;
        self.delay(&effect)?;
        match effect.action {
            Action::Garbage(bytes) => self.push(&bytes),
            Action::Status(status, _) => {
                self.push(&error_line(&status));
                self.flush()?;
                return Err(End::Clean);
            }
            action => self.act(action)?,
        }
        Ok(())
    }

    /// Waits for the delay of the fault.
    pub(crate) fn delay(&self, effect: &FaultEffect) -> Result<(), End> {
        effect
            .delay
            .map_or(Ok(()), |delay| self.line.pause(Some(delay)))
    }

    /// Performs an action that is possible at any position of a response, and before it.
    pub(crate) fn act(&mut self, action: Action) -> Result<(), End> {
        match action {
            Action::Close => Err(End::Cut),
            Action::Reset => {
                self.line.reset()?;
                Err(End::Cut)
            }
            Action::Stall => self.line.pause(None),
            Action::Drip(count, every) => {
                self.drip = Some((count, every));
                Ok(())
            }
            Action::EndWatch => Err(End::Clean),
            Action::Pass
            | Action::Garbage(_)
            | Action::Status(..)
            | Action::Respond(_)
            | Action::NoBookmarks => Ok(()),
        }
    }
}
