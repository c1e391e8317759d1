//! The controller of the example works despite faults and concurrent writes.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use k8s_informer::Stop;
use k8s_informer::client::Request;
use k8s_informer::testing::{Fault, RequestRecord, Verb};
use serde_json::{Value, json};

use self::example::{Action, NAME, Options, Outcome, TEAM, TeamController};
use crate::cluster::{
    BOTH, Cluster, LIST, ListMethod, Namespace, merge_patch, on_every_cluster,
    on_the_embedded_server,
};
use crate::support::{PATIENCE, wait_until};

#[path = "../../examples/controller/src/controller.rs"]
mod example;

/// Runs a test with one list method only, because these tests do not depend on how objects are
/// listed.
const ONCE: &[ListMethod] = LIST;

/// The outcomes of all keys.
#[derive(Clone, Default)]
struct Reports(Arc<Mutex<Vec<(String, Outcome)>>>);

impl Reports {
    /// Returns the outcomes of a Namespace so far, except those with nothing to do.
    fn of(&self, namespace: &Namespace<'_>) -> Vec<Outcome> {
        let all = self.0.lock().unwrap();
        let of_namespace = all.iter().filter(|(of, outcome)| {
            *of == namespace.name && !matches!(outcome, Outcome::Done(Action::Nothing))
        });
        of_namespace.map(|(_, outcome)| outcome.clone()).collect()
    }

    #[track_caller]
    fn wait(&self, namespace: &Namespace<'_>, enough: impl Fn(&[Outcome]) -> bool) -> Vec<Outcome> {
        wait_until("the reports of a Namespace meet the condition", || {
            Some(self.of(namespace)).filter(|all| enough(all))
        })
    }
}

fn is_done(outcome: Option<&Outcome>, action: Action) -> bool {
    matches!(outcome, Some(Outcome::Done(done)) if *done == action)
}

fn options(cluster: &Cluster) -> Options {
    Options {
        reflector: cluster.options(),
        ..Options::default()
    }
}

fn new_controller(cluster: &Cluster, options: Options) -> (TeamController, Reports) {
    let reports = Reports::default();
    let controller = TeamController::new(cluster.client(), options, {
        let reports = reports.clone();
        move |namespace, outcome| {
            reports
                .0
                .lock()
                .unwrap()
                .push((namespace.to_owned(), outcome.clone()));
        }
    });
    (controller.unwrap(), reports)
}

/// Like [`on_every_cluster`], but runs only one of these tests at a time: a controller handles
/// every namespace of a cluster.
fn one_at_a_time(list_methods: &[ListMethod], test: impl Fn(&Cluster)) {
    static ALONE: parking_lot::Mutex<()> = parking_lot::Mutex::new(());
    let _alone = ALONE.lock();
    on_every_cluster(list_methods, test);
}

/// Runs the controller during `test` and until all of its threads have ended.
fn with_controller(cluster: &Cluster, options: Options, test: impl FnOnce(&Reports)) {
    let (controller, reports) = new_controller(cluster, options);
    let stop = Stop::new();
    thread::scope(|scope| {
        let running = scope.spawn(|| controller.run(&stop).unwrap());
        let _stop_on_drop = StopOnDrop(&stop);
        test(&reports);
        stop.stop();
        running.join().unwrap();
    });
}

/// Stops the controller on drop, also if the test fails.
struct StopOnDrop<'a>(&'a Stop);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Sets the team of a Namespace. `null` removes it.
fn set_team(cluster: &Cluster, namespace: &Namespace<'_>, team: impl Into<Value>) {
    let labels = json!({ "metadata": { "labels": { TEAM: team.into() } } });
    cluster.send(merge_patch(
        &format!("/api/v1/namespaces/{}", namespace.name),
        &labels,
    ));
}

/// Returns the team in a Namespace's ConfigMap.
fn team(cluster: &Cluster, namespace: &Namespace<'_>) -> Option<String> {
    match cluster.try_send(Request::get(format!(
        "{}/{NAME}",
        namespace.path("configmaps")
    ))) {
        Ok(map) => Some(map["data"]["team"].as_str().unwrap_or_default().to_owned()),
        Err(error) if error.is_not_found() => None,
        Err(error) => panic!("{error}"),
    }
}

#[track_caller]
fn wait_for_team(cluster: &Cluster, namespace: &Namespace<'_>, expected: Option<&str>) {
    wait_until(
        &format!("{} has the team {expected:?}", namespace.name),
        || (team(cluster, namespace).as_deref() == expected).then_some(()),
    );
}

#[test]
fn controller_reconciles_namespace_and_configmap_changes() {
    one_at_a_time(BOTH, |cluster| {
        let (early, late) = (cluster.namespace("early"), cluster.namespace("late"));
        set_team(cluster, &early, "sky");
        with_controller(cluster, options(cluster), |_| {
            wait_for_team(cluster, &early, Some("sky"));
            assert_eq!(team(cluster, &late), None);
            set_team(cluster, &late, "sea");
            wait_for_team(cluster, &late, Some("sea"));
            set_team(cluster, &late, "lake");
            wait_for_team(cluster, &late, Some("lake"));

            early.delete(NAME);
            wait_for_team(cluster, &early, Some("sky"));
            early.patch(
                NAME,
                &json!({ "data": { "team": "fire", "more": "stays" } }),
            );
            wait_for_team(cluster, &early, Some("sky"));
            let map = cluster.send(Request::get(format!("{}/{NAME}", early.path("configmaps"))));
            assert_eq!(map["data"]["more"], "stays");

            set_team(cluster, &late, Value::Null);
            wait_for_team(cluster, &late, None);
        });
        // The next controller finds the changes made while none was running.
        set_team(cluster, &early, Value::Null);
        set_team(cluster, &late, "rain");
        with_controller(cluster, options(cluster), |_| {
            wait_for_team(cluster, &late, Some("rain"));
            set_team(cluster, &early, "snow");
            wait_for_team(cluster, &early, Some("snow"));
        });
    });
}

#[test]
fn foreign_object_is_not_overwritten_but_replaced_once_deleted() {
    one_at_a_time(ONCE, |cluster| {
        let namespace = cluster.namespace("taken");
        namespace.create(NAME, json!({}));
        with_controller(
            cluster,
            Options {
                max_retries: 3,
                ..options(cluster)
            },
            |reports| {
                set_team(cluster, &namespace, "sky");
                let outcomes = reports.wait(&namespace, |all| {
                    matches!(all.last(), Some(Outcome::GivenUp(_)))
                });
                assert_eq!(outcomes.len(), 4);
                for outcome in &outcomes {
                    let (Outcome::Retry(error) | Outcome::GivenUp(error)) = outcome else {
                        panic!("{outcome:?}");
                    };
                    assert!(error.is_already_exists(), "{error:?}");
                }
                assert_eq!(
                    team(cluster, &namespace).as_deref(),
                    Some(""),
                    "the foreign object is unchanged"
                );

                // The controller does not see the deletion of an object that it does not manage. It
                // creates its own object when the team changes.
                namespace.delete(NAME);
                set_team(cluster, &namespace, "sea");
                let outcomes = reports.wait(&namespace, |all| all.len() > 4);
                assert!(is_done(outcomes.last(), Action::Created), "{outcomes:?}");
                assert_eq!(team(cluster, &namespace).as_deref(), Some("sea"));
            },
        );
    });
}

#[test]
fn controller_recreates_nothing_in_a_terminating_namespace() {
    one_at_a_time(ONCE, |cluster| {
        let namespace = cluster.namespace("gone");
        set_team(cluster, &namespace, "sky");
        with_controller(cluster, options(cluster), |reports| {
            reports.wait(&namespace, |all| is_done(all.last(), Action::Created));
            let path = format!("/api/v1/namespaces/{}", namespace.name);
            let map = format!("{}/{NAME}", namespace.path("configmaps"));
            for path in [path, map] {
                let seen = reports.0.lock().unwrap().len();
                // Ignore the result: in a cluster with controllers, the deletion of the Namespace
                // may already have deleted the ConfigMap.
                let _ = cluster.try_send(Request::delete(path));
                wait_until("the controller has processed the deletion", || {
                    (reports.0.lock().unwrap().len() > seen).then_some(())
                });
            }
            assert_eq!(
                reports.of(&namespace).len(),
                1,
                "{:?}",
                reports.of(&namespace)
            );
        });
    });
}

#[test]
fn failed_requests_are_retried_and_applied_once() {
    on_the_embedded_server(ONCE, |cluster, server| {
        let namespace = cluster.namespace("fails");
        let fail = |fault: Fault, verb| server.fail_next(fault.on(verb).resource("configmaps"));
        with_controller(cluster, options(cluster), |reports| {
            fail(Fault::status(500).times(2), Verb::Create);
            fail(Fault::reset(), Verb::Create);
            set_team(cluster, &namespace, "sky");
            let outcomes = reports.wait(&namespace, |all| is_done(all.last(), Action::Created));
            assert_eq!(outcomes.len(), 4, "{outcomes:?}");

            // The object is created, but the response is lost.
            namespace.delete(NAME);
            reports.wait(&namespace, |all| all.len() == 5);
            fail(Fault::reset().after_bytes(0), Verb::Create);
            namespace.delete(NAME);
            reports.wait(&namespace, |all| all.len() > 5);
            wait_for_team(cluster, &namespace, Some("sky"));

            fail(Fault::status(409), Verb::Patch);
            set_team(cluster, &namespace, "sea");
            let outcomes = reports.wait(&namespace, |all| is_done(all.last(), Action::Repaired));
            let before = &outcomes[outcomes.len() - 2];
            assert!(
                matches!(before, Outcome::Retry(error) if error.is_conflict()),
                "{outcomes:?}"
            );

            fail(Fault::status(409), Verb::Delete);
            set_team(cluster, &namespace, Value::Null);
            let outcomes = reports.wait(&namespace, |all| is_done(all.last(), Action::Deleted));
            let before = &outcomes[outcomes.len() - 2];
            assert!(
                matches!(before, Outcome::Retry(error) if error.is_conflict()),
                "{outcomes:?}"
            );
        });
        assert_eq!(server.pending_faults(), 0);
    });
}

#[test]
fn concurrent_changes_converge_to_the_last_state() {
    const ROUNDS: usize = 12;
    one_at_a_time(ONCE, |cluster| {
        let namespaces: Vec<_> = (0..4)
            .map(|n| cluster.namespace(&format!("storm-{n}")))
            .collect();
        with_controller(
            cluster,
            Options {
                workers: 3,
                ..options(cluster)
            },
            |reports| {
                thread::scope(|scope| {
                    for (n, namespace) in namespaces.iter().enumerate() {
                        scope.spawn(move || {
                            for round in 0..ROUNDS {
                                set_team(cluster, namespace, format!("round-{round}"));
                                let map = format!("{}/{NAME}", namespace.path("configmaps"));
                                // The object may not exist.
                                let _ = match (round + n) % 4 {
                                    0 => cluster.try_send(Request::delete(map)),
                                    1 => cluster.try_send(merge_patch(
                                        &map,
                                        &json!({ "data": { "team": "x" } }),
                                    )),
                                    2 => {
                                        set_team(cluster, namespace, Value::Null);
                                        Ok(Value::Null)
                                    }
                                    _ => Ok(Value::Null),
                                };
                            }
                            set_team(
                                cluster,
                                namespace,
                                if n == 0 { Value::Null } else { "last".into() },
                            );
                        });
                    }
                });
                for (n, namespace) in namespaces.iter().enumerate() {
                    wait_for_team(cluster, namespace, (n != 0).then_some("last"));
                }
                let all = reports.0.lock().unwrap();
                let failed = |outcome: &Outcome| !matches!(outcome, Outcome::Done(_));
                let failures = all.iter().filter(|(_, outcome)| failed(outcome)).count();
                println!("  {} keys, {failures} failures", all.len());
                assert!(
                    !all.iter()
                        .any(|(_, outcome)| matches!(outcome, Outcome::GivenUp(_)))
                );
            },
        );
    });
}

#[test]
fn stop_waits_for_running_work_up_to_the_grace_period() {
    on_the_embedded_server(ONCE, |cluster, server| {
        let creates = |requests: &[RequestRecord]| {
            let is_create = |request: &&RequestRecord| {
                request.verb() == Verb::Create && request.resource() == Some("configmaps")
            };
            requests.iter().filter(is_create).count()
        };
        let (quick, slow) = (cluster.namespace("quick"), cluster.namespace("slow"));
        let on_create =
            |fault: Fault| server.fail_next(fault.on(Verb::Create).resource("configmaps"));
        for (namespace, fault, grace, expected) in [
            (
                &quick,
                Fault::delay(Duration::from_millis(100)),
                PATIENCE,
                Some("sky"),
            ),
            (&slow, Fault::stall(), Duration::from_millis(1), None),
        ] {
            on_create(fault);
            set_team(cluster, namespace, "sky");
            let before = creates(&server.requests());
            with_controller(
                cluster,
                Options {
                    grace,
                    ..options(cluster)
                },
                |_| {
                    assert!(
                        server.wait_for_requests(|requests| creates(requests) > before, PATIENCE)
                    );
                },
            );
            assert_eq!(team(cluster, namespace).as_deref(), expected);
        }
    });
}

#[test]
fn stop_before_the_first_sync_ends_the_controller() {
    on_the_embedded_server(BOTH, |cluster, server| {
        server.fail_next(Fault::stall().resource("namespaces").always());
        let is_read = |request: &RequestRecord| request.resource() == Some("namespaces");
        with_controller(cluster, options(cluster), |reports| {
            assert!(server.wait_for_requests(|requests| requests.iter().any(is_read), PATIENCE));
            assert!(reports.0.lock().unwrap().is_empty());
        });
        server.clear_faults();
    });
}
