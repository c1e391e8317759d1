//! Controllers of custom resources: own writes, finalizers, owners, and the hand-over between two
//! managers.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::iter;
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use k8s_informer::client::Request;
use k8s_informer::client::api::Patch;
use k8s_informer::informer::{InformerScope, Source};
use k8s_informer::object::{
    FullMetadata, FullObjectMeta, GroupVersionResource, Key, PartialObjectMetadata, Scope,
};
use k8s_informer::{Object, Stopper, impl_full_metadata, impl_object};
use k8s_informer_controller::{
    Condition, Conditions, Context, Controller, ControllerError, Failure, Manager, Next,
    generation_changed,
};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Namespace, merge_patch, on_every_cluster, versions};
use crate::discovery::Definition;
use crate::leases::post;
use crate::support::{PATIENCE, Versions, wait_until};
use crate::verbs::ONCE;

const GROUP: &str = "controllers.e2e.example.com";
const FINALIZER: &str = "example.com/gizmo";
const OWNERS: usize = 50;
/// The number of status writes of each owner.
const ROUNDS: u32 = 3;

#[derive(Deserialize)]
struct Gizmo {
    metadata: FullObjectMeta,
    #[serde(default)]
    status: GizmoStatus,
}

#[derive(Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
struct GizmoStatus {
    rounds: u32,
    conditions: Conditions,
}

impl_object!(
    Gizmo,
    "controllers.e2e.example.com/v1",
    "Gizmo",
    "gizmos",
    Namespaced
);
impl_full_metadata!(Gizmo);

fn schema() -> Value {
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let condition = json!({
        "type": "object", "required": ["type"], "properties": {"type": {"type": "string"}},
        "x-kubernetes-preserve-unknown-fields": true,
    });
    json!({"type": "object", "properties": {"spec": anything, "status": {
        "type": "object",
        "properties": {"rounds": {"type": "integer"}, "conditions": {
            "type": "array", "items": condition,
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
        }},
    }}})
}

/// What the controllers of both managers have written, by the UID of the owner.
#[derive(Clone, Default)]
struct Writes {
    children: Arc<Mutex<BTreeMap<String, u32>>>,
    statuses: Arc<Mutex<BTreeMap<String, u32>>>,
}

impl Writes {
    fn count(counts: &Mutex<BTreeMap<String, u32>>, owner: &Gizmo) {
        let uid = owner.uid().to_owned();
        *counts.lock().unwrap().entry(uid).or_default() += 1;
    }

    fn reconcile(&self, cx: &Context, gizmo: &Gizmo) -> Result<Next, Failure> {
        if cx.children::<ConfigMap>()?.is_empty() {
            let map = json!({"metadata": {"generateName": "gizmo-"}});
            let maps = cx.api::<ConfigMap>(Some(cx.namespace()));
            maps.create(&cx.owned(map)?, cx.stop())?;
            Self::count(&self.children, gizmo);
        }
        let mut status = gizmo.status.clone();
        status.rounds = ROUNDS.min(status.rounds + 1);
        let ready = Condition::new("Ready", status.rounds == ROUNDS, "Counted", "")
            .observed_generation(gizmo.metadata.generation);
        status.conditions.set(ready, SystemTime::now());
        if status != gizmo.status {
            let status = json!({"metadata": {"name": cx.name()}, "status": status});
            // Half of the statuses are written with server-side apply.
            let patch = match cx.name().ends_with(['0', '2', '4', '6', '8']) {
                true => Patch::merge(status),
                false => Patch::apply("gizmos", status),
            };
            let gizmos = cx.api::<Gizmo>(Some(cx.namespace()));
            gizmos.status().patch(cx.name(), &patch, cx.stop())?;
            Self::count(&self.statuses, gizmo);
        }
        Ok(Next::Done)
    }
}

/// A manager that runs on a thread, with a controller of [`Gizmo`]s.
struct Replica {
    manager: Manager,
    gizmos: Controller<Gizmo>,
    calls: Receiver<String>,
    stop: Stopper,
    thread: JoinHandle<Result<(), ControllerError>>,
}

impl Replica {
    fn start(cluster: &Cluster, namespace: &str, identity: &str, writes: &Writes) -> Self {
        let manager = Manager::builder(cluster.client())
            .leader_election(namespace, "gizmos")
            .identity(identity)
            .informers(cluster.factory_options().namespace(namespace))
            .health(":0")
            .build()
            .unwrap();
        let ((sender, calls), writes) = (channel(), writes.clone());
        let gizmos = manager
            .reconcile::<Gizmo>("gizmos")
            .owns(Source::of::<ConfigMap>())
            .workers(4)
            .by(move |cx, gizmo| {
                let next = writes.reconcile(cx, gizmo);
                if let Err(failure) = &next {
                    println!("  {cx}: {failure}");
                }
                sender.send(cx.name().to_owned())?;
                next
            });
        let stop = Stopper::new();
        let run = (manager.clone(), stop.clone());
        Self {
            manager,
            gizmos: gizmos.unwrap(),
            calls,
            stop,
            thread: thread::spawn(move || run.0.run(&run.1)),
        }
    }

    /// Waits for a call for each owner.
    #[track_caller]
    fn wait_for_all(&self) {
        expect_calls(&self.calls, (0..OWNERS).map(name));
    }

    #[track_caller]
    fn wait_until_idle(&self) {
        wait_until("the controller is idle", || {
            let status = self.gizmos.status();
            let waiting = status.queued + status.delayed + status.postponed;
            (waiting == 0 && status.running.is_empty()).then_some(())
        });
    }

    fn address(&self) -> SocketAddr {
        self.manager.health_address().unwrap()
    }

    #[track_caller]
    fn end(self) {
        self.stop.stop();
        self.thread.join().unwrap().unwrap();
    }
}

fn name(owner: usize) -> String {
    format!("g{owner}")
}

/// Waits until a call for each of these names has ended. Calls for other names are ignored.
#[track_caller]
fn expect_calls(calls: &Receiver<String>, names: impl IntoIterator<Item = String>) {
    let mut missing: BTreeSet<String> = names.into_iter().collect();
    while !missing.is_empty() {
        match calls.recv_timeout(PATIENCE) {
            Ok(name) => missing.remove(&name),
            Err(_) => panic!("no call for {missing:?}"),
        };
    }
}

fn get(address: SocketAddr, path: &str) -> String {
    let mut connection = TcpStream::connect(address).unwrap();
    write!(connection, "GET {path} HTTP/1.1\r\n\r\n").unwrap();
    let mut response = String::new();
    connection.read_to_string(&mut response).unwrap();
    response
}

fn create_gizmo(cluster: &Cluster, gizmos: &str, name: &str, spec: &Value) -> Value {
    let group = gizmos.split('/').nth(2).unwrap();
    let gizmo = json!({
        "apiVersion": format!("{group}/v1"), "kind": "Gizmo", "metadata": {"name": name}, "spec": spec,
    });
    cluster.send(post(gizmos, &gizmo))
}

/// Returns the names of the ConfigMaps by the name of their controller.
fn children(cluster: &Cluster, namespace: &Namespace<'_>) -> BTreeMap<String, Vec<String>> {
    let list = cluster.send(Request::get(namespace.path("configmaps")));
    let mut children = BTreeMap::<_, Vec<_>>::new();
    for map in list["items"].as_array().unwrap() {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        if let Some(owner) = map["metadata"]["ownerReferences"].get(0) {
            let children = children.entry(text(&owner["name"])).or_default();
            children.push(text(&map["metadata"]["name"]));
        }
    }
    children
}

/// Reconciles 50 owners whose status changes while their children are created, on two replicas.
#[test]
fn replicas_create_one_child_per_owner_and_write_once() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("controllers");
        let _definition = Definition::in_group(cluster, GROUP.to_owned(), &schema());
        let path = format!("/apis/{GROUP}/v1/namespaces/{}/gizmos", namespace.name);
        for owner in 0..OWNERS {
            create_gizmo(cluster, &path, &name(owner), &json!({}));
        }
        let gizmos = || cluster.send(Request::get(&*path));
        let writes = Writes::default();
        let first = Replica::start(cluster, &namespace.name, "first", &writes);
        wait_until("all gizmos are ready", || {
            let all = gizmos();
            let mut items = all["items"].as_array()?.iter();
            let is_ready = |gizmo: &Value| gizmo["status"]["conditions"][0]["status"] == "True";
            items.all(is_ready).then_some(())
        });
        first.wait_until_idle();

        // A reconcile without a change writes nothing.
        let before: Versions = versions(&gizmos());
        first.calls.try_iter().for_each(drop);
        for owner in 0..OWNERS {
            first
                .gizmos
                .enqueue(format!("{}/{}", namespace.name, name(owner)));
        }
        first.wait_for_all();
        assert_eq!(versions(&gizmos()), before);

        let second = Replica::start(cluster, &namespace.name, "second", &writes);
        wait_until("the caches of the second replica have synced", || {
            get(second.address(), "/readyz")
                .starts_with("HTTP/1.1 200")
                .then_some(())
        });
        let metrics = get(first.address(), "/metrics");
        for expected in [
            "leader_election_master_status{name=\"gizmos\"} 1\n",
            "controller_runtime_reconcile_errors_total{controller=\"gizmos\"} 0\n",
        ] {
            assert!(metrics.contains(expected), "{metrics}");
        }
        assert!(second.calls.try_recv().is_err());
        let start = Instant::now();
        first.end();
        second.wait_for_all();
        let took = start.elapsed();
        println!("  the second replica took over in {took:?}");
        assert!(
            took < Duration::from_secs(10),
            "a Lease expires after 15 s: {took:?}"
        );
        second.wait_until_idle();
        second.end();

        assert_eq!(versions(&gizmos()), before);
        let created = children(cluster, &namespace);
        assert_eq!(created.len(), OWNERS);
        assert!(
            created.values().all(|names| names.len() == 1),
            "{created:?}"
        );
        for (counts, expected) in [(writes.children, 1), (writes.statuses, ROUNDS)] {
            let counts = counts.lock().unwrap();
            assert_eq!(counts.len(), OWNERS);
            assert!(
                counts.values().all(|count| *count == expected),
                "{counts:?}"
            );
        }
    });
}

/// A controller without a manager that runs on a thread.
struct Running(Stopper, JoinHandle<Result<(), ControllerError>>);

impl Running {
    fn start<T: Object + serde::de::DeserializeOwned>(controller: Controller<T>) -> Self {
        let stop = Stopper::new();
        let signal = stop.clone();
        Self(stop, thread::spawn(move || controller.run(&signal)))
    }

    #[track_caller]
    fn end(self) {
        self.0.stop();
        self.1.join().unwrap().unwrap();
    }
}

fn gizmos_of(definition: &Definition<'_>) -> GroupVersionResource {
    GroupVersionResource::new(&*definition.group, "v1", "gizmos")
}

/// Finalizes the objects of a dynamic resource.
#[test]
fn finalizer_precedes_calls_and_waits_for_the_cleanup() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("finalizer");
        let definition = Definition::create(cluster, &namespace.name);
        let resource = gizmos_of(&definition);
        let path = format!(
            "/apis/{}/v1/namespaces/{}/gizmos",
            definition.group, namespace.name
        );
        let (sender, steps) = channel();
        let (called, cleaned, gone): (Sender<_>, _, _) = (sender.clone(), sender.clone(), sender);
        let cleanups = Mutex::new(0);
        let scope = InformerScope::all().namespace(&*namespace.name);
        let factory = cluster.factory_with(|options| options.scope(scope));
        let source = Source::dynamic(resource.clone());
        let controller = Controller::builder(&cluster.client(), source, "gizmos")
            .factory(&factory)
            .kind("Gizmo", Scope::Namespaced)
            .when(generation_changed())
            .owns(Source::of::<ConfigMap>())
            .finalizer(
                FINALIZER,
                |gizmo| matches!(gizmo.read("/spec/guarded"), Ok(Some(true))),
                move |cx, gizmo| {
                    assert!(gizmo.is_being_deleted());
                    cleaned.send(format!("clean {}", cx.name()))?;
                    let mut cleanups = cleanups.lock().unwrap();
                    *cleanups += 1;
                    match *cleanups {
                        1 => Ok(Next::After(Duration::from_millis(1))),
                        _ => Ok(Next::Done),
                    }
                },
            )
            .on_gone(move |key| {
                let name = key.rsplit('/').next().unwrap_or_default();
                // The test may have ended.
                let _ = gone.send(format!("{name} is gone"));
            })
            .by(move |cx, gizmo| {
                if cx.children::<ConfigMap>()?.is_empty() {
                    let map = json!({"metadata": {"generateName": "gizmo-"}});
                    let maps = cx.api::<ConfigMap>(Some(cx.namespace()));
                    maps.create(&cx.owned(map)?, cx.stop())?;
                }
                // The server has the finalizer, not only the object of the call.
                let api = cx.client().dynamic_api(&resource, Some(cx.namespace()));
                let stored = api.get(cx.name(), cx.stop())?;
                for gizmo in [&**gizmo, &*stored] {
                    let finalizers = gizmo.read::<Vec<String>>("/metadata/finalizers")?;
                    called.send(format!(
                        "call {} {}",
                        cx.name(),
                        finalizers.unwrap_or_default().join(",")
                    ))?;
                }
                Ok(Next::Done)
            })
            .unwrap();
        let running = Running::start(controller);
        create_gizmo(cluster, &path, "a", &json!({"guarded": true}));
        // Calls can be repeated, and so can the callback for a key that is gone.
        let next_except = |repeated: &[&str]| {
            let mut all = iter::repeat_with(|| steps.recv_timeout(PATIENCE).unwrap());
            all.find(|step| !repeated.contains(&&**step)).unwrap()
        };
        let call = format!("call a {FINALIZER}");
        assert_eq!(next_except(&[]), call);

        cluster.send(Request::delete(format!("{path}/a")));
        assert_eq!(next_except(&[&call]), "clean a");
        assert_eq!(next_except(&[]), "clean a");
        assert_eq!(next_except(&[]), "a is gone");
        let is_gone = |name: &str| match cluster.try_send(Request::get(format!("{path}/{name}"))) {
            Ok(_) => false,
            Err(error) => error.is_not_found(),
        };
        assert!(is_gone("a"));

        // This object needs no finalizer.
        create_gizmo(cluster, &path, "b", &json!({"guarded": false}));
        assert_eq!(next_except(&["a is gone"]), "call b ");
        cluster.send(Request::delete(format!("{path}/b")));
        assert_eq!(next_except(&["a is gone", "call b "]), "b is gone");
        assert!(is_gone("b"));
        running.end();
        factory.shut_down(None).unwrap();
    });
}

/// Reconciles the owners of changed children, and the objects that labels of Secrets name.
#[test]
fn children_and_labelled_secrets_cause_calls() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("owners");
        let definition = Definition::create(cluster, &namespace.name);
        let path = format!(
            "/apis/{}/v1/namespaces/{}/gizmos",
            definition.group, namespace.name
        );
        let owners = ["a", "b"].map(|name| create_gizmo(cluster, &path, name, &json!({})));
        let scope = InformerScope::all().namespace(&*namespace.name);
        let labelled = scope.clone().label_selector("gizmo".parse().unwrap());
        let factory = cluster.factory_with(|options| options.scope(scope));
        let mapped = Arc::new(Mutex::new(BTreeSet::new()));
        let ((sender, calls), record) = (channel(), Arc::clone(&mapped));
        // Only the metadata of the owners are cached.
        let source = Source::metadata(gizmos_of(&definition));
        let controller = Controller::builder(&cluster.client(), source, "gizmos")
            .factory(&factory)
            .kind("Gizmo", Scope::Namespaced)
            .owns(Source::of::<ConfigMap>())
            .watches(Source::of::<Secret>().scope(labelled), move |secret| {
                let owner = secret.label("gizmo").unwrap_or_default();
                record
                    .lock()
                    .unwrap()
                    .insert((secret.name().to_owned(), owner.to_owned()));
                Some(Key::from(format!("{}/{owner}", secret.namespace())))
            })
            .workers(2)
            .by(move |cx, _: &Arc<PartialObjectMetadata>| {
                if cx.children::<ConfigMap>()?.is_empty() {
                    let map = json!({"metadata": {"generateName": "gizmo-"}});
                    let maps = cx.dynamic_api(
                        &GroupVersionResource::new("", "v1", "configmaps"),
                        Some(cx.namespace()),
                    );
                    let mut map = cx.owned(map)?;
                    map["apiVersion"] = "v1".into();
                    map["kind"] = "ConfigMap".into();
                    maps.create(&map, cx.stop())?;
                }
                sender.send(cx.name().to_owned())?;
                Ok(Next::Done)
            })
            .unwrap();
        let running = Running::start(controller);
        let counts = || {
            let children = children(cluster, &namespace);
            ["a", "b"].map(|name| children.get(name).map_or(0, Vec::len))
        };
        wait_until("each owner has a child", || {
            (counts() == [1, 1]).then_some(())
        });

        // The new owner of the child is b. a gets another child.
        let child = children(cluster, &namespace)["a"][0].clone();
        let child = format!("{}/{child}", namespace.path("configmaps"));
        let mut references =
            cluster.send(Request::get(&*child))["metadata"]["ownerReferences"].clone();
        references[0]["name"] = "b".into();
        references[0]["uid"] = owners[1]["metadata"]["uid"].clone();
        calls.try_iter().for_each(drop);
        cluster.send(merge_patch(
            &child,
            &json!({"metadata": {"ownerReferences": references}}),
        ));
        expect_calls(&calls, ["a", "b"].map(str::to_owned));
        wait_until("a has another child", || (counts() == [1, 2]).then_some(()));

        let child = children(cluster, &namespace)["a"][0].clone();
        cluster.send(Request::delete(format!(
            "{}/{child}",
            namespace.path("configmaps")
        )));
        wait_until("the deleted child is replaced", || {
            let children = children(cluster, &namespace);
            let of_a = children.get("a")?;
            (of_a.len() == 1 && of_a[0] != child).then_some(())
        });

        let secrets = namespace.path("secrets");
        let secret = |name: &str, labels: Value| {
            let secret = json!({"metadata": {"name": name, "labels": labels}});
            cluster.send(post(&secrets, &secret));
        };
        let relabel = |label: Value| {
            let patch = json!({"metadata": {"labels": {"gizmo": label}}});
            cluster.send(merge_patch(&format!("{secrets}/s"), &patch));
        };
        secret("unlabelled", json!({}));
        calls.try_iter().for_each(drop);
        secret("s", json!({"gizmo": "a"}));
        expect_calls(&calls, ["a".to_owned()]);
        calls.try_iter().for_each(drop);
        relabel("b".into());
        expect_calls(&calls, ["a", "b"].map(str::to_owned));
        calls.try_iter().for_each(drop);
        relabel(Value::Null);
        expect_calls(&calls, ["b".to_owned()]);
        let expected = ["a", "b"].map(|owner| ("s".to_owned(), owner.to_owned()));
        assert!(mapped.lock().unwrap().iter().eq(&expected));
        for name in ["s", "unlabelled"] {
            cluster.send(Request::delete(format!("{secrets}/{name}")));
        }
        running.end();
        factory.shut_down(None).unwrap();
        assert_eq!(counts(), [1, 2]);
    });
}
