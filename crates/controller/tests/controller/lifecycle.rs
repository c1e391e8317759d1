//! Starting and stopping controllers.

use k8s_informer::metrics::MetricsProvider;
use k8s_informer_controller::ControllerErrorKind;
use k8s_informer_controller::metrics::{ControllerMetrics, ControllerMetricsProvider};
use k8s_informer_testing::Verb;
use k8s_openapi::api::core::v1::Secret;

use super::*;

const GRACE: Duration = Duration::from_secs(7);

fn start(cluster: &Cluster, name: &str) -> (Running<ConfigMap>, Calls) {
    cluster.create(MAPS, "a");
    let (reconcile, calls) = answered();
    let controller = cluster
        .controller(name)
        .grace_period(GRACE)
        .by(reconcile)
        .unwrap();
    (Running::new(controller), calls)
}

#[test]
fn stop_finishes_calls_and_drops_waiting_keys() {
    let cluster = Cluster::new();
    let (running, calls) = start(&cluster, "finish");
    let call = calls.next();
    running.enqueue("default/a");
    cluster.create(MAPS, "b");
    running.until("b is queued", |status| status.queued == 1);
    running.stop.stop();
    assert!(!call.stop.is_stopped());
    call.done();
    running.join().unwrap();
    calls.assert_none();
}

#[test]
fn call_in_progress_reads_caches_after_the_stop() {
    let cluster = Cluster::new();
    let (running, calls) = start(&cluster, "caches");
    let call = calls.next();
    running.stop.stop();
    cluster.create(MAPS, "b");
    let lister = running.controller.lister();
    until("the cache has b", || lister.get("default", "b").is_some());
    call.done();
    running.join().unwrap();
}

#[test]
fn grace_period_ends_calls() {
    let cluster = Cluster::new();
    let (running, calls) = start(&cluster, "grace");
    let call = calls.next();
    running.stop.stop();
    cluster.wait_for_waits(GRACE, 1);
    assert!(!call.stop.is_stopped());
    cluster.advance(&running, GRACE);
    assert!(call.stop.wait_timeout(LIMIT));
    call.fail("stopped");
    running.join().unwrap();
}

#[test]
fn blocked_stop_callback_does_not_hide_a_stuck_call() {
    let cluster = Cluster::new();
    let (running, calls) = start(&cluster, "blocked stop");
    let call = calls.next();
    let blocked = BlockedCallback::new(&call.stop);
    running.stop.stop();
    for count in [1, 2] {
        cluster.wait_for_waits(GRACE, count);
        cluster.advance(&running, GRACE);
    }
    let error = running.join().unwrap_err();
    assert!(
        matches!(error.kind(), ControllerErrorKind::Stuck { .. }),
        "{error}"
    );
    assert!(blocked.is_running.wait_timeout(LIMIT));
    drop(blocked);
    call.done();
}

/// Metrics that block before a call.
#[derive(Clone)]
struct BlockedMetrics {
    entered: Stopper,
    open: Stopper,
}

impl ControllerMetrics for BlockedMetrics {
    fn active_workers(&self, workers: usize) {
        if workers > 0 {
            self.entered.stop();
            self.open.wait();
        }
    }
}

impl MetricsProvider for BlockedMetrics {}

impl ControllerMetricsProvider for BlockedMetrics {
    fn controller_metrics(&self, _: &str) -> Option<Arc<dyn ControllerMetrics>> {
        Some(Arc::new(self.clone()))
    }
}

#[test]
fn call_does_not_start_after_its_end() {
    let cluster = Cluster::new();
    cluster.create(MAPS, "a");
    let (entered, open) = (Stopper::new(), Stopper::new());
    let (called, calls) = unbounded();
    let controller = cluster
        .controller::<ConfigMap>("late")
        .grace_period(Duration::ZERO)
        .metrics(Arc::new(BlockedMetrics {
            entered: entered.clone(),
            open: open.clone(),
        }))
        .by(move |_, _| {
            called.send(())?;
            Ok(Next::Done)
        });
    let running = Running::new(controller.unwrap());
    assert!(entered.wait_timeout(LIMIT));
    running.stop.stop();
    // The calls have been ended, and have a second to return.
    cluster.wait_for_waits(SECOND, 1);
    open.stop();
    running.join().unwrap();
    assert!(calls.try_recv().is_err());
}

#[test]
fn stuck_call_is_named() {
    let cluster = Cluster::new();
    let (running, calls) = start(&cluster, "stuck");
    let call = calls.next();
    running.stop.stop();
    for count in [1, 2] {
        cluster.wait_for_waits(GRACE, count);
        cluster.advance(&running, GRACE);
    }
    let controller = running.controller.clone();
    let error = running.join().unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"controller "stuck": reconcile calls have not returned 14s after the stop: default/a"#
    );
    assert!(
        matches!(error.kind(), ControllerErrorKind::Stuck { keys, .. } if keys == &["default/a"])
    );
    call.done();
    until("the call has ended", || {
        controller.status().running.is_empty()
    });
}

#[test]
fn calls_can_react_to_a_grace_period_of_zero() {
    let cluster = Cluster::new();
    cluster.create(MAPS, "a");
    let (reconcile, calls) = answered();
    let controller = cluster.controller::<ConfigMap>("at once");
    let running = Running::new(
        controller
            .grace_period(Duration::ZERO)
            .by(reconcile)
            .unwrap(),
    );
    let call = calls.next();
    running.stop.stop();
    assert!(call.stop.wait_timeout(LIMIT));
    call.fail("stopped");
    running.join().unwrap();
}

#[test]
fn longest_grace_period_is_accepted() {
    let cluster = Cluster::new();
    cluster.create(MAPS, "a");
    let (reconcile, calls) = answered();
    let controller = cluster
        .controller::<ConfigMap>("patient")
        .grace_period(Duration::MAX);
    let running = Running::new(controller.by(reconcile).unwrap());
    let call = calls.next();
    running.stop.stop();
    cluster.wait_for_waits(Duration::MAX, 1);
    cluster.advance(&running, 3600 * SECOND);
    assert!(!call.stop.is_stopped());
    call.done();
    running.join().unwrap();
}

#[test]
fn sync_error_has_the_cause_and_the_deadline() {
    let cluster = Cluster::new();
    cluster
        .server
        .fail_next(Fault::status(403).resource("configmaps").always());
    let maps = cluster.factory.informer::<ConfigMap>();
    cluster.factory.start(&Stop::never()).unwrap();
    until("the list is refused", || maps.status().last_error.is_some());
    let (reconcile, calls) = answered::<ConfigMap>();
    let controller = cluster
        .controller("denied")
        .factory(&cluster.factory)
        .sync_timeout(Duration::from_millis(50));
    let running = Running::new(controller.by(reconcile).unwrap());
    let error = running.join().unwrap_err();
    // The last error is that of a list or of a watch-list.
    let start = r#"controller "denied": timed out after 50ms; not synced: configmaps ("#;
    assert!(error.to_string().starts_with(start), "{error}");
    assert_eq!(error.controller(), Some("denied"));
    assert!(std::error::Error::source(&error).is_some());
    let ControllerErrorKind::Sync(source) = error.kind() else {
        panic!("{error}")
    };
    assert!(
        source.unsynced()[0]
            .last_error
            .as_ref()
            .unwrap()
            .is_forbidden()
    );
    calls.assert_none();
}

#[test]
fn stop_during_the_sync_is_no_error() {
    let cluster = Cluster::new();
    cluster.server.fail_next(Fault::stall().always());
    let (reconcile, calls) = answered::<ConfigMap>();
    let running = Running::new(cluster.controller("early").by(reconcile).unwrap());
    cluster
        .server
        .wait_for_requests(|requests| !requests.is_empty(), LIMIT)
        .unwrap();
    running.stop.stop();
    running.join().unwrap();
    calls.assert_none();
}

#[test]
fn controller_runs_once() {
    let cluster = Cluster::new();
    let (running, calls) = start(&cluster, "once");
    let call = calls.next();
    let again = |controller: &Controller<ConfigMap>| controller.run(&Stop::never()).unwrap_err();
    let error = again(&running.controller);
    assert!(
        matches!(error.kind(), ControllerErrorKind::AlreadyRan),
        "{error}"
    );
    call.done();
    running.until_idle();
    // The second run has not disturbed the first one.
    running.enqueue("default/a");
    calls.next().done();
    let controller = running.controller.clone();
    running.end(calls);
    assert!(matches!(
        again(&controller).kind(),
        ControllerErrorKind::AlreadyRan
    ));
}

#[test]
fn shared_factory_runs_on_after_the_controller() {
    let cluster = Cluster::new();
    let factory = SharedInformerFactory::new(cluster.client.clone());
    let (reconcile, calls) = answered::<ConfigMap>();
    let controller = cluster
        .controller("first")
        .factory(&factory)
        .by(reconcile)
        .unwrap();
    let running = Running::new(controller);
    cluster.create(MAPS, "a");
    calls.next().done();
    let informer = running.controller.informer().clone();
    running.stop.stop();
    running.join().unwrap();
    assert!(!informer.is_stopped());
    cluster.create(MAPS, "b");
    until("the cache has b", || {
        informer.lister().get("default", "b").is_some()
    });
    calls.assert_none();

    let (reconcile, calls) = answered::<ConfigMap>();
    let controller = cluster
        .controller("second")
        .factory(&factory)
        .by(reconcile)
        .unwrap();
    let running = Running::new(controller);
    for _ in 0..2 {
        calls.next().done();
    }
    running.end(calls);
    factory.shut_down(None).unwrap();
    assert!(informer.is_stopped());
}

#[test]
fn sync_waits_only_for_informers_of_the_controller() {
    let cluster = Cluster::new();
    cluster
        .server
        .fail_next(Fault::status(403).resource("secrets").always());
    let factory = SharedInformerFactory::new(cluster.client.clone());
    let secrets = factory.informer::<Secret>();
    let (reconcile, calls) = answered::<ConfigMap>();
    let controller = cluster
        .controller("unaffected")
        .factory(&factory)
        .by(reconcile)
        .unwrap();
    let running = Running::new(controller);
    cluster.create(MAPS, "a");
    calls.next().done();
    assert!(!secrets.has_synced());
    running.end(calls);
    factory.shut_down(None).unwrap();
}

#[test]
fn keys_enqueued_before_the_run_are_called() {
    let cluster = Cluster::new();
    let (reconcile, calls) = answered::<ConfigMap>();
    let (gone, keys) = unbounded();
    let on_gone = move |key: &Key| gone.send(Key::clone(key)).unwrap();
    let controller = cluster
        .controller("before")
        .on_gone(on_gone)
        .by(reconcile)
        .unwrap();
    controller.enqueue("default/nothing");
    let running = Running::new(controller);
    assert_eq!(&*keys.recv_timeout(LIMIT).unwrap(), "default/nothing");
    calls.assert_none();
    running.end(calls);
}

#[test]
fn broken_lists_during_the_sync_are_repeated() {
    let cluster = Cluster::new();
    cluster.create(MAPS, "a");
    cluster.server.fail_next(Fault::close().on(Verb::List));
    cluster.server.fail_next(Fault::close().on(Verb::Watch));
    let (reconcile, calls) = answered::<ConfigMap>();
    let running = Running::new(cluster.controller("repeated").by(reconcile).unwrap());
    calls.next().is("default/a").done();
    running.end(calls);
}
