//! Calls wait until the caches contain what earlier calls for the key have written.

use k8s_informer::client::api::{Api, DeleteOptions, Patch};
use k8s_informer::informer::InformerScope;
use k8s_informer::reflector::ReflectorState;
use k8s_informer::store::Transform;
use k8s_informer_controller::MetricsRegistry;
use k8s_informer_testing::{RequestRecord, Verb};

use super::*;
use crate::log_capture;

/// The timeout of writes with an unknown outcome.
const TIMEOUT: Duration = Duration::from_secs(77);

/// Runs a controller of Deployments that own ConfigMaps. The Deployment `a` exists, and its first
/// call has ended.
fn start(cluster: &Cluster) -> (Running<Deployment>, Calls) {
    start_with(cluster, "writes", Source::of::<ConfigMap>())
}

fn start_with(
    cluster: &Cluster,
    name: &str,
    maps: Source<ConfigMap>,
) -> (Running<Deployment>, Calls) {
    start_measured(cluster, name, maps, &MetricsRegistry::new())
}

fn start_measured(
    cluster: &Cluster,
    name: &str,
    maps: Source<ConfigMap>,
    metrics: &MetricsRegistry,
) -> (Running<Deployment>, Calls) {
    log_capture::start();
    cluster.create(DEPLOYMENTS, "a");
    let (reconcile, calls) = answered();
    let controller = cluster
        .controller(name)
        .factory(&cluster.factory)
        .owns(maps)
        .own_writes_timeout(TIMEOUT)
        .metrics(Arc::new(metrics.clone()))
        .by(reconcile)
        .unwrap();
    let running = Running::new(controller);
    calls.next().is("default/a").done();
    running.until_idle();
    (running, calls)
}

/// Creates a child with a generated name unless there is one.
fn ensure_child(cx: &Context) -> Result<Next, Failure> {
    if cx.children::<ConfigMap>()?.is_empty() {
        let child = cx.owned(json!({"metadata": {"generateName": "m-"}}))?;
        maps(cx).create(&child, cx.stop())?;
    }
    Ok(Next::Done)
}

fn maps(cx: &Context) -> Api<ConfigMap> {
    cx.api(Some(cx.namespace()))
}

impl<T: Object + DeserializeOwned> Running<T> {
    fn until_postponed(&self) {
        self.until("a key waits for its writes", |status| {
            status.postponed == 1 && status.queued == 0 && status.running.is_empty()
        });
    }
}

#[test]
fn stalled_watch_delays_the_key_but_no_other_key() {
    let cluster = Cluster::new();
    let (running, calls) = start_with(&cluster, "stalled", Source::of());
    cluster.stall("configmaps");
    running.enqueue("default/a");
    calls.next().run(ensure_child);
    running.until_idle();
    running.enqueue("default/a");
    // The watch may be stalled for any time. The checks after 77 and 154 seconds say so.
    for count in 1..4 {
        cluster.wait_for_waits(TIMEOUT, count);
        cluster.advance(&running, TIMEOUT);
    }
    cluster.wait_for_waits(TIMEOUT, 4);
    for _ in 0..3 {
        running.enqueue("default/a");
        running.until_postponed();
    }
    let lines = log_capture::lines_with(&["WARN", r#""stalled""#, "still lacks a write"]);
    assert_eq!(
        lines,
        [r#"WARN controller "stalled", key "default/a", attempt 1: the cache of configmaps still lacks a write of this controller; the key waits for it"#;
            2]
    );
    cluster.create(DEPLOYMENTS, "b");
    calls.next().is("default/b").done();
    running.until_postponed();
    calls.assert_none();

    cluster.reconnect();
    calls.next_of("default/a").run(ensure_child);
    running.drain(&calls);
    assert_eq!(cluster.names(MAPS).len(), 1);
    running.end(calls);
}

#[test]
fn wait_for_own_writes_is_measured_once_with_its_length() {
    let (cluster, metrics) = (Cluster::new(), MetricsRegistry::new());
    let (running, calls) = start_measured(&cluster, "measured", Source::of(), &metrics);
    let samples = || {
        let text = metrics.render();
        let sample = |suffix| {
            let line = format!("controller_runtime_consistency_wait_duration_seconds_{suffix}{{");
            let line = text.lines().find(|other| other.starts_with(&line));
            line.and_then(|line| line.rsplit_once(' '))
                .unwrap()
                .1
                .parse::<f64>()
                .unwrap()
        };
        (sample("count"), sample("sum"))
    };
    assert_eq!(samples(), (0.0, 0.0));
    cluster.stall("configmaps");
    running.enqueue("default/a");
    calls.next().run(ensure_child);
    running.until_idle();
    running.enqueue("default/a");
    cluster.wait_for_waits(TIMEOUT, 1);
    // After this time the write is checked, and the key waits again.
    cluster.advance(&running, TIMEOUT);
    cluster.wait_for_waits(TIMEOUT, 2);
    running.until_postponed();
    assert_eq!(samples(), (0.0, 0.0));
    cluster.reconnect();
    calls.next_of("default/a").run(ensure_child);
    running.drain(&calls);
    assert_eq!(samples(), (1.0, TIMEOUT.as_secs_f64()));
    running.end(calls);
}

#[test]
fn late_write_does_not_hide_the_first_failure() {
    let cluster = Cluster::new();
    let (running, calls) = start_with(&cluster, "late", Source::of());
    cluster.stall("configmaps");
    running.enqueue("default/a");
    calls.next().run(ensure_child);
    running.until_idle();
    running.enqueue("default/a");
    cluster.wait_for_waits(TIMEOUT, 1);
    cluster.advance(&running, TIMEOUT);
    log_capture::wait_for(&["WARN", r#""late""#, "still lacks a write"]);
    cluster.reconnect();
    calls.next_of("default/a").fail("no bucket");
    log_capture::wait_for(&["WARN", r#""late""#, "no bucket"]);
    running.end(calls);
}

#[test]
fn key_continues_when_its_write_arrives() {
    let cluster = Cluster::new();
    let (running, calls) = start(&cluster);
    running.enqueue("default/a");
    let call = calls.next();
    running.enqueue("default/a");
    call.run(ensure_child);
    // No time passes on the clock of the test.
    calls.next().run(|cx| {
        assert_eq!(cx.children::<ConfigMap>()?.len(), 1);
        Ok(Next::Done)
    });
    running.drain(&calls);
    assert!(running.controller.last_failure("default/a").is_none());
    running.end(calls);
}

#[test]
fn quiet_namespace_does_not_delay_the_key() {
    let cluster = Cluster::new();
    let scope = InformerScope::all().namespace("default").namespace("quiet");
    let (running, calls) = start_with(&cluster, "quiet", Source::of().scope(scope));
    running.enqueue("default/a");
    let call = calls.next();
    running.enqueue("default/a");
    call.run(ensure_child);
    calls.next().is("default/a").run(ensure_child);
    running.drain(&calls);
    assert_eq!(cluster.names(MAPS).len(), 1);
    running.end(calls);
}

#[test]
fn namespaces_without_an_informer_do_not_delay_the_key() {
    let cluster = Cluster::new();
    let scope = InformerScope::all().namespace("other");
    let (running, calls) = start_with(&cluster, "elsewhere", Source::of().scope(scope));
    running.enqueue("default/a");
    calls.next().run(|cx| {
        maps(cx).create(&json!({"metadata": {"name": "m"}}), cx.stop())?;
        Ok(Next::Done)
    });
    running.until_idle();
    running.enqueue("default/a");
    calls.next().done();
    running.end(calls);
}

type WriteFn = fn(&Context) -> Result<(), Failure>;

#[test]
fn each_form_of_write_is_awaited() {
    let forms: [(&str, WriteFn); 9] = [
        ("create", |cx| {
            maps(cx).create(&json!({"metadata": {"name": "new"}}), cx.stop())?;
            Ok(())
        }),
        ("apply", |cx| {
            let wanted = json!({"metadata": {"name": "m"}, "data": {"k": "v"}});
            maps(cx).patch("m", &Patch::apply("test", wanted), cx.stop())?;
            Ok(())
        }),
        ("apply of a new object", |cx| {
            let wanted = json!({"metadata": {"name": "new"}});
            maps(cx).patch("new", &Patch::apply("test", wanted), cx.stop())?;
            Ok(())
        }),
        ("merge patch", |cx| {
            maps(cx).patch("m", &Patch::merge(json!({"data": {"k": "v"}})), cx.stop())?;
            Ok(())
        }),
        ("JSON patch", |cx| {
            let operations = json!([{"op": "add", "path": "/data", "value": {"k": "v"}}]);
            maps(cx).patch("m", &Patch::json(operations), cx.stop())?;
            Ok(())
        }),
        ("replace", |cx| {
            let mut map = maps(cx).get("m", cx.stop())?;
            map.immutable = Some(true);
            maps(cx).replace(&map, cx.stop())?;
            Ok(())
        }),
        ("modify", |cx| {
            maps(cx).modify("m", |map| map.immutable = Some(true), cx.stop())?;
            Ok(())
        }),
        ("delete", |cx| {
            maps(cx).delete("m", &DeleteOptions::default(), cx.stop())?;
            Ok(())
        }),
        ("create and delete", |cx| {
            maps(cx).create(&json!({"metadata": {"name": "new"}}), cx.stop())?;
            maps(cx).delete("new", &DeleteOptions::default(), cx.stop())?;
            Ok(())
        }),
    ];
    for (form, write) in forms {
        let cluster = Cluster::new();
        cluster.create(MAPS, "m");
        let (running, calls) = start(&cluster);
        cluster.stall("configmaps");
        running.enqueue("default/a");
        calls.next().run(move |cx| write(cx).map(|()| Next::Done));
        running.until_idle();
        assert!(
            running.controller.last_failure("default/a").is_none(),
            "{form}"
        );
        running.enqueue("default/a");
        running.until("the key waits", |status| status.postponed == 1);
        cluster.reconnect();
        let call = match form {
            // After a list instead of a new watch, no event shows the short life of the object.
            "create and delete" => cluster.advance_until_call(&running, &calls),
            _ => calls.next(),
        };
        call.is("default/a").done();
        running.end(calls);
    }
}

#[test]
fn writes_without_an_effect_do_not_delay_the_key() {
    let cluster = Cluster::new();
    cluster.create_with(MAPS, json!({"metadata": {"name": "m"}, "data": {"k": "v"}}));
    let (running, calls) = start(&cluster);
    cluster.stall("configmaps");
    let writes: [WriteFn; 3] = [
        |cx| {
            maps(cx).patch("m", &Patch::merge(json!({"data": {"k": "v"}})), cx.stop())?;
            Ok(())
        },
        |cx| {
            maps(cx)
                .dry_run()
                .create(&json!({"metadata": {"name": "n"}}), cx.stop())?;
            Ok(())
        },
        |cx| {
            let missing = maps(cx).delete("missing", &DeleteOptions::default(), cx.stop());
            assert!(missing.unwrap_err().is_not_found());
            Ok(())
        },
    ];
    for write in writes {
        running.enqueue("default/a");
        calls.next().run(move |cx| write(cx).map(|()| Next::Done));
        running.until_idle();
    }
    assert!(running.controller.last_failure("default/a").is_none());
    running.enqueue("default/a");
    calls.next().done();
    running.end(calls);
}

#[test]
fn status_of_the_own_object_is_awaited() {
    let cluster = Cluster::new();
    let (running, calls) = start(&cluster);
    cluster.stall("deployments");
    running.enqueue("default/a");
    calls.next().run(|cx| {
        let status = Patch::merge(json!({"status": {"replicas": 3}}));
        cx.api::<Deployment>(Some("default"))
            .status()
            .patch("a", &status, cx.stop())?;
        Ok(Next::Done)
    });
    running.until_idle();
    running.enqueue("default/a");
    running.until_postponed();
    cluster.reconnect();
    calls.next().run(|cx| {
        let a = cx.lister::<Deployment>().get("default", "a");
        assert_eq!(a.unwrap().status.as_ref().unwrap().replicas, Some(3));
        Ok(Next::Done)
    });
    running.drain(&calls);
    assert!(running.controller.last_failure("default/a").is_none());
    running.end(calls);
}

/// The server executes the creation, but its response is lost.
fn lose_response(cluster: &Cluster) {
    let lost = Fault::reset().after_bytes(0).on(Verb::Create);
    cluster.server.fail_next(lost.resource("configmaps"));
}

#[test]
fn unknown_outcome_of_generated_name_ends_at_the_timeout() {
    let cluster = Cluster::new();
    let (running, calls) = start(&cluster);
    cluster.stall("configmaps");
    lose_response(&cluster);
    running.enqueue("default/a");
    calls.next().run(ensure_child);
    running.until_delayed();
    cluster.advance(&running, SECOND);
    running.until_postponed();
    calls.assert_none();
    cluster.reconnect();
    let informer = cluster.factory.informer::<ConfigMap>();
    until("the child arrives", || !informer.lister().list().is_empty());
    calls.assert_none();
    let call = cluster.advance_until_call(&running, &calls);
    call.is("default/a").run(ensure_child);
    running.drain(&calls);
    assert_eq!(cluster.names(MAPS).len(), 1);
    running.end(calls);
}

#[test]
fn unknown_outcome_of_a_name_ends_with_its_event() {
    let cluster = Cluster::new();
    let (running, calls) = start(&cluster);
    cluster.stall("configmaps");
    lose_response(&cluster);
    running.enqueue("default/a");
    calls.next().run(|cx| {
        let child = cx.owned(json!({"metadata": {"name": "m"}}))?;
        maps(cx).create(&child, cx.stop())?;
        Ok(Next::Done)
    });
    running.until_delayed();
    cluster.advance(&running, SECOND);
    running.until_postponed();
    cluster.reconnect();
    calls.next().run(ensure_child);
    running.drain(&calls);
    assert_eq!(cluster.names(MAPS), ["m"]);
    running.end(calls);
}

#[test]
fn rejected_write_does_not_delay_the_retry() {
    let cluster = Cluster::new();
    let (running, calls) = start(&cluster);
    cluster.stall("configmaps");
    cluster
        .server
        .fail_next(Fault::status(403).on(Verb::Create));
    running.enqueue("default/a");
    calls.next().run(ensure_child);
    running.until_delayed();
    cluster.advance(&running, SECOND);
    calls.next().run(ensure_child);
    running.until_idle();
    assert_eq!(cluster.names(MAPS).len(), 1);
    running.end(calls);
}

#[test]
fn write_lost_by_a_restore_ends_by_the_second_check() {
    let cluster = Cluster::new();
    let (running, calls) = start_with(&cluster, "restored", Source::of());
    let backup = cluster.server.backup();
    let secrets = "/api/v1/namespaces/default/secrets";
    for name in ["x", "y", "z"] {
        cluster.create(secrets, name);
    }
    cluster.stall("configmaps");
    // A write during a list is in no list before the one after it.
    let informer = cluster.factory.informer::<ConfigMap>();
    until("the status shows the watch", || {
        informer.status().state == ReflectorState::Watching
    });
    running.enqueue("default/a");
    calls.next().run(ensure_child);
    running.until_idle();
    running.enqueue("default/a");
    running.until_postponed();
    // After the restore, the version of the server is below that of the child.
    cluster.server.restore(&backup).unwrap();
    cluster.create(secrets, "x");
    cluster.server.compact();
    cluster.reconnect();
    until("the informer has listed again", || {
        informer.status().relists > 0
    });
    assert!(cluster.names(MAPS).is_empty());
    // The first check. If the clock advances further before it, a sweep makes the first check.
    cluster.wait_for_waits(TIMEOUT, 1);
    cluster.advance(&running, TIMEOUT);
    log_capture::wait_for(&["WARN", r#""restored""#, "still lacks a write"]);
    let call = cluster.advance_until_call(&running, &calls);
    let late = log_capture::lines_with(&[r#""restored""#, "still lacks a write"]);
    assert_eq!(late.len(), 1);
    call.is("default/a").run(ensure_child);
    running.drain(&calls);
    assert_eq!(cluster.names(MAPS).len(), 1);
    running.end(calls);
}

/// A transform can reject a child, which then is not in the cache.
#[test]
fn rejected_child_does_not_stop_its_owner() {
    type Reject = fn(&Cluster);
    let rejections: [(&str, Reject); 2] = [
        ("index", |cluster| {
            let index = |map: &ConfigMap| {
                assert_ne!(map.label("size"), Some("0"), "no index value");
                Vec::new()
            };
            let maps = cluster.factory.informer::<ConfigMap>();
            maps.add_index("size", index).unwrap();
        }),
        ("transform", |cluster| {
            let transform = |map: &mut ConfigMap| match map.label("size") {
                Some("0") => Err("no size"),
                _ => Ok(()),
            };
            let maps = cluster.factory.informer::<ConfigMap>();
            maps.set_transform(Transform::try_in_place(transform))
                .unwrap();
        }),
    ];
    for (name, reject) in rejections {
        let cluster = Cluster::new();
        reject(&cluster);
        let (running, calls) = start_with(&cluster, name, Source::of());
        let write = |cx: &Context, size: &str| {
            let child = cx.owned(json!({"metadata": {"name": "m", "labels": {"size": size}}}))?;
            let apply = Patch::apply("test", child);
            maps(cx).patch("m", &apply, cx.stop())?;
            Ok(Next::Done)
        };
        // The creation and an update are rejected, then it recovers.
        for size in ["0", "1", "0", "1"] {
            running.enqueue("default/a");
            let call = cluster.advance_until_call(&running, &calls);
            call.is("default/a").run(move |cx| write(cx, size));
            running.drain(&calls);
        }
        running.enqueue("default/a");
        cluster.advance_until_call(&running, &calls).run(|cx| {
            assert_eq!(cx.children::<ConfigMap>()?.len(), 1);
            Ok(Next::Done)
        });
        running.drain(&calls);
        assert!(running.controller.last_failure("default/a").is_none());
        running.end(calls);
    }
}

/// No event ends the wait, and no time passes on the clock of the test.
#[test]
fn key_continues_when_its_child_is_rejected() {
    let rejects = Transform::new(|_: Arc<ConfigMap>| Err("not this one"));
    let server = ApiServer::start().unwrap();
    let cluster = Cluster::with_factory(server, |factory| factory.transform(rejects));
    let maps = cluster.factory.informer::<ConfigMap>();
    let (running, calls) = start(&cluster);
    cluster.stall("configmaps");
    running.enqueue("default/a");
    calls.next().run(ensure_child);
    running.until_idle();
    running.enqueue("default/a");
    running.until_postponed();
    cluster.reconnect();
    calls.next().is("default/a").done();
    running.drain(&calls);
    assert!(!maps.status().complete);
    running.end(calls);
}

#[test]
fn write_after_the_end_of_its_call_causes_a_call() {
    let cluster = Cluster::new();
    let (running, calls) = start(&cluster);
    let (sender, kept) = bounded(1);
    running.enqueue("default/a");
    calls.next().run(move |cx| {
        sender.send(maps(cx)).unwrap();
        Ok(Next::Done)
    });
    running.until_idle();
    let api = kept.recv_timeout(LIMIT).unwrap();
    cluster.stall("configmaps");
    api.create(&json!({"metadata": {"name": "late"}}), &Stop::never())
        .unwrap();
    running.until_postponed();
    cluster.reconnect();
    calls.next().is("default/a").run(|cx| {
        assert!(cx.lister::<ConfigMap>().get("default", "late").is_some());
        Ok(Next::Done)
    });
    running.drain(&calls);
    assert!(running.controller.last_failure("default/a").is_none());
    running.end(calls);
    // The key and its controller are gone; the write only has to succeed.
    api.create(&json!({"metadata": {"name": "later"}}), &Stop::never())
        .unwrap();
}

#[test]
fn longest_and_shortest_timeouts_do_not_spin() {
    for timeout in [Duration::MAX, Duration::ZERO] {
        let cluster = Cluster::new();
        cluster.create(DEPLOYMENTS, "a");
        let (reconcile, calls) = answered();
        let controller = cluster
            .controller::<Deployment>("timeouts")
            .factory(&cluster.factory)
            .owns(Source::of::<ConfigMap>());
        let controller = controller
            .own_writes_timeout(timeout)
            .by(reconcile)
            .unwrap();
        let running = Running::new(controller);
        calls.next().done();
        running.until_idle();
        cluster.stall("configmaps");
        running.enqueue("default/a");
        calls.next().run(ensure_child);
        running.until_idle();
        running.enqueue("default/a");
        running.until_postponed();
        let year = 365 * 24 * 3600 * SECOND;
        cluster.wait_for_waits(timeout.clamp(SECOND, year), 1);
        running.until_postponed();
        cluster.reconnect();
        calls.next().run(ensure_child);
        running.drain(&calls);
        running.end(calls);
    }
}

/// The maps that a server selects by a field.
fn selected(fields: &str) -> Source<ConfigMap> {
    Source::of().scope(InformerScope::all().field_selector(fields))
}

/// The client can't evaluate the selector, and the server sends nothing: another call would create a
/// second child.
#[test]
fn stalled_watch_with_a_field_selector_delays_the_key() {
    let cluster = Cluster::new();
    let maps = selected("metadata.namespace=default");
    let (running, calls) = start_with(&cluster, "selected", maps);
    for verb in [Verb::List, Verb::Watch] {
        let fault = Fault::stall().on(verb).resource("configmaps").always();
        cluster.server.fail_next(fault);
    }
    cluster.stall("configmaps");
    running.enqueue("default/a");
    calls.next().run(ensure_child);
    running.until_idle();
    for _ in 0..5 {
        cluster.advance(&running, TIMEOUT);
        running.enqueue("default/a");
        running.until_postponed();
    }
    calls.assert_none();
    assert_eq!(running.controller.status().awaited.len(), 1);
    cluster.server.clear_faults();
    cluster.reconnect();
    calls.next_of("default/a").run(ensure_child);
    running.drain(&calls);
    assert_eq!(cluster.names(MAPS).len(), 1);
    running.end(calls);
}

/// The selector excludes the written object, so no event follows. A consistent read, and what the
/// watch tells after it, end the wait long before the next bookmark.
#[test]
fn write_that_a_field_selector_excludes_is_proven_by_a_read() {
    let cluster = Cluster::new();
    let (running, calls) = start_with(&cluster, "excluded", selected("metadata.name=other"));
    running.enqueue("default/a");
    calls.next().run(ensure_child);
    running.until_idle();
    cluster.server.clear_requests();
    running.enqueue("default/a");
    running.until_postponed();
    cluster.wait_for_waits(SECOND, 1);
    cluster.advance(&running, SECOND);
    calls.next().is("default/a").done();
    running.drain(&calls);
    let requests = cluster.server.requests();
    let is_read = |request: &&RequestRecord| {
        request.resource() == Some("configmaps") && request.param("limit") == Some("1")
    };
    assert_eq!(requests.iter().filter(is_read).count(), 1);
    running.end(calls);
}
