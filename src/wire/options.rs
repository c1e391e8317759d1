use std::time::Duration;

use crate::text::{UNRESERVED, percent_encoded};

/// A server ends a watch on time. A watch that is silent for this much longer is dead.
pub(crate) const WATCH_SLACK: Duration = Duration::from_secs(30);

/// The options of a LIST or a WATCH: `metav1.ListOptions`.
///
/// A field that is `None`, empty or false is not sent.
///
/// ```
/// use k8s_informer::reflector::ListOptions;
///
/// let mut options = ListOptions::default();
/// options.label_selector = "app in (web, db)".into();
/// options.resource_version = Some("0".into());
/// options.limit = Some(500);
/// assert_eq!(options.to_query(), "labelSelector=app%20in%20%28web%2C%20db%29&resourceVersion=0&limit=500");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListOptions {
    /// Only objects whose labels match.
    pub label_selector: String,
    /// Only objects whose fields match.
    pub field_selector: String,
    /// Only objects of these shards, as [`Shard::selector`](crate::reflector::Shard::selector) says it. A server whose
    /// feature gate `ShardedListAndWatch` is off, as it is by default, does not look at it (SH4).
    pub shard_selector: String,
    /// Which state to list, or from which on to watch. `None` asks for the most recent one, `"0"` for any
    /// that the server has at hand.
    pub resource_version: Option<String>,
    /// How a LIST reads `resource_version`. With `None`, a version other than `"0"` means exactly that state if
    /// there is a `limit`, and that state or a newer one if there is none. Servers reject it on a request
    /// with a `continue_token`, and on one without a `resource_version`.
    pub resource_version_match: Option<ResourceVersionMatch>,
    /// At most this many objects in one answer.
    pub limit: Option<u32>,
    /// Where the page before ended.
    pub continue_token: Option<String>,
    /// After how many seconds the server ends a watch.
    pub timeout_seconds: Option<u32>,
    /// The server may send its resourceVersion now and then while nothing happens.
    pub allow_watch_bookmarks: bool,
    /// The watch starts with the objects that are there, and a bookmark that says where they end
    /// (watch-list).
    pub send_initial_events: bool,
}

/// How the resourceVersion of a LIST is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResourceVersionMatch {
    /// A state as new as that, or newer.
    NotOlderThan,
    /// Just that state.
    Exact,
}

impl ResourceVersionMatch {
    /// As it stands in a query.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotOlderThan => "NotOlderThan",
            Self::Exact => "Exact",
        }
    }
}

impl ListOptions {
    /// The query of a LIST, percent-encoded, without the question mark. A watch has `watch=true` besides.
    pub fn to_query(&self) -> String {
        // Destructured so that a new field can't be forgotten.
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
        let mut query = Query::default();
        query.text("labelSelector", label_selector);
        query.text("fieldSelector", field_selector);
        query.text("shardSelector", shard_selector);
        query.text(
            "resourceVersion",
            resource_version.as_deref().unwrap_or_default(),
        );
        query.text(
            "resourceVersionMatch",
            resource_version_match.map_or("", ResourceVersionMatch::as_str),
        );
        query.number("limit", *limit);
        query.text("continue", continue_token.as_deref().unwrap_or_default());
        query.number("timeoutSeconds", *timeout_seconds);
        query.flag("allowWatchBookmarks", *allow_watch_bookmarks);
        query.flag("sendInitialEvents", *send_initial_events);
        query.0
    }

    /// The query of a WATCH, percent-encoded, without the question mark.
    pub fn to_watch_query(&self) -> String {
        match self.to_query() {
            query if query.is_empty() => "watch=true".to_owned(),
            query => format!("watch=true&{query}"),
        }
    }
}

#[derive(Default)]
struct Query(String);

impl Query {
    fn text(&mut self, key: &str, value: &str) {
        if value.is_empty() {
            return;
        }
        if !self.0.is_empty() {
            self.0.push('&');
        }
        self.0.push_str(key);
        self.0.push('=');
        self.0.push_str(&percent_encoded(value, UNRESERVED));
    }

    fn number(&mut self, key: &str, value: Option<u32>) {
        if let Some(value) = value {
            self.text(key, &value.to_string());
        }
    }

    fn flag(&mut self, key: &str, value: bool) {
        if value {
            self.text(key, "true");
        }
    }
}
