//! A whole `SharedIndexInformer` with a scripted source, in virtual time.
//!
//! After each step all of its threads have settled. The reflector waits for the source or for the
//! time, and the process loop waits for the queue or for its gate. Each handler has either
//! processed all its notifications or is blocked by the script. [`World`] tracks this without
//! polling.

mod gate;
mod handlers;
mod source;
mod world;

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use k8s_informer::handler::HandlerOptions;
use k8s_informer::informer::{InformerError, InformerQueue, SharedIndexInformerOptions};
use k8s_informer::object::ResourceVersion;
use k8s_informer::reflector::ReflectorOptions;
use k8s_informer::stop::Subscription;
use k8s_informer::store::Transform;
use k8s_informer::{SharedIndexInformer, Stop};
use serde_json::{Value, json};

use self::handlers::handler;
use self::source::{Fillers, Item, Source};
use self::world::{Gate, HandlerState, ProcessLoop, Reflector, State, World};
use crate::client_go_traces::Replay;
use crate::client_go_traces::object::{keys, sorted, text, version_text};
use crate::client_go_traces::reflector_wire::class;

/// The maximum time until a handler is synced, in real time.
const PATIENCE: Duration = Duration::from_secs(10);

/// Longer than any back-off of the reflector.
const BACKED_OFF: Duration = Duration::from_millis(120_100);

pub(crate) fn build(config: &Value) -> Box<dyn Replay> {
    let world = World::new();
    let errors = world.clone();
    let mut reflector = ReflectorOptions::default();
    reflector.clock = Arc::new(world.clone());
    reflector.resync_period = millis(&config["resync_ms"]);
    reflector.watch_list = false;
    reflector.watch_error_handler = Some(Arc::new(move |error| {
        errors.change(|state| state.errors.push(json!(class(error))));
    }));
    let queue = match text(&config["queue"]) {
        "real" => InformerQueue::RealFifo,
        "delta" => InformerQueue::DeltaFifo,
        other => panic!("queue {other}"),
    };
    let is_real = queue == InformerQueue::RealFifo;
    // The first item of a `RealFifo` is the first list. That of a `DeltaFifo` are fillers.
    world.change(|state| state.holds_first = is_real);
    let mut options = SharedIndexInformerOptions::new()
        .indexers(source::indexers(&config["indexers"]))
        .reflector(reflector)
        .queue(queue)
        .metrics(Arc::new(world.clone()));
    options.transform = source::transform(&config["transform"]);
    let informer = SharedIndexInformer::new(Arc::new(Source(world.clone())), options);
    let closed = world.clone();
    let closes = world
        .stop()
        .on_stop(move || closed.change(|state| state.closed = true));
    let mut subject = Subject {
        world,
        _closes: closes,
        informer,
        running: None,
        period: millis(&config["resync_ms"]),
        resyncs: has_period(config),
        is_real,
        timeless: false,
    };
    for handler in config["handlers"].as_array().unwrap() {
        subject.resyncs |= has_period(handler);
        subject.add_handler(handler, false).unwrap();
    }
    Box::new(subject)
}

fn millis(value: &Value) -> Duration {
    Duration::from_millis(value.as_u64().unwrap_or_default())
}

fn has_period(config: &Value) -> bool {
    !millis(&config["resync_ms"]).is_zero()
}

struct Subject {
    world: World,
    /// Opens the gate at the end. The informer's own signals are set before any callback.
    _closes: Subscription,
    informer: SharedIndexInformer<Item>,
    running: Option<JoinHandle<()>>,
    /// The resync period of the informer.
    period: Duration,
    /// Whether anything in the trace has a resync period.
    resyncs: bool,
    /// Whether the queue is a `RealFifo`.
    is_real: bool,
    /// Whether the trace no longer records the time.
    timeless: bool,
}

impl Replay for Subject {
    fn begin(&mut self, steps: &[Value], _deviations: &BTreeSet<String>) {
        self.resyncs |= steps.iter().any(|step| has_period(&step["handler"]));
    }

    fn deviates(&self, step: &Value) -> Option<&'static str> {
        let last = self.informer.last_sync_resource_version();
        let events = step["events"].as_array()?.iter();
        let mut versions = events.filter_map(|event| event["obj"]["rv"].as_str());
        let is_older =
            |version| ResourceVersion::new(version).partial_cmp(&last) == Some(Ordering::Less);
        versions.any(is_older).then_some("W10")
    }

    fn step(&mut self, op: &str, step: &Value) -> Value {
        let mut delays = None;
        let done = match op {
            "start" => {
                self.start();
                self.reply(step);
                Ok(())
            }
            "list" => {
                self.reply(step);
                Ok(())
            }
            "emit" => {
                self.emit(step);
                Ok(())
            }
            "close_watch" => {
                self.world.change(|state| state.watch_ends = true);
                Ok(())
            }
            "relist" => {
                self.relist(step);
                Ok(())
            }
            "fail_lists" => {
                delays = Some(self.fail_lists(step));
                Ok(())
            }
            "tick" => {
                self.world
                    .advance_to(self.world.elapsed() + millis(&step["ms"]));
                Ok(())
            }
            "hold" => {
                // A pop that already waits at the gate may still pass.
                self.world.change(|state| {
                    if state.gate == Gate::Open {
                        state.gate = Gate::Closed {
                            passes: usize::from(state.process == ProcessLoop::Waits),
                        };
                    }
                });
                self.emit(step);
                Ok(())
            }
            "release" => {
                self.world.change(|state| state.gate = Gate::Open);
                Ok(())
            }
            "add_handler" => self.add_handler(&step["handler"], true),
            "remove_handler" => {
                let registration = |state: &State| {
                    state.handlers[text(&step["h"])]
                        .registration
                        .clone()
                        .unwrap()
                };
                self.informer
                    .remove_event_handler(&self.world.look(registration));
                Ok(())
            }
            "block_handler" | "unblock_handler" => {
                let (handler, blocked) = (text(&step["h"]), op == "block_handler");
                self.world
                    .change(|state| state.handlers.get_mut(handler).unwrap().blocked = blocked);
                Ok(())
            }
            "add_indexers" => self.informer.add_indexers(source::indexers(&step["names"])),
            "set_transform" => self.informer.set_transform(Transform::new(Ok::<_, String>)),
            "run_again" => {
                let again = self.informer.run(&Stop::never());
                assert!(
                    matches!(again, Err(InformerError::AlreadyStarted { .. })),
                    "{again:?}"
                );
                Ok(())
            }
            "stop" => {
                self.stop();
                Ok(())
            }
            other => panic!("op {other}"),
        };
        self.world.settle();
        let mut got = self.observed(&step["want"]);
        if let Err(error) = done {
            got["error"] = json!(match error {
                InformerError::AlreadyStarted { .. } => "started",
                InformerError::Stopped { .. } => "stopped",
                InformerError::Index(_) => "conflict",
                other => panic!("{other}"),
            });
        }
        if let Some(delays) = delays {
            got["delays"] = nominal(&delays, &step["want"]["delays"]);
        }
        got
    }
}

impl Subject {
    fn start(&mut self) {
        let resyncs = !self.period.is_zero();
        self.world.change(|state| {
            state.running = true;
            state.resyncs = resyncs;
        });
        let (informer, world) = (self.informer.clone(), self.world.clone());
        self.running = Some(thread::spawn(move || {
            world.change(|state| state.process_thread = Some(thread::current().id()));
            let ended = informer.run(&world.stop());
            world.change(|state| state.running = false);
            ended.unwrap();
        }));
        self.world.settle();
    }

    fn stop(&self) {
        self.world.change(|state| state.stopped = true);
        self.world.stop().stop();
    }

    fn add_handler(&mut self, config: &Value, late: bool) -> Result<(), InformerError> {
        let id = text(&config["id"]);
        let mut options = HandlerOptions::default();
        options.name = Some(id.to_owned());
        options.resync_period = config["resync_ms"].as_u64().map(Duration::from_millis);
        self.world.change(|state| {
            state.handlers.insert(
                id.to_owned(),
                HandlerState {
                    late,
                    ..HandlerState::default()
                },
            )
        });
        let added = self
            .informer
            .add_handler_with_options(handler(&self.world, config), options.clone());
        let registration = match added {
            Ok(registration) => registration,
            Err(error) => {
                self.world.change(|state| state.handlers.remove(id));
                return Err(error);
            }
        };
        let world = self.world.clone();
        let wakes = registration.ended().on_done(move || world.change(|_| ()));
        self.world.change(|state| {
            let handler = state.handlers.get_mut(id).unwrap();
            (handler.registration, handler.wakes) = (Some(registration), Some(wakes));
        });
        // Before the start, the informer uses the shortest period (I9).
        if let Some(period) = options
            .resync_period
            .filter(|period| !period.is_zero() && self.running.is_none())
        {
            self.period = self.period.min(period.max(Duration::from_secs(1)));
        }
        Ok(())
    }

    fn emit(&self, step: &Value) {
        for event in step["events"].as_array().into_iter().flatten() {
            self.send_frame(&source::event(event));
            // A `RealFifo` queues a bookmark as an item, and its metrics do not report that (R22).
            if self.is_real && event["type"] == "BOOKMARK" {
                self.world.change(|state| state.queued += 1);
                self.world.settle();
            }
        }
    }

    /// Sends a frame on the watch.
    fn send_frame(&self, frame: &str) {
        self.world
            .change(|state| state.bytes.extend(frame.as_bytes()));
        self.world.settle();
    }

    /// Answers the pending LIST: first with each failure, followed by its back-off, then with the
    /// list.
    fn reply(&self, step: &Value) {
        for class in step["fail"].as_array().into_iter().flatten() {
            self.fail(text(class));
            self.world.advance_to(self.world.elapsed() + BACKED_OFF);
        }
        if step["list"].is_object() {
            match self.world.look(|state| state.process) {
                ProcessLoop::Unstarted => self.send_first_list(&step["list"]),
                _ => self.send_list(&step["list"], Fillers::None),
            }
        }
    }

    fn send_list(&self, list: &Value, fillers: Fillers) {
        self.expect(Reflector::Lists);
        self.world
            .change(|state| state.reply = Some(Ok(source::list(list, fillers))));
        self.world.settle();
    }

    /// Sends the first list, and gets the process loop to the gate. client-go's loop then waits for
    /// its first pop if the gate is closed, and has processed the list if it is open.
    fn send_first_list(&self, list: &Value) {
        let is_empty = list["items"].as_array().is_none_or(Vec::is_empty);
        let (fillers, is_held) = match (self.is_real, is_empty) {
            // The list is one item, and waits at the gate.
            (true, _) => (Fillers::None, true),
            // The loop takes the fillers and nothing else, so the list waits in the queue.
            (false, false) => (Fillers::Batch, true),
            // There is nothing to hold: the informer has synced.
            (false, true) => (Fillers::One, false),
        };
        let gate = self.world.look(|state| state.gate);
        if !is_held {
            self.world.change(|state| state.gate = Gate::Open);
        }
        self.send_list(list, fillers);
        // The list has been processed when the pop of the next item begins.
        self.send_frame(&Fillers::event(&list["rv"]));
        self.reopen_watch();
        self.world.change(|state| state.gate = gate);
    }

    /// Ends the watch with the event of a filler, and forgets the request of the next one: the
    /// watch of the trace has had no event.
    fn reopen_watch(&self) {
        self.world.change(|state| state.watch_ends = true);
        self.world.settle();
        self.expect(Reflector::Watches);
        let request = self.world.change(|state| state.requests.pop()).unwrap();
        assert_eq!(request["kind"], "watch");
    }

    fn fail(&self, class: &str) {
        self.expect(Reflector::Lists);
        self.world
            .change(|state| state.reply = Some(Err(source::error(class))));
        self.world.settle();
    }

    fn expect(&self, expected: Reflector) {
        let reflector = self.world.look(|state| state.reflector);
        assert_eq!(reflector, expected, "the reflector");
    }

    fn relist(&self, step: &Value) {
        let answered = self.world.elapsed() + BACKED_OFF;
        match text(&step["how"]) {
            // The reflector may reopen a watch that ends, so end each watch until the reflector no
            // longer watches.
            "short" => {
                while self.world.look(|state| state.reflector) == Reflector::Watches {
                    self.world.change(|state| state.watch_ends = true);
                    self.world.settle();
                }
            }
            class => self.send_frame(&source::error_event(class)),
        }
        self.world.advance_to(answered);
        self.reply(step);
    }

    /// Returns how long the reflector waits after each failure.
    fn fail_lists(&mut self, step: &Value) -> Vec<Duration> {
        self.timeless = true;
        let delays = (0..step["n"].as_u64().unwrap()).map(|_| {
            let failed = self.world.elapsed();
            self.fail("internal");
            while self.world.look(|state| state.reflector) != Reflector::Lists {
                let due = self.world.next_due().expect("the reflector waits");
                self.world.advance_to(due);
            }
            self.world.elapsed() - failed
        });
        delays.collect()
    }

    fn observed(&self, want: &Value) -> Value {
        let lister = self.informer.lister();
        let informer_synced = self.informer.has_synced();
        let index = |name: &str| {
            let values = lister.index_values(name).unwrap().into_iter();
            let found = values.map(|value| {
                let mut found = lister.index_keys(name, &value).unwrap();
                found.retain(|key| !Fillers::has_key(key));
                (value.to_string(), found)
            });
            Value::Object(
                found
                    .filter(|(_, found)| !found.is_empty())
                    .map(|(value, found)| (value, keys(found)))
                    .collect(),
            )
        };
        let index: serde_json::Map<_, _> = lister
            .index_names()
            .iter()
            .map(|name| (name.to_string(), index(name)))
            .collect();
        let store = self
            .informer
            .lister()
            .list()
            .iter()
            .filter(|item| !Fillers::has(item))
            .map(|item| Arc::new(item.0.clone()))
            .collect();
        let (now, resyncs) = (self.world.elapsed().as_millis() as u64, self.resyncs);
        let (running, requests, errors, handlers) = self.world.change(|state| {
            let handlers = state.handlers.iter_mut().map(|(id, handler)| {
                let events =
                    handlers::sorted(std::mem::take(&mut handler.events), handler.late, resyncs);
                (
                    id.clone(),
                    events,
                    handler.is_idle(),
                    handler.registration.clone().unwrap(),
                )
            });
            let handlers: Vec<_> = handlers.collect();
            (
                state.running,
                std::mem::take(&mut state.requests),
                std::mem::take(&mut state.errors),
                handlers,
            )
        });
        let handlers: serde_json::Map<_, _> = handlers
            .into_iter()
            .map(|(id, events, is_idle, registration)| {
                // A handler becomes synced shortly after its callback has returned.
                let wanted = want["handlers"][&id]["synced"] == true;
                let due = is_idle && informer_synced && !registration.ended().is_done();
                let synced = match wanted || due {
                    true => registration.synced().wait_timeout(PATIENCE),
                    false => registration.has_synced(),
                };
                (id, json!({"events": events, "synced": synced}))
            })
            .collect();
        let mut observed = json!({
            "now_ms": if self.timeless { json!(-1) } else { json!(now) },
            "running": running,
            "requests": requests,
            "errors": errors,
            "handlers": handlers,
            "store": sorted(store),
            "index": index,
            "synced": informer_synced,
            "last_rv": version_text(self.informer.last_sync_resource_version()),
        });
        if self.is_real {
            observed["store_rv"] = json!(version_text(lister.resource_version()));
        }
        observed
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        self.stop();
        self.world.change(|state| {
            state
                .handlers
                .values_mut()
                .for_each(|handler| handler.blocked = false);
        });
        let ended = self.running.take().map(JoinHandle::join);
        // Drop the handlers, because the handlers and the world reference each other.
        let handlers = self
            .world
            .change(|state| std::mem::take(&mut state.handlers));
        drop(handlers);
        if let Some(Err(panic)) = ended
            && !thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

/// Rounds each wait to its nominal value. Jitter makes a wait up to twice as long.
fn nominal(delays: &[Duration], wanted: &Value) -> Value {
    let wanted = wanted
        .as_array()
        .into_iter()
        .flatten()
        .map(Some)
        .chain(std::iter::repeat(None));
    let nominal = delays
        .iter()
        .map(|delay| delay.as_millis() as u64)
        .zip(wanted);
    let nominal = nominal.map(|(delay, wanted)| match wanted.and_then(Value::as_u64) {
        Some(wanted) if (wanted..2 * wanted).contains(&delay) => wanted,
        _ => delay,
    });
    nominal.collect()
}
