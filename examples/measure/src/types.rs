//! The types that objects can be decoded to.

use std::error::Error;

use k8s_informer::informer::Source;
use k8s_informer::object::{GroupVersionResource, PartialObjectMetadata};
use k8s_informer::{Client, DynamicObject, Resource, Stop};
use k8s_openapi::Metadata;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, Secret, Service};

use super::custom;
use super::latency::{SENT_AT, parse};
use super::report::Report;
use super::run::Run;

pub(crate) const TYPES: [&str; 4] = ["k8s-openapi", "custom", "dynamic", "metadata"];

/// Measures an informer for `resource` with objects of the given type, one of [`TYPES`].
pub(crate) fn measure(
    r#type: &str,
    resource: &str,
    run: Run<'_>,
) -> Result<Report, Box<dyn Error>> {
    let stop = run.stop.clone();
    let found = |client: &Client| find(client, resource, &stop);
    let report = match r#type {
        "k8s-openapi" => built_in(resource, run),
        "custom" if resource == custom::Pod::plural() => {
            run.measure(|_| Ok(Source::of()), custom::Pod::sent_at)
        }
        "custom" => Err("--type custom supports only pods".into()),
        "dynamic" => run.measure(
            |client| Ok(Source::dynamic(found(client)?)),
            |object: &DynamicObject| {
                let sent_at = object.read("/metadata/annotations/example.com~1sent-at");
                sent_at.ok().flatten().map_or(0, parse)
            },
        ),
        "metadata" => run.measure(
            |client| Ok(Source::metadata(found(client)?)),
            |object: &PartialObjectMetadata| {
                object.metadata.annotations.get(SENT_AT).map_or(0, parse)
            },
        ),
        _ => Err(format!("unknown type {type}; expected one of {}", TYPES.join(", ")).into()),
    }?;
    Ok(Report {
        r#type: r#type.to_owned(),
        resource: resource.to_owned(),
        ..report
    })
}

macro_rules! types_of_k8s_openapi {
    ($($type:ty),*) => {
        fn built_in(resource: &str, run: Run<'_>) -> Result<Report, Box<dyn Error>> {
            $(if resource == <$type as Resource>::plural() {
                return run.measure(|_| Ok(Source::of()), sent_at::<$type>);
            })*
            let all = [$(&*<$type as Resource>::plural()),*].join(", ");
            Err(format!("{resource}: --type k8s-openapi supports only {all}; use --type dynamic or --type metadata").into())
        }

        /// Returns the resource of a built-in type, which needs no discovery request.
        fn known(resource: &str) -> Option<GroupVersionResource> {
            $(if resource == <$type as Resource>::plural() {
                return Some(<$type>::group_version_resource());
            })*
            None
        }
    };
}

// Only a few types, because each of them is one more informer to compile.
types_of_k8s_openapi!(Pod, Node, Service, ConfigMap, Secret, Deployment);

fn sent_at<T: Metadata<Ty = k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta>>(
    object: &T,
) -> u64 {
    let annotations = object.metadata().annotations.as_ref();
    annotations
        .and_then(|all| all.get(SENT_AT))
        .map_or(0, |text| parse(text))
}

fn find(
    client: &Client,
    resource: &str,
    stop: &Stop,
) -> Result<GroupVersionResource, k8s_informer::Error> {
    match known(resource) {
        Some(known) => Ok(known),
        None => Ok(client.discover(resource, stop)?.resource),
    }
}
