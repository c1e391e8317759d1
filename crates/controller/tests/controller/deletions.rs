//! Deletions of objects that remain, and writes whose responses do not say what follows.

use k8s_informer::client::api::{DeleteOptions, Patch};
use k8s_informer::object::FullObjectMeta;
use k8s_informer::time::Clock;
use k8s_informer::{impl_full_metadata, impl_object};
use k8s_informer_testing::{ApiResource, ControllerTest, Verb};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use serde::Deserialize;

use super::*;
use crate::log_capture;

/// The timeout of own writes.
const TIMEOUT: Duration = Duration::from_secs(77);
const NAMESPACES: &str = "/api/v1/namespaces";
const PODS: &str = "/api/v1/namespaces/default/pods";
const FINALIZER: &str = "example.com/test";

/// Runs a controller of Deployments with an informer of `C`. The Deployment `a` exists, and its
/// first call has ended.
fn start<C: Resource + DeserializeOwned>(
    cluster: &Cluster,
    name: &str,
) -> (Running<Deployment>, Calls) {
    log_capture::start();
    cluster.create(DEPLOYMENTS, "a");
    let (reconcile, calls) = answered();
    let controller = cluster
        .controller(name)
        .factory(&cluster.factory)
        .watches(Source::of::<C>(), |_| None)
        .own_writes_timeout(TIMEOUT)
        .by(reconcile)
        .unwrap();
    let running = Running::new(controller);
    calls.next().is("default/a").done();
    running.until_idle();
    (running, calls)
}

impl<T: Object + DeserializeOwned> Running<T> {
    /// Queues the key, and waits until it waits for its writes.
    fn until_waits_for_writes(&self) {
        self.enqueue("default/a");
        self.until("the key waits for its writes", |status| {
            status.postponed == 1 && status.queued == 0 && status.running.is_empty()
        });
    }
}

/// A namespace stays in the phase `Terminating`, because no controller removes the finalizer in its
/// spec.
#[test]
fn deleted_namespace_that_remains_does_not_delay_the_key() {
    let cluster = Cluster::new();
    let (running, calls) = start::<Namespace>(&cluster, "namespaces");
    for name in ["blue", "green"] {
        cluster.create(NAMESPACES, name);
    }
    let delete = |cx: &Context, name: &str| {
        let options = DeleteOptions::default();
        cx.api::<Namespace>(None).delete(name, &options, cx.stop())
    };
    let is_terminating = |cx: &Context, name: &str| {
        let namespace = cx.lister::<Namespace>().get_by_key(name).unwrap();
        namespace.metadata.deletion_timestamp.is_some()
    };
    running.enqueue("default/a");
    calls.next().run(move |cx| {
        delete(cx, "blue")?;
        delete(cx, "green")?;
        Ok(Next::Done)
    });
    running.until_idle();
    running.enqueue("default/a");
    // The cache has the start of the deletions, and no time passes.
    calls.next().run(move |cx| {
        assert!(is_terminating(cx, "blue") && is_terminating(cx, "green"));
        // Again, and with a write that changes nothing.
        delete(cx, "blue")?;
        let patch = Patch::merge(json!({"metadata": {"labels": {"none": null}}}));
        cx.api::<Namespace>(None)
            .patch("green", &patch, cx.stop())?;
        Ok(Next::Done)
    });
    running.until_idle();
    running.enqueue("default/a");
    calls.next().done();
    running.until_idle();
    assert!(running.controller.last_failure("default/a").is_none());
    running.end(calls);
}

/// The same with the finalizer of a controller of Namespaces.
#[test]
fn cleaned_up_namespace_that_remains_does_not_delay_the_key() {
    let cluster = Cluster::new();
    let (cleanup, cleanups) = answered();
    let controller = cluster
        .controller::<Namespace>("environments")
        .finalizer(FINALIZER, |namespace| namespace.name() == "blue", cleanup)
        .by(|_, _| Ok(Next::Done))
        .unwrap();
    let running = Running::new(controller);
    cluster.create(NAMESPACES, "blue");
    let blue = format!("{NAMESPACES}/blue");
    until("it has the finalizer", || {
        cluster.server.get(&blue).unwrap()["metadata"]["finalizers"] == json!([FINALIZER])
    });
    cluster.server.delete(&blue).unwrap();
    cleanups.next().is("blue").done();
    until("the finalizer is removed", || {
        cluster.server.get(&blue).unwrap()["metadata"]["finalizers"].is_null()
    });
    running.until_idle();
    running.enqueue("blue");
    running.until("the key is called, and not delayed", |status| {
        status.queued + status.running.len() + status.postponed == 0
    });
    cleanups.assert_none();
    running.end(cleanups);
}

/// An object whose own field has the name of the finalizers of a Namespace.
#[derive(Deserialize)]
struct Pipeline {
    metadata: FullObjectMeta,
}

impl_object!(
    Pipeline,
    "example.com/v1",
    "Pipeline",
    "pipelines",
    Namespaced
);
impl_full_metadata!(Pipeline);

#[test]
fn cleanup_is_not_repeated_for_a_custom_spec_finalizers() {
    let pipelines = ApiResource::new("example.com", "v1", "pipelines", "Pipeline");
    let server = ApiServer::builder().resource(pipelines).start().unwrap();
    let cluster = Cluster::with_server(server);
    let (cleanup, cleanups) = answered();
    let (gone, keys) = unbounded();
    let controller = cluster
        .controller::<Pipeline>("pipelines")
        .factory(&cluster.factory)
        .finalizer(FINALIZER, |_| true, cleanup)
        .on_gone(move |key| gone.send(Key::clone(key)).unwrap())
        .by(|_, _| Ok(Next::Done))
        .unwrap();
    let running = Running::new(controller);
    let path = "/apis/example.com/v1/namespaces/default/pipelines";
    let pipeline = json!({
        "metadata": {"name": "a", "finalizers": [FINALIZER]}, "spec": {"finalizers": ["last-step"]},
    });
    cluster.create_with(path, pipeline);
    until("it is cached", || {
        !running.controller.lister().list().is_empty()
    });
    running.until_idle();
    cluster.server.delete(&format!("{path}/a")).unwrap();
    let cleanup = cleanups.next();
    cluster.stall("pipelines");
    cleanup.done();
    until("the object is gone", || {
        cluster.server.get(&format!("{path}/a")).is_err()
    });
    running.until_waits_for_writes();
    cleanups.assert_none();
    cluster.reconnect();
    assert_eq!(&*keys.recv_timeout(LIMIT).unwrap(), "default/a");
    cleanups.assert_none();
    running.end(cleanups);
}

/// The response to the patch that removes the last finalizer has the version of the cached object.
#[test]
fn removal_by_a_patch_is_awaited() {
    let cluster = Cluster::new();
    let (running, calls) = start::<ConfigMap>(&cluster, "patches");
    cluster.create_with(
        MAPS,
        json!({"metadata": {"name": "m", "finalizers": [FINALIZER]}}),
    );
    cluster.server.delete(&format!("{MAPS}/m")).unwrap();
    let maps = cluster.factory.informer::<ConfigMap>();
    until("the deletion has begun", || {
        let map = maps.lister().get("default", "m");
        map.is_some_and(|map| map.metadata.deletion_timestamp.is_some())
    });
    cluster.stall("configmaps");
    running.enqueue("default/a");
    calls.next().run(|cx| {
        let patch = Patch::merge(json!({"metadata": {"finalizers": null}}));
        cx.api::<ConfigMap>(Some("default"))
            .patch("m", &patch, cx.stop())?;
        Ok(Next::Done)
    });
    running.until_idle();
    running.until_waits_for_writes();
    cluster.reconnect();
    calls.next().run(|cx| {
        assert!(cx.lister::<ConfigMap>().get("default", "m").is_none());
        Ok(Next::Done)
    });
    running.drain(&calls);
    running.end(calls);
}

/// The cache has an earlier object with the name of the deleted one.
#[test]
fn deletion_of_a_newer_object_is_awaited() {
    let cluster = Cluster::new();
    let (running, calls) = start::<ConfigMap>(&cluster, "newer");
    cluster.create(MAPS, "m");
    let maps = cluster.factory.informer::<ConfigMap>();
    until("it is cached", || !maps.lister().list().is_empty());
    cluster.stall("configmaps");
    cluster.server.delete(&format!("{MAPS}/m")).unwrap();
    cluster.create(MAPS, "m");
    running.enqueue("default/a");
    calls.next().run(|cx| {
        let options = DeleteOptions::default();
        cx.api::<ConfigMap>(Some("default"))
            .delete("m", &options, cx.stop())?;
        Ok(Next::Done)
    });
    running.until_idle();
    running.until_waits_for_writes();
    cluster.reconnect();
    calls.next().run(|cx| {
        assert!(cx.lister::<ConfigMap>().get("default", "m").is_none());
        Ok(Next::Done)
    });
    running.drain(&calls);
    assert!(running.controller.last_failure("default/a").is_none());
    running.end(calls);
}

/// The server says that the object is gone, as one behind an aggregated API can, but it remains.
#[test]
fn deletion_that_does_not_come_is_awaited_for_a_limited_time() {
    for uid in ["", "uid of the object"] {
        let cluster = Cluster::new();
        let name = format!("liar {uid}");
        let (running, calls) = start::<ConfigMap>(&cluster, &name);
        let map = cluster.create(MAPS, "m");
        let maps = cluster.factory.informer::<ConfigMap>();
        until("it is cached", || !maps.lister().list().is_empty());
        let mut details = json!({"name": "m"});
        if !uid.is_empty() {
            details["uid"] = map["metadata"]["uid"].clone();
        }
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Success", "details": details,
        });
        let lie = Fault::response(200, "application/json", status.to_string());
        cluster.server.fail_next(lie.on(Verb::Delete));
        running.enqueue("default/a");
        calls.next().run(|cx| {
            let options = DeleteOptions::default();
            cx.api::<ConfigMap>(Some("default"))
                .delete("m", &options, cx.stop())?;
            Ok(Next::Done)
        });
        running.until_idle();
        running.until_waits_for_writes();
        let awaited = running.controller.status().awaited;
        let [write] = &awaited[..] else {
            panic!("one write is awaited: {awaited:?}")
        };
        assert_eq!((&*write.key, &*write.object), ("default/a", "default/m"));
        assert_eq!(
            (&*write.informer, &*write.change),
            ("configmaps", "its deletion")
        );
        // Two checks say that the deletion is late, and the third one ends the wait.
        for count in 1..4 {
            cluster.wait_for_waits(TIMEOUT, count);
            cluster.advance(&running, TIMEOUT);
        }
        calls.next().is("default/a").done();
        running.until_idle();
        assert!(running.controller.status().awaited.is_empty());
        let controller = format!("controller {name:?}");
        let late = log_capture::lines_with(&[&controller, "still lacks a write"]);
        assert_eq!(late.len(), 2, "{late:?}");
        let given_up = log_capture::lines_with(&[&controller, "does not wait any longer"]);
        assert_eq!(given_up.len(), 1, "{given_up:?}");
        let named = r#"such as "default/m" in the cache of configmaps (1 in all)"#;
        assert!(given_up[0].contains(named), "{given_up:?}");
        running.end(calls);
    }
}

/// The response to an eviction does not contain the Pod.
#[test]
fn evictions_are_awaited() {
    type Form = fn(&Context) -> Result<(), Failure>;
    let forms: [Form; 2] = [
        |cx| {
            let pods = cx.api::<Pod>(Some("default"));
            Ok(pods.evict("p", &DeleteOptions::default(), cx.stop())?)
        },
        |cx| {
            let eviction = json!({
                "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"},
            });
            let pods = cx.api::<Pod>(Some("default"));
            let evictions = pods.subresource::<Value>("eviction");
            evictions.create("p", &eviction, cx.stop())?;
            Ok(())
        },
    ];
    for write in forms {
        let cluster = Cluster::new();
        let (running, calls) = start::<Pod>(&cluster, "pods");
        let pod = cluster.create(PODS, "p");
        let pods = cluster.factory.informer::<Pod>();
        until("it is cached", || !pods.lister().list().is_empty());
        cluster.stall("pods");
        running.enqueue("default/a");
        calls.next().run(move |cx| write(cx).map(|()| Next::Done));
        running.until_idle();
        assert!(running.controller.last_failure("default/a").is_none());
        running.until_waits_for_writes();
        assert_eq!(running.controller.status().awaited[0].change, "a change");
        cluster.reconnect();
        let version = pod["metadata"]["resourceVersion"].clone();
        calls.next().run(move |cx| {
            let cached = cx.lister::<Pod>().get("default", "p");
            assert!(cached.is_none_or(|cached| version != cached.resource_version()));
            Ok(Next::Done)
        });
        running.drain(&calls);
        assert!(running.controller.last_failure("default/a").is_none());
        running.end(calls);
    }
}

/// The event of an eviction can arrive before the response.
#[test]
fn eviction_that_the_cache_has_does_not_delay_the_key() {
    let mut test = ControllerTest::new(Source::of::<Deployment>(), |builder| {
        builder.watches(Source::of::<Pod>(), |_| None).by(|cx, _| {
            let pods = cx.api::<Pod>(Some("default"));
            match pods.evict("p", &DeleteOptions::default(), cx.stop()) {
                Err(error) if !error.is_not_found() => Err(error.into()),
                _ => Ok(Next::Done),
            }
        })
    })
    .unwrap();
    let create = |path: &str, name: &str| {
        let object = json!({"metadata": {"name": name}});
        test.server().create(path, object).unwrap();
    };
    create(PODS, "p");
    create(DEPLOYMENTS, "a");
    let start = test.clock().now();
    test.run_until_idle().unwrap();
    test.controller().enqueue("default/a");
    test.run_until_idle().unwrap();
    assert_eq!(test.calls("default/a"), 2);
    assert_eq!(test.clock().now(), start);
}
