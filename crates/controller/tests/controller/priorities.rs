//! The order of calls: changes before the initial list and resyncs.

use super::*;
use k8s_informer::informer::FactoryOptions;

const LISTED: [&str; 4] = ["a", "b", "c", "d"];

/// Runs a controller of ConfigMaps with one worker, and returns its first call, which is one of
/// the initial list. The others wait.
fn start(
    cluster: &Cluster,
    options: impl FnOnce(ControllerBuilder<ConfigMap>) -> ControllerBuilder<ConfigMap>,
) -> (Running<ConfigMap>, Calls, Call) {
    for name in LISTED {
        cluster.create(MAPS, name);
    }
    let (reconcile, calls) = answered();
    let builder = options(cluster.controller("priorities"));
    let running = Running::new(builder.by(reconcile).unwrap());
    let first = calls.next();
    running.until_queued(LISTED.len() - 1);
    (running, calls, first)
}

impl Running<ConfigMap> {
    fn until_queued(&self, count: usize) {
        self.until("keys are queued", |status| status.queued == count);
    }

    /// Creates an object, which changes after all others, and waits until it is queued.
    fn create_last(&self, cluster: &Cluster, name: &str) {
        let queued = self.controller.status().queued;
        cluster.create(MAPS, name);
        self.until_queued(queued + 1);
    }
}

/// Ends a call and the following ones, and returns the names of the latter.
fn names(running: &Running<ConfigMap>, calls: &Calls, mut call: Call, count: usize) -> Vec<String> {
    let mut names = Vec::new();
    for _ in 0..count {
        call.done();
        call = calls.next();
        names.push(call.key.trim_start_matches("default/").to_owned());
    }
    call.done();
    running.until_idle();
    names
}

/// Returns the names of the listed objects that are not in this call.
fn waiting(first: &Call) -> Vec<&'static str> {
    let is_waiting = |name: &&str| !first.key.ends_with(name);
    LISTED.into_iter().filter(is_waiting).collect()
}

#[test]
fn change_is_called_before_the_rest_of_the_list() {
    let cluster = Cluster::new();
    let (running, calls, first) = start(&cluster, |builder| builder);
    let changed = waiting(&first)[2];
    cluster.touch(MAPS, changed, "1");
    running.create_last(&cluster, "new");
    let names = names(&running, &calls, first, 4);
    assert_eq!(names[..2], [changed, "new"]);
    running.end(calls);
}

#[test]
fn resync_does_not_delay_a_change() {
    let cluster = Cluster::new();
    let clock = FakeClock::new();
    let mut options = ReflectorOptions::default();
    options.clock = Arc::new(clock.clone());
    let factory = SharedInformerFactory::with_options(
        cluster.client.clone(),
        FactoryOptions::new()
            .reflector(options)
            .resync_period(SECOND),
    );
    let (running, calls, first) = start(&cluster, |builder| builder.factory(&factory));
    names(&running, &calls, first, 3);
    running.enqueue("default/b");
    let first = calls.next().is("default/b");
    // The read of the watch ends for the resync.
    clock.advance(SECOND);
    running.until_queued(LISTED.len());
    cluster.touch(MAPS, "d", "1");
    running.create_last(&cluster, "new");
    let names = names(&running, &calls, first, 5);
    assert_eq!(names[..2], ["d", "new"]);
    running.end(calls);
    factory.shut_down(None).unwrap();
}

#[test]
fn failed_change_keeps_its_priority_for_the_retry() {
    let cluster = Cluster::new();
    let (running, calls, first) = start(&cluster, |builder| builder);
    running.create_last(&cluster, "new");
    first.done();
    calls.next().is("default/new").fail("no");
    let listed = calls.next();
    running.until("the retry waits", |status| status.delayed == 1);
    cluster.advance(&running, SECOND);
    running.until_queued(3);
    listed.done();
    let retry = calls.next().is("default/new");
    assert_eq!(retry.attempt, 2);
    retry.answer(Ok(Next::After(SECOND)));
    let listed = calls.next();
    running.until("the next call waits", |status| status.delayed == 1);
    cluster.advance(&running, SECOND);
    listed.done();
    calls.next().is("default/new").done();
    running.end(calls);
}

#[test]
fn failed_key_of_the_list_stays_behind_changes() {
    let cluster = Cluster::new();
    let (running, calls, first) = start(&cluster, |builder| builder);
    let failed = first.key.clone();
    first.fail("no");
    let listed = calls.next();
    running.until("the retry waits", |status| status.delayed == 1);
    cluster.advance(&running, SECOND);
    running.until_queued(3);
    running.create_last(&cluster, "new");
    listed.done();
    let mut last = String::new();
    calls.next().is("default/new").done();
    for _ in 0..3 {
        let call = calls.next();
        last.clone_from(&call.key);
        call.done();
    }
    assert_eq!(last, failed);
    running.end(calls);
}

#[test]
fn changed_key_of_the_list_is_called_once() {
    let cluster = Cluster::new();
    let (running, calls, first) = start(&cluster, |builder| builder);
    for name in LISTED {
        cluster.touch(MAPS, name, "1");
    }
    // The first key was changed during its call.
    running.until_queued(LISTED.len());
    running.create_last(&cluster, "new");
    let names = names(&running, &calls, first, 5);
    assert_eq!(names, ["a", "b", "c", "d", "new"]);
    running.end(calls);
}

#[test]
fn starvation_limit_lets_the_list_continue() {
    let cluster = Cluster::new();
    let (running, calls, first) = start(&cluster, |builder| builder.starvation_limit(2));
    let changes = ["n1", "n2", "n3", "n4", "n5"];
    for name in changes {
        running.create_last(&cluster, name);
    }
    let names = names(&running, &calls, first, 8);
    let is_change = |at: usize| changes.contains(&&*names[at]);
    let changed: Vec<usize> = (0..8).filter(|at| is_change(*at)).collect();
    assert_eq!(changed, [0, 1, 3, 4, 6], "{names:?}");
    running.end(calls);
}

#[test]
fn enqueued_key_is_a_change() {
    let cluster = Cluster::new();
    let (running, calls, first) = start(&cluster, |builder| builder);
    let [other, later, now] = waiting(&first)[..] else {
        panic!("three keys wait")
    };
    running
        .controller
        .enqueue_after(format!("default/{later}"), SECOND);
    running.enqueue(&format!("default/{now}"));
    let names = names(&running, &calls, first, 3);
    assert_eq!(names, [later, now, other]);
    running.end(calls);
}

#[test]
fn key_that_waited_for_its_write_keeps_its_priority() {
    let cluster = Cluster::new();
    let (running, calls, first) = start(&cluster, |builder| {
        let builder = builder.factory(&cluster.factory);
        builder.watches(Source::of::<Deployment>(), |_| None)
    });
    cluster.stall("deployments");
    let waiting = waiting(&first);
    let key = first.key.clone();
    first.run(|cx| {
        let deployments = cx.api::<Deployment>(Some("default"));
        deployments.create(&json!({"metadata": {"name": "web"}}), cx.stop())?;
        Err(Failure::new("no"))
    });
    let listed = calls.next();
    running.until("the retry waits", |status| status.delayed == 1);
    cluster.advance(&running, SECOND);
    running.until_queued(3);
    listed.done();
    calls.next().done();
    calls.next().done();
    running.until("the key is postponed", |status| status.postponed == 1);

    let [busy, changed] = [0, 1].map(|at| format!("default/{}", waiting[at]));
    running.enqueue(&busy);
    let call = calls.next().is(&busy);
    cluster.reconnect();
    running.until("the write has arrived", |status| status.postponed == 0);
    running.enqueue(&changed);
    call.done();
    calls.next().is(&changed).done();
    calls.next_of(&key).done();
    running.end(calls);
}
