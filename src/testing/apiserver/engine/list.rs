//! Lists: the selection of the version, and pages.

use std::sync::Arc;

use serde_json::json;

use super::store::Store;
use crate::testing::apiserver::model::http::Head;
use crate::testing::apiserver::model::object::{Form, Object};
use crate::testing::apiserver::model::resources::ApiResource;
use crate::testing::apiserver::model::select::Selection;
use crate::testing::apiserver::model::status::{Cause, StatusError};

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
        // The message is that of Go's ParseInt. Negative numbers count as absent.
        let number = |name: &str| match head.param(name).unwrap_or_default() {
            "" => Ok(0),
            value => value
                .parse::<i64>()
                .map(|n| u64::try_from(n).unwrap_or(0))
                .map_err(|_| {
                    StatusError::bad_request(format!(
                        "strconv.ParseInt: parsing \"{value}\": invalid syntax"
                    ))
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

    /// Applies the rules of `ValidateListOptions` for watches, in the same order and with the same
    /// messages. `watch_list` is whether the feature gate WatchList is enabled.
    pub(crate) fn validate_watch(&self, watch_list: bool) -> Result<(), StatusError> {
        let mut causes = Vec::new();
        let wrong_match = self.version_match != "NotOlderThan";
        if self.initial_events.is_some() {
            if wrong_match {
                let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
                causes.push(forbidden(MATCH, why));
            }
            if !watch_list {
                let why = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
                causes.push(forbidden("sendInitialEvents", why));
            }
            if wrong_match && !self.version_match.is_empty() {
                causes.push(self.unsupported_match("\"NotOlderThan\""));
            }
        } else if !self.version_match.is_empty() {
            let why =
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            causes.push(forbidden(MATCH, why));
        }
        // The message names the wrong field, as in kube-apiserver.
        if !self.token.is_empty() {
            causes.push(forbidden(
                MATCH,
                "resourceVersionMatch is forbidden when continue is provided",
            ));
        }
        refuse(&causes)
    }

    /// Applies the rules of `ValidateListOptions` for lists.
    fn validate_list(&self) -> Result<(), StatusError> {
        let mut causes = Vec::new();
        if self.initial_events.is_some() {
            causes.push(forbidden(
                "sendInitialEvents",
                "sendInitialEvents is forbidden for list",
            ));
        }
        if !self.version_match.is_empty() {
            if self.resource_version.is_empty() {
                let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
                causes.push(forbidden(MATCH, why));
            }
            if !self.token.is_empty() {
                causes.push(forbidden(
                    MATCH,
                    "resourceVersionMatch is forbidden when continue is provided",
                ));
            }
            if !matches!(self.version_match.as_str(), "Exact" | "NotOlderThan") {
                causes.push(self.unsupported_match("\"Exact\", \"NotOlderThan\", \"\""));
            }
            if self.version_match == "Exact" && self.resource_version == "0" {
                let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                causes.push(forbidden(MATCH, why));
            }
        }
        refuse(&causes)
    }

    fn unsupported_match(&self, supported: &str) -> Cause {
        let message = format!(
            "Unsupported value: \"{}\": supported values: {supported}",
            self.version_match
        );
        Cause {
            reason: "FieldValueNotSupported",
            message,
            field: MATCH,
        }
    }

    /// Returns the resourceVersion as a number, or 0 if it is absent.
    pub(crate) fn version(&self) -> Result<u64, String> {
        parse_version(&self.resource_version)
    }
}

const MATCH: &str = "resourceVersionMatch";

fn forbidden(field: &'static str, why: &str) -> Cause {
    Cause {
        reason: "FieldValueForbidden",
        message: format!("Forbidden: {why}"),
        field,
    }
}

fn refuse(causes: &[Cause]) -> Result<(), StatusError> {
    if causes.is_empty() {
        Ok(())
    } else {
        Err(StatusError::invalid_options(causes))
    }
}

pub(crate) fn parse_version(text: &str) -> Result<u64, String> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().map_err(|_| {
        format!("resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: parsing \"{text}\": invalid syntax")
    })
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
    let requested = options
        .version()
        .map_err(|why| StatusError::bad_request(format!("invalid resource version: {why}")))?;
    let current = store.version();
    let mut limit = Some(options.limit).filter(|&limit| limit > 0);
    let mut start = None;
    let mut version = current;
    if !options.token.is_empty() {
        if requested > 0 {
            let message = "specifying resource version is not allowed when using continue";
            return Err(StatusError::bad_request(message));
        }
        let token = Token::decode(&options.token)
            .map_err(|why| StatusError::bad_request(format!("invalid continue token: {why}")))?;
        if token.version >= 0 {
            version = token.version.unsigned_abs();
            if version > current {
                return Err(StatusError::too_large_resource_version(version, current));
            }
            if version < store.floor() {
                let inconsistent = Token {
                    version: -1,
                    start: token.start,
                };
                return Err(StatusError::continue_expired(inconsistent.encode()));
            }
        }
        start = Some(token.start);
    } else if requested > current {
        return Err(StatusError::too_large_resource_version(requested, current));
    } else if options.version_match == "Exact"
        || options.version_match.is_empty() && requested > 0 && limit.is_some()
    {
        if requested < store.floor() {
            return Err(StatusError::list_expired());
        }
        version = requested;
    } else if options.resource_version == "0" {
        // The watch cache returns the whole list, whatever the limit.
        limit = None;
    }

    let all = store.snapshot(prefix, version);
    let name = |key: &str| key[prefix.len()..].to_owned();
    let start = start.map_or(0, |start| {
        all.partition_point(|(key, _)| key[prefix.len()..] < *start)
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
        && let (Some((last, _)), Ok(at)) = (selected.last(), i64::try_from(version))
    {
        let token = Token {
            version: at,
            start: name(last) + "\0",
        };
        page.token = Some(token.encode());
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

/// A continue token. It is opaque to clients. The content is base64 of JSON, as in kube-apiserver.
#[derive(Debug, PartialEq)]
struct Token {
    /// The version of the list, or -1 for the current version.
    version: i64,
    /// The lower bound of the names on the next page: the last name of this page and a zero byte. A
    /// name includes the namespace if the list covers all namespaces.
    start: String,
}

impl Token {
    fn encode(&self) -> String {
        // As in kube-apiserver, the slash is only present if the version is.
        let slash = if self.version < 0 { "" } else { "/" };
        let start = serde_json::Value::from(format!("{slash}{}", self.start));
        let json = format!(
            r#"{{"v":"meta.k8s.io/v1","rv":{},"start":{start}}}"#,
            self.version
        );
        base64url(json.as_bytes())
    }

    fn decode(text: &str) -> Result<Self, String> {
        let not_valid = |why: &str| format!("continue key is not valid: {why}");
        let bytes = base64url_decode(text).ok_or_else(|| not_valid("illegal base64 data"))?;
        let token: serde_json::Value =
            serde_json::from_slice(&bytes).map_err(|error| not_valid(&error.to_string()))?;
        let encoding = token["v"].as_str().unwrap_or_default();
        if encoding != "meta.k8s.io/v1" {
            return Err(not_valid(&format!(
                "server does not recognize this encoded version {encoding}"
            )));
        }
        let version = token["rv"]
            .as_i64()
            .filter(|&version| version == -1 || version > 0);
        let version = version.ok_or_else(|| {
            not_valid("incorrect encoded start resourceVersion (version meta.k8s.io/v1)")
        })?;
        match token["start"].as_str() {
            None | Some("") => Err(not_valid(
                "encoded start key empty (version meta.k8s.io/v1)",
            )),
            Some(start) => Ok(Self {
                version,
                start: start.strip_prefix('/').unwrap_or(start).to_owned(),
            }),
        }
    }
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Encodes URL-safe base64 without padding. The base64 crate is only available with feature
/// `client`.
fn base64url(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = group
            .iter()
            .fold(0_u32, |bits, &b| bits << 8 | u32::from(b))
            << (8 * (3 - group.len()));
        for index in 0..=group.len() {
            text.push(char::from(
                ALPHABET[(bits >> (18 - 6 * index) & 63) as usize],
            ));
        }
    }
    text
}

fn base64url_decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for group in text.as_bytes().chunks(4) {
        let mut bits = 0_u32;
        for &letter in group {
            bits = bits << 6 | ALPHABET.iter().position(|&a| a == letter)? as u32;
        }
        bits <<= 6 * (4 - group.len());
        let [_, all @ ..] = bits.to_be_bytes();
        bytes.extend_from_slice(&all[..group.len().checked_sub(1).filter(|&count| count > 0)?]);
    }
    Some(bytes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn continue_tokens_round_trip_as_in_kube_apiserver() {
        for start in ["a\0", "ns/a\0", "", "ab", "abc"] {
            let token = Token {
                version: 257,
                start: start.to_owned(),
            };
            match Token::decode(&token.encode()) {
                Ok(back) => assert_eq!(back, token),
                Err(why) => panic!("{start:?}: {why}"),
            }
        }
        let real = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MjU3LCJzdGFydCI6Ii9jbS0wOVx1MDAwMCJ9";
        assert_eq!(
            Token::decode(real),
            Ok(Token {
                version: 257,
                start: "cm-09\0".to_owned()
            })
        );
        assert_eq!(
            Token {
                version: 257,
                start: "cm-09\0".to_owned()
            }
            .encode(),
            real
        );
        let inconsistent = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiY20tMDlcdTAwMDAifQ";
        assert_eq!(
            Token::decode(inconsistent),
            Ok(Token {
                version: -1,
                start: "cm-09\0".to_owned()
            })
        );
        assert_eq!(
            Token {
                version: -1,
                start: "cm-09\0".to_owned()
            }
            .encode(),
            inconsistent
        );
    }

    #[test]
    fn invalid_continue_tokens_are_rejected() {
        for garbage in ["garbage", "!", "a", "e30", "eyJ2IjoieCJ9", "ä"] {
            let error = Token::decode(garbage).unwrap_err();
            assert!(
                error.starts_with("continue key is not valid: "),
                "{garbage}: {error}"
            );
        }
    }
}
