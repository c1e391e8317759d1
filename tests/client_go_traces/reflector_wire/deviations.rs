//! Finds the first step of a trace that depends on a deviation.

use std::collections::BTreeSet;

use serde_json::Value;

/// Returns the rules that steps depend on but do not name.
pub(super) fn own(steps: &[Value]) -> Vec<Option<&'static str>> {
    let mut before = Before::default();
    steps.iter().map(|step| before.rule(step)).collect()
}

/// Returns the number of steps before the first one that deliberately differs.
pub(super) fn cut(
    steps: &[Value],
    own: &[Option<&'static str>],
    deviations: &BTreeSet<String>,
) -> usize {
    let differs = |(step, own): (&Value, &Option<&'static str>)| {
        let quirks = step["quirks"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        quirks.chain(*own).any(|rule| deviations.contains(rule))
    };
    steps
        .iter()
        .zip(own)
        .position(differs)
        .unwrap_or(steps.len())
}

/// The relevant results of the previous steps.
#[derive(Default)]
struct Before {
    /// The server rejected a watch-list as unsupported.
    refused: bool,
    /// The last version is unavailable, so the most recent version is requested.
    unavailable: bool,
    /// The number of consecutive watches that ended within a second.
    short_watches: u32,
    /// A list or a watch at a version was rejected as a bad request.
    version_refused: bool,
    /// A watch-list failed with a Retry-After.
    told_to_wait: bool,
}

impl Before {
    fn rule(&mut self, step: &Value) -> Option<&'static str> {
        let Self {
            refused,
            unavailable,
            short_watches,
            version_refused,
            told_to_wait,
        } = *self;
        let request = &step["want"]["request"];
        let (query, response) = (&request["query"], &step["response"]);
        let is_watch_list = query["sendInitialEvents"] == "true";
        let at_once = request["after"] == "now";
        let is_most_recent = query["resourceVersion"].is_null() && query["continue"].is_null();
        let is_list = request["kind"] == "list";
        let version = query["resourceVersion"].as_str().unwrap_or("0");
        let is_page_at_a_version = version != "0" && query["limit"].is_string();

        let calls = step["want"]["store"]
            .as_array()
            .map_or(&[][..], Vec::as_slice);
        let replaced = |fails: bool| {
            calls
                .iter()
                .any(|call| call["call"] == "replace" && (call["error"] == true) == fails)
        };
        let is_snapshot_refused = is_watch_list && replaced(true);
        let fails = is_watch_list && !replaced(false);
        let status = failure(response).filter(|_| fails);

        self.refused |= status
            .as_ref()
            .is_some_and(|status| matches!(code(status, response), 400 | 422));
        self.unavailable |= is_most_recent && (is_list || is_watch_list && at_once);
        self.unavailable &= !replaced(false);
        self.short_watches = match () {
            () if !is_over_within_a_second(response) => 0,
            () if is_list || is_watch_list => 1,
            () => short_watches + 1,
        };
        self.version_refused = !is_watch_list
            && version != "0"
            && failure(response)
                .is_some_and(|status| [400, 414, 422, 431].contains(&code(&status, response)));
        self.told_to_wait = status.is_some_and(|it| {
            it["details"]["retryAfterSeconds"]
                .as_u64()
                .is_some_and(|it| it > 0)
        });
        match () {
            // This crate does not soon repeat a watch-list that was rejected.
            () if is_watch_list && refused => Some("L6"),
            // After a watch-list at the most recent version fails, this crate sends a LIST.
            () if is_watch_list && at_once && is_most_recent && unavailable => Some("WL8"),
            // If the store rejects the snapshot, this crate closes the stream and notifies the
            // error handler.
            () if is_snapshot_refused => Some("WL6"),
            () if is_list && at_once && told_to_wait => Some("W3"),
            // This crate lists the most recent state instead of requesting a rejected version
            // again.
            () if version_refused => Some("L8"),
            // This crate reopens at most five consecutive short watches at once.
            () if !is_list && at_once && short_watches > 5 => Some("W4"),
            // This crate requests a page at a version with a `resourceVersionMatch`.
            () if is_list && is_page_at_a_version => Some("L9"),
            // This crate omits objects without a name, even if they have a namespace.
            () if has_nameless_item(response) => Some("W9"),
            () => None,
        }
    }
}

fn is_over_within_a_second(response: &Value) -> bool {
    let delays = response["stream"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|item| item["pause_ms"].as_u64());
    delays.sum::<u64>() < 1000
}

/// Returns the `Status` of a failed request or of a stream that ended with an error.
fn failure(response: &Value) -> Option<Value> {
    if response["status"]
        .as_u64()
        .is_some_and(|status| status >= 400)
    {
        let body = response["body"].as_str().unwrap_or_default();
        return Some(serde_json::from_str(body).unwrap_or_default());
    }
    let lines = response["stream"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|item| item["line"].as_str());
    let mut events = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    events
        .find(|event| event["type"] == "ERROR")
        .map(|event| event["object"].clone())
}

fn code(status: &Value, response: &Value) -> u64 {
    let code = status["code"].as_u64().or(response["status"].as_u64());
    code.unwrap_or_default()
}

fn has_nameless_item(response: &Value) -> bool {
    let list: Value =
        serde_json::from_str(response["body"].as_str().unwrap_or_default()).unwrap_or_default();
    let mut items = list["items"].as_array().into_iter().flatten();
    items.any(|item| {
        item["metadata"].is_object() && item["metadata"]["name"].as_str().is_none_or(str::is_empty)
    })
}
