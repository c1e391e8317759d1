//! Leader election on Leases. The electors have clocks that the tests advance, so nothing expires
//! and nothing is polled or renewed before that.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use k8s_informer::client::Request;
use k8s_informer::{Client, Config, Stop, Stopper};
use k8s_informer_controller::leader_election::{
    Ended, LeaderElectionError, LeaderElectionOptions, LeaderElector, Leading, LeaseLock,
};
use k8s_informer_testing::{FakeClock, Fault, RequestRecord, Verb};
use serde_json::{Value, json};

use self::example::Speed;
use crate::cluster::{Cluster, Namespace, merge_patch, on_every_cluster};
use crate::leases::{leases, refused};
use crate::reader::{READER, grant, revoke_all};
use crate::support::wait_until;
use crate::verbs::ONCE;

#[path = "../../../examples/leader/src/candidate.rs"]
mod example;

/// Longer than any step takes, and shorter than a timeout of the client.
const LIMIT: Duration = Duration::from_secs(20);

/// The waits of a clock until a first candidate pauses: GET, POST, the watchdog, and the pause.
const HOLDS: usize = 4;
/// The waits of a clock until a candidate pauses because another one leads.
const POLLS: usize = 2;

/// The time between renewals.
const RETRY: Duration = Duration::from_secs(2);

/// A candidate for the Lease `leader`. It works until it is stopped.
struct Candidate {
    elector: LeaderElector,
    clock: FakeClock,
    stop: Stopper,
    started: Receiver<Leading>,
    ended: Receiver<Result<Ended<()>, LeaderElectionError>>,
}

impl Candidate {
    fn start(client: &Client, namespace: &str, identity: &str) -> Self {
        let lock = LeaseLock::new(client, namespace, "leader").identity(identity);
        let lock = lock.label("example.com/last", identity);
        let clock = FakeClock::new();
        let options = LeaderElectionOptions::new().clock(Arc::new(clock.clone()));
        let elector = LeaderElector::new(lock, options.retry_period(RETRY)).unwrap();
        let stop = Stopper::new();
        let ((starts, started), (ends, ended)) = (channel(), channel());
        thread::spawn({
            let (elector, stop) = (elector.clone(), stop.clone());
            move || {
                let result = elector.run(
                    move |leading| {
                        let stop = leading.stop().clone();
                        starts.send(leading).unwrap();
                        stop.wait();
                    },
                    &stop,
                );
                ends.send(result).unwrap();
            }
        });
        Self {
            elector,
            clock,
            stop,
            started,
            ended,
        }
    }

    /// Waits until the candidate leads.
    #[track_caller]
    fn leading(&self) -> Leading {
        self.started.recv_timeout(LIMIT).unwrap()
    }

    /// Waits until the candidate has begun this number of waits.
    #[track_caller]
    fn wait_for(&self, waits: usize) {
        self.clock.wait_for_waits(waits, LIMIT).unwrap();
    }

    /// Waits until the run has ended.
    #[track_caller]
    fn ended(&self) -> Ended<()> {
        self.ended.recv_timeout(LIMIT).unwrap().unwrap()
    }

    #[track_caller]
    fn stop(&self) -> Ended<()> {
        self.stop.stop();
        self.ended()
    }
}

fn client(kubeconfig: &Path) -> Client {
    Client::new(Config::from_kubeconfig(kubeconfig, None).unwrap()).unwrap()
}

fn path(namespace: &Namespace<'_>) -> String {
    format!("{}/leader", leases(namespace))
}

fn lease(cluster: &Cluster, namespace: &Namespace<'_>) -> Value {
    cluster.send(Request::get(path(namespace)))
}

fn wait_for_holder(cluster: &Cluster, namespace: &Namespace<'_>, holder: &str) {
    wait_until("the Lease has this holder", || {
        let lease = cluster.try_send(Request::get(path(namespace))).ok()?;
        (lease["spec"]["holderIdentity"] == holder).then_some(())
    });
}

/// Whether this is a time with six digits after the point, as client-go requires.
fn is_micro_time(time: &Value) -> bool {
    let like = "2024-01-02T03:04:05.678901Z".chars();
    let digits = |c: char| if c.is_ascii_digit() { '0' } else { c };
    time.as_str()
        .is_some_and(|time| time.chars().map(digits).eq(like.map(digits)))
}

#[test]
fn watching_candidate_takes_over_at_the_release() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("leader");
        let first = Candidate::start(&cluster.client(), &namespace.name, "a");
        let token = first.leading().token();
        let held = lease(cluster, &namespace);
        let spec = &held["spec"];
        assert_eq!(
            (&spec["holderIdentity"], &spec["leaseTransitions"]),
            (&json!("a"), &json!(0))
        );
        assert_eq!(spec["leaseDurationSeconds"], 15);
        assert_eq!(
            held["metadata"]["labels"],
            json!({ "example.com/last": "a" })
        );
        assert_eq!(
            (&held["metadata"]["uid"], token.transitions),
            (&json!(token.lease_uid), 0)
        );
        let foreign = json!({
            "labels": { "team": "storage" },
            "annotations": { "example.com/note": "kept" },
        });
        cluster.send(merge_patch(
            &path(&namespace),
            &json!({ "metadata": foreign }),
        ));

        let other_client = client(&cluster.kubeconfigs()[0]);
        let second = Candidate::start(&other_client, &namespace.name, "b");
        second.wait_for(POLLS);
        assert_eq!(second.elector.leader().as_deref(), Some("a"));
        assert_eq!(first.stop(), Ended::Stopped(Some(())));
        // Its clock stands still, so only the watch can have woken it.
        let leading = second.leading();
        leading.ensure().unwrap();
        assert_eq!(
            (leading.token().lease_uid, leading.token().transitions),
            (token.lease_uid, 1)
        );
        let taken = lease(cluster, &namespace);
        let spec = &taken["spec"];
        assert_eq!(
            (&spec["holderIdentity"], &spec["leaseTransitions"]),
            (&json!("b"), &json!(1))
        );
        for time in ["acquireTime", "renewTime"] {
            assert!(is_micro_time(&spec[time]), "{spec}");
        }

        assert_eq!(second.stop(), Ended::Stopped(Some(())));
        let free = lease(cluster, &namespace);
        let spec = &free["spec"];
        assert_eq!(
            (&spec["holderIdentity"], &spec["leaseTransitions"]),
            (&json!(""), &json!(1))
        );
        assert_eq!(spec["leaseDurationSeconds"], 1);
        let metadata = &free["metadata"];
        assert_eq!(metadata["annotations"], foreign["annotations"]);
        assert_eq!(
            metadata["labels"],
            json!({ "example.com/last": "b", "team": "storage" })
        );
    });
}

#[test]
fn le19_deleted_lease_ends_the_term_and_stays_deleted() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("leader");
        let leader = Candidate::start(&cluster.client(), &namespace.name, "a");
        let leading = leader.leading();
        leader.wait_for(HOLDS);
        cluster.send(Request::delete(path(&namespace)));
        leader.clock.advance(RETRY);
        assert_eq!(leader.ended(), Ended::Lost(()));
        assert!(leading.ensure().unwrap_err().is_term_ended());
        let (code, _) = refused(cluster, Request::get(path(&namespace)));
        assert_eq!(code, 404);
    });
}

#[test]
fn le19_foreign_holder_ends_the_term_and_is_kept() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("leader");
        let leader = Candidate::start(&cluster.client(), &namespace.name, "a");
        let leading = leader.leading();
        leader.wait_for(HOLDS);
        let patch = json!({ "spec": { "holderIdentity": "other" } });
        let edited = cluster.send(merge_patch(&path(&namespace), &patch));
        leader.clock.advance(RETRY);
        assert_eq!(leader.ended(), Ended::Lost(()));
        assert!(leading.ensure().unwrap_err().is_term_ended());
        assert_eq!(lease(cluster, &namespace), edited);
        assert_eq!(leader.elector.leader().as_deref(), Some("other"));
    });
}

#[test]
fn candidate_without_the_right_to_watch_polls() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("leader");
        let Some(kubeconfig) = cluster.reader_kubeconfig() else {
            return println!("skipped: there is no account with few rights");
        };
        let limited = client(&kubeconfig);
        let is_limited = |request: &RequestRecord| {
            request.header("authorization") == Some(&format!("Bearer {READER}"))
        };
        if let Some(server) = cluster.embedded_server() {
            let fault = Fault::status(403).on(Verb::Watch).resource("leases");
            server.fail_next(fault.when(is_limited).always());
        } else {
            let rule = json!({
                "apiGroups": ["coordination.k8s.io"],
                "resources": ["leases"],
                "verbs": ["get", "create", "update"],
            });
            grant(cluster, &namespace.name, &rule);
        }
        let leader = Candidate::start(&cluster.client(), &namespace.name, "a");
        leader.leading();
        wait_until("the rights are in effect", || {
            let request = Request::get(path(&namespace));
            limited.request(&request, &Stop::never()).ok()
        });

        let waiting = Candidate::start(&limited, &namespace.name, "b");
        waiting.wait_for(POLLS);
        assert_eq!(leader.stop(), Ended::Stopped(Some(())));
        if let Some(server) = cluster.embedded_server() {
            let refused = wait_until("the watch was tried", || {
                let watches = server.requests().into_iter().filter(&is_limited);
                let watches = watches.filter(|request| request.verb() == Verb::Watch);
                Some(watches.count()).filter(|count| *count > 0)
            });
            assert_eq!(refused, 1);
        }
        assert!(waiting.started.try_recv().is_err(), "without a poll");
        waiting.clock.advance(3 * RETRY);
        waiting.leading().ensure().unwrap();
        assert_eq!(waiting.stop(), Ended::Stopped(Some(())));
        if cluster.embedded_server().is_none() {
            revoke_all(cluster, &namespace.name);
        }
    });
}

#[test]
fn missing_rights_are_named_by_waits() {
    on_every_cluster(ONCE, |cluster| {
        let Some(kubeconfig) = cluster.unprivileged_kubeconfig() else {
            return println!("skipped: there is no kubeconfig-nobody");
        };
        let namespace = cluster.namespace("leader");
        let candidate = Candidate::start(&client(&kubeconfig), &namespace.name, "a");
        let error = wait_until("the request has failed", || candidate.elector.last_error());
        assert!(error.is_forbidden(), "{error}");
        let wait = candidate
            .elector
            .wait_for_leadership(Duration::ZERO, &Stop::never());
        let (name, url) = (&namespace.name, cluster.url());
        assert_eq!(
            wait.unwrap_err().to_string(),
            format!(
                "timed out after 0ns waiting to lead {name}/leader; last seen: nothing; last error: get \
                 leases.coordination.k8s.io \"leader\" in namespace \"{name}\": GET {url}{}: \
                 leases.coordination.k8s.io \"leader\" is forbidden: User \"token-nobody\" cannot get resource \
                 \"leases\" in API group \"coordination.k8s.io\" in the namespace \"{name}\" (403 Forbidden)",
                path(&namespace)
            )
        );
        assert_eq!(candidate.stop(), Ended::Stopped(None));
    });
}

#[test]
fn missing_namespace_is_named_by_waits() {
    on_every_cluster(ONCE, |cluster| {
        let missing = "e2e-leader-missing";
        let problem = format!("namespaces {missing:?} not found");
        if let Some(server) = cluster.embedded_server() {
            // The embedded server creates namespaces as they are needed.
            let fault = Fault::status_with_message(404, &*problem).on(Verb::Create);
            server.fail_next(fault.resource("leases").always());
        }
        let candidate = Candidate::start(&cluster.client(), missing, "a");
        let error = wait_until("the request has failed", || candidate.elector.last_error());
        assert!(error.is_not_found(), "{error}");
        let wait = candidate
            .elector
            .wait_for_leadership(Duration::ZERO, &Stop::never());
        let wait = wait.unwrap_err().to_string();
        assert!(
            wait.ends_with(&format!(": {problem} (404 NotFound)")),
            "{wait}"
        );
        assert_eq!(candidate.stop(), Ended::Stopped(None));
    });
}

#[test]
fn stop_ends_a_hanging_request_at_once() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("leader");
        let proxy = cluster.proxy();
        let client = cluster.client_through(&proxy);
        // Leaves an open connection.
        let request = Request::get(leases(&namespace));
        client
            .request(&request, &Stop::never())
            .unwrap()
            .json::<Value>()
            .unwrap();
        proxy.stall();
        let candidate = Candidate::start(&client, &namespace.name, "a");
        // The limit of the request never ends it, because the clock stands still.
        candidate.wait_for(1);
        assert!(candidate.ended.try_recv().is_err());
        assert_eq!(candidate.stop(), Ended::Stopped(None));
    });
}

#[test]
fn unanswered_acquisition_is_released_on_a_stop() {
    on_every_cluster(ONCE, |cluster| {
        let Some(server) = cluster.embedded_server() else {
            return println!("skipped: only the embedded server can lose a response");
        };
        let namespace = cluster.namespace("leader");
        let lost = Fault::stall().after_bytes(0);
        server.fail_next(lost.on(Verb::Create).resource("leases"));
        let candidate = Candidate::start(&cluster.client(), &namespace.name, "a");
        wait_for_holder(cluster, &namespace, "a");
        assert!(candidate.ended.try_recv().is_err());
        assert_eq!(candidate.stop(), Ended::Stopped(None));
        assert_eq!(lease(cluster, &namespace)["spec"]["holderIdentity"], "");
    });
}

#[test]
fn candidates_of_the_example_take_turns() {
    on_every_cluster(ONCE, |cluster| {
        for speed in [Speed::Demo, Speed::Default] {
            let namespace = cluster.namespace("leader");
            let start = |identity: &str| {
                let lock = LeaseLock::new(&cluster.client(), &namespace.name, "leader");
                let (lock, stop) = (lock.identity(identity), Stopper::new());
                let run = thread::spawn({
                    let stop = stop.clone();
                    move || example::run(lock, speed, &stop).map_err(|error| error.to_string())
                });
                move || {
                    stop.stop();
                    run.join().unwrap().unwrap();
                }
            };
            let stop_first = start("a");
            wait_for_holder(cluster, &namespace, "a");
            let stop_second = start("b");
            stop_first();
            wait_for_holder(cluster, &namespace, "b");
            stop_second();
            assert_eq!(lease(cluster, &namespace)["spec"]["holderIdentity"], "");
        }
    });
}
