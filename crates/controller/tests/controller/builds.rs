//! Descriptions that the build step rejects, and dynamic resources.

use k8s_informer::DynamicObject;
use k8s_informer::informer::FactoryOptions;
use k8s_informer::informer::InformerScope;
use k8s_informer::object::{GroupVersionResource, Scope};
use k8s_informer::selector::Selector;
use k8s_informer_controller::ControllerErrorKind;
use k8s_openapi::api::core::v1::Node;

use super::*;

#[track_caller]
fn assert_invalid<T>(builder: ControllerBuilder<T>, message: &str)
where
    T: Object + DeserializeOwned,
{
    let error = builder.by(|_, _| Ok(Next::Done)).unwrap_err();
    assert!(
        matches!(error.kind(), ControllerErrorKind::Invalid { .. }),
        "{error}"
    );
    assert!(error.to_string().contains(message), "{error}");
}

#[test]
fn contradictory_descriptions_are_rejected() {
    let cluster = Cluster::new();
    let maps = |name| cluster.controller::<ConfigMap>(name);
    assert_invalid(maps(""), "the name is empty");
    assert_invalid(maps("x").workers(0), r#"controller "x": 0 workers"#);
    assert_invalid(maps("x").time_limit(Duration::ZERO), "a time limit of 0");
    assert_invalid(maps("x").owns(Source::of::<Node>()), "cluster-scoped");
    let finalizer = |name| maps("x").finalizer(name, |_| true, |_, _| Ok(Next::Done));
    assert_invalid(finalizer("plain"), "not a qualified name");
    let labels: Selector = "app=x".parse().unwrap();
    let scoped = finalizer("example.com/x").scope(InformerScope::all().label_selector(labels));
    assert_invalid(scoped, "needs a scope without selectors");
    let fields = InformerScope::all().field_selector("metadata.name=x");
    let factory = SharedInformerFactory::with_options(
        cluster.client.clone(),
        FactoryOptions::new().scope(fields),
    );
    assert_invalid(
        finalizer("example.com/x").factory(&factory),
        "needs a scope without selectors",
    );
}

#[test]
fn contradictory_former_finalizers_are_rejected() {
    let cluster = Cluster::new();
    let maps = || cluster.controller::<ConfigMap>("x");
    let finalizer = |former: &[&str]| {
        let builder = maps().finalizer("example.com/x", |_| true, |_, _| Ok(Next::Done));
        builder.former_finalizers(former.iter().copied())
    };
    assert_invalid(maps().former_finalizers(["a.b/c"]), "call `finalizer`");
    for invalid in ["", "a.b/", "A.b/c", "a.b/c/d"] {
        assert_invalid(finalizer(&[invalid]), "is not a qualified name");
    }
    let current = finalizer(&["a.b/c", "example.com/x"]);
    assert_invalid(current, "\"example.com/x\" is also the current name");
    let repeated = finalizer(&["a.b/c", "d.e/f"]).former_finalizers(["a.b/c"]);
    assert_invalid(repeated, "\"a.b/c\" is repeated");
    // Servers accept names without a domain for custom resources.
    let valid = finalizer(&["a.b/c", "x"]).by(|_, _| Ok(Next::Done));
    assert!(valid.is_ok());
}

#[test]
fn owner_of_unknown_kind_is_rejected() {
    let cluster = Cluster::new();
    let resource = GroupVersionResource::new("apps", "v1", "deployments");
    let dynamic = || Controller::builder(&cluster.client, Source::dynamic(resource.clone()), "x");
    assert_invalid(
        dynamic().owns(Source::of::<ConfigMap>()),
        "call `kind` before `by`",
    );
    let controller = dynamic()
        .owns(Source::of::<ConfigMap>())
        .kind("Deployment", Scope::Namespaced);
    assert!(controller.by(|_, _| Ok(Next::Done)).is_ok());
}

#[test]
fn dynamic_objects_can_own_objects() {
    let cluster = Cluster::new();
    let resource = GroupVersionResource::new("apps", "v1", "deployments");
    let maps = GroupVersionResource::new("", "v1", "configmaps");
    let (reconcile, calls) = answered::<DynamicObject>();
    let controller = Controller::builder(&cluster.client, Source::dynamic(resource), "dynamic")
        .kind("Deployment", Scope::Namespaced)
        .owns(Source::dynamic(maps.clone()))
        .by(reconcile)
        .unwrap();
    let running = Running::new(controller);
    cluster.create(DEPLOYMENTS, "web");
    calls.next().run(move |cx| {
        assert!(cx.children::<DynamicObject>()?.is_empty());
        let child =
            cx.owned(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}}))?;
        cx.dynamic_api(&maps, Some("default"))
            .create(&child, cx.stop())?;
        Ok(Next::Done)
    });
    calls.next().is("default/web").run(|cx| {
        assert_eq!(cx.children::<DynamicObject>()?[0].name(), "m");
        Ok(Next::Done)
    });
    running.until_idle();
    let map = cluster.server.get(&format!("{MAPS}/m")).unwrap();
    let owner = &map["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["apiVersion"]),
        (&json!("Deployment"), &json!("apps/v1"))
    );
    running.end(calls);
}

#[test]
fn owned_needs_the_kind_of_a_dynamic_resource() {
    let cluster = Cluster::new();
    let resource = GroupVersionResource::new("", "v1", "configmaps");
    let (reconcile, calls) = answered::<DynamicObject>();
    let source = Source::dynamic(resource);
    let controller = Controller::builder(&cluster.client, source, "kind")
        .by(reconcile)
        .unwrap();
    let running = Running::new(controller);
    cluster.create(MAPS, "a");
    calls.next().run(|cx| {
        cx.owned(json!({"metadata": {"name": "m"}}))?;
        Ok(Next::Done)
    });
    running.until("the call has failed", |status| status.failing == 1);
    let last = running
        .controller
        .last_failure("default/a")
        .unwrap()
        .failure;
    assert!(
        last.is_terminal() && last.to_string().contains("call `kind`"),
        "{last}"
    );
    running.end(calls);
}

/// Sets a flag when it is dropped.
struct Dropped(Stopper);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.stop();
    }
}

#[test]
fn dropped_controller_leaves_no_handler_in_its_factory() {
    let cluster = Cluster::new();
    let factory = SharedInformerFactory::new(cluster.client.clone());
    let dropped = Stopper::new();
    let guard = Dropped(dropped.clone());
    let controller = cluster
        .controller::<Deployment>("unused")
        .factory(&factory)
        .watches(Source::of::<ConfigMap>(), move |_| {
            let _ = &guard;
            None
        });
    let controller = controller.by(|_, _| Ok(Next::Done)).unwrap();
    assert!(!dropped.is_stopped());
    drop(controller);
    assert!(dropped.wait_timeout(LIMIT));
}
