use std::time::Duration;

use crate::base::derive::setters;
use crate::base::text::{UNRESERVED, percent_encoded};
use crate::resource_version::ResourceVersion;

/// How long a watch may stay silent after the time at which the server should have ended it. After
/// that, the connection counts as dead.
pub(crate) const WATCH_SLACK: Duration = Duration::from_secs(30);

/// The options of a LIST or WATCH request: `metav1.ListOptions`.
///
/// A field that is `None` or `false` is not sent.
///
/// ```
/// use k8s_informer::object::ResourceVersion;
/// use k8s_informer::reflector::ListOptions;
///
/// let options = ListOptions::new()
///     .label_selector("app in (web, db)")
///     .resource_version(ResourceVersion::new("0"))
///     .limit(500);
/// assert_eq!(options.to_query(), "labelSelector=app%20in%20%28web%2C%20db%29&resourceVersion=0&limit=500");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListOptions {
    /// Selects objects by label.
    pub label_selector: Option<String>,
    /// Selects objects by field.
    pub field_selector: Option<String>,
    /// Selects the objects of one or more shards, in the form that
    /// [`Shard::selector`](crate::reflector::Shard::selector) returns. A server ignores it if its
    /// feature gate `ShardedListAndWatch` is off, which is the default.
    pub shard_selector: Option<String>,
    /// The state to list, or the state to start watching from. `None` requests the most recent
    /// state, and `"0"` any state that the server has available.
    pub resource_version: Option<ResourceVersion>,
    /// How a LIST interprets `resource_version`. With `None`, a version other than `"0"` means
    /// exactly that state if there is a `limit`; without a `limit`, it means that state or a newer
    /// one. Servers reject the field on a request with a `continue_token`, and on a request without
    /// a `resource_version`.
    pub resource_version_match: Option<ResourceVersionMatch>,
    /// The maximum number of objects in one response.
    pub limit: Option<u32>,
    /// The token from the previous page, which requests the next one.
    pub continue_token: Option<String>,
    /// The number of seconds after which the server ends a watch.
    pub timeout_seconds: Option<u32>,
    /// Whether the server may send bookmarks, which carry its resource version, while nothing
    /// changes.
    pub allow_watch_bookmarks: bool,
    /// Whether a watch starts with the existing objects, followed by a bookmark that marks their
    /// end (watch-list).
    pub send_initial_events: bool,
}

/// How a LIST interprets its resource version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResourceVersionMatch {
    /// The state at the resource version, or a newer one.
    NotOlderThan,
    /// Exactly the state at the resource version.
    Exact,
}

impl ResourceVersionMatch {
    /// Returns the value of the query parameter.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotOlderThan => "NotOlderThan",
            Self::Exact => "Exact",
        }
    }
}

impl ListOptions {
    /// Creates options that select the most recent state of all objects.
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// Selects objects by label, for example `app=web`.
        label_selector(selector: impl Into<String>) = Some(selector.into());
        /// Selects objects by field, for example `metadata.name=web`.
        field_selector(selector: impl Into<String>) = Some(selector.into());
        /// Selects the objects of shards. See the [field](Self#structfield.shard_selector).
        shard_selector(selector: impl Into<String>) = Some(selector.into());
        /// Sets the state to list, or to start watching from.
        resource_version(version: impl Into<Option<ResourceVersion>>) = version.into();
        /// Sets how a LIST interprets the resource version.
        resource_version_match(which: ResourceVersionMatch) = Some(which);
        /// Sets the maximum number of objects in one response.
        limit(objects: u32) = Some(objects);
        /// Sets the token from the previous page.
        continue_token(token: impl Into<String>) = Some(token.into());
        /// Sets the number of seconds after which the server ends a watch.
        timeout_seconds(seconds: u32) = Some(seconds);
        /// Sets whether the server may send bookmarks.
        allow_watch_bookmarks(allow: bool) = allow;
        /// Sets whether a watch starts with the existing objects.
        send_initial_events(send: bool) = send;
    }

    /// Returns the query of a LIST, percent-encoded and without the question mark. The query of a
    /// WATCH also has `watch=true`.
    pub fn to_query(&self) -> String {
        // Destructured, so that a new field cannot be forgotten.
        let Self {
            label_selector,
            field_selector,
            shard_selector,
            resource_version,
            resource_version_match,
            limit,
            continue_token,
            timeout_seconds,
            allow_watch_bookmarks,
            send_initial_events,
        } = self;
        fn text(value: &Option<String>) -> &str {
            value.as_deref().unwrap_or_default()
        }
        let number = |number: &Option<u32>| number.map(|it| it.to_string()).unwrap_or_default();
        let flag = |flag: &bool| if *flag { "true" } else { "" };
        let pairs = [
            ("labelSelector", text(label_selector)),
            ("fieldSelector", text(field_selector)),
            ("shardSelector", text(shard_selector)),
            (
                "resourceVersion",
                &*ResourceVersion::text(resource_version.as_ref()),
            ),
            (
                "resourceVersionMatch",
                resource_version_match.map_or("", ResourceVersionMatch::as_str),
            ),
            ("limit", &number(limit)),
            ("continue", text(continue_token)),
            ("timeoutSeconds", &number(timeout_seconds)),
            ("allowWatchBookmarks", flag(allow_watch_bookmarks)),
            ("sendInitialEvents", flag(send_initial_events)),
        ];
        let set = pairs.into_iter().filter(|(_, value)| !value.is_empty());
        let pair = |(key, value)| format!("{key}={}", percent_encoded(value, UNRESERVED));
        set.map(pair).collect::<Vec<_>>().join("&")
    }

    /// Returns the query of a WATCH, percent-encoded and without the question mark.
    pub fn to_watch_query(&self) -> String {
        match self.to_query() {
            query if query.is_empty() => "watch=true".to_owned(),
            query => format!("watch=true&{query}"),
        }
    }
}
