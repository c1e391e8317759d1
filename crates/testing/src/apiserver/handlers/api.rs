//! Dispatches requests: authentication, verbs, and the handlers for responses.

use serde_json::json;

use super::discovery;
use super::read::{get, list_page, selected};
use super::subresources;
use super::watch::Watch;
use crate::apiserver::engine::list::Options;
use crate::apiserver::engine::shared::Shared;
use crate::apiserver::engine::write::{Author, Deleted};
use crate::apiserver::model::apply::Apply;
use crate::apiserver::model::delete_options::DeleteOptions;
use crate::apiserver::model::http::{Head, Response};
use crate::apiserver::model::log::{RequestRecord, Verb};
use crate::apiserver::model::managers::manager_of;
use crate::apiserver::model::object::{Form, Object, meta_str};
use crate::apiserver::model::patch::Patch;
use crate::apiserver::model::resources::{ApiResource, Route, Target};
use crate::apiserver::model::status::{Cause, StatusError};
use crate::apiserver::model::validate::parse_json;
use crate::apiserver::model::write_options::{Validation, Warnings, is_dry_deletion, is_dry_run};

/// The result of a request.
pub(crate) enum Answer<'a> {
    Response(Response),
    Watch(Watch<'a>),
}

/// Returns the verb of a request, from its method, path and query.
pub(crate) fn verb(head: &Head, route: &Route) -> Verb {
    let Route::Object(target) = route else {
        return Verb::Other;
    };
    let one = target.name.is_some();
    match head.method.as_str() {
        "GET" if one => Verb::Get,
        "GET" if head.flag("watch").unwrap_or(false) => Verb::Watch,
        "GET" => Verb::List,
        "POST" => Verb::Create,
        "PUT" => Verb::Update,
        "PATCH" => Verb::Patch,
        "DELETE" if one => Verb::Delete,
        "DELETE" => Verb::DeleteCollection,
        _ => Verb::Other,
    }
}

/// Answers a request without a fault, or after a fault that lets it pass.
pub(crate) fn respond<'a>(
    shared: &'a Shared,
    request: &RequestRecord,
    route: &Route,
    body: &[u8],
) -> Answer<'a> {
    if let Err(status) = shared.auth.check(request, route) {
        let mut response = Response::from(status);
        if response.status == 403 {
            response
                .headers
                .push(("X-Content-Type-Options".to_owned(), "nosniff".to_owned()));
        }
        return Answer::Response(response);
    }
    let response = match route {
        Route::Version => Ok(Answer::Response(Response::json(200, version()))),
        Route::Health => Ok(Answer::Response(Response::text(200, "ok"))),
        Route::Discovery { core } => Ok(Answer::Response(discovery::document(
            &shared.resources,
            *core,
        ))),
        Route::NotFound => Ok(Answer::Response(Response::text(
            404,
            "404 page not found\n",
        ))),
        Route::NoSuchResource => Err(StatusError::no_such_resource()),
        Route::Object(target) => answer_object(shared, request, target, body),
    };
    response.unwrap_or_else(|status| Answer::Response(status.into()))
}

fn answer_object<'a>(
    shared: &'a Shared,
    request: &RequestRecord,
    target: &Target,
    body: &[u8],
) -> Result<Answer<'a>, StatusError> {
    let head = request.head();
    let resource = &target.resource;
    let accepted = accepted(head)?;
    let form = accepted.form();
    if let Some(sub) = target.sub {
        let response = subresources::respond(
            shared,
            request.verb(),
            head,
            media_type(head),
            target,
            sub,
            body,
        );
        return response.map(Answer::Response);
    }
    let manager = manager_of(head);
    let author = Author::Client(&manager);
    let mut warnings = Warnings::none();
    let object = |status: u16, object: &Object| {
        accepted.check(false)?;
        let mut body = Vec::new();
        object.write(resource, form, &mut body);
        body.push(b'\n');
        Ok(Response::json(status, body))
    };
    let mut response = match request.verb() {
        Verb::Watch => {
            let options = Options::parse(head)?;
            let selection = selected(shared, target, &options)?;
            let watch = Watch::open(shared, target, selection, form, &options, request.clone())?;
            return Ok(Answer::Watch(watch));
        }
        Verb::List => {
            let page = list_page(shared, target, &Options::parse(head)?)?;
            accepted.check(true)?;
            Response::json(200, page.body(resource, form))
        }
        Verb::Get => object(200, &*get(shared, target, head.param("resourceVersion"))?)?,
        verb @ (Verb::Create | Verb::Update) => {
            check_content_type(head)?;
            let dry_run = is_dry_run(head)?;
            let mut content = parse_json(body)?;
            warnings = Validation::parse(head)?.of_object(resource, &mut content)?;
            let stored = shared.write(author, dry_run, |writer| match verb {
                Verb::Create => writer.create(target, content),
                _ => writer.update(target, content),
            })?;
            object(if verb == Verb::Create { 201 } else { 200 }, &stored)?
        }
        Verb::Patch
            if target.name.is_some() && media_type(head) == "application/apply-patch+yaml" =>
        {
            let dry_run = is_dry_run(head)?;
            let apply = Apply::parse(head, body)?;
            let (applied, created) =
                shared.write(author, dry_run, |writer| writer.apply(target, apply))?;
            object(if created { 201 } else { 200 }, &applied)?
        }
        Verb::Patch if target.name.is_some() => {
            let dry_run = is_dry_run(head)?;
            let validation = Validation::parse(head)?;
            let mut patch = Patch::parse(media_type(head), body, resource)?;
            let is_strategic = matches!(patch, Patch::Strategic(..));
            if let Patch::Merge(patch) | Patch::Strategic(patch, _) = &mut patch {
                warnings = validation.of_patch(resource, patch, is_strategic)?;
            }
            if head.param("force").is_some() {
                let cause = Cause::forbidden("force", "may not be specified for non-apply patch");
                return Err(StatusError::invalid_options(&[cause]));
            }
            object(
                200,
                &*shared.write(author, dry_run, |writer| writer.patch(target, patch))?,
            )?
        }
        Verb::Delete if !target.status => {
            let options = DeleteOptions::of_request(head, body)?;
            let dry_run = is_dry_deletion(head, body)?;
            let deleted =
                shared.write(author, dry_run, |writer| writer.delete(target, &options))?;
            match deleted {
                Deleted {
                    object: last,
                    gone: true,
                } if !resource.delete_returns_object => {
                    Response::json(200, success(resource, &last))
                }
                Deleted { object: last, .. } => object(200, &last)?,
            }
        }
        Verb::DeleteCollection if target.namespace.is_some() || !resource.namespaced => {
            let propagation = DeleteOptions::of_request(head, body)?.propagation;
            let dry_run = is_dry_deletion(head, body)?;
            let options = Options::parse(head)?;
            let selection = selected(shared, target, &options)?;
            let page = shared.write(author, dry_run, |writer| {
                writer.delete_collection(target, &selection, &options, propagation)
            })?;
            accepted.check(true)?;
            Response::json(200, page.body(resource, form))
        }
        _ => return Err(StatusError::method_not_allowed()),
    };
    warnings.add_to(&mut response);
    Ok(Answer::Response(response))
}

/// The first supported representation in `Accept`.
#[derive(Clone, Copy)]
enum Accepted {
    Full,
    Metadata,
    MetadataList,
}

impl Accepted {
    fn form(self) -> Form {
        match self {
            Self::Full => Form::Full,
            Self::Metadata | Self::MetadataList => Form::Metadata,
        }
    }

    /// Checks that a requested metadata form fits the response: lists need
    /// `PartialObjectMetadataList`, objects `PartialObjectMetadata`. Watches accept both.
    fn check(self, is_list: bool) -> Result<(), StatusError> {
        match (self, is_list) {
            (Self::Metadata, true) | (Self::MetadataList, false) => {
                Err(StatusError::plain(406, None))
            }
            _ => Ok(()),
        }
    }
}

fn accepted(head: &Head) -> Result<Accepted, StatusError> {
    let accept = head.header("accept").unwrap_or_default();
    if accept.trim().is_empty() {
        return Ok(Accepted::Full);
    }
    accept
        .split(',')
        .find_map(accepted_range)
        .ok_or_else(|| StatusError::plain(406, None))
}

fn accepted_range(range: &str) -> Option<Accepted> {
    let mut parts = range.split(';').map(str::trim);
    if !matches!(parts.next()?, "application/json" | "application/*" | "*/*") {
        return None;
    }
    let mut form = Accepted::Full;
    for (key, value) in parts.filter_map(|part| part.split_once('=')) {
        match (key, value) {
            ("as", "PartialObjectMetadata") => form = Accepted::Metadata,
            ("as", "PartialObjectMetadataList") => form = Accepted::MetadataList,
            ("as", _) => return None,
            ("g", group) if group != "meta.k8s.io" => return None,
            ("v", version) if version != "v1" => return None,
            _ => {}
        }
    }
    Some(form)
}

fn media_type(head: &Head) -> &str {
    head.header("content-type")
        .unwrap_or_default()
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
}

fn check_content_type(head: &Head) -> Result<(), StatusError> {
    let media = media_type(head);
    if media.is_empty() || media.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(StatusError::plain(415, None))
}

fn success(resource: &ApiResource, last: &Object) -> Vec<u8> {
    let field = |name: &str| meta_str(last.content(), name);
    let mut details =
        json!({ "name": field("name"), "kind": resource.plural, "uid": field("uid") });
    if !resource.group.is_empty() {
        details["group"] = resource.group.as_str().into();
    }
    let head = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","details":"#;
    format!("{head}{details}}}\n").into_bytes()
}

fn version() -> Vec<u8> {
    json!({
        "major": "1",
        "minor": "36",
        "gitVersion": "v1.36.2",
        "platform": concat!("k8s-informer/", env!("CARGO_PKG_VERSION")),
    })
    .to_string()
    .into_bytes()
}
