//! The recorder of a controller.

use std::time::Instant;

use k8s_informer_controller::Next;
use k8s_informer_controller::events::EventType::Normal;
use k8s_informer_testing::{Fault, Verb};
use k8s_openapi::api::core::v1::ConfigMap;

use super::{Cluster, LIMIT, MAPS, Running, answered};

const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";

#[test]
fn last_counts_are_written_before_the_run_returns() {
    let cluster = Cluster::new();
    cluster.create(MAPS, "a");
    let (reconcile, calls) = answered::<ConfigMap>();
    let builder = cluster.controller::<ConfigMap>("example.com/maps");
    let running = Running::new(builder.by(reconcile).unwrap());
    let call = calls.next().is("default/a");
    let map = running.controller.lister().get("default", "a").unwrap();
    call.run(move |cx| {
        for _ in 0..2 {
            cx.events()?.event(&*map, Normal, "Seen", "it exists")?;
        }
        cx.events()?.flush(LIMIT).unwrap();
        // Only counted, until the clock advances.
        cx.events()?.event(&*map, Normal, "Seen", "it exists")?;
        Ok(Next::Done)
    });
    running.until_idle();
    // A dropped recorder would write as well.
    let _controller = running.controller.clone();
    running.end(calls);
    let events = cluster.server.list(EVENTS).unwrap();
    let event = &events["items"][0];
    assert_eq!(event["reportingController"], "example.com/maps");
    assert_eq!(event["regarding"]["name"], "a");
    assert_eq!(event["series"]["count"], 3);
}

#[test]
fn end_does_not_wait_for_a_server_that_hangs() {
    let cluster = Cluster::new();
    let hangs = Fault::stall().on(Verb::Create).resource("events").always();
    cluster.server.fail_next(hangs);
    cluster.create(MAPS, "a");
    let (reconcile, calls) = answered::<ConfigMap>();
    let builder = cluster.controller::<ConfigMap>("maps");
    let running = Running::new(builder.by(reconcile).unwrap());
    let call = calls.next().is("default/a");
    let map = running.controller.lister().get("default", "a").unwrap();
    call.run(move |cx| {
        cx.events()?.event(&*map, Normal, "Seen", "it exists")?;
        Ok(Next::Done)
    });
    running.until_idle();
    let start = Instant::now();
    running.end(calls);
    assert!(start.elapsed() < LIMIT / 6, "a request has a limit of 10 s");
    assert_eq!(cluster.names(EVENTS), [""; 0]);
}

#[test]
fn controller_without_a_qualified_name_has_no_recorder() {
    let cluster = Cluster::new();
    cluster.create(MAPS, "a");
    let (reconcile, calls) = answered::<ConfigMap>();
    let builder = cluster.controller::<ConfigMap>("all maps");
    let running = Running::new(builder.by(reconcile).unwrap());
    calls.next().is("default/a").run(|cx| {
        cx.events()?;
        Ok(Next::Done)
    });
    running.until("the call has failed", |status| status.failing == 1);
    let last = running.controller.last_failure("default/a").unwrap();
    let failure = last.failure.to_string();
    assert!(
        failure.starts_with("invalid event: reportingController"),
        "{failure}"
    );
    running.end(calls);
}
