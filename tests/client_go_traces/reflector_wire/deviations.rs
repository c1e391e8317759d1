//! Where a trace leaves the road: the first step that depends on a rule in DEVIATIONS.md.

use std::collections::BTreeSet;

use serde_json::Value;

/// The rules that steps depend on although they do not name them.
pub(super) fn own(steps: &[Value]) -> Vec<Option<&'static str>> {
    let mut before = Before::default();
    steps.iter().map(|step| before.rule(step)).collect()
}

/// How many steps there are before the first one that differs on purpose.
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

/// What the steps so far have brought.
#[derive(Default)]
struct Before {
    /// A watch-list was refused as something that the server does not know.
    refused: bool,
    /// The last version can't be had: the most recent one is asked for.
    unavailable: bool,
    /// How many watches in a row were over within a second.
    short_watches: u32,
    /// A list or a watch at a version was refused as a bad request.
    version_refused: bool,
    /// A watch-list failed, and the server said how long to wait.
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
            // Who was told that there is no watch-list does not ask for one again soon.
            () if is_watch_list && refused => Some("L6"),
            // Who asked for the most recent one in vain lists.
            () if is_watch_list && at_once && is_most_recent && unavailable => Some("WL8"),
            // A store that refuses the snapshot ends the stream, and the handler is told.
            () if is_snapshot_refused => Some("WL6"),
            () if is_list && at_once && told_to_wait => Some("W3"),
            // A version that was refused is not asked for again.
            () if version_refused => Some("L8"),
            // Not every short watch is opened again at once.
            () if !is_list && at_once && short_watches > 5 => Some("W4"),
            // A page at a version is asked for with a match.
            () if is_list && is_page_at_a_version => Some("L9"),
            // Also a nameless item that has a namespace.
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

/// The `Status` that a request failed with, or its stream ended.
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
