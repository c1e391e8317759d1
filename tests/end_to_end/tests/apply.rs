//! `Context::apply`: which applies are sent, and what they do.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};

use k8s_informer::client::Request;
use k8s_informer::client::api::{DeleteOptions, Patch};
use k8s_informer::informer::{FactoryOptions, InformerScope, Source};
use k8s_informer::metrics::ClientMetrics;
use k8s_informer::object::{FullObjectMeta, GroupVersionResource};
use k8s_informer::reflector::{FieldPaths, ReflectorOptions};
use k8s_informer::{Client, Config, DynamicObject, Stop, Stopper, impl_full_metadata, impl_object};
use k8s_informer_controller::{
    Applied, ApplyOptions, Context, Controller, ControllerBuilder, ControllerError, Failure, Next,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::RoleBinding;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Namespace, merge_patch, on_every_cluster};
use crate::discovery::Definition;
use crate::leases::post;
use crate::support::{PATIENCE, wait_until};
use crate::verbs::ONCE;

const KEEPER: &str = "keeper";

/// Counts the requests with the method `PATCH`.
#[derive(Default)]
struct Patches(AtomicUsize);

impl ClientMetrics for Patches {
    fn request(&self, _: &str, method: &str, _: &str) {
        if method == "PATCH" {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A running controller of the ServiceAccount `owner`.
struct Keeper {
    key: String,
    controller: Controller<ServiceAccount>,
    results: Receiver<Result<Vec<Applied>, Failure>>,
    patches: Arc<Patches>,
    stop: Stopper,
    thread: JoinHandle<Result<(), ControllerError>>,
}

type Results = Result<Vec<Applied>, Failure>;

impl Keeper {
    /// Runs a controller whose calls return these results.
    fn start(
        cluster: &Cluster,
        namespace: &Namespace<'_>,
        options: impl FnOnce(ControllerBuilder<ServiceAccount>) -> ControllerBuilder<ServiceAccount>,
        call: impl Fn(&Context) -> Results + Send + Sync + 'static,
    ) -> Self {
        Self::start_with(cluster, namespace, cluster.options(), options, call)
    }

    fn start_with(
        cluster: &Cluster,
        namespace: &Namespace<'_>,
        reflector: ReflectorOptions,
        options: impl FnOnce(ControllerBuilder<ServiceAccount>) -> ControllerBuilder<ServiceAccount>,
        call: impl Fn(&Context) -> Results + Send + Sync + 'static,
    ) -> Self {
        let path = format!("{}/owner", namespace.path("serviceaccounts"));
        let owner = json!({"metadata": {"name": "owner"}});
        let _ = cluster.try_send(post(&namespace.path("serviceaccounts"), &owner));
        cluster.wait_until_listed(&path);
        let patches = Arc::new(Patches::default());
        let config = Config::from_kubeconfig(&cluster.kubeconfigs()[0], None).unwrap();
        let client = Client::new(config.metrics(Arc::clone(&patches) as _)).unwrap();
        let scope = InformerScope::all().namespace(&namespace.name);
        let factory = k8s_informer::SharedInformerFactory::with_options(
            client.clone(),
            FactoryOptions::new().reflector(reflector).scope(scope),
        );
        let (sender, results) = channel();
        let builder = Controller::builder(&client, Source::of::<ServiceAccount>(), KEEPER);
        let controller = options(builder.factory(&factory)).by(move |cx, _| {
            if cx.name() == "owner" {
                let result = call(cx);
                sender.send(result.clone())?;
                if let Err(failure) = &result {
                    println!("  {cx}: {failure}");
                }
                result?;
            }
            Ok(Next::Done)
        });
        let (controller, stop) = (controller.unwrap(), Stopper::new());
        let run = (controller.clone(), stop.clone());
        let thread = thread::spawn(move || {
            let ended = run.0.run(&run.1);
            factory.shut_down(None).unwrap();
            ended
        });
        Self {
            key: format!("{}/owner", namespace.name),
            controller,
            results,
            patches,
            stop,
            thread,
        }
    }

    #[track_caller]
    fn next(&self) -> Results {
        self.results.recv_timeout(PATIENCE).unwrap()
    }

    /// Checks that the next calls send nothing.
    #[track_caller]
    fn assert_settled(&self) {
        let before = self.patches();
        for _ in 0..3 {
            self.controller.enqueue(&*self.key);
            let results = self.next().unwrap();
            assert!(
                results.iter().all(|result| *result == Applied::NotSent),
                "{results:?}"
            );
        }
        assert_eq!(self.patches(), before);
    }

    /// Waits for a call with these results.
    #[track_caller]
    fn until(&self, expected: &[Applied]) {
        for _ in 0..20 {
            let results = self.next().unwrap();
            if results == expected {
                return;
            }
            println!("  {results:?}");
        }
        panic!("never {expected:?}");
    }

    fn patches(&self) -> usize {
        self.patches.0.load(Ordering::Relaxed)
    }

    fn end(self) {
        self.stop.stop();
        self.thread.join().unwrap().unwrap();
    }
}

fn maps(builder: ControllerBuilder<ServiceAccount>) -> ControllerBuilder<ServiceAccount> {
    builder.owns(Source::of::<ConfigMap>())
}

fn map(data: Value) -> Value {
    json!({"metadata": {"name": "m"}, "data": data})
}

fn forced() -> ApplyOptions {
    ApplyOptions::new().force(true)
}

fn deployment() -> Value {
    let labels = json!({"app": "web"});
    let container =
        json!({"name": "web", "image": "web:1", "resources": {"requests": {"cpu": "1000m"}}});
    json!({"metadata": {"name": "web"}, "spec": {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
    }})
}

#[test]
fn unchanged_children_are_applied_once_in_a_run() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("apply-once");
        let definition = Definition::create(cluster, &namespace.name);
        let gizmos = GroupVersionResource::new(&*definition.group, "v1", "gizmos");
        let gizmo = json!({
            "apiVersion": format!("{}/v1", definition.group), "kind": "Gizmo",
            "metadata": {"name": "g"}, "spec": {"size": 3, "parts": [], "note": null},
        });
        let start = || {
            let (gizmos, gizmo) = (gizmos.clone(), gizmo.clone());
            let sources = |builder: ControllerBuilder<ServiceAccount>| {
                maps(builder)
                    .owns(Source::of::<Deployment>())
                    .owns(Source::of::<Service>())
                    .owns(Source::of::<Secret>())
                    .owns(Source::of::<RoleBinding>())
                    .owns(Source::dynamic(gizmos))
            };
            Keeper::start(cluster, &namespace, sources, move |cx| {
                let role =
                    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"});
                let ports = json!([{"port": 80, "name": "http"}]);
                Ok(vec![
                    cx.apply::<ConfigMap>(map(json!({"a": "1"})))?,
                    cx.apply::<Deployment>(deployment())?,
                    cx.apply::<Service>(
                        json!({"metadata": {"name": "web"}, "spec": {"ports": ports}}),
                    )?,
                    cx.apply::<Secret>(
                        json!({"metadata": {"name": "s"}, "stringData": {"a": "b"}}),
                    )?,
                    cx.apply::<RoleBinding>(
                        json!({"metadata": {"name": "r"}, "roleRef": role, "subjects": []}),
                    )?,
                    cx.apply::<DynamicObject>(&gizmo)?,
                ])
            })
        };
        let first = start();
        assert_eq!(first.next().unwrap(), [Applied::Created; 6]);
        assert_eq!(first.patches(), 6);
        first.assert_settled();
        first.end();
        let versions = cluster.versions(&namespace);
        let second = start();
        assert_eq!(second.next().unwrap(), [Applied::Unchanged; 6]);
        second.assert_settled();
        assert_eq!(second.patches(), 6);
        second.end();
        assert_eq!(cluster.versions(&namespace), versions);
        let _ = cluster.try_send(Request::delete(format!(
            "/apis/{}/v1/namespaces/{}/gizmos/g",
            definition.group, namespace.name
        )));
    });
}

/// A type that drops most fields of Deployments.
#[derive(Deserialize, Serialize)]
struct Slim {
    metadata: FullObjectMeta,
}

impl_object!(Slim, "apps/v1", "Deployment", "deployments", Namespaced);
impl_full_metadata!(Slim);

#[test]
fn status_update_causes_no_apply_unless_the_type_drops_fields() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("apply-status");
        let path = format!(
            "/apis/apps/v1/namespaces/{}/deployments/web",
            namespace.name
        );
        let set_status = |replicas: usize| {
            let status = json!({"status": {"replicas": replicas, "observedGeneration": 1}});
            let request = merge_patch(&format!("{path}/status"), &status);
            cluster.send(request.query("fieldManager", "kube-controller-manager"));
        };
        let whole =
            |builder: ControllerBuilder<ServiceAccount>| builder.owns(Source::of::<Deployment>());
        for skips_managers in [false, true] {
            let mut reflector = cluster.options();
            if skips_managers {
                reflector.skip = FieldPaths::managed_fields();
            }
            let seen = Arc::new(AtomicUsize::new(0));
            let see = Arc::clone(&seen);
            let keeper = Keeper::start_with(cluster, &namespace, reflector, whole, move |cx| {
                let cached = cx.lister::<Deployment>().get(cx.namespace(), "web");
                let status = cached.and_then(|web| web.status.as_ref()?.replicas);
                let result = cx.apply::<Deployment>(deployment())?;
                see.store(status.unwrap_or_default() as usize, Ordering::Relaxed);
                Ok(vec![result])
            });
            keeper.until(&[match skips_managers {
                false => Applied::Created,
                true => Applied::Unchanged,
            }]);
            for replicas in 1..4 {
                let replicas = replicas + 10 * usize::from(skips_managers);
                set_status(replicas);
                while seen.load(Ordering::Relaxed) != replicas {
                    assert_eq!(keeper.next().unwrap(), [Applied::NotSent]);
                }
            }
            assert_eq!(keeper.patches(), 1);
            keeper.end();
        }

        let slim = |builder: ControllerBuilder<ServiceAccount>| builder.owns(Source::of::<Slim>());
        let keeper = Keeper::start(cluster, &namespace, slim, |cx| {
            Ok(vec![cx.apply::<Slim>(deployment())?])
        });
        keeper.until(&[Applied::Unchanged]);
        keeper.assert_settled();
        set_status(7);
        keeper.until(&[Applied::Unchanged]);
        keeper.assert_settled();
        keeper.end();
    });
}

#[test]
fn field_dropped_across_a_restart_is_released() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("apply-drop");
        let path = format!("{}/m", namespace.path("configmaps"));
        let run = |data: Value, expected| {
            let keeper = Keeper::start(cluster, &namespace, maps, move |cx| {
                Ok(vec![cx.apply::<ConfigMap>(map(data.clone()))?])
            });
            keeper.until(&[expected]);
            keeper.assert_settled();
            keeper.end();
            cluster.send(Request::get(&*path))["data"].clone()
        };
        run(json!({"a": "1", "b": "2"}), Applied::Created);
        namespace.patch("m", &json!({"data": {"other": "3"}}));
        let data = run(json!({"a": "1"}), Applied::Changed);
        assert_eq!(data, json!({"a": "1", "other": "3"}));
    });
}

/// The program creates its child first, and applies it in a later version. The manager has the same
/// name, but the server keeps the fields of both apart.
#[test]
fn created_child_can_be_applied_and_loses_dropped_fields() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("apply-migration");
        let path = format!("{}/m", namespace.path("configmaps"));
        let create = |data: Value| {
            let keeper = Keeper::start(cluster, &namespace, maps, move |cx| {
                if cx.lister::<ConfigMap>().get(cx.namespace(), "m").is_none() {
                    let api = cx.api::<ConfigMap>(Some(cx.namespace()));
                    let api = api.field_manager(KEEPER);
                    api.create(&cx.owned(map(data.clone()))?, cx.stop())?;
                }
                Ok(vec![])
            });
            keeper.until(&[]);
            // The first call may still see the map that was deleted.
            wait_until("the map is created", || {
                cluster.try_send(Request::get(&*path)).ok()
            });
            keeper.end();
            cluster.wait_until_listed(&path);
        };
        // Returns the data, the managers, and the number of patches.
        let apply = |data: Value, options: ApplyOptions, expected| {
            let keeper = Keeper::start(cluster, &namespace, maps, move |cx| {
                let child = map(data.clone());
                Ok(vec![cx.apply_with::<ConfigMap>(child, options)?])
            });
            keeper.until(&[expected]);
            let patches = keeper.patches();
            keeper.assert_settled();
            keeper.end();
            let found = cluster.send(Request::get(&*path));
            let entries = found["metadata"]["managedFields"].as_array().unwrap();
            let operation = |entry: &Value| {
                assert_eq!(entry["manager"], KEEPER, "{entries:?}");
                entry["operation"].as_str().unwrap().to_owned()
            };
            let operations: Vec<_> = entries.iter().map(operation).collect();
            (found["data"].clone(), operations, patches)
        };
        let applied = vec!["Apply".to_owned()];
        let plain = ApplyOptions::new();

        // An apply that conflicts, the migration, and the apply once more.
        create(json!({"a": "1", "b": "1"}));
        let data = json!({"a": "2", "b": "1"});
        let result = apply(data.clone(), plain, Applied::Changed);
        assert_eq!(result, (data, applied.clone(), 3));
        // The field that a later version drops is gone, with one request.
        let data = json!({"a": "2"});
        let result = apply(data.clone(), plain, Applied::Changed);
        assert_eq!(result, (data.clone(), applied.clone(), 1));
        let result = apply(data.clone(), plain, Applied::Unchanged);
        assert_eq!(result, (data, applied.clone(), 1));

        // The first apply drops a field already. There is no conflict if it has the same values, or
        // is forced.
        for (value, options) in [("1", plain), ("2", forced())] {
            namespace.delete("m");
            create(json!({"a": "1", "b": "1"}));
            let data = json!({"a": value});
            let result = apply(data.clone(), options, Applied::Changed);
            assert_eq!(result, (data, applied.clone(), 3));
        }
    });
}

#[test]
fn edits_of_applied_fields_are_repaired() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("apply-edit");
        let keeper = Keeper::start(cluster, &namespace, maps, |cx| {
            Ok(vec![cx.apply_with::<ConfigMap>(
                map(json!({"a": "1"})),
                forced(),
            )?])
        });
        keeper.until(&[Applied::Created]);
        keeper.assert_settled();
        namespace.patch(
            "m",
            &json!({"data": {"a": "9", "other": "3"}, "metadata": {"labels": {"x": "y"}}}),
        );
        keeper.until(&[Applied::Changed]);
        let data = cluster.send(Request::get(format!("{}/m", namespace.path("configmaps"))));
        assert_eq!(data["data"], json!({"a": "1", "other": "3"}));
        assert_eq!(data["metadata"]["labels"], json!({"x": "y"}));
        keeper.assert_settled();
        // An edit of a field that is not applied costs one request.
        namespace.patch("m", &json!({"data": {"other": "4"}}));
        keeper.until(&[Applied::Unchanged]);
        keeper.assert_settled();
        namespace.delete("m");
        keeper.until(&[Applied::Created]);
        keeper.end();
    });
}

#[test]
fn conflict_of_managers_is_an_error_unless_forced() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("apply-conflict");
        let is_forced = Arc::new(AtomicUsize::new(0));
        let force = Arc::clone(&is_forced);
        let keeper = Keeper::start(cluster, &namespace, maps, move |cx| {
            let options = match force.load(Ordering::Relaxed) {
                0 => ApplyOptions::new(),
                _ => forced(),
            };
            Ok(vec![cx.apply_with::<ConfigMap>(
                map(json!({"a": "1"})),
                options,
            )?])
        });
        keeper.until(&[Applied::Created]);
        let api = cluster.client().api::<ConfigMap>(Some(&namespace.name));
        let patch = Patch::apply("rival", map(json!({"a": "2"}))).force(true);
        api.patch("m", &patch, &Stop::never()).unwrap();
        let failure = loop {
            if let Err(failure) = keeper.next() {
                break failure;
            }
        };
        let error = failure.downcast_ref::<k8s_informer::Error>().unwrap();
        assert!(error.is_conflict() && !failure.is_terminal());
        let text = failure.to_string();
        assert!(
            text.contains(r#"conflict with "rival""#) && text.contains(".data.a"),
            "{text}"
        );
        is_forced.store(1, Ordering::Relaxed);
        loop {
            match keeper.next() {
                Ok(results) if results == [Applied::Changed] => break,
                Ok(results) => panic!("{results:?}"),
                Err(failure) => assert_eq!(failure.to_string(), text),
            }
        }
        keeper.assert_settled();
        keeper.end();
    });
}

#[test]
fn foreign_object_is_an_error_unless_adopted() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("apply-foreign");
        let start = |options: ApplyOptions| {
            Keeper::start(cluster, &namespace, maps, move |cx| {
                Ok(vec![cx.apply_with::<ConfigMap>(
                    map(json!({"a": "1"})),
                    options,
                )?])
            })
        };
        namespace.create("m", json!({}));
        let assert_refused = |options: ApplyOptions, expected: &str| {
            let keeper = start(options);
            let failure = keeper.next().unwrap_err();
            let text = failure.to_string();
            let key = format!("configmaps.v1 \"{}/m\" exists and", namespace.name);
            assert!(
                failure.is_terminal() && text.contains(&key) && text.contains(expected),
                "{text}"
            );
            assert_eq!(keeper.patches(), 0);
            keeper.end();
        };
        assert_refused(
            ApplyOptions::new(),
            "has no controller: give the child another name, or take it over",
        );
        let keeper = start(ApplyOptions::new().adopt(true));
        keeper.until(&[Applied::Changed]);
        keeper.assert_settled();
        keeper.end();
        // Another controller.
        let owner = json!({"apiVersion": "v1", "kind": "Secret", "name": "other", "uid": "u7", "controller": true});
        namespace.patch("m", &json!({"metadata": {"ownerReferences": [owner]}}));
        let other = r#"is controlled by Secret "other" (uid "u7"): give the child another name"#;
        assert_refused(ApplyOptions::new(), other);
        assert_refused(ApplyOptions::new().adopt(true).force(true), other);
    });
}

#[test]
fn apply_with_the_uid_of_another_object_is_refused() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("apply-uid");
        let (api, stop) = (
            cluster.client().api::<ConfigMap>(Some(&namespace.name)),
            Stopper::new(),
        );
        let apply = |uid: &str| {
            let child = json!({"metadata": {"name": "m", "uid": uid}, "data": {"a": "1"}});
            api.patch("m", &Patch::apply(KEEPER, child), &stop)
        };
        let error = apply("u7").unwrap_err();
        assert!(error.is_conflict(), "{error:?}");
        assert!(
            error
                .to_string()
                .contains("uid mismatch: the provided object specified uid u7"),
            "{error}"
        );
        let first = api.create(&map(json!({})), &stop).unwrap();
        let uid = first.metadata.uid.clone().unwrap();
        apply(&uid).unwrap();
        api.delete("m", &DeleteOptions::default(), &stop).unwrap();
        api.create(&map(json!({})), &stop).unwrap();
        let error = apply(&uid).unwrap_err();
        assert!(
            error.is_invalid() && error.to_string().contains("field is immutable"),
            "{error:?}"
        );
    });
}

/// Changes the ConfigMaps of a namespace in admission.
struct MutatingPolicy<'a>(&'a Cluster, String);

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies";

impl<'a> MutatingPolicy<'a> {
    fn create(cluster: &'a Cluster, namespace: &str) -> Self {
        let created = Self(cluster, namespace.to_owned());
        let rule = json!({
            "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
            "operations": ["CREATE", "UPDATE"],
        });
        let selector = json!({"matchLabels": {"kubernetes.io/metadata.name": namespace}});
        let set = |field: &str| {
            let patch =
                format!("[JSONPatch{{op: \"add\", path: \"/data/{field}\", value: \"policy\"}}]");
            json!({"patchType": "JSONPatch", "jsonPatch": {"expression": patch}})
        };
        cluster.send(post(POLICIES, &json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy",
            "metadata": {"name": namespace},
            "spec": {
                "matchConstraints": {"resourceRules": [rule], "namespaceSelector": selector},
                "failurePolicy": "Fail", "reinvocationPolicy": "Never", "mutations": [set("a"), set("injected")],
            },
        })));
        cluster.send(post(&created.binding(), &json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
            "metadata": {"name": namespace}, "spec": {"policyName": namespace},
        })));
        created
    }

    fn binding(&self) -> String {
        POLICIES.replace("policies", "policybindings")
    }
}

impl Drop for MutatingPolicy<'_> {
    fn drop(&mut self) {
        let Self(cluster, name) = &*self;
        for path in [self.binding(), POLICIES.to_owned()] {
            let _ = cluster.try_send(Request::delete(format!("{path}/{name}")));
        }
    }
}

/// Admission sets one of the applied fields to another value, and adds a field.
#[test]
fn object_that_admission_changes_is_applied_once() {
    on_every_cluster(ONCE, |cluster| {
        if cluster.embedded_server().is_some() || cluster.minor() < 36 {
            return println!("skipped: this server has no admission policies that change objects");
        }
        let namespace = cluster.namespace("apply-admission");
        let _policy = MutatingPolicy::create(cluster, &namespace.name);
        let probes = cluster.client().api::<ConfigMap>(Some(&namespace.name));
        wait_until("the policy is in effect", || {
            let probe = json!({"metadata": {"generateName": "probe-"}, "data": {"x": "1"}});
            let probe = probes.create(&probe, &Stop::never()).unwrap().into_inner();
            probe.data?.get("injected").map(drop)
        });
        let start = || {
            Keeper::start(cluster, &namespace, maps, |cx| {
                Ok(vec![cx.apply_with::<ConfigMap>(
                    map(json!({"a": "1", "b": "2"})),
                    forced(),
                )?])
            })
        };
        let keeper = start();
        keeper.until(&[Applied::Created]);
        keeper.assert_settled();
        let changed = cluster.send(Request::get(format!("{}/m", namespace.path("configmaps"))));
        assert_eq!(
            changed["data"],
            json!({"a": "policy", "b": "2", "injected": "policy"})
        );
        namespace.patch("m", &json!({"data": {"b": "9"}}));
        keeper.until(&[Applied::Changed]);
        keeper.assert_settled();
        keeper.end();
        let keeper = start();
        println!("  after a restart: {:?}", keeper.next());
        keeper.assert_settled();
        keeper.end();
    });
}
