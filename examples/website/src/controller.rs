//! The controller: each Website gets a ConfigMap with its pages, a Deployment, a Service, and its
//! host in an external service. `manifest.yaml` has the permissions that it needs.

use std::sync::Arc;

use k8s_informer::client::api::Patch;
use k8s_informer::informer::Source;
use k8s_informer::object::FullMetadata;
use k8s_informer::store::IndexError;
use k8s_informer::{Object, Resource};
use k8s_informer_controller::events::EventType;
use k8s_informer_controller::{
    Applied, ApplyOptions, Condition, Context, Controller, ControllerBuilder, ControllerError,
    Counter, Failure, MetricsRegistry, Next, generation_changed,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::api::Website;
use crate::hosts::Hosts;

/// The name of the Lease, and the field manager.
pub(crate) const NAME: &str = "website-controller";

struct Operator {
    hosts: Arc<dyn Hosts>,
    failures: Counter,
}

pub(crate) fn build(
    builder: ControllerBuilder<Website>,
    hosts: Arc<dyn Hosts>,
    metrics: &MetricsRegistry,
) -> Result<Controller<Website>, ControllerError> {
    let help = "Number of failed requests to the service for host names.";
    let failures = metrics.counter("website_host_failures_total", help, &[]);
    let failures = failures.expect("the name is valid, and has no other type");
    let operator = Arc::new(Operator { hosts, failures });
    let cleanup = Arc::clone(&operator);
    builder
        .when(generation_changed())
        .owns(Source::of::<ConfigMap>())
        .owns(Source::of::<Deployment>())
        .owns(Source::of::<Service>())
        .workers(4)
        .field_manager(NAME)
        .finalizer(
            "example.com/website-host",
            |_| true,
            move |cx, site| cleanup.remove(cx, site),
        )
        .by(move |cx, site| operator.reconcile(cx, site))
}

impl Operator {
    fn reconcile(&self, cx: &Context, site: &Website) -> Result<Next, Failure> {
        let registered = self.register(cx, site);
        let result = registered.and_then(|()| apply_children(cx, site));
        let (generation, now) = (
            site.metadata.generation.unwrap_or(0),
            cx.clock().wall_clock(),
        );
        let (ready, wanted) = (ready_replicas(cx, site)?, site.spec.replicas);
        let message = format!("{ready} of {wanted} replicas are ready");
        let mut status = site.status.clone().unwrap_or_default();
        status.observed_generation = generation;
        status.ready_replicas = ready;
        let conditions = &mut status.conditions;
        let (is_ready, reason) = match &result {
            Err(failure) => {
                conditions.set_stalled("Failed", &failure.to_string(), generation, now);
                (false, "Failed")
            }
            Ok(()) if ready < wanted => {
                conditions.set_reconciling("Starting", &message, generation, now);
                (false, "Starting")
            }
            Ok(()) => {
                conditions.set_current(generation, now);
                (true, "Serving")
            }
        };
        let condition = Condition::new("Ready", is_ready, reason, message);
        conditions.set(condition.observed_generation(generation), now);
        if site.status.as_ref() != Some(&status) {
            let patch = Patch::merge(json!({ "status": status }));
            let websites = cx.api::<Website>(Some(cx.namespace()));
            websites.status().patch(cx.name(), &patch, cx.stop())?;
        }
        result.map(|()| Next::Done)
    }

    /// Maps the host to the Service. This is an effect outside the cluster, so it needs the Lease.
    fn register(&self, cx: &Context, site: &Website) -> Result<(), Failure> {
        cx.ensure()?;
        let Err(error) = self.hosts.register(&site.spec.host, &address(site)) else {
            return Ok(());
        };
        self.failures.increment();
        let problem = format!("can't register the host {:?}: {error}", site.spec.host);
        cx.events()?
            .event(site, EventType::Warning, "FailedRegister", &problem)?;
        Err(Failure::new(problem))
    }

    /// Removes the host before the Website is deleted.
    fn remove(&self, cx: &Context, site: &Website) -> Result<Next, Failure> {
        cx.ensure()?;
        let removed = self.hosts.remove(&site.spec.host, &address(site));
        removed.inspect_err(|_| self.failures.increment())?;
        Ok(Next::Done)
    }
}

fn address(site: &Website) -> String {
    format!("{}.{}.svc", site.name(), site.namespace())
}

fn apply_children(cx: &Context, site: &Website) -> Result<(), Failure> {
    let (name, spec) = (site.name(), &site.spec);
    let labels = json!({ "app.kubernetes.io/name": "website", "app.kubernetes.io/instance": name });
    let metadata = json!({ "name": name, "labels": labels });
    // The kubelet updates the mounted files.
    apply::<ConfigMap>(
        cx,
        site,
        json!({ "metadata": metadata, "data": spec.pages }),
    )?;
    let mounts = json!([{ "name": "pages", "mountPath": "/usr/share/nginx/html" }]);
    let ports = json!([{ "containerPort": 80 }]);
    let container =
        json!({ "name": "web", "image": spec.image, "ports": ports, "volumeMounts": mounts });
    let volumes = json!([{ "name": "pages", "configMap": { "name": name } }]);
    let template = json!({
        "metadata": { "labels": labels },
        "spec": { "containers": [container], "volumes": volumes },
    });
    let selector = json!({ "matchLabels": labels });
    let deployment =
        json!({ "replicas": spec.replicas, "selector": selector, "template": template });
    apply::<Deployment>(
        cx,
        site,
        json!({ "metadata": metadata, "spec": deployment }),
    )?;
    let service = json!({ "selector": labels, "ports": [{ "port": 80 }] });
    apply::<Service>(cx, site, json!({ "metadata": metadata, "spec": service }))
}

/// Applies a child, and records an event if it has changed.
fn apply<C: Resource + FullMetadata + DeserializeOwned + Serialize>(
    cx: &Context,
    site: &Website,
    child: Value,
) -> Result<(), Failure> {
    // `force` takes back what was changed by hand.
    let what = match cx.apply_with::<C>(child, ApplyOptions::new().force(true))? {
        Applied::Created => "Created",
        Applied::Changed => "Updated",
        _ => return Ok(()),
    };
    // Events with the same reason about the same object become one.
    let reason = format!("{}{what}", C::group_version_kind().kind);
    cx.events()?
        .event(site, EventType::Normal, reason, "has the wanted fields")?;
    Ok(())
}

/// The Pods that are ready, once the Deployment controller has seen the current Deployment.
fn ready_replicas(cx: &Context, site: &Website) -> Result<i32, IndexError> {
    let mut deployments = cx.children::<Deployment>()?.into_iter();
    let deployment = deployments.find(|deployment| deployment.name() == site.name());
    let status = deployment.and_then(|deployment| {
        let status = deployment.status.clone()?;
        (status.observed_generation == deployment.metadata.generation).then_some(status)
    });
    let ready = status.and_then(|status| status.ready_replicas);
    Ok(ready.unwrap_or(0))
}
