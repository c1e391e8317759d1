//! The controller: each Foo gets a Deployment with its number of replicas.
//!
//! It needs `list` and `watch` on foos and deployments, `create` and `patch` on deployments,
//! `patch` on foos/status, `create` and `patch` on events, and `update` on foos/finalizers if the
//! cluster enforces owner references. With `--leader-elect`, it also needs the permissions for a
//! Lease.

#![allow(clippy::disallowed_names, reason = "the kind is named Foo")]

use std::sync::Arc;

use k8s_informer::client::api::Patch;
use k8s_informer::informer::Source;
use k8s_informer::object::{FullMetadata, FullObjectMeta};
use k8s_informer::{Object, impl_full_metadata, impl_object};
use k8s_informer_controller::events::EventType;
use k8s_informer_controller::{
    Context, Controller, ControllerBuilder, ControllerError, Failure, Next,
};
use k8s_openapi::api::apps::v1::Deployment;
use serde::Deserialize;
use serde_json::{Value, json};

/// The name of the controller in its events and Lease.
pub(crate) const NAME: &str = "sample-controller";

/// An event of this reason means that the Deployment matches the Foo.
pub(crate) const SYNCED: &str = "Synced";

/// An event of this reason means that something else owns a Deployment with the name in the Foo.
pub(crate) const ERR_RESOURCE_EXISTS: &str = "ErrResourceExists";

#[derive(Deserialize)]
pub(crate) struct Foo {
    metadata: FullObjectMeta,
    #[serde(default)]
    spec: FooSpec,
    #[serde(default)]
    status: FooStatus,
}
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct FooSpec {
    deployment_name: String,
    replicas: Option<i32>,
}
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct FooStatus {
    available_replicas: Option<i32>,
}
impl_object!(
    Foo,
    "samplecontroller.k8s.io/v1alpha1",
    "Foo",
    "foos",
    Namespaced
);
impl_full_metadata!(Foo);

/// Builds the controller.
pub(crate) fn build(builder: ControllerBuilder<Foo>) -> Result<Controller<Foo>, ControllerError> {
    builder
        .owns(Source::of::<Deployment>())
        .workers(2)
        .by(|cx, foo| reconcile(cx, foo))
}

/// Makes the Deployment match the Foo, and the status of the Foo match the Deployment.
fn reconcile(cx: &Context, foo: &Foo) -> Result<Next, Failure> {
    if foo.is_being_deleted() {
        // The garbage collector deletes the Deployment, perhaps before the Foo.
        return Ok(Next::Done);
    }
    let (name, replicas) = (&foo.spec.deployment_name, foo.spec.replicas);
    if name.is_empty() {
        // A retry would fail as well. The next change of the Foo causes the next call.
        return Err(Failure::terminal("the Foo has no spec.deploymentName"));
    }
    let deployments = cx.api::<Deployment>(Some(cx.namespace()));
    let deployment = match cx.lister::<Deployment>().get(cx.namespace(), name) {
        None => {
            let wanted = cx.owned(deployment_of(foo))?;
            Arc::new(deployments.create(&wanted, cx.stop())?.into_inner())
        }
        Some(found) if !cx.controls(&*found) => {
            // Changes of this Deployment cause no call, so a retry has to see them.
            let problem = format!("Resource {name:?} already exists and is not managed by Foo");
            cx.events()?
                .event(foo, EventType::Warning, ERR_RESOURCE_EXISTS, &problem)?;
            return Err(Failure::new(problem));
        }
        Some(found) if replicas.is_some() && found.spec.replicas != replicas => {
            // The cache may be out of date. The version makes the patch fail in this case.
            let patch = Patch::merge(json!({
                "metadata": { "resourceVersion": found.resource_version() },
                "spec": { "replicas": replicas },
            }));
            Arc::new(deployments.patch(name, &patch, cx.stop())?.into_inner())
        }
        Some(found) => found,
    };

    let status = deployment.status.as_ref();
    let available = status
        .and_then(|status| status.available_replicas)
        .unwrap_or(0);
    if foo.status.available_replicas != Some(available) {
        let patch = Patch::merge(json!({ "status": { "availableReplicas": available } }));
        cx.api::<Foo>(Some(cx.namespace()))
            .status()
            .patch(cx.name(), &patch, cx.stop())?;
    }
    cx.events()?
        .event(foo, EventType::Normal, SYNCED, "Foo synced successfully")?;
    Ok(Next::Done)
}

/// Returns the Deployment of a Foo, without its owner.
fn deployment_of(foo: &Foo) -> Value {
    let labels = json!({ "app": "nginx", "controller": foo.name() });
    json!({
        "metadata": { "name": foo.spec.deployment_name },
        "spec": {
            "replicas": foo.spec.replicas,
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": "nginx", "image": "nginx:latest" }] },
            },
        },
    })
}
