//! A replica: a process with a manager that has one shard.

use std::collections::HashMap;
use std::io::BufRead;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use k8s_informer::informer::{SharedIndexInformer, Source};
use k8s_informer::reflector::ReflectorState;
use k8s_informer::{Client, Config, Error, Object, Stopper};
use k8s_informer_controller::leader_election::LeaderElectionOptions;
use k8s_informer_controller::{Context, ControllerErrorKind, Failure, Manager, Next, ShardBy};
use log::LevelFilter;
use serde_json::json;

use super::protocol::{
    Caches, Child, Event, NAME, NAMESPACE, Outcome, Primary, RUDE, Revisions, primaries, revision,
};
use crate::gated::{self, News, Term};
use crate::logs;
use crate::random::Random;
use crate::server::TOKEN;
use crate::timing::{LEASE, Micros, RENEW_DEADLINE, RETRY, now};

/// The status of a process that has lost its shard.
pub(crate) const LOST: u8 = 3;

/// The time between two checks whether this process has a shard.
const TICK: Duration = Duration::from_millis(50);

/// The maximum number of microseconds that a call does nothing.
const PAUSE: usize = 3000;

const OWN_WRITES_TIMEOUT: Duration = Duration::from_secs(3);

/// Arguments: the number of the process, the URL of the server, the file with its certificates, the
/// number of shards and the kind of division. With 0 shards, the process has all objects. It prints
/// its caches for each line on its standard input, and ends with it.
pub(crate) fn main(arguments: &[String]) -> ExitCode {
    let [number, url, certificates, count, by] = arguments else {
        eprintln!("a replica needs 5 arguments");
        return ExitCode::from(2);
    };
    logs::print(LevelFilter::Info);
    let number: u64 = number.parse().expect("a number");
    let count: u32 = count.parse().expect("a number");
    let by = match &**by {
        "namespace" => ShardBy::Namespace,
        _ => ShardBy::Uid,
    };
    let client = Client::new(Config::new(url).ca_file(certificates).token(TOKEN));
    let client = client.expect("a client");
    let mut builder = Manager::builder(client.clone());
    let term = Term::new();
    if count > 0 {
        builder = builder
            .one_shard_of(NAMESPACE, NAME, count, by)
            .identity(identity(number as usize))
            .leader_election_options(
                LeaderElectionOptions::new()
                    .metrics(Arc::new(term.clone()))
                    .lease_duration(LEASE)
                    .renew_deadline(RENEW_DEADLINE)
                    .retry_period(RETRY),
            );
    }
    let manager = builder.build().expect("a manager");
    let of_primaries = manager.factory().informer_for(primaries());
    let of_children = manager.factory().informer_for(Source::of::<Child>());
    let queue = Arc::new(Queue::default());
    let [added, updated] = [(); 2].map(|()| Arc::clone(&queue));
    let handler = of_primaries.add_event_handler(|handler| {
        handler
            .on_add(move |object, _| added.arrived(object))
            .on_update(move |_, object| updated.arrived(object))
    });
    handler.expect("a handler");
    let random = Random::new(number);
    if count > 0 {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/{RUDE}");
        let gate = |of: &Client| manager.gate(of);
        gated::start(client, path, &term, random.fork(), gate, |news| {
            report(&match news {
                News::Counts { changes, refused } => Event::Gated { changes, refused },
                News::Violation(text) => Event::Violation(text),
            });
        });
    }
    manager
        .reconcile_source(primaries(), "maps")
        .owns(Source::of::<Child>())
        .workers(8)
        .own_writes_timeout(OWN_WRITES_TIMEOUT)
        .by(move |cx, object| call(cx, object, &queue, &random))
        .expect("a controller");
    let (holds, of_maps, of_secrets) = (manager.clone(), of_primaries.clone(), of_children.clone());
    thread::spawn(move || {
        report_holds(&holds, &of_maps, &of_secrets);
    });
    let stop = Stopper::new();
    let (stops, reports) = (stop.clone(), manager.clone());
    thread::spawn(move || {
        for _ in std::io::stdin().lock().lines().map_while(Result::ok) {
            report(&Event::Caches(Caches {
                shard: reports.shard(),
                primaries: revisions(&of_primaries),
                children: revisions(&of_children),
            }));
        }
        stops.stop();
    });
    match manager.run(&stop) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::warn!("the manager has ended: {error}");
            match error.kind() {
                ControllerErrorKind::LeadershipLost { .. } => ExitCode::from(LOST),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

/// Returns the identity of a process in its Lease.
pub(crate) fn identity(number: usize) -> String {
    format!("process-{number}")
}

fn report(event: &Event) {
    println!("{}", json!(event));
}

fn revisions<T: Object>(informer: &SharedIndexInformer<T>) -> Revisions {
    let objects = informer.lister().list().into_iter();
    let of = |object: Arc<T>| (object.uid().to_owned(), revision(&*object));
    objects.map(of).collect()
}

/// Reports when this process has a shard, and when it has no watch. A pause of the process can't
/// make the time of the shard longer.
fn report_holds(
    manager: &Manager,
    primaries: &SharedIndexInformer<Primary>,
    children: &SharedIndexInformer<Child>,
) -> ! {
    let (mut first, mut synced, mut unwatched) = (None, false, None);
    loop {
        let last = now();
        let states = [primaries.status().state, children.status().state];
        let is_watching = states == [ReflectorState::Watching; 2];
        if let (true, Some(from)) = (synced, unwatched) {
            report(&Event::Unwatched { from, until: last });
        }
        unwatched = (!is_watching).then_some(last);
        if let (Some(shard), Some(elector)) = (manager.shard(), manager.elector())
            && elector.is_leader()
        {
            let first = *first.get_or_insert_with(now);
            report(&Event::Held { shard, first, last });
            if !synced && primaries.has_synced() && children.has_synced() {
                synced = true;
                report(&Event::Synced(now() - first));
            }
        } else {
            // The next term is another one.
            first = None;
        }
        thread::sleep(TICK);
    }
}

fn call(cx: &Context, object: &Primary, queue: &Queue, random: &Random) -> Result<Next, Failure> {
    let ensured = cx.ensure();
    let uid = object.uid().to_owned();
    let (from, revision) = (now(), revision(object));
    report(&Event::Began {
        uid: uid.clone(),
        revision,
        at: from,
        waited: queue.begin(&uid, revision, from),
        ensured: ensured.is_ok(),
    });
    ensured?;
    let mut until = None;
    let mut ensure = || {
        let at = now();
        cx.ensure().inspect(|()| until = Some(at))
    };
    thread::sleep(Duration::from_micros(random.below(PAUSE) as u64));
    let result = ensure().and_then(|()| create_child(cx, &uid));
    let _ = ensure();
    report(&Event::Ended { uid, from, until });
    result
}

/// Creates a child if there is none.
fn create_child(cx: &Context, uid: &str) -> Result<Next, Failure> {
    if !cx.children::<Child>()?.is_empty() {
        return Ok(Next::Done);
    }
    let child = json!({ "metadata": { "generateName": format!("{}-", cx.name()) } });
    let child = cx.owned(child)?;
    report(&Event::Creating {
        uid: uid.to_owned(),
        at: now(),
    });
    let created = cx
        .api::<Child>(Some(cx.namespace()))
        .create(&child, cx.stop());
    let outcome = match &created {
        Ok(_) if cx.ensure().is_ok() => Outcome::Known,
        Ok(_) => Outcome::Late,
        Err(error) if is_refused(error) => Outcome::Refused,
        Err(_) => Outcome::Unknown,
    };
    let uid = uid.to_owned();
    report(&Event::Created { uid, outcome });
    created?;
    Ok(Next::Done)
}

/// Whether the server has certainly not executed the request.
fn is_refused(error: &Error) -> bool {
    let status = error.status();
    error.is_connection_refused() || status.is_some_and(|status| (400..500).contains(&status.code))
}

/// Measures how long keys wait in the queue.
#[derive(Default)]
struct Queue(Mutex<Waits>);

#[derive(Default)]
struct Waits {
    /// When the first call began. No key waits for other calls before.
    first_call: Option<Micros>,
    keys: HashMap<String, Wait>,
}

#[derive(Default)]
struct Wait {
    /// The newest revision that a call has seen.
    called: u64,
    /// When the handler got the first newer one.
    since: Option<Micros>,
}

impl Queue {
    fn arrived(&self, object: &Primary) {
        let mut waits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = waits.keys.entry(object.uid().to_owned()).or_default();
        if revision(object) > wait.called {
            wait.since.get_or_insert_with(now);
        }
    }

    /// Returns how long the key of a call has waited.
    fn begin(&self, uid: &str, revision: u64, at: Micros) -> Micros {
        let mut waits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let first_call = *waits.first_call.get_or_insert(at);
        let wait = waits.keys.entry(uid.to_owned()).or_default();
        wait.called = wait.called.max(revision);
        let since = wait.since.take();
        since.map_or(0, |since| (at - since.max(first_call)).max(0))
    }
}
