//! A response: what one API server sends, and what the connection makes of it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use simulation::Stop;
use simulation::reflector::TimedRead;

use crate::clock::micros;
use crate::plan::Fault;
use crate::run::Run;
use crate::server::Change;
use crate::thing::{is_selected, object};
use crate::world::World;

const SECOND: u64 = 1_000_000;
const BOOKMARKS: u64 = 60 * SECOND;
/// The longest silence that the reader of a list accepts.
const LIST_SILENCE: u64 = 30 * SECOND;

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Clean,
    Reset,
    /// It never ends, and sends nothing more.
    Silence,
}

/// The events of a watch that have not been sent.
pub struct Watch {
    /// The only namespace whose events are sent.
    pub namespace: Option<&'static str>,
    /// The position of the next event in the history.
    pub next: usize,
    /// The version of the request. Bookmarks that are not newer are not sent.
    pub from: u64,
    pub lag: u64,
    pub deadline: u64,
    pub bookmark_at: Option<u64>,
    pub has_last_bookmark: bool,
}

pub struct Connection {
    pub run: Arc<Run>,
    pub stop: Stop,
    pub number: u64,
    /// The bytes that the server has sent, and how many of them were read.
    pub sent: Vec<u8>,
    pub read: usize,
    /// `None` for a list, whose bytes are all sent.
    pub watch: Option<Watch>,
    /// The position at which the objects of a list are complete.
    pub complete_at: Option<usize>,
    pub generation: u32,
    /// The position at which the connection ends.
    pub cut: Option<(usize, End)>,
    /// The time before which nothing arrives.
    pub hold_until: u64,
    pub splits: bool,
    /// How the connection has ended.
    pub end: Option<End>,
}

enum Poll {
    Bytes(usize),
    End(End),
    /// Nothing arrives before this time.
    Wait(u64),
}

impl Connection {
    fn poll(&mut self, world: &mut World, now: u64, buffer: &mut [u8]) -> Poll {
        if self.end.is_none() && self.generation != world.server.generation {
            self.end = Some(
                world
                    .rng
                    .pick(&[End::Clean, End::Reset, End::Reset, End::Silence]),
            );
            if !world.has_faults() {
                self.end = Some(End::Reset);
            }
        }
        if let Some(end) = self.end {
            return Poll::End(end);
        }
        if now < self.hold_until {
            return Poll::Wait(self.hold_until);
        }
        self.fill(world, now);
        let mut length = (self.sent.len() - self.read).min(buffer.len());
        if let Some((at, end)) = self.cut {
            length = length.min(at.saturating_sub(self.read));
            if self.read >= at {
                self.end = Some(end);
                return Poll::End(end);
            }
        }
        if length == 0 {
            return match &self.watch {
                None => Poll::End(End::Clean),
                Some(watch) if now >= watch.deadline => Poll::End(End::Clean),
                Some(watch) => Poll::Wait(watch.next_at(world)),
            };
        }
        if self.splits && length > 1 && world.rng.permille(700) {
            length = 1 + world.rng.below(length.min(200));
        }
        buffer[..length].copy_from_slice(&self.sent[self.read..self.read + length]);
        self.read += length;
        if self.complete_at.is_some_and(|at| self.read >= at) {
            self.complete_at = None;
            world.lists_delivered += 1;
        }
        if self.read == self.sent.len() && self.watch.is_some() && self.cut.is_none() {
            self.sent.clear();
            self.read = 0;
        }
        Poll::Bytes(length)
    }

    /// Sends the events that the API server has now.
    fn fill(&mut self, world: &mut World, now: u64) {
        let Some(watch) = &mut self.watch else {
            return;
        };
        let visible = world.server.visible(now, watch.lag);
        while watch.next < visible {
            // A watch from a version of the future sends nothing until then.
            if world.server.timeline[watch.next].version <= watch.from {
                watch.next += 1;
                continue;
            }
            watch.send_event(world, now, &mut self.sent, &mut self.cut);
        }
        let last = match watch.deadline.saturating_sub(2 * SECOND) <= now {
            true if watch.bookmark_at.is_some() => {
                !std::mem::replace(&mut watch.has_last_bookmark, true)
            }
            _ => false,
        };
        if last || watch.bookmark_at.is_some_and(|at| now >= at) {
            watch.bookmark_at = Some(now + BOOKMARKS);
            let version = world.server.version_at(watch.next);
            if version > watch.from {
                world.count(Fault::Bookmark);
                self.sent.extend(bookmark(version, false).into_bytes());
            }
        }
    }

    /// Returns the error of a read after the end, or the length 0.
    fn ended(&self, end: End) -> io::Result<usize> {
        match end {
            End::Clean => Ok(0),
            _ => Err(io::ErrorKind::ConnectionReset.into()),
        }
    }
}

impl Watch {
    /// The time of the next event, bookmark or end.
    fn next_at(&self, world: &World) -> u64 {
        let next = world.server.timeline.get(self.next);
        let next = next.map_or(u64::MAX, |entry| entry.at.saturating_add(self.lag));
        let last = self.deadline - 2 * SECOND;
        let last = match self.bookmark_at.is_some() && !self.has_last_bookmark {
            true => last,
            false => self.deadline,
        };
        next.min(self.bookmark_at.unwrap_or(u64::MAX)).min(last)
    }

    fn send_event(
        &mut self,
        world: &mut World,
        now: u64,
        sent: &mut Vec<u8>,
        cut: &mut Option<(usize, End)>,
    ) {
        let entry = world.server.timeline[self.next].clone();
        if cut.is_none() && world.connection_fault(Fault::ErrorEvent, 8) {
            let status = world.rng.pick(&[
                (410, "Expired", 0),
                (410, "Gone", 0),
                (429, "TooManyRequests", 3),
                (500, "InternalError", 0),
                (403, "Forbidden", 0),
            ]);
            let frame = format!(r#"{{"type":"ERROR","object":{}}}"#, status_json(status, ""));
            sent.extend(frame.into_bytes());
            sent.push(b'\n');
            *cut = Some((sent.len(), End::Clean));
            return self.next += 1;
        }
        if world.connection_fault(Fault::Garbage, 5) {
            sent.extend_from_slice(world.rng.pick(&[
                &b"}{ garbage\n"[..],
                b"\xff\x00\xfe\n",
                b"{\"type\":\"MODIFIED\",\"object\":{\"metadata\":\n",
                b"[1]\n",
            ]));
        }
        self.next += 1;
        let (kind, version) = match &entry.change {
            Change::Added(_) => ("ADDED", entry.version),
            Change::Modified(_) => ("MODIFIED", entry.version),
            Change::Deleted(state) if world.plan.old_version_of_deletion => {
                world.count(Fault::OldVersionOfDeletion);
                ("DELETED", state.version)
            }
            Change::Deleted(_) => ("DELETED", entry.version),
            Change::Other => return,
        };
        let Some(state) = entry.change.state() else {
            return;
        };
        if !is_selected(state.key, self.namespace) {
            return;
        }
        let spoiled = world.spoil(state.write, now);
        let object = object(state, version, true, spoiled);
        sent.extend(format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n").into_bytes());
    }
}

impl TimedRead for Connection {
    fn read_within(&mut self, buffer: &mut [u8], timeout: Option<Duration>) -> io::Result<usize> {
        let run = Arc::clone(&self.run);
        let silence = timeout.map_or(LIST_SILENCE, micros);
        let deadline = run.time.now().saturating_add(silence);
        // A list may arrive between two pages, when the queue has not been emptied.
        run.look(true);
        run.world().can_wait_current = self.watch.is_some() && silence > SECOND / 50;
        let stop = self.stop.clone();
        let result = loop {
            if self.watch.is_none() && stop.is_stopped() && !run.stop.is_stopped() {
                run.fail("the informer has ended its own list".to_owned());
            }
            if stop.is_stopped() || run.stop.is_stopped() {
                break Err(io::Error::other("stopped"));
            }
            let now = run.time.now();
            let poll = self.poll(&mut run.world(), now, buffer);
            let until = match poll {
                Poll::Bytes(length) => break Ok(length),
                Poll::End(End::Silence) => deadline,
                Poll::End(end) => break self.ended(end),
                Poll::Wait(until) => until.min(deadline),
            };
            if now >= deadline {
                break Err(io::ErrorKind::TimedOut.into());
            }
            if self.watch.is_some() {
                run.settle();
            }
            run.step_with(until, Some(&stop));
        };
        run.world().can_wait_current = false;
        run.trace(|| format!("{} read {result:?} within {timeout:?}", self.number));
        result
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.run.trace(|| format!("{} closed", self.number));
    }
}

/// Returns the frame of a bookmark.
pub fn bookmark(version: u64, ends_initial_events: bool) -> String {
    let annotations = match ends_initial_events {
        true => r#","annotations":{"k8s.io/initial-events-end":"true"}"#,
        false => "",
    };
    let object = format!(
        r#"{{"kind":"Thing","apiVersion":"example.com/v1","metadata":{{"resourceVersion":"{version}"{annotations}}}}}"#
    );
    format!("{{\"type\":\"BOOKMARK\",\"object\":{object}}}\n")
}

/// Returns the JSON of a Status: code, reason and `Retry-After` in seconds.
pub fn status_json((code, reason, retry_after): (u16, &str, u32), cause: &str) -> String {
    let causes = match cause {
        "" => String::new(),
        cause => format!(r#","causes":[{{"reason":"{cause}"}}]"#),
    };
    format!(
        r#"{{"kind":"Status","apiVersion":"v1","status":"Failure","code":{code},"reason":"{reason}","message":"{reason}","details":{{"retryAfterSeconds":{retry_after}{causes}}}}}"#
    )
}
