//! Scales and evictions.

use std::sync::Arc;

use serde_json::{Value, json};

use super::read;
use crate::apiserver::engine::shared::Shared;
use crate::apiserver::engine::write::{Author, Writer, name_mismatch};
use crate::apiserver::model::apply::Apply;
use crate::apiserver::model::delete_options::DeleteOptions;
use crate::apiserver::model::http::{Head, Response};
use crate::apiserver::model::log::Verb;
use crate::apiserver::model::managers::manager_of;
use crate::apiserver::model::object::{Content, Object, meta, meta_str};
use crate::apiserver::model::patch::Patch;
use crate::apiserver::model::resources;
use crate::apiserver::model::resources::{ApiResource, Sub, Target};
use crate::apiserver::model::status::{Cause, StatusError};
use crate::apiserver::model::validate::parse_json;
use crate::apiserver::model::write_options::{is_dry_deletion, is_dry_run};

/// Answers a request for a subresource with its own kind.
pub(crate) fn respond(
    shared: &Shared,
    verb: Verb,
    head: &Head,
    media_type: &str,
    target: &Target,
    sub: Sub,
    body: &[u8],
) -> Result<Response, StatusError> {
    let resource = &*target.resource;
    let manager = manager_of(head);
    let author = Author::Client(&manager);
    let scale = |object: &Object| {
        let scale = scale_of(resource, object.content())?;
        match scale["spec"] {
            Value::Null => Err(StatusError::internal("the object has no replicas")),
            _ => Ok(Response::json(200, to_bytes(&scale))),
        }
    };
    match (sub, verb) {
        (Sub::Scale, Verb::Get) => {
            scale(&*read::get(shared, target, head.param("resourceVersion"))?)
        }
        (Sub::Scale, Verb::Update) => {
            let wanted = parse_json(body)?;
            let dry_run = is_dry_run(head)?;
            scale(&*shared.write(author, dry_run, |writer| {
                rescale(writer, target, |_| Ok(wanted))
            })?)
        }
        (Sub::Scale, Verb::Patch) => {
            let dry_run = is_dry_run(head)?;
            let patch = match media_type {
                // Treat the applied configuration as a merge patch: its manager owns the replicas as
                // if it had updated them.
                "application/apply-patch+yaml" => {
                    Apply::parse(head, body)?;
                    Patch::parse("application/merge-patch+json", body, resource)?
                }
                _ => Patch::parse(media_type, body, resource)?,
            };
            scale(&*shared.write(author, dry_run, |writer| {
                rescale(writer, target, |old| patch.apply(old))
            })?)
        }
        (Sub::Eviction, Verb::Create) => evict(shared, author, head, target, body),
        _ => Err(StatusError::method_not_allowed()),
    }
}

fn to_bytes(value: &Value) -> Vec<u8> {
    format!("{value}\n").into_bytes()
}

fn at<'a>(content: &'a Content, path: &str) -> Option<&'a Value> {
    let mut keys = path.trim_start_matches('.').split('.');
    let first = content.get(keys.next()?);
    keys.fold(first, |value, key| value?.get(key))
}

/// Returns the scale of an object. Its `spec` is null if a custom resource does not set the
/// replicas, which is valid for requests that change the scale.
fn scale_of(resource: &ApiResource, content: &Content) -> Result<Value, StatusError> {
    let Some(resources::Scale {
        spec,
        status,
        selector,
    }) = &resource.scale
    else {
        return Err(StatusError::no_such_resource());
    };
    // Built-in resources have one replica by default; custom resources have no default.
    let default = (!resource.custom).then_some(1);
    let wanted = match at(content, spec).and_then(Value::as_u64).or(default) {
        None => Value::Null,
        Some(replicas) => json!({ "replicas": replicas }),
    };
    let mut metadata = json!({});
    for field in [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
    ] {
        if let Some(value) = meta(content, field) {
            metadata[field] = value.clone();
        }
    }
    let mut observed =
        json!({ "replicas": at(content, status).and_then(Value::as_u64).unwrap_or(0) });
    let selector = at(content, selector).map(selector_text).unwrap_or_default();
    if !selector.is_empty() {
        observed["selector"] = selector.into();
    }
    Ok(json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata,
        "spec": wanted,
        "status": observed,
    }))
}

/// Returns a selector in query syntax: a string, or the labels of a map or of a LabelSelector, whose
/// expressions are left out.
fn selector_text(selector: &Value) -> String {
    if let Value::String(text) = selector {
        return text.clone();
    }
    let labels = selector.get("matchLabels").unwrap_or(selector).as_object();
    let terms = labels.into_iter().flatten();
    let terms = terms.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
    terms.collect::<Vec<_>>().join(",")
}

/// Changes the replicas of an object through a change of its scale.
fn rescale(
    writer: &mut Writer<'_>,
    target: &Target,
    change: impl FnOnce(Value) -> Result<Value, StatusError>,
) -> Result<Arc<Object>, StatusError> {
    let resource = &*target.resource;
    let (key, name) = target.key()?;
    let old = writer.store.get(&key).cloned();
    let old = old.ok_or_else(|| resource.not_found(name))?;
    let scale = change(scale_of(resource, old.content())?)?;
    let metadata = |field: &str| scale["metadata"][field].as_str().unwrap_or_default();
    if metadata("name") != name {
        return Err(name_mismatch(metadata("name"), name));
    }
    let replicas = &scale["spec"]["replicas"];
    let replicas = match replicas.as_i64() {
        None if replicas.is_null() => 0,
        Some(replicas) if (0..=i32::MAX.into()).contains(&replicas) => replicas,
        _ => {
            let why = format_args!("{replicas}: must be a number from 0 to 2147483647");
            let cause = Cause::invalid("spec.replicas", why);
            return Err(StatusError::invalid(name, "autoscaling", "Scale", &[cause]));
        }
    };
    let mut changed = old.to_value(resource);
    let path = resource
        .scale
        .as_ref()
        .map(|scale| scale.spec.trim_start_matches('.'))
        .unwrap_or_default();
    let place = path.split('.').fold(&mut changed, |value, field| {
        if !value.is_object() {
            *value = json!({});
        }
        &mut value[field]
    });
    *place = replicas.into();
    if !metadata("uid").is_empty() {
        changed["metadata"]["uid"] = metadata("uid").into();
    }
    changed["metadata"]["resourceVersion"] = match metadata("resourceVersion") {
        "" => meta_str(old.content(), "resourceVersion").into(),
        version => version.into(),
    };
    let object = Target {
        sub: None,
        ..target.clone()
    };
    writer.update_through(&object, changed, target.subresource())
}

/// Deletes a pod. Disruption budgets have no effect.
fn evict(
    shared: &Shared,
    author: Author<'_>,
    head: &Head,
    target: &Target,
    body: &[u8],
) -> Result<Response, StatusError> {
    let eviction = parse_json(body)?;
    let name = target.name.as_deref().unwrap_or_default();
    if eviction["metadata"]["name"] != name {
        let given = eviction["metadata"]["name"].as_str().unwrap_or_default();
        return Err(name_mismatch(given, name));
    }
    let body = match &eviction["deleteOptions"] {
        Value::Null => Vec::new(),
        options => options.to_string().into_bytes(),
    };
    let options = DeleteOptions::parse(&body)?;
    let dry_run = is_dry_run(head)? || !body.is_empty() && is_dry_deletion(head, &body)?;
    let pod = Target {
        sub: None,
        ..target.clone()
    };
    shared.write(author, dry_run, |writer| writer.delete(&pod, &options))?;
    let done = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
    });
    Ok(Response::json(201, to_bytes(&done)))
}
