use std::time::{Duration, Instant};

use super::cycle::{Cycle, Relist};
use super::output::{Output, ReportKind};
use crate::error::Error;
use crate::resource_version::ResourceVersion;
use crate::wire::{EscapedName, FrameSplitter, Piece, SplitError, WATCH_SLACK};

/// What is being read, for reports.
pub(super) const READING: Option<&str> = Some("watch");

/// A watch that ends within this time is followed by a list if it had no event (W5). Otherwise it
/// counts as a short watch (W4).
pub(super) const VERY_SHORT: Duration = Duration::from_secs(1);

/// The body of a watch or watch-list, which is open.
pub(super) struct Stream {
    frames: FrameSplitter,
    /// The time of the request (W2), or of the end of the initial events.
    pub(super) started: Instant,
    /// The time of the last event, or of the request.
    pub(super) last_event: Instant,
    /// The number of events and bookmarks since `started`.
    pub(super) events: u64,
    /// The silence after which a watch is considered dead.
    pub(super) idle_timeout: Duration,
    /// The time since the last bytes.
    pub(super) silence: Duration,
    /// How the body ended. Kept until the remaining frames have been handled.
    ended: Option<Result<(), Error>>,
    /// The time without a read before the one that found the end. The body may have ended at any
    /// point of it.
    unread: Duration,
}

/// How an open watch or watch-list ended.
pub(crate) enum WatchEnd {
    /// The body ended, or the connection broke.
    Body(Result<(), Error>),
    /// No data arrived for too long.
    Silence,
    /// The server sent an ERROR event.
    Error(Error),
    /// A frame could not be decoded.
    Malformed(Error),
}

/// Why a phase ends although the driver reported nothing.
pub(super) enum Due {
    /// The body has ended, and its last frame has been handled.
    BodyEnd(Result<(), Error>),
    /// The initial events of a watch-list take too long. The text says what is wrong.
    Late(&'static str),
    Relist(Relist),
    /// Waits until the store is current require a short watch.
    ShortWatch,
}

/// How long a stream lasted whose body has ended.
pub(super) enum Lasted {
    /// Less than a second, and it had no event (W5).
    VeryShort,
    Longer,
}

impl Stream {
    /// The answer to a request with this timeout, which was sent at `started`.
    pub(super) fn new(timeout: Duration, started: Instant, cycle: &Cycle) -> Self {
        let options = &cycle.options;
        Self {
            frames: FrameSplitter::new(options.limits.object_bytes),
            started,
            last_event: started,
            events: 0,
            idle_timeout: options.watch_idle_timeout.unwrap_or(timeout + WATCH_SLACK),
            silence: Duration::ZERO,
            ended: None,
            unread: Duration::ZERO,
        }
    }

    /// Returns how many bytes were consumed, and the next frame. At the end of the body, returns the
    /// remaining frames.
    pub(super) fn next(&mut self, input: &[u8]) -> Result<(usize, Option<Piece>), SplitError> {
        match self.ended {
            None => self.frames.next(input),
            Some(_) => self.frames.next_at_end().map(|piece| (0, piece)),
        }
    }

    /// Returns the frame that [`next`](Self::next) found in this input.
    pub(super) fn frame<'a>(&'a self, input: &'a [u8], piece: Piece) -> Output<'a> {
        let bytes = self.frames.piece(input, piece);
        match piece {
            Piece::Head => Output::LargeFrame(bytes),
            _ => Output::Frame(bytes),
        }
    }

    /// The frame that was returned last contains several events, and is split.
    pub(super) fn split_frame(&mut self) {
        self.frames.split_line();
    }

    /// Bytes have arrived.
    pub(super) fn read(&mut self) {
        self.silence = Duration::ZERO;
    }

    /// The body has ended. Its last frames may not have been handled yet. Nothing was read for
    /// `unread` before the read that found the end.
    pub(super) fn ended(&mut self, result: Result<(), Error>, unread: Duration) {
        self.ended = Some(result);
        self.unread = unread;
    }

    /// Takes how the body ended. Call it when there is no further frame.
    pub(super) fn take_end(&mut self) -> Option<Result<(), Error>> {
        self.ended.take()
    }

    /// Counts an event or a bookmark.
    pub(super) fn count_event(&mut self, cycle: &mut Cycle) {
        self.events += 1;
        self.last_event = cycle.now;
        cycle.watches.silence = Duration::ZERO;
    }

    /// Reports the end of the body. A broken connection is reported, and then handled like a normal
    /// end.
    pub(super) fn report_end(&self, result: Result<(), Error>, cycle: &mut Cycle) -> Lasted {
        if let Err(error) = result {
            cycle.report(error, ReportKind::Other, READING);
        }
        // Only the time counts in which the stream was seen open. A server whose watches end at once
        // must not look healthy because the program does something else between two steps.
        let until_noticed = cycle.now.duration_since(self.started);
        let lasted = until_noticed.saturating_sub(self.unread);
        if self.events > 0 || lasted >= VERY_SHORT {
            return Lasted::Longer;
        }
        let what = "very short watch: it ended within a second and without an event";
        cycle.report(Error::connection(what), ReportKind::Other, READING);
        Lasted::VeryShort
    }

    /// Returns the position of the next event, for messages.
    pub(super) fn event_position(&self, version: Option<&ResourceVersion>) -> String {
        let number = self.events + 1;
        match version {
            None => format!("event {number} (no version yet)"),
            Some(version) => {
                let version = version.to_string();
                format!("event {number} (last version {})", EscapedName(&version))
            }
        }
    }
}
