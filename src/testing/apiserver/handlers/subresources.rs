//! Scales and evictions.

use std::sync::Arc;

use serde_json::{Value, json};

use super::read;
use crate::testing::apiserver::engine::shared::Shared;
use crate::testing::apiserver::engine::write::{Writer, now};
use crate::testing::apiserver::model::apply::Apply;
use crate::testing::apiserver::model::delete_options::DeleteOptions;
use crate::testing::apiserver::model::http::{Head, Response};
use crate::testing::apiserver::model::log::Verb;
use crate::testing::apiserver::model::object::{Content, Object, meta, meta_str};
use crate::testing::apiserver::model::patch::Patch;
use crate::testing::apiserver::model::resources;
use crate::testing::apiserver::model::resources::{ApiResource, Resources, Sub, Target};
use crate::testing::apiserver::model::select::Selection;
use crate::testing::apiserver::model::status::{Cause, StatusError};
use crate::testing::apiserver::model::validate::parse_object;
use crate::testing::apiserver::model::write_options::{is_dry_deletion, is_dry_run};

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
    let scale = |object: &Object| {
        let scale = scale_of(resource, object.content())?;
        match scale["spec"] {
            Value::Null => Err(no_replicas(resource)),
            _ => Ok(Response::json(200, to_bytes(&scale))),
        }
    };
    match (sub, verb) {
        (Sub::Scale, Verb::Get) => {
            scale(&*read::get(shared, target, head.param("resourceVersion"))?)
        }
        (Sub::Scale, Verb::Update) => {
            let wanted = parse_object(body, &scales())?;
            let dry_run = is_dry_run(head, "UpdateOptions")?;
            scale(&*shared.write(true, dry_run, |writer| {
                rescale(writer, target, |_| Ok(wanted))
            })?)
        }
        (Sub::Scale, Verb::Patch) => {
            let dry_run = is_dry_run(head, "PatchOptions")?;
            let patch = match media_type {
                // Treat the applied configuration as a merge patch, because field ownership is not
                // tracked for the scale subresource.
                "application/apply-patch+yaml" => {
                    Apply::parse(head, body)?;
                    Patch::parse("application/merge-patch+json", body, resource)?
                }
                _ => Patch::parse(media_type, body, resource)?,
            };
            scale(&*shared.write(true, dry_run, |writer| {
                rescale(writer, target, |old| patch.apply(old))
            })?)
        }
        (Sub::Eviction, Verb::Create) => evict(shared, head, target, body),
        _ => Err(StatusError::method_not_allowed()),
    }
}

fn to_bytes(value: &Value) -> Vec<u8> {
    format!("{value}\n").into_bytes()
}

fn scales() -> ApiResource {
    ApiResource::new("autoscaling", "v1", "scales", "Scale")
}

fn at<'a>(content: &'a Content, path: &str) -> Option<&'a Value> {
    let mut keys = path.trim_start_matches('.').split('.');
    let first = content.get(keys.next()?);
    keys.fold(first, |value, key| value?.get(key))
}

fn no_replicas(resource: &ApiResource) -> StatusError {
    let field = resource
        .scale
        .as_ref()
        .map(|scale| &*scale.spec)
        .unwrap_or_default();
    let why =
        format!("Internal error occurred: the spec replicas field \"{field}\" does not exist");
    StatusError::plain(500, Some(why))
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
        Some(0) => json!({}),
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

/// Returns a selector in query syntax. It accepts a LabelSelector, a map of labels, or a string.
fn selector_text(selector: &Value) -> String {
    let equal = |labels: &Value| {
        let labels = labels.as_object().cloned().unwrap_or_default();
        labels
            .into_iter()
            .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
    };
    let Value::Object(fields) = selector else {
        return selector.as_str().unwrap_or_default().to_owned();
    };
    if !fields.contains_key("matchLabels") && !fields.contains_key("matchExpressions") {
        return equal(selector).collect::<Vec<_>>().join(",");
    }
    let mut terms: Vec<String> = equal(&selector["matchLabels"]).collect();
    for expression in selector["matchExpressions"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let key = expression["key"].as_str().unwrap_or_default();
        let values = expression["values"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        let values = values.collect::<Vec<_>>().join(",");
        terms.push(match expression["operator"].as_str().unwrap_or_default() {
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            _ => format!("{key} in ({values})"),
        });
    }
    terms.sort();
    terms.join(",")
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
    let old = old.ok_or_else(|| StatusError::not_found(name, &resource.group, &resource.plural))?;
    let scale = change(scale_of(resource, old.content())?)?;
    let metadata = |field: &str| scale["metadata"][field].as_str().unwrap_or_default();
    if metadata("name") != name {
        return Err(StatusError::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({name})",
            metadata("name")
        )));
    }
    let replicas = match &scale["spec"]["replicas"] {
        Value::Null => 0,
        replicas => match replicas.as_i64() {
            Some(replicas) if i32::try_from(replicas).is_ok() => replicas,
            _ => {
                let why = "Scale in version \"v1\" cannot be handled as a Scale: json: cannot unmarshal into Go struct \
                           field ScaleSpec.spec.replicas of type int32";
                return Err(StatusError::bad_request(why));
            }
        },
    };
    if replicas < 0 {
        let message = format!("Invalid value: {replicas}: must be greater than or equal to 0");
        let cause = Cause {
            reason: "FieldValueInvalid",
            message,
            field: "spec.replicas",
        };
        return Err(StatusError::invalid(name, "autoscaling", "Scale", &[cause]));
    }
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
    let updated = writer.update(
        &Target {
            sub: None,
            ..target.clone()
        },
        changed,
    );
    updated.map(|(object, _)| object)
}

/// Deletes a pod, unless a disruption budget prevents this.
fn evict(
    shared: &Shared,
    head: &Head,
    target: &Target,
    body: &[u8],
) -> Result<Response, StatusError> {
    let eviction = parse_object(
        body,
        &ApiResource::new("policy", "v1", "evictions", "Eviction"),
    )?;
    let name = target.name.as_deref().unwrap_or_default();
    if eviction["metadata"]["name"].as_str() != Some(name) {
        return Err(StatusError::bad_request(
            "name in URL does not match name in Eviction object",
        ));
    }
    let body = match &eviction["deleteOptions"] {
        Value::Null => Vec::new(),
        options => options.to_string().into_bytes(),
    };
    let options = DeleteOptions::parse(&body)?;
    let dry_run =
        is_dry_run(head, "CreateOptions")? || !body.is_empty() && is_dry_deletion(head, &body)?;
    shared.write(true, dry_run, |writer| {
        let pod = Target {
            sub: None,
            ..target.clone()
        };
        consume_budget(writer, &shared.resources, &pod, name)?;
        writer.delete(&pod, &options)
    })?;
    let done = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
    });
    Ok(Response::json(201, to_bytes(&done)))
}

/// Uses one of the disruptions that the budget of the pod allows.
fn consume_budget(
    writer: &mut Writer<'_>,
    resources: &Resources,
    target: &Target,
    name: &str,
) -> Result<(), StatusError> {
    let Some(pod) = writer.store.get(&target.key()?.0).cloned() else {
        return Err(StatusError::not_found(name, "", "pods"));
    };
    let phase = at(pod.content(), "status.phase")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if ["Pending", "Succeeded", "Failed"].contains(&phase)
        || meta(pod.content(), "deletionTimestamp").is_some()
    {
        return Ok(());
    }
    let Some(budgets) = resources.find("policy", "v1", "poddisruptionbudgets") else {
        return Ok(());
    };
    let prefix = budgets.prefix(target.namespace.as_deref());
    let selects = |budget: &Object| {
        let selector = at(budget.content(), "spec.selector")
            .map(selector_text)
            .unwrap_or_default();
        Selection::parse(&selector, "", &budgets)
            .is_ok_and(|selection| selection.matches(pod.content()))
    };
    let all = writer.store.objects(&prefix).map(|(_, budget)| budget);
    let matching: Vec<_> = all.filter(|budget| selects(budget)).cloned().collect();
    let budget = match &*matching {
        [] => return Ok(()),
        [budget] => budget,
        _ => {
            return Err(StatusError::internal(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            ));
        }
    };
    let budget_name = meta_str(budget.content(), "name").to_owned();
    let number = |path: &str| {
        at(budget.content(), path)
            .and_then(Value::as_u64)
            .unwrap_or(0)
    };
    let (healthy, desired) = (
        number("status.currentHealthy"),
        number("status.desiredHealthy"),
    );
    let conditions = at(pod.content(), "status.conditions").and_then(Value::as_array);
    let is_ready =
        |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
    if !conditions.is_some_and(|conditions| conditions.iter().any(is_ready)) {
        // An unhealthy pod does not count for the budget.
        let policy =
            at(budget.content(), "spec.unhealthyPodEvictionPolicy").and_then(Value::as_str);
        if policy == Some("AlwaysAllow") || healthy >= desired && desired > 0 {
            return Ok(());
        }
    }
    if number("status.observedGeneration") < number("metadata.generation") {
        let why =
            format!("The disruption budget {budget_name} is still being processed by the server.");
        return Err(StatusError::disruption_budget(&why, Some(10)));
    }
    match number("status.disruptionsAllowed") {
        0 if healthy <= desired => {
            let why = format!(
                "The disruption budget {budget_name} needs {desired} healthy pods and has {healthy} currently"
            );
            Err(StatusError::disruption_budget(&why, None))
        }
        0 => {
            let why = format!(
                "The disruption budget {budget_name} does not allow evicting pods currently"
            );
            Err(StatusError::disruption_budget(&why, None))
        }
        allowed => {
            let mut status = at(budget.content(), "status").cloned().unwrap_or_default();
            status["disruptionsAllowed"] = (allowed - 1).into();
            status["disruptedPods"][name] = now().into();
            let place = Target {
                resource: budgets,
                namespace: target.namespace.clone(),
                name: Some(budget_name),
                status: true,
                sub: None,
            };
            writer
                .patch(&place, Patch::Merge(json!({ "status": status })))
                .map(drop)
        }
    }
}
