//! A candidate: a process that runs an elector, and writes a guarded object while it leads.

use std::io::BufRead;
use std::process::{self, ExitCode};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use k8s_informer::client::{ExecConfig, InteractiveMode, Request};
use k8s_informer::object::ObjectReference;
use k8s_informer::time::{Clock, RealClock};
use k8s_informer::{Client, Config, Error, Stop, Stopper};
use k8s_informer_controller::leader_election::{
    Ended, LeaderElectionOptions, LeaderElector, Leading, Lease, LeaseLock, Lock,
    Record as LeaseRecord,
};
use log::{LevelFilter, Log, Metadata, Record};
use serde_json::{Value, json};

use super::protocol::{
    CREDENTIAL, Command, Event, IGNORED_STOP, LEASE, Micros, NAMESPACE, Outcome, RENEW_DEADLINE,
    RETRY, SLOW_PLUGIN, Write, now,
};
use crate::gated::{self, News, Term};
use crate::random::Random;

/// The time between two calls of `ensure`.
const TICK: Duration = Duration::from_millis(20);

/// Blocks the logger, and the lock, until they are set to `false`.
static BLOCKS_LOG: AtomicBool = AtomicBool::new(false);
static BLOCKS_LOCK: AtomicBool = AtomicBool::new(false);

/// How far the wall clock of the elector is ahead, in milliseconds.
static AHEAD: AtomicI64 = AtomicI64::new(0);

/// Arguments: the URL of the server, the file with its certificates, the bearer token, the name of
/// the Lease and of the guarded object, the identity, the seed, a mutant or "none", and a file. If
/// the file exists, the credential plugin is slow, and writes a line into the file.
pub(crate) fn main(arguments: &[String]) -> ExitCode {
    let [url, certificates, token, name, identity, seed, mutant, slow] = arguments else {
        eprintln!("a candidate needs 8 arguments");
        return ExitCode::from(2);
    };
    log::set_logger(&Reporter).expect("the first logger");
    log::set_max_level(LevelFilter::Info);
    let config = Config::new(url)
        .ca_file(certificates)
        .exec(plugin(token, slow))
        .response_timeout(RENEW_DEADLINE);
    let client = Client::new(config).expect("a client");
    let lock = LeaseLock::new(&client, NAMESPACE, name).identity(identity);
    let term = Term::new();
    let elector = LeaderElector::new(
        BlockingLock(lock),
        LeaderElectionOptions::new()
            .clock(Arc::new(SteppingClock))
            .metrics(Arc::new(term.clone()))
            .lease_duration(LEASE)
            .renew_deadline(RENEW_DEADLINE)
            .retry_period(RETRY)
            .grace_period(5 * IGNORED_STOP),
    )
    .expect("valid durations");
    let random = Random::new(seed.parse().expect("a seed"));
    let gate = |client: &Client| match mutant == "gate" {
        true => client.clone(),
        false => elector.gate(client),
    };
    let rude = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/{name}-rude");
    gated::start(client.clone(), rude, &term, random.fork(), gate, |news| {
        report(&match news {
            News::Counts { changes, refused } => Event::Gated { changes, refused },
            News::Violation(text) => Event::Violation(text),
        });
    });
    let candidate = Arc::new(Candidate {
        client,
        path: format!("/api/v1/namespaces/{NAMESPACE}/configmaps/{name}"),
        identity: identity.clone(),
        random,
        skips_ensure: mutant == "ensure",
        skips_version: mutant == "version",
        planted: AtomicBool::default(),
        ignores_stop: AtomicBool::default(),
        stop: Mutex::default(),
    });
    let elects = Arc::clone(&candidate);
    thread::spawn(move || elects.elect(&elector));
    for line in std::io::stdin().lock().lines() {
        let Ok(command) = line
            .as_deref()
            .map_or(Err(()), |line| serde_json::from_str(line).map_err(|_| ()))
        else {
            break;
        };
        match command {
            Command::Plant => candidate.planted.store(true, SeqCst),
            Command::Unplant => candidate.planted.store(false, SeqCst),
            Command::IgnoreStop => candidate.ignores_stop.store(true, SeqCst),
            Command::Resign => candidate.stop().stop(),
            Command::BlockLog => BLOCKS_LOG.store(true, SeqCst),
            Command::BlockLock => BLOCKS_LOCK.store(true, SeqCst),
            Command::Unblock => {
                BLOCKS_LOG.store(false, SeqCst);
                BLOCKS_LOCK.store(false, SeqCst);
            }
            Command::SetClock(ahead) => AHEAD.store(ahead, SeqCst),
        }
    }
    ExitCode::SUCCESS
}

/// Returns a plugin whose credentials expire soon.
fn plugin(token: &str, slow: &str) -> ExecConfig {
    let script = format!(
        r#"if [ -e "$2" ]; then sleep {}; echo >> "$2"; fi
        printf '{{"apiVersion":"client.authentication.k8s.io/v1","status":{{"token":"%s","expirationTimestamp":"%s"}}}}' \
            "$1" "$(date -u -d '+{} seconds' +%Y-%m-%dT%H:%M:%SZ)""#,
        SLOW_PLUGIN.as_secs_f64(),
        CREDENTIAL.as_secs()
    );
    ExecConfig::new("sh")
        .args(["-c", &script, "plugin", token, slow])
        .interactive_mode(InteractiveMode::Never)
}

fn block_while(blocks: &AtomicBool) {
    while blocks.load(SeqCst) {
        thread::sleep(TICK);
    }
}

/// A wall clock that is set at any time.
struct SteppingClock;

impl Clock for SteppingClock {
    fn now(&self) -> Instant {
        RealClock.now()
    }

    fn wait(&self, duration: Duration, stop: &Stop) -> bool {
        RealClock.wait(duration, stop)
    }

    fn wall_clock(&self) -> SystemTime {
        let ahead = AHEAD.load(SeqCst);
        let step = Duration::from_millis(ahead.unsigned_abs());
        match ahead < 0 {
            true => RealClock.wall_clock() - step,
            false => RealClock.wall_clock() + step,
        }
    }
}

/// A lock that blocks on request.
struct BlockingLock(LeaseLock);

impl Lock for BlockingLock {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn identity(&self) -> &str {
        Lock::identity(&self.0)
    }

    fn get(&self, stop: &Stop) -> Result<Lease, Error> {
        self.0.get(stop)
    }

    fn create(&self, record: &LeaseRecord, stop: &Stop) -> Result<Lease, Error> {
        self.0.create(record, stop)
    }

    fn update(&self, record: &LeaseRecord, last: &Lease, stop: &Stop) -> Result<Lease, Error> {
        block_while(&BLOCKS_LOCK);
        self.0.update(record, last, stop)
    }

    fn reference(&self, lease: &Lease) -> Option<ObjectReference> {
        self.0.reference(lease)
    }

    fn watch(&self, on_free: &mut dyn FnMut(), stop: &Stop) {
        self.0.watch(on_free, stop);
    }
}

struct Candidate {
    client: Client,
    /// The path of the guarded object.
    path: String,
    identity: String,
    random: Random,
    /// Whether the writes of this mutant do not depend on `ensure`.
    skips_ensure: bool,
    /// Whether this mutant reads the version immediately before each write.
    skips_version: bool,
    planted: AtomicBool,
    ignores_stop: AtomicBool,
    /// Stops the elector.
    stop: Mutex<Stopper>,
}

impl Candidate {
    /// Runs the elector again and again.
    fn elect(self: &Arc<Self>, elector: &LeaderElector) -> ! {
        loop {
            let stop = Stopper::new();
            *self.stop.lock().unwrap_or_else(PoisonError::into_inner) = stop.clone();
            let candidate = Arc::clone(self);
            let work = move |leading: Leading| Work::new(&candidate, leading).work();
            match elector.run(work, &stop) {
                Ok(Ended::Finished(())) => {
                    report(&Event::Violation("work ended on its own".to_owned()));
                }
                Ok(ended) => report(&Event::Ended(format!("{ended:?}"))),
                Err(error) => {
                    report(&Event::Violation(format!("the elector failed: {error}")));
                    process::exit(1);
                }
            }
        }
    }

    fn stop(&self) -> Stopper {
        let stop = self.stop.lock().unwrap_or_else(PoisonError::into_inner);
        stop.clone()
    }
}

/// The work of a term.
struct Work<'a> {
    candidate: &'a Candidate,
    checks: Checks,
    /// The guarded object as it was read or written last, during this term.
    guarded: Option<Guarded>,
    counter: u64,
    /// The end of the work that ignores its stop.
    end: Option<Instant>,
}

struct Guarded {
    object: Value,
    version: u64,
    term: i32,
}

/// The calls of `ensure` during a term.
#[derive(Clone)]
struct Checks {
    leading: Leading,
    term: i32,
    /// Whether failures are ignored.
    skips: bool,
    results: Arc<Mutex<Results>>,
}

#[derive(Default)]
struct Results {
    /// A time after the first success of `ensure`, and one before the last success.
    span: Option<(Micros, Micros)>,
    has_expired: bool,
}

impl Checks {
    fn ensure(&self) -> bool {
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        let before = now();
        let passes = self.leading.ensure().is_ok() || self.skips;
        match results.span {
            span if passes => {
                let (first, _) = span.unwrap_or((now(), before));
                results.span = Some((first, before));
            }
            Some((_, last)) if !results.has_expired => report(&Event::Expired {
                term: self.term,
                last,
            }),
            _ => {}
        }
        results.has_expired = !passes;
        passes
    }

    fn report(&self) {
        let results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((first, last)) = results.span {
            report(&Event::Ensured {
                term: self.term,
                first,
                last,
            });
        }
    }

    /// Calls `ensure` until the flag is set.
    fn poll(&self, over: &AtomicBool) {
        while !over.load(SeqCst) {
            self.ensure();
            thread::sleep(TICK);
        }
        self.report();
    }
}

impl<'a> Work<'a> {
    fn new(candidate: &'a Candidate, leading: Leading) -> Self {
        Self {
            candidate,
            checks: Checks {
                term: leading.token().transitions,
                leading,
                skips: candidate.skips_ensure,
                results: Arc::default(),
            },
            guarded: None,
            counter: 0,
            end: None,
        }
    }

    fn work(mut self) {
        let token = self.checks.leading.token();
        report(&Event::Leading {
            term: token.transitions,
            lease_uid: token.lease_uid,
            at: now(),
        });
        let checks = self.checks.clone();
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            // A write can take as long as a request may, so another thread finds out when `ensure`
            // fails.
            scope.spawn(|| checks.poll(&over));
            while self.goes_on() {
                if self.checks.ensure() {
                    self.write();
                }
                let pause = 50 + self.candidate.random.below(200);
                thread::sleep(Duration::from_millis(pause as u64));
            }
            over.store(true, SeqCst);
        });
        report(&Event::Joined {
            term: self.checks.term,
            at: now(),
        });
    }

    /// Whether the work goes on. It can ignore its stop for a while.
    fn goes_on(&mut self) -> bool {
        if !self.checks.leading.stop().is_stopped() {
            return true;
        }
        if self.end.is_none() && self.candidate.ignores_stop.swap(false, SeqCst) {
            self.end = Some(Instant::now() + IGNORED_STOP);
        }
        self.end.is_some_and(|end| Instant::now() < end)
    }

    /// Writes the guarded object at the version that was read during this term.
    fn write(&mut self) {
        let mut stop = match self.end {
            None => self.checks.leading.stop().clone(),
            Some(_) => Stop::never(),
        };
        let guarded = match self.guarded.take() {
            Some(guarded) => guarded,
            None => match self.read(&stop) {
                Ok(guarded) => guarded,
                Err(_) => return,
            },
        };
        if !self.checks.ensure() {
            return;
        }
        let term = self.checks.term;
        // The object was read before, so `ensure` must fail if a later term has written it.
        if guarded.term > term && !self.candidate.skips_ensure {
            report(&Event::Violation(format!(
                "ensure of term {term} succeeds after a write of term {}",
                guarded.term
            )));
        }
        self.checks.report();
        let planted = self.candidate.planted.swap(false, SeqCst);
        if planted {
            report(&Event::Planted { term, at: now() });
            stop_this_process();
            // The loss of the Lease must not abort this write.
            stop = Stop::never();
        }
        let guarded = match self.candidate.skips_version {
            true => self.read(&stop).unwrap_or(guarded),
            false => guarded,
        };
        let write = Write {
            term,
            lease_uid: self.checks.leading.token().lease_uid,
            candidate: self.candidate.identity.clone(),
            counter: self.counter,
            replaced: guarded.version,
            replaced_term: guarded.term,
        };
        self.counter += 1;
        let outcome = match self.send(guarded.object, &write, &stop) {
            Ok(guarded) => {
                let version = guarded.version;
                self.guarded = Some(guarded);
                Outcome::Accepted(version)
            }
            Err(error) if error.is_conflict() => Outcome::Refused,
            Err(_) => Outcome::Unknown,
        };
        report(&Event::Write {
            write,
            planted,
            outcome,
        });
    }

    fn read(&self, stop: &Stop) -> Result<Guarded, Error> {
        let request = Request::get(&self.candidate.path).retries(0);
        let object = self.candidate.client.request(&request, stop)?.json()?;
        Ok(Guarded::new(object))
    }

    fn send(&self, mut object: Value, write: &Write, stop: &Stop) -> Result<Guarded, Error> {
        object["data"] = json!({ "write": json!(write).to_string() });
        let request = Request::put(&self.candidate.path).json(&object)?.retries(0);
        let object = self.candidate.client.request(&request, stop)?.json()?;
        Ok(Guarded::new(object))
    }
}

impl Guarded {
    fn new(object: Value) -> Self {
        let write = object["data"]["write"].as_str().unwrap_or_default();
        let write: Write = serde_json::from_str(write).unwrap_or_default();
        let version = object["metadata"]["resourceVersion"].as_str();
        Self {
            version: version
                .and_then(|text| text.parse().ok())
                .expect("a version"),
            term: write.term,
            object,
        }
    }
}

/// Stops this process, and returns after it was continued.
fn stop_this_process() {
    let began = Instant::now();
    let status = process::Command::new("kill")
        .args(["-STOP", &process::id().to_string()])
        .status();
    assert!(status.is_ok_and(|status| status.success()), "kill failed");
    // The signal stops all threads, but not at once. The process is continued only later than this.
    while began.elapsed() < LEASE {
        thread::sleep(Duration::from_millis(1));
    }
}

fn report(event: &Event) {
    println!("{}", json!(event));
}

/// Reports log lines.
struct Reporter;

impl Log for Reporter {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("k8s_informer")
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let line = record.args().to_string();
            if line.starts_with("leader election") {
                block_while(&BLOCKS_LOG);
            }
            report(&Event::Log(format!("{} {line}", record.level())));
        }
    }

    fn flush(&self) {}
}
