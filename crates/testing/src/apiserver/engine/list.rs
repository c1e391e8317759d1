//! Lists: the selection of the version, and pages.

use std::fmt;
use std::sync::Arc;

use serde_json::json;

use super::store::Store;
use crate::apiserver::model::http::Head;
use crate::apiserver::model::object::{Form, Object};
use crate::apiserver::model::resources::ApiResource;
use crate::apiserver::model::select::Selection;
use crate::apiserver::model::status::{Cause, StatusError};

/// The query parameters of lists and watches.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    pub(crate) label_selector: String,
    pub(crate) field_selector: String,
    pub(crate) shard_selector: String,
    limit: usize,
    token: String,
    pub(crate) resource_version: String,
    version_match: String,
    pub(crate) bookmarks: bool,
    pub(crate) initial_events: Option<bool>,
    pub(crate) timeout_seconds: Option<u64>,
}

impl Options {
    pub(crate) fn parse(head: &Head) -> Result<Self, StatusError> {
        let text = |name: &str| head.param(name).unwrap_or_default().to_owned();
        // Negative numbers count as absent.
        let number = |name: &str| match head.param(name).unwrap_or_default() {
            "" => Ok(0),
            value => value
                .parse::<i64>()
                .map(|n| u64::try_from(n).unwrap_or(0))
                .map_err(|_| {
                    StatusError::bad_request(format!("{name} is not a number: {value:?}"))
                }),
        };
        Ok(Self {
            label_selector: text("labelSelector"),
            field_selector: text("fieldSelector"),
            shard_selector: text("shardSelector"),
            limit: usize::try_from(number("limit")?).unwrap_or(usize::MAX),
            token: text("continue"),
            resource_version: text("resourceVersion"),
            version_match: text("resourceVersionMatch"),
            bookmarks: head.flag("allowWatchBookmarks").unwrap_or(false),
            initial_events: head.flag("sendInitialEvents"),
            timeout_seconds: Some(number("timeoutSeconds")?).filter(|&seconds| seconds > 0),
        })
    }

    /// Checks the options of a watch. `watch_list` is whether it may send initial events.
    pub(crate) fn validate_watch(&self, watch_list: bool) -> Result<(), StatusError> {
        let mut causes = Vec::new();
        if self.initial_events.is_some() {
            if self.version_match != "NotOlderThan" {
                let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
                causes.push(Cause::forbidden(MATCH, why));
            }
            if !watch_list {
                let why = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
                causes.push(Cause::forbidden(INITIAL_EVENTS, why));
            }
        } else if !self.version_match.is_empty() {
            let why =
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            causes.push(Cause::forbidden(MATCH, why));
        }
        if !self.token.is_empty() {
            causes.push(Cause::forbidden(
                "continue",
                "continue is forbidden for watch",
            ));
        }
        refuse(&causes)
    }

    /// Checks the options of a list.
    fn validate_list(&self) -> Result<(), StatusError> {
        let mut causes = Vec::new();
        if self.initial_events.is_some() {
            let why = "sendInitialEvents is forbidden for list";
            causes.push(Cause::forbidden(INITIAL_EVENTS, why));
        }
        if !self.version_match.is_empty() {
            if self.resource_version.is_empty() || !self.token.is_empty() {
                let why = "resourceVersionMatch needs resourceVersion, and no continue";
                causes.push(Cause::forbidden(MATCH, why));
            }
            let is_known = matches!(&*self.version_match, "Exact" | "NotOlderThan");
            if !is_known || self.version_match == "Exact" && self.resource_version == "0" {
                causes.push(Cause::not_supported(MATCH, &self.version_match));
            }
        }
        refuse(&causes)
    }

    /// Returns the resourceVersion as a number, or 0 if it is absent.
    pub(crate) fn version(&self) -> Result<u64, InvalidVersion> {
        parse_version(&self.resource_version)
    }
}

const MATCH: &str = "resourceVersionMatch";
const INITIAL_EVENTS: &str = "sendInitialEvents";

fn refuse(causes: &[Cause]) -> Result<(), StatusError> {
    if causes.is_empty() {
        Ok(())
    } else {
        Err(StatusError::invalid_options(causes))
    }
}

/// A resourceVersion that is not a number.
pub(crate) struct InvalidVersion(String);

impl fmt::Display for InvalidVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid resource version: {:?}", self.0)
    }
}

pub(crate) fn parse_version(text: &str) -> Result<u64, InvalidVersion> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().map_err(|_| InvalidVersion(text.to_owned()))
}

/// A page of a list, or the whole list.
pub(crate) struct Page {
    items: Vec<Arc<Object>>,
    version: u64,
    token: Option<String>,
    remaining: Option<usize>,
    /// The requested shards.
    shards: Option<String>,
}

/// Returns a list from the store.
pub(crate) fn list(
    store: &mut Store,
    prefix: &str,
    selection: &Selection,
    options: &Options,
) -> Result<Page, StatusError> {
    options.validate_list()?;
    let requested = options.version();
    let requested = requested.map_err(|invalid| StatusError::bad_request(invalid.to_string()))?;
    let current = store.version();
    let mut limit = Some(options.limit).filter(|&limit| limit > 0);
    let mut after = None;
    let mut version = current;
    if !options.token.is_empty() {
        if requested > 0 {
            let message = "specifying resource version is not allowed when using continue";
            return Err(StatusError::bad_request(message));
        }
        let token = Token::parse(&options.token)
            .ok_or_else(|| StatusError::bad_request("continue key is not valid"))?;
        if let Some(at) = token.version {
            version = at;
            if version > current {
                return Err(StatusError::too_large_resource_version(version, current));
            }
            if version < store.floor() {
                let inconsistent = Token {
                    version: None,
                    ..token
                };
                return Err(StatusError::continue_expired(inconsistent.to_string()));
            }
        }
        after = Some(token.after);
    } else if requested > current {
        return Err(StatusError::too_large_resource_version(requested, current));
    } else if options.version_match == "Exact"
        || options.version_match.is_empty() && requested > 0 && limit.is_some()
    {
        if requested < store.floor() {
            return Err(StatusError::plain(410, None));
        }
        version = requested;
    } else if options.resource_version == "0" {
        // The watch cache returns the whole list, whatever the limit.
        limit = None;
    }

    let all = store.snapshot(prefix, version);
    let start = after.map_or(0, |after| {
        all.partition_point(|(key, _)| key[prefix.len()..] <= *after)
    });
    let rest = all[start..].iter();
    let mut items = rest.filter(|(_, object)| selection.matches(object.content()));
    let limit = limit.unwrap_or(usize::MAX);
    let selected: Vec<_> = items.by_ref().take(limit).collect();
    let mut page = Page {
        items: selected.iter().map(|(_, object)| object.clone()).collect(),
        version,
        token: None,
        remaining: None,
        shards: selection.shards(),
    };
    if items.next().is_some()
        && let Some((last, _)) = selected.last()
    {
        let token = Token {
            version: Some(version),
            after: last[prefix.len()..].to_owned(),
        };
        page.token = Some(token.to_string());
        // With a label or field selector, kube-apiserver omits the count, because it would have to
        // evaluate all objects. It counts before the shards are applied, so the count of a sharded
        // list is too high.
        page.remaining = selection
            .is_all_of_its_shards()
            .then_some(all.len() - start - limit);
        store.keep_for_pages(prefix, version, all);
    }
    Ok(page)
}

impl Page {
    pub(crate) fn items(&self) -> &[Arc<Object>] {
        &self.items
    }

    /// Returns the list as JSON.
    pub(crate) fn body(&self, resource: &ApiResource, form: Form) -> Vec<u8> {
        let mut metadata = json!({ "resourceVersion": self.version.to_string() });
        // The generic list of custom resources includes an empty token.
        let empty = (resource.custom && form == Form::Full).then_some("");
        if let Some(token) = self.token.as_deref().or(empty) {
            metadata["continue"] = token.into();
        }
        if let Some(remaining) = self.remaining {
            metadata["remainingItemCount"] = remaining.into();
        }
        // Only lists of built-in kinds, in full, name the shards.
        if let Some(selector) = &self.shards
            && form == Form::Full
            && !resource.custom
        {
            metadata["shardInfo"] = json!({ "selector": selector });
        }
        let (kind, version) = match form {
            Form::Full => (format!("{}List", resource.kind), resource.api_version()),
            Form::Metadata => (
                "PartialObjectMetadataList".to_owned(),
                "meta.k8s.io/v1".to_owned(),
            ),
        };
        let head = format!(
            r#"{{"kind":"{kind}","apiVersion":"{version}","metadata":{metadata},"items":["#
        );
        let mut body = head.into_bytes();
        for (index, item) in self.items.iter().enumerate() {
            if index > 0 {
                body.push(b',');
            }
            item.write_item(resource, form, &mut body);
        }
        body.extend_from_slice(b"]}\n");
        body
    }
}

/// A continue token, for example `257.default/a`. It is opaque to clients.
#[derive(Debug, PartialEq)]
struct Token {
    /// The version of the list, or `None` for the current version.
    version: Option<u64>,
    /// The last name of the previous page. It includes the namespace if the list covers all
    /// namespaces.
    after: String,
}

impl Token {
    fn parse(text: &str) -> Option<Self> {
        let (version, after) = text.split_once('.')?;
        let version = match version {
            "" => None,
            version => Some(version.parse().ok()?),
        };
        Some(Self {
            version,
            after: after.to_owned(),
        })
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = self.version.map(|version| version.to_string());
        write!(f, "{}.{}", version.unwrap_or_default(), self.after)
    }
}
