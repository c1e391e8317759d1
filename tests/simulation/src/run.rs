//! One run: an informer on one thread, or driven by the program, in a world that a seed determines.

use std::fmt::Write;
use std::hash::Hasher;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use simulation::handler::{HandlerBuffer, HandlerOptions, ResourceEventHandler};
use simulation::informer::{InformerError, InformerQueue, Progress, SharedIndexInformerOptions};
use simulation::object::GroupVersionKind;
use simulation::reflector::ReflectorState;
use simulation::store::{IndexFunc, Indexers, Transform};
use simulation::{SharedIndexInformer, Stop, Stopper};

use crate::clock::{Time, VirtualClock};
use crate::log::{self, Metrics};
use crate::observer::{Observer, SharedView};
use crate::plan::{Fault, Plan, Rng};
use crate::source::Source;
use crate::thing::{INDEX, LIMIT, NAMESPACES, Thing, group};
use crate::world::{Action, CURRENT_WITHIN, Phase, World};

const SECOND: u64 = 1_000_000;
/// The most steps of a run, so that one that makes no progress ends.
const MAX_STEPS: u64 = 100_000;

pub type Informer = SharedIndexInformer<Thing>;

/// What remains of a run.
pub struct Outcome {
    /// A digest of the whole trace.
    pub digest: u64,
    pub failure: Option<String>,
    /// How often each fault occurred, in the order of [`Fault::ALL`].
    pub faults: Vec<u32>,
    pub writes: usize,
}

/// A wait of another thread until the cache is current.
pub struct Wait {
    /// The version of the servers when it began, and their history.
    pub version: u64,
    pub epoch: u32,
    began: u64,
    /// What is wrong, when it has ended.
    failure: mpsc::Receiver<Option<String>>,
}

pub struct Run {
    pub time: Time,
    pub stop: Stopper,
    seed: u64,
    world: Mutex<World>,
    informer: Mutex<Option<Informer>>,
    thread: ThreadId,
    is_verbose: bool,
}

/// Runs a seed. With `is_verbose`, prints the trace.
pub fn run(seed: u64, is_verbose: bool) -> Outcome {
    simulation::seed(seed);
    let mut rng = Rng::new(seed);
    let plan = Plan::new(&mut rng);
    let run = Arc::new(Run {
        time: Time::default(),
        stop: Stopper::new(),
        seed,
        world: Mutex::new(World::new(rng, plan)),
        informer: Mutex::default(),
        thread: thread::current().id(),
        is_verbose,
    });
    log::begin(&run);
    run.trace_in(&mut run.world(), || format!("seed {seed}"));
    let informer = run.new_informer();
    *run.informer.lock().unwrap_or_else(PoisonError::into_inner) = Some(informer.clone());
    let handlers = run.world().plan.handlers;
    (0..handlers).for_each(|_| run.add_handler());
    let step = run.world().plan.step;
    let runs = || match step {
        None => informer.run(&run.stop),
        Some(step) => drive(&informer, step, &run.stop),
    };
    match catch_unwind(AssertUnwindSafe(runs)) {
        Ok(result) => run.ended(result.is_ok()),
        Err(_) => run.fail("a panic ended the thread of the informer".to_owned()),
    }
    drop(
        run.informer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take(),
    );
    let world = &mut *run.world();
    Outcome {
        digest: world.digest.finish(),
        failure: world.failure.take(),
        faults: std::mem::take(&mut world.faults),
        writes: world.server.writes.len(),
    }
}

/// Runs the informer by its drivers.
fn drive(informer: &Informer, step: Duration, stop: &Stop) -> Result<(), InformerError> {
    let mut drivers = informer.drivers(stop)?;
    // Not `step_all`, which measures real time.
    let mut all_ended = false;
    while !all_ended {
        all_ended = true;
        for driver in &mut drivers {
            all_ended &= driver.step(step) == Progress::Ended;
        }
    }
    Ok(())
}

impl Run {
    fn new_informer(self: &Arc<Self>) -> Informer {
        let mut options = SharedIndexInformerOptions::<Thing>::default();
        let world = &mut *self.world();
        options.one_thread = world.plan.step.is_none();
        let described = format!("{:?}", world.plan);
        self.trace_in(world, || described);
        options.metrics = Some(Arc::new(Metrics(Arc::downgrade(self))));
        // Without the callback, failed requests are logged.
        let callback = world.user_rng.permille(500).then(|| {
            let run = Arc::downgrade(self);
            Arc::new(move |error: &simulation::Error| {
                if let Some(run) = run.upgrade() {
                    run.failed(error);
                }
            }) as _
        });
        let plan = &world.plan;
        options.queue = match plan.delta_fifo {
            true => InformerQueue::DeltaFifo,
            false => InformerQueue::RealFifo,
        };
        options.recreation_as_delete_and_add = plan.recreation_as_delete_and_add;
        let time = self.time.clone();
        options.transform = Some(Transform::new(move |thing: Arc<Thing>| {
            match thing.fails_in_transform(time.now()) {
                true if thing.write % 4 == 0 => resume_unwind(Box::new("a simulated transform")),
                true => Err("simulated"),
                false => Ok(thing),
            }
        }));
        let time = self.time.clone();
        let index =
            IndexFunc::fallible(
                move |thing: &Thing| match thing.fails_in_index(time.now()) {
                    true if thing.write % 4 == 0 => resume_unwind(Box::new("a simulated index")),
                    true => Err("simulated"),
                    false => Ok(vec![group(thing.write)]),
                },
            );
        options.indexers = Indexers::new().with(INDEX, index);
        let reflector = &mut options.reflector;
        reflector.clock = Arc::new(VirtualClock {
            time: self.time.clone(),
            run: Arc::downgrade(self),
        });
        reflector.limits.object_bytes = LIMIT;
        reflector.watch_error_handler = callback;
        reflector.resync_period = plan.resync;
        reflector.page_size = plan.page_size;
        reflector.watch_list = plan.watch_list;
        reflector.watch_idle_timeout = plan.watch_idle_timeout;
        reflector.expected_kind = plan
            .expected_kind
            .then(|| GroupVersionKind::new("example.com", "v1", "Thing"));
        let source = |namespace| {
            let run = Arc::clone(self);
            Arc::new(Source { run, namespace })
        };
        if !plan.has_namespaces {
            return Informer::new(source(None), options);
        }
        let namespaces = NAMESPACES.map(|name| (name.to_owned(), source(Some(name)) as _));
        Informer::for_namespaces(namespaces, options)
    }

    pub fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn informer(&self) -> Option<Informer> {
        self.informer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub fn is_own_thread(&self) -> bool {
        thread::current().id() == self.thread
    }

    pub fn trace(&self, line: impl FnOnce() -> String) {
        self.trace_in(&mut self.world(), line);
    }

    pub fn trace_in(&self, world: &mut World, line: impl FnOnce() -> String) {
        let (now, line) = (self.time.now(), line());
        world.digest.write_u64(now);
        world.digest.write(line.as_bytes());
        if self.is_verbose {
            let mut text = String::new();
            let _ = writeln!(text, "{:>14.6} {line}", now as f64 / SECOND as f64);
            let _ = io::Write::write_all(&mut io::stderr(), text.as_bytes());
        }
    }

    /// Ends the run with a failure. The first one counts.
    pub fn fail(&self, failure: String) {
        self.trace(|| format!("FAILED: {failure}"));
        self.world().failure.get_or_insert(failure);
        self.stop.stop();
    }

    /// Lets time pass in a callback.
    pub fn pass_time(self: &Arc<Self>, until: u64) {
        self.world().in_callback += 1;
        while self.time.now() < until && !self.stop.is_stopped() {
            self.step(until);
        }
        self.world().in_callback -= 1;
    }

    /// Lets time pass until `until`, or until something happens in the world.
    pub fn step(self: &Arc<Self>, until: u64) {
        self.step_with(until, None);
    }

    /// Like [`step`](Self::step). `interrupt` ends the read in which the informer waits.
    pub fn step_with(self: &Arc<Self>, until: u64, interrupt: Option<&Stop>) {
        let is_tick = {
            let world = &mut *self.world();
            world.steps += 1;
            let next = until.min(world.next_tick).max(self.time.now());
            self.time.set(next);
            next >= world.next_tick
        };
        if self.world().steps > MAX_STEPS {
            self.fail("makes no progress".to_owned());
        }
        if is_tick {
            self.tick(interrupt);
        }
    }

    /// The next event of the world.
    fn tick(self: &Arc<Self>, interrupt: Option<&Stop>) {
        let now = self.time.now();
        // The versions of the cache and of the reflector, which may have seen more.
        let versions = self.informer().map_or_else(Vec::new, |informer| {
            let versions = [
                informer.store_resource_version(),
                informer.last_sync_resource_version(),
            ];
            let versions = versions.into_iter().flatten();
            let versions = versions.filter_map(|version| version.to_string().parse().ok());
            versions.collect()
        });
        let action = {
            let world = &mut *self.world();
            let (what, action) = match world.phase {
                Phase::Active if world.ticks_left == 0 => {
                    (world.phase, world.phase_since) = (Phase::Settling, now);
                    world.next_tick = u64::MAX;
                    ("the world is quiet".to_owned(), Action::None)
                }
                Phase::Active => world.tick(now, &versions, interrupt.is_some()),
                Phase::Waits(_) => world.next_wait(now),
                _ => (world.epilogue(now), Action::None),
            };
            self.trace_in(world, || format!("-- {what}"));
            action
        };
        match action {
            Action::None => {}
            Action::Add => self.add_handler(),
            Action::Remove => {
                let view = {
                    let world = &mut *self.world();
                    let at = world.rng.below(world.views.len());
                    world.views.get(at).cloned()
                };
                if let Some(view) = view {
                    self.remove_handler(&view);
                }
            }
            Action::Wait => self.check_waits(),
            Action::WaitCurrent => {
                if !self.world().has_faults() {
                    self.join_waits(now.saturating_sub(CURRENT_WITHIN));
                }
                self.wait_for_current_state(interrupt);
            }
            Action::EndWaits => {
                self.join_waits(u64::MAX);
                self.world().begin_epilogue(now);
            }
        }
    }

    /// Adds a handler. It is late if the informer runs.
    pub fn add_handler(self: &Arc<Self>) {
        let Some(informer) = self.informer() else {
            return;
        };
        let view = SharedView::default();
        let is_late = informer.status().state != ReflectorState::Created;
        let mut options = HandlerOptions::default();
        {
            let world = &mut *self.world();
            if world.views.len() >= 6 {
                return;
            }
            let (view, mut number) = (&mut *view.lock(), world.faults[Fault::LateHandler as usize]);
            number += world.plan.handlers as u32;
            view.number = if is_late {
                number as usize
            } else {
                world.views.len()
            };
            if is_late {
                world.count(Fault::LateHandler);
                let cached = informer.lister().list();
                view.replay = cached
                    .iter()
                    .filter_map(|thing| {
                        let state = &world.server.writes.get(thing.write as usize)?.state;
                        Some((state.key, thing.write))
                    })
                    .collect();
            }
            options.resync_period =
                world
                    .rng
                    .pick(&[None, Some(Duration::ZERO), Some(Duration::from_secs(30))]);
            options.buffer = world
                .rng
                .pick(&[HandlerBuffer::Unbounded, HandlerBuffer::Coalescing]);
            let number = view.number;
            self.trace_in(world, || format!("adds handler {number}: {options:?}"));
        }
        let observer: Box<dyn ResourceEventHandler<Thing>> = Box::new(Observer {
            run: Arc::clone(self),
            view: view.clone(),
        });
        match informer.add_handler_with_options(observer, options) {
            Ok(registration) => {
                view.lock().registration = Some(registration);
                self.world().views.push(view);
            }
            Err(error) => self.fail(format!("add_handler: {error}")),
        }
    }

    pub fn remove_handler(&self, view: &SharedView) {
        let (Some(informer), Some(registration)) =
            (self.informer(), view.lock().registration.clone())
        else {
            return;
        };
        let number = {
            let view = &mut *view.lock();
            view.is_removed = true;
            view.number
        };
        {
            let world = &mut *self.world();
            world.views.retain(|it| it.lock().number != number);
            world.count(Fault::Removed);
            self.trace_in(world, || format!("removes handler {number}"));
        }
        informer.remove_event_handler(&registration);
    }

    /// Waits on another thread until the cache is current.
    fn wait_for_current_state(self: &Arc<Self>, interrupt: Option<&Stop>) {
        let (Some(informer), Some(_)) = (self.informer(), interrupt) else {
            return;
        };
        let is_watching = informer.status().state == ReflectorState::Watching
            && informer.last_sync_resource_version() == informer.store_resource_version();
        if !is_watching {
            return;
        }
        let (run, seed) = (Arc::clone(self), self.seed);
        let (entries, version, epoch, now) = {
            let world = &mut *self.world();
            world.count(Fault::Current);
            let server = &world.server;
            let entries = server.timeline.len();
            (entries, server.version, server.epoch, self.time.now())
        };
        let (begins, has_begun) = mpsc::channel();
        let (ends, failure) = mpsc::channel();
        thread::spawn(move || {
            simulation::seed(seed);
            simulation::on_wait(move || begins.send(()).unwrap_or(()));
            let failure = match informer.wait_for_current_state(Instant::now(), None, &run.stop) {
                Ok(()) => run.is_current(&informer, entries, epoch, now),
                Err(error) if error.is_stopped() => None,
                Err(error) => Some(format!("wait_for_current_state: {error}")),
            };
            // The run may end with its last wait, and then nothing else holds its parts.
            drop((informer, run));
            let _ = ends.send(failure);
        });
        // The other thread has registered its wait, and has ended the read if it may. Or it has
        // ended without a wait, and its end of the channel is gone.
        let _ = has_begun.recv();
        self.world().waits.push(Wait {
            version,
            epoch,
            began: now,
            failure,
        });
    }

    /// Joins the waits of other threads that began until this time. They have what they wait for.
    pub fn join_waits(&self, until: u64) {
        let waits: Vec<Wait> = {
            let world = &mut *self.world();
            let is_over = |wait: &mut Wait| wait.began <= until;
            world.waits.extract_if(.., is_over).collect()
        };
        for Wait { failure, .. } in waits {
            match failure.recv_timeout(Duration::from_secs(5)) {
                Ok(None) => {}
                Ok(Some(failure)) => self.fail(failure),
                Err(RecvTimeoutError::Timeout) => {
                    return self.fail("wait_for_current_state does not return".to_owned());
                }
                Err(RecvTimeoutError::Disconnected) => {
                    self.fail("wait_for_current_state panicked".to_owned());
                }
            }
        }
    }
}
