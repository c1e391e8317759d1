//! The requests of the reflector, and how the API servers answer them.

use std::io;
use std::panic::resume_unwind;
use std::sync::Arc;

use simulation::reflector::{Body, ListOptions, ListerWatcher};
use simulation::{Error, Stop};

use crate::connection::{Connection, End, Watch, bookmark, status_json};
use crate::plan::{Fault, WatchLists};
use crate::run::Run;
use crate::server::State;
use crate::thing::{is_selected, object};
use crate::world::World;

const SECOND: u64 = 1_000_000;

/// How long an API server waits until it has a requested version.
const FRESHNESS: u64 = 3 * SECOND;

pub struct Source {
    pub run: Arc<Run>,
    /// The only namespace of this source. `None` for both.
    pub namespace: Option<&'static str>,
}

/// The content of a response.
#[derive(Default)]
struct Answer {
    bytes: Vec<u8>,
    watch: Option<Watch>,
    complete_at: Option<usize>,
}

impl ListerWatcher for Source {
    fn list(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error> {
        if !self.run.is_own_thread() {
            return Ok(self.run.world().version_list().into());
        }
        let namespace = self.namespace;
        self.request("list", options, stop, |world, options, now, server| {
            world.list(options, namespace, now, server)
        })
    }

    fn watch(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error> {
        let namespace = self.namespace;
        self.request(
            "watch",
            options,
            stop,
            |world, options, now, server| match options.send_initial_events {
                true => world.watch_list(options, namespace, now, server),
                false => world.watch(options, namespace, now, server),
            },
        )
    }

    fn supports_watch_list(&self) -> bool {
        true
    }

    fn description(&self) -> String {
        "things".to_owned()
    }
}

impl Source {
    fn request(
        &self,
        verb: &str,
        options: &ListOptions,
        stop: &Stop,
        answer: impl Fn(&mut World, &ListOptions, u64, usize) -> Result<Answer, Error>,
    ) -> Result<Body, Error> {
        let run = &self.run;
        run.look(true);
        run.trace(|| format!("{verb} {}", options.to_query()));
        let (latency, server) = {
            let world = &mut *run.world();
            match verb {
                "list" => world.requests.0 += 1,
                _ => world.requests.1 += 1,
            }
            let slow = world.connection_fault(Fault::Delay, 30);
            let latency = world.rng.between(500, 30_000);
            let server = world.rng.below(world.plan.lags.len());
            (if slow { latency * 900 } else { latency }, server)
        };
        let until = run.time.now() + latency;
        while run.time.now() < until {
            if stop.is_stopped() || run.stop.is_stopped() {
                return Err(Error::stopped());
            }
            run.step(until);
        }
        let answered = run.world().fail_request();
        let answered = answered.and_then(|()| {
            // A server that lags behind waits for the requested version.
            let begun = run.time.now();
            loop {
                let now = run.time.now();
                let answered = answer(&mut run.world(), options, now, server);
                match answered {
                    Err(error)
                        if error.is_too_large_resource_version() && now < begun + FRESHNESS =>
                    {
                        run.step(now + 500_000);
                        if stop.is_stopped() || run.stop.is_stopped() {
                            return Err(Error::stopped());
                        }
                    }
                    answered => return answered,
                }
            }
        });
        let answer = answered.inspect_err(|error| run.trace(|| format!("failed: {error}")))?;
        let world = &mut *run.world();
        world.connections += 1;
        let mut connection = Connection {
            run: Arc::clone(run),
            stop: stop.clone(),
            number: world.connections,
            cut: None,
            hold_until: 0,
            splits: world.connection_fault(Fault::Split, 250),
            end: None,
            generation: world.server.generation,
            sent: answer.bytes,
            read: 0,
            watch: answer.watch,
            complete_at: answer.complete_at,
        };
        world.spoil_connection(&mut connection, run.time.now());
        let number = connection.number;
        run.trace_in(world, || format!("{number} opened at server {server}"));
        Ok(Body::timed(connection))
    }
}

impl World {
    /// Returns an error if the request fails before a server has looked at it.
    fn fail_request(&mut self) -> Result<(), Error> {
        for (fault, status) in [
            (Fault::TooManyRequests, (429, "TooManyRequests", 1)),
            (Fault::Internal, (500, "InternalError", 0)),
            (Fault::GatewayTimeout, (504, "Timeout", 0)),
            (Fault::Expired, (410, "Expired", 0)),
        ] {
            if self.connection_fault(fault, 9) {
                let seconds = status.2 * self.rng.between(1, 40) as u32;
                return Err(error((status.0, status.1, seconds), ""));
            }
        }
        if self.connection_fault(Fault::Refused, 12) {
            let kind = self.rng.pick(&[
                io::ErrorKind::ConnectionRefused,
                io::ErrorKind::ConnectionReset,
            ]);
            return Err(io::Error::from(kind).into());
        }
        if self.connection_fault(Fault::RequestPanic, 6) {
            resume_unwind(Box::new("a simulated request"));
        }
        Ok(())
    }

    fn spoil_connection(&mut self, connection: &mut Connection, now: u64) {
        let length = connection.sent.len();
        let at = match connection.watch {
            Some(_) => self.rng.below(length + 600),
            None => self.rng.below(length),
        };
        if self.connection_fault(Fault::Cut, 50) {
            connection.cut = Some((at, End::Reset));
        } else if self.connection_fault(Fault::Truncated, 30) {
            connection.cut = Some((at, End::Clean));
        } else if self.connection_fault(Fault::Stall, 20) {
            connection.cut = Some((at, End::Silence));
        } else if self.connection_fault(Fault::Delay, 30) {
            connection.hold_until = now + self.rng.between(SECOND, 40 * SECOND);
        } else if self.connection_fault(Fault::Garbage, 15) {
            connection.sent = self
                .rng
                .pick(&[&b"<html>proxy</html>"[..], b"{}", b"null", b"\xf0\x9f"])
                .to_vec();
            connection.complete_at = None;
            if let Some(watch) = &mut connection.watch {
                watch.deadline = now;
                watch.next = self.server.timeline.len();
            }
        }
    }

    /// Returns an empty list with the present version.
    fn version_list(&self) -> Vec<u8> {
        let version = self.server.version;
        format!(r#"{{"kind":"ThingList","metadata":{{"resourceVersion":"{version}"}},"items":[]}}"#)
            .into_bytes()
    }

    /// Returns the history that an API server has for a request of this version.
    fn fresh(&mut self, version: Option<u64>, now: u64, server: usize) -> Result<usize, Error> {
        let lag = self.plan.lags[server];
        let visible = self.server.visible(now, lag);
        if lag > 0 {
            self.count(Fault::LaggingServer);
        }
        match version {
            Some(version) if version > self.server.version_at(visible) => {
                self.count(Fault::TooLarge);
                Err(error((504, "Timeout", 0), "ResourceVersionTooLarge"))
            }
            _ => Ok(visible),
        }
    }

    fn list(
        &mut self,
        options: &ListOptions,
        namespace: Option<&'static str>,
        now: u64,
        server: usize,
    ) -> Result<Answer, Error> {
        let limit = options.limit.map(|limit| limit as usize);
        let (entries, start, limit) = match &options.continue_token {
            Some(token) => {
                let parts: Vec<u64> = token.split('.').filter_map(|it| it.parse().ok()).collect();
                let [epoch, entries, start] = parts[..] else {
                    return Err(error((400, "BadRequest", 0), ""));
                };
                let version = match epoch == u64::from(self.server.epoch) {
                    true => self.server.version_at(entries as usize),
                    false => 0,
                };
                let expired = version < self.server.compacted;
                if expired || self.connection_fault(Fault::ExpiredToken, 60) {
                    self.count(Fault::ExpiredToken);
                    return Err(error((410, "Expired", 0), ""));
                }
                (entries as usize, start as usize, limit)
            }
            None => match version_text(options).as_deref() {
                None => (self.server.timeline.len(), 0, limit),
                Some("0") => {
                    let visible = self.fresh(None, now, server)?;
                    (visible, 0, limit.filter(|_| self.plan.pages_at_zero))
                }
                Some(version) => {
                    let version = version.parse().unwrap_or(u64::MAX);
                    match limit {
                        // Pages come from etcd.
                        Some(_) => (self.fresh(Some(version), u64::MAX, 0)?, 0, limit),
                        None => (self.fresh(Some(version), now, server)?, 0, None),
                    }
                }
            },
        };
        let objects = self.server.state_at(entries);
        let is_selected = |state: &State| is_selected(state.key, namespace);
        let objects = objects.into_values().filter(is_selected);
        let objects: Vec<State> = objects.skip(start).collect();
        let page = limit.unwrap_or(usize::MAX).min(objects.len());
        let (mut items, has_kind) = (Vec::new(), self.plan.items_have_kind);
        for state in &objects[..page] {
            let twice = self.object_fault(Fault::SentTwice, 5);
            if twice {
                self.hide(state.write);
                items.push(object(
                    state,
                    state.version,
                    has_kind,
                    crate::thing::Spoiled::Value,
                ));
            }
            let spoiled = self.spoil(state.write, now);
            items.push(object(state, state.version, has_kind, spoiled));
        }
        let rest = objects.len() - page;
        let mut metadata = format!(r#""resourceVersion":"{}""#, self.server.version_at(entries));
        if rest > 0 {
            self.count(Fault::Pages);
            let token = format!("{}.{entries}.{}", self.server.epoch, start + page);
            metadata += &format!(r#","continue":"{token}","remainingItemCount":{rest}"#);
        }
        let kind = r#""kind":"ThingList","apiVersion":"example.com/v1""#;
        let content = format!(r#""metadata":{{{metadata}}},"items":[{}]"#, items.join(","));
        let bytes = match self.plan.kind_last {
            true => format!("{{{content},{kind}}}"),
            false => format!("{{{kind},{content}}}"),
        };
        let complete_at = (rest == 0).then_some(bytes.len());
        Ok(Answer {
            bytes: bytes.into_bytes(),
            watch: None,
            complete_at,
        })
    }

    fn watch(
        &mut self,
        options: &ListOptions,
        namespace: Option<&'static str>,
        now: u64,
        server: usize,
    ) -> Result<Answer, Error> {
        let from = version_text(options).unwrap_or_default();
        let from = from.parse().unwrap_or(0);
        if from < self.server.compacted {
            self.count(Fault::Expired);
            return Err(error((410, "Expired", 0), ""));
        }
        if from
            > self
                .server
                .version_at(self.server.visible(now, self.plan.lags[server]))
            && !self.plan.accepts_future
        {
            self.fresh(Some(from), now, server)?;
        }
        let timeline = &self.server.timeline;
        let next = timeline.partition_point(|entry| entry.version <= from);
        Ok(Answer {
            watch: Some(self.open(options, namespace, (next, from), now, server)),
            ..Answer::default()
        })
    }

    fn open(
        &self,
        options: &ListOptions,
        namespace: Option<&'static str>,
        (next, from): (usize, u64),
        now: u64,
        server: usize,
    ) -> Watch {
        let timeout = u64::from(options.timeout_seconds.unwrap_or(300));
        let bookmarks = options.allow_watch_bookmarks && self.plan.sends_bookmarks;
        Watch {
            namespace,
            next,
            from,
            lag: self.plan.lags[server],
            deadline: now + timeout * SECOND,
            bookmark_at: bookmarks.then_some(now + 60 * SECOND),
            has_last_bookmark: false,
        }
    }

    fn watch_list(
        &mut self,
        options: &ListOptions,
        namespace: Option<&'static str>,
        now: u64,
        server: usize,
    ) -> Result<Answer, Error> {
        match self.plan.server_watch_lists {
            WatchLists::Supported => self.count(Fault::WatchList),
            WatchLists::Rejected => {
                self.count(Fault::WatchListRejected);
                return Err(error((422, "Invalid", 0), ""));
            }
            WatchLists::Ignored => {
                self.count(Fault::WatchListIgnored);
                let zero = options.resource_version.is_none();
                if !zero {
                    return self.watch(options, namespace, now, server);
                }
            }
        }
        let version = version_text(options).unwrap_or_default();
        let entries = match version.parse() {
            Ok(version) => self.fresh(Some(version), now, server)?,
            Err(_) => self.server.timeline.len(),
        };
        let mut bytes = String::new();
        for state in self.server.state_at(entries).into_values() {
            if !is_selected(state.key, namespace) {
                continue;
            }
            let spoiled = self.spoil(state.write, now);
            let object = object(&state, state.version, true, spoiled);
            bytes += &format!("{{\"type\":\"ADDED\",\"object\":{object}}}\n");
        }
        let from = self.server.version_at(entries);
        let mut complete_at = None;
        if self.plan.server_watch_lists == WatchLists::Supported {
            bytes += &bookmark(from, true);
            // The frame is complete without its line break.
            complete_at = Some(bytes.len() - 1);
        }
        Ok(Answer {
            bytes: bytes.into_bytes(),
            watch: Some(self.open(options, namespace, (entries, from), now, server)),
            complete_at,
        })
    }
}

fn error(status: (u16, &str, u32), cause: &str) -> Error {
    match serde_json::from_str(&status_json(status, cause)) {
        Ok(status) => Error::from_status(status),
        Err(error) => Error::other(error.to_string()),
    }
}

/// Returns the version that a request has.
fn version_text(options: &ListOptions) -> Option<String> {
    options.resource_version.as_ref().map(ToString::to_string)
}
