//! The failure that a server reports, as a `Status` in any form. Nothing panics, the error has the
//! values of the body, and a reflector reacts to the reason or the code.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arbitrary::Unstructured;
use k8s_informer::error::Status;
use k8s_informer::object::ResourceVersion;
use k8s_informer::reflector::{Body, ListOptions, ListWatch, Reflector, ReflectorOptions};
use k8s_informer::time::Clock;
use k8s_informer::{DynamicObject, Error, Indexer, Stop, Stopper};
use serde_json::{Value, json};

use super::serving::{KNOWN, plain, text};

pub fn run(input: &[u8]) {
    let mut bytes = Unstructured::new(input);
    let Ok(raw) = bytes.arbitrary::<bool>() else {
        return;
    };
    let body = if raw {
        bytes.take_rest().to_vec()
    } else {
        made(&mut bytes).unwrap_or_default()
    };
    if let Ok(status) = serde_json::from_slice::<Status>(&body) {
        let error = check(&body, &status);
        for position in [Position::List, Position::Watch] {
            follow(position, &error, &body);
        }
    }
    // As the object of an ERROR event, check only JSON objects on one line: other bodies are not
    // valid there. `plain` also rejects duplicate keys, whose meaning is undefined.
    if plain(&body).is_some_and(|value| value.is_object()) && !body.contains(&b'\n') {
        let status: Status = serde_json::from_slice(&body).unwrap_or_default();
        let is_status =
            serde_json::from_slice::<Value>(&body).is_ok_and(|value| value["kind"] == "Status");
        follow(
            Position::Event,
            &Error::from_status(if is_status { status } else { Status::default() }),
            &body,
        );
    }
}

/// The reasons of apimachinery that the targets generate.
const KNOWN_REASONS: [&str; 10] = [
    "Expired",
    "Gone",
    "TooManyRequests",
    "InternalError",
    "Timeout",
    "Conflict",
    "NotFound",
    "Invalid",
    "BadRequest",
    "ServerTimeout",
];

/// Checks the accessors of the error.
fn check(body: &[u8], status: &Status) -> Error {
    let error = Error::from_status(status.clone());
    let seconds = status
        .details
        .as_ref()
        .map_or(0, |details| details.retry_after_seconds);
    assert_eq!(
        error.retry_after(),
        (seconds > 0).then(|| Duration::from_secs(seconds.into()))
    );
    assert_eq!(error.status(), Some(status));
    assert!(!format!("{error} {error:?} {status} {status:?}").is_empty());
    // A message is shown as one line of limited length, and a plain message is shown unchanged.
    let is_plain = |message: &str| {
        message.len() <= 1024 && message.bytes().all(|byte| matches!(byte, b' '..=b'~'))
    };
    let shown = error.to_string();
    assert!(
        !shown.chars().any(char::is_control) && shown.chars().count() < 5000,
        "{shown}"
    );
    assert!(
        !is_plain(&status.message) || shown.contains(&status.message),
        "{shown}"
    );
    // The reason decides if Kubernetes defines it. Otherwise, the code decides.
    let is = |code, reason: &str| match status.reason.as_str() {
        known if KNOWN_REASONS.contains(&known) => known == reason,
        _ => status.code == code,
    };
    assert_eq!(error.is_gone(), is(410, "Gone") || is(410, "Expired"));
    assert_eq!(error.is_not_found(), is(404, "NotFound"));
    assert_eq!(error.is_conflict(), is(409, "Conflict"));
    assert_eq!(error.is_already_exists(), status.reason == "AlreadyExists");
    assert_eq!(error.is_invalid(), is(422, "Invalid"));
    assert_eq!(error.is_bad_request(), is(400, "BadRequest"));
    assert_eq!(error.is_forbidden(), is(403, "Forbidden"));
    assert_eq!(error.is_unauthorized(), is(401, "Unauthorized"));
    let is_too_many = status.code == 429 || status.reason == "TooManyRequests";
    assert_eq!(error.is_too_many_requests(), is_too_many);
    assert_eq!(error.is_internal_error(), is(500, "InternalError"));
    assert_eq!(error.is_timeout(), is(504, "Timeout"));
    let others = error.is_connection() || error.is_tls() || error.is_decode() || error.is_config();
    assert!(!others && !error.is_stopped() && !error.is_connection_refused());
    assert!(error.is_retryable() || !error.is_too_many_requests() && !error.is_internal_error());
    // The `Status` survives serialization and has the values of the body.
    let written = serde_json::to_vec(status).expect("a Status can be serialized");
    assert_eq!(
        serde_json::from_slice::<Status>(&written).ok().as_ref(),
        Some(status)
    );
    if let Some(value) = plain(body).filter(Value::is_object) {
        assert_eq!(
            (text(&value, "/reason"), text(&value, "/message")),
            (&*status.reason, &*status.message)
        );
        // A number out of range means nothing.
        let number = |value: &Value| value.as_i64().unwrap_or_default();
        assert_eq!(
            u16::try_from(number(&value["code"])).unwrap_or_default(),
            status.code
        );
        let after = &value["details"]["retryAfterSeconds"];
        assert_eq!(u32::try_from(number(after)).unwrap_or_default(), seconds);
    }
    error
}

/// Where the failure occurs.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Position {
    List,
    Watch,
    Event,
}

/// An action of the reflector.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    List(Option<ResourceVersion>),
    Watch(Option<ResourceVersion>),
    Wait(Duration),
}

/// Records the actions, and stops the reflector after five.
#[derive(Clone)]
struct Notes {
    steps: Arc<Mutex<Vec<Step>>>,
    stop: Stopper,
    begin: Instant,
}

impl Notes {
    fn note(&self, step: Step) {
        let mut steps = self.steps.lock().unwrap();
        steps.push(step);
        if steps.len() >= 5 {
            self.stop.stop();
        }
    }
}

impl Clock for Notes {
    fn now(&self) -> Instant {
        self.begin
    }

    fn wait(&self, duration: Duration, stop: &Stop) -> bool {
        self.note(Step::Wait(duration));
        !stop.is_stopped()
    }
}

fn follow(position: Position, error: &Error, body: &[u8]) {
    let stop = Stopper::new();
    let notes = Notes {
        steps: Arc::default(),
        stop: stop.clone(),
        begin: Instant::now(),
    };
    let list = {
        let (error, notes, lists) = (error.clone(), notes.clone(), AtomicUsize::new(0));
        move |options: &ListOptions, _: &Stop| {
            notes.note(Step::List(options.resource_version.clone()));
            match lists.fetch_add(1, Ordering::Relaxed) {
                0 if position == Position::List => Err(error.clone()),
                _ => Ok(Body::from(KNOWN)),
            }
        }
    };
    let watch = {
        let (error, notes, watches) = (error.clone(), notes.clone(), AtomicUsize::new(0));
        let frame = [b"{\"type\":\"ERROR\",\"object\":", body, b"}\n"].concat();
        move |options: &ListOptions, _: &Stop| {
            notes.note(Step::Watch(options.resource_version.clone()));
            match watches.fetch_add(1, Ordering::Relaxed) {
                0 if position == Position::Event => Ok(Body::from(frame.clone())),
                0 if position == Position::Watch => Err(error.clone()),
                _ => Ok(Body::from("{\"type\":\"BOOKMARK\",\"object\":{}}")),
            }
        }
    };
    let store = Arc::new(Indexer::<DynamicObject>::for_objects());
    let mut options = ReflectorOptions::default();
    options.clock = Arc::new(notes.clone());
    Reflector::new(
        Arc::new(ListWatch::new(list, watch)),
        store.clone(),
        options,
    )
    .run(&stop);

    let mut steps = notes.steps.lock().unwrap().clone();
    let mut wait = None;
    steps.retain(|step| match step {
        Step::Wait(duration) => {
            wait = wait.or(Some(*duration));
            false
        }
        _ => true,
    });
    let version = ResourceVersion::new;
    let (first, second) = (Step::List(version("0")), Step::Watch(version("5")));
    let relist = Step::List(version("5"));
    let recent = error.is_gone() || error.is_too_large_resource_version();
    let code = error.status().map_or(0, |status| status.code);
    let unacceptable = error.is_bad_request() || error.is_invalid() || matches!(code, 414 | 431);
    let expected = match position {
        Position::List if recent => vec![first, Step::List(None), second],
        Position::List => vec![first.clone(), first, second],
        _ if error.is_too_many_requests() => vec![first, second.clone(), second],
        _ if unacceptable => vec![first, second, Step::List(None)],
        _ => vec![first, second, relist],
    };
    assert!(
        steps.starts_with(&expected),
        "after {error} in a {position:?}: {steps:?}"
    );
    if position == Position::List && recent {
        assert_eq!(wait, None, "expected an immediate retry");
    } else {
        let wait = wait.expect("the reflector waits");
        let retry_after = error
            .retry_after()
            .unwrap_or_default()
            .min(Duration::from_secs(600));
        assert!(
            wait >= retry_after.max(Duration::from_millis(800)),
            "{wait:?}"
        );
        assert!(wait <= retry_after.max(Duration::from_secs(60)), "{wait:?}");
    }
    assert_eq!(
        store.list_keys().len(),
        3,
        "the cache must keep all objects"
    );
}

/// Generates a mostly valid failure of an API server.
fn made(bytes: &mut Unstructured<'_>) -> arbitrary::Result<Vec<u8>> {
    const REASONS: [&str; 12] = [
        "",
        "Expired",
        "Gone",
        "TooManyRequests",
        "InternalError",
        "Timeout",
        "Conflict",
        "NotFound",
        "Invalid",
        "BadRequest",
        "ServerTimeout",
        "Other",
    ];
    const CODES: [i64; 12] = [0, 200, 400, 404, 409, 410, 422, 429, 500, 504, -1, 65536];
    const CAUSES: [&str; 3] = ["ResourceVersionTooLarge", "FieldValueInvalid", ""];
    const MESSAGES: [&str; 4] = [
        "Too large resource version",
        "Too large resource version: 9, current: 5",
        "",
        "\u{1f}\"é",
    ];
    const SECONDS: [i64; 6] = [0, 1, 61, 4_294_967_295, 4_294_967_296, -1];
    let mut status =
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"});
    status["reason"] = (*bytes.choose(&REASONS[..])?).into();
    status["code"] = (*bytes.choose(&CODES[..])?).into();
    status["message"] = (*bytes.choose(&MESSAGES[..])?).into();
    if bytes.arbitrary()? {
        let cause =
            json!({"reason": bytes.choose(&CAUSES[..])?, "message": bytes.choose(&MESSAGES[..])?});
        status["details"] = json!({"causes": [cause], "name": "a"});
        if bytes.arbitrary()? {
            status["details"]["retryAfterSeconds"] = (*bytes.choose(&SECONDS[..])?).into();
        }
    }
    if bytes.ratio(1, 8)? {
        let field = *bytes.choose(&["kind", "message", "code", "details", "reason"])?;
        status[field] = bytes
            .choose(&[Value::Null, json!(7), json!("x"), json!([]), json!({})])?
            .clone();
    }
    Ok(status.to_string().into_bytes())
}
