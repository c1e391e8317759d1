//! Waits for a state of one object, with faults and with virtual time.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use k8s_informer::client::KubeconfigOptions;
use k8s_informer::client::api::{Api, DeleteOptions, Patch};
use k8s_informer::error::WaitError;
use k8s_informer::object::GroupVersionResource;
use k8s_informer::{Client, Config, DynamicObject, Object, ObjectMeta, Stop, Stopper, impl_object};
use k8s_informer_testing::{ApiResource, ApiServer, FakeClock, Fault, Verb};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use serde::Deserialize;
use serde_json::{Value, json};

/// Only a broken test waits this long.
const TIMEOUT: Duration = Duration::from_secs(20);
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

/// A type without a status.
#[derive(Deserialize)]
struct Slim {
    metadata: ObjectMeta,
}
impl_object!(Slim, "example.com/v1", "Widget", "widgets", Namespaced);

/// A server with widgets, and a client whose back-offs and timeouts need a fake clock to advance.
pub(crate) struct World {
    pub(crate) server: ApiServer,
    pub(crate) clock: FakeClock,
    pub(crate) client: Client,
    pub(crate) stop: Stopper,
}

impl World {
    pub(crate) fn new() -> Self {
        let widgets = ApiResource::new("example.com", "v1", "widgets", "Widget");
        let server = ApiServer::builder().resource(widgets).start().unwrap();
        let clock = FakeClock::new();
        let config = Config::new(server.url()).clock(Arc::new(clock.clone()));
        let client = Client::new(config).unwrap();
        Self {
            server,
            clock,
            client,
            stop: Stopper::new(),
        }
    }

    fn maps(&self) -> Api<ConfigMap> {
        self.client.api(Some("default"))
    }

    fn widgets(&self) -> Api<DynamicObject> {
        let widgets = GroupVersionResource::new("example.com", "v1", "widgets");
        self.client.dynamic_api(&widgets, Some("default"))
    }

    fn create_map(&self, color: &str) {
        let map = json!({"metadata": {"name": "a"}, "data": {"color": color}});
        self.server.create(MAPS, map).unwrap();
    }

    fn set_color(&self, color: &str) {
        let patch = json!({"data": {"color": color}});
        self.server.patch(&format!("{MAPS}/a"), patch).unwrap();
    }

    /// Waits until this many waits of the clock have begun, and lets the last one end.
    pub(crate) fn end_wait(&self, number: usize) -> Duration {
        self.clock.wait_for_waits(number, TIMEOUT).unwrap();
        let wait = self.clock.waits()[number - 1];
        self.clock.advance(wait);
        wait
    }

    fn watch_is_open(&self) {
        self.server.wait_for_watches(1, TIMEOUT).unwrap();
    }

    /// Breaks the open watch, and waits until the server has closed it.
    fn break_watch(&self, number: usize, how: impl FnOnce() -> usize) {
        self.watch_is_open();
        assert_eq!(how(), 1);
        self.clock.wait_for_waits(number, TIMEOUT).unwrap();
        self.server.wait_for_watches(0, TIMEOUT).unwrap();
    }

    /// Runs `wait` on a thread, and `meanwhile` on this one. Returns the result of `wait`.
    fn during<R: Send>(&self, wait: impl FnOnce(&Self) -> R + Send, meanwhile: impl FnOnce()) -> R {
        let (sender, result) = channel();
        thread::scope(|scope| {
            scope.spawn(move || {
                // Without a receiver, the test has failed.
                let _ = sender.send(wait(self));
            });
            // If `meanwhile` panics, the wait must end.
            let guard = StopOnDrop(&self.stop);
            meanwhile();
            let result = result.recv_timeout(TIMEOUT).expect("the wait did not end");
            std::mem::forget(guard);
            result
        })
    }
}

struct StopOnDrop<'a>(&'a Stopper);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

fn color(map: Option<&ConfigMap>) -> Option<&str> {
    map?.data.as_ref()?.get("color").map(String::as_str)
}

/// A condition that reports what it sees.
fn reporting(
    until: &'static str,
) -> (
    impl FnMut(Option<&ConfigMap>) -> bool + Send,
    Receiver<Option<String>>,
) {
    let (sender, seen): (Sender<Option<String>>, _) = channel();
    let condition = move |map: Option<&ConfigMap>| {
        let color = color(map).map(str::to_owned);
        let _ = sender.send(color.clone());
        color.as_deref() == Some(until)
    };
    (condition, seen)
}

fn wait_for_red(world: &World) -> Result<String, WaitError> {
    let is_red = |map: Option<&ConfigMap>| color(map) == Some("red");
    let map = world.maps().wait_for("a", is_red, None, &world.stop)?;
    Ok(map.unwrap().resource_version().to_owned())
}

#[test]
fn wait_for_passes_each_state_until_the_condition_holds() {
    let world = World::new();
    let (condition, seen) = reporting("red");
    let next = || seen.recv_timeout(TIMEOUT).unwrap();
    let other = json!({"metadata": {"name": "b"}, "data": {"color": "red"}});
    world.server.create(MAPS, other).unwrap();
    let map = world.during(
        |world| world.maps().wait_for("a", condition, None, &world.stop),
        || {
            assert_eq!(next(), None);
            world.create_map("blue");
            assert_eq!(next().as_deref(), Some("blue"));
            world.server.delete(&format!("{MAPS}/a")).unwrap();
            assert_eq!(next(), None);
            world.create_map("green");
            assert_eq!(next().as_deref(), Some("green"));
            world.set_color("red");
            assert_eq!(next().as_deref(), Some("red"));
        },
    );
    assert_eq!(color(map.unwrap().as_deref()), Some("red"));
    let absent = world
        .maps()
        .wait_for("c", |map| map.is_none(), None, &world.stop);
    assert!(absent.unwrap().is_none());
    let requests = world.server.requests();
    let selects = |request: &k8s_informer_testing::RequestRecord| {
        request
            .param("fieldSelector")
            .is_some_and(|it| it.starts_with("metadata.name="))
    };
    assert!(requests.iter().all(selects), "{requests:?}");
}

#[test]
fn wait_survives_broken_watches_with_growing_delays() {
    let world = World::new();
    world.create_map("blue");
    let version = world.during(wait_for_red, || {
        let break_watches: [&dyn Fn() -> usize; 5] = [
            &|| world.server.close_watches(),
            &|| world.server.cut_watches(),
            &|| world.server.write_to_watches("{garbled\n"),
            &|| world.server.fail_watches(&Fault::status(410)),
            &|| world.server.fail_watches(&Fault::status(500)),
        ];
        for (index, break_watch) in break_watches.into_iter().enumerate() {
            world.break_watch(index + 1, break_watch);
            let delay = world.end_wait(index + 1);
            let first = Duration::from_millis(100) * (1 << index);
            assert!(delay >= first && delay <= 2 * first, "{index}: {delay:?}");
        }
        world.watch_is_open();
        world.set_color("red");
    });
    let stored = world.server.get(&format!("{MAPS}/a")).unwrap();
    assert_eq!(stored["metadata"]["resourceVersion"], version.unwrap());
}

#[test]
fn change_between_two_watches_is_seen() {
    let world = World::new();
    world.create_map("blue");
    world
        .during(wait_for_red, || {
            world.break_watch(1, || world.server.cut_watches());
            world.set_color("red");
            world.server.forget_events();
            world.end_wait(1);
        })
        .unwrap();
}

#[test]
fn failing_lists_and_watches_are_retried_after_their_delay() {
    let world = World::new();
    world.create_map("blue");
    let fail = |fault: Fault, verb| {
        world
            .server
            .fail_next(fault.on(verb).resource("configmaps"));
    };
    fail(Fault::status(503), Verb::List);
    fail(Fault::status(429).retry_after(7), Verb::List);
    // The first one strikes a reused connection, so the client resends the request.
    fail(Fault::reset().times(2), Verb::List);
    fail(
        Fault::response(200, "application/json", "{garbled"),
        Verb::List,
    );
    fail(Fault::status(500), Verb::Watch);
    fail(Fault::status(410), Verb::Watch);
    world
        .during(wait_for_red, || {
            let delays: Vec<_> = (1..=6).map(|number| world.end_wait(number)).collect();
            assert_eq!(delays[1], Duration::from_secs(7), "{delays:?}");
            assert!(
                delays.iter().all(|delay| *delay <= Duration::from_secs(7)),
                "{delays:?}"
            );
            world.watch_is_open();
            world.set_color("red");
        })
        .unwrap();
    assert_eq!(world.server.pending_faults(), 0);
}

#[test]
fn server_delays_a_wait_by_at_most_ten_minutes() {
    let world = World::new();
    world.create_map("red");
    for seconds in [u32::MAX, 601, 599] {
        let fault = Fault::status(429).retry_after(seconds).on(Verb::List);
        world.server.fail_next(fault.resource("configmaps"));
    }
    world
        .during(wait_for_red, || {
            let delays = [1, 2, 3].map(|number| world.end_wait(number).as_secs());
            assert_eq!(delays, [600, 600, 599]);
        })
        .unwrap();
}

#[test]
fn backoff_restarts_after_a_long_watch() {
    let world = World::new();
    world.create_map("blue");
    world
        .during(wait_for_red, || {
            for number in 1..=3 {
                world.break_watch(number, || world.server.close_watches());
                world.end_wait(number);
            }
            world.break_watch(4, || {
                world.clock.advance(Duration::from_secs(300));
                world.server.close_watches()
            });
            assert!(world.end_wait(4) <= Duration::from_millis(200));
            world.set_color("red");
        })
        .unwrap();
}

/// Something that a wait blocks in.
struct Phase {
    name: &'static str,
    fault: Option<Fault>,
    /// The waits of the clock that have begun: that of the timeout and back-offs.
    waits: usize,
}

/// All of these last until the wait ends.
fn phases() -> [Phase; 4] {
    let phase = |name, fault, waits| Phase { name, fault, waits };
    let list = |fault: Fault| Some(fault.on(Verb::List).always());
    [
        phase("watch", None, 0),
        phase("list", list(Fault::stall()), 0),
        phase("back-off", list(Fault::status(503)), 1),
        phase("retry delay", list(Fault::status(429).retry_after(3600)), 1),
    ]
}

impl Phase {
    /// Sets the fault, and returns what waits until the phase is reached.
    fn begin(&self, world: &World) {
        self.fault
            .iter()
            .for_each(|fault| world.server.fail_next(fault.clone()));
    }

    fn reached(&self, world: &World, timeouts: usize) {
        match self.name {
            "watch" => world.watch_is_open(),
            "list" => world
                .server
                .wait_for_requests(|all| !all.is_empty(), TIMEOUT)
                .unwrap(),
            _ => {}
        }
        world
            .clock
            .wait_for_waits(self.waits + timeouts, TIMEOUT)
            .unwrap_or_else(|error| panic!("{}: {error}", self.name));
    }
}

#[test]
fn stop_ends_wait_in_every_phase() {
    for phase in phases() {
        for timeout in [None, Some(Duration::from_secs(3600))] {
            let world = World::new();
            phase.begin(&world);
            let error = world
                .during(
                    |world| {
                        world
                            .maps()
                            .wait_for("a", |map| map.is_some(), timeout, &world.stop)
                    },
                    || {
                        phase.reached(&world, usize::from(timeout.is_some()));
                        world.stop.stop();
                    },
                )
                .unwrap_err();
            assert!(
                error.is_stopped() && !error.is_timed_out(),
                "{}: {error}",
                phase.name
            );
            let text = "stopped waiting for configmaps \"a\" in namespace \"default\"; last seen: ";
            assert!(error.to_string().starts_with(text), "{error}");
        }
    }
    let world = World::new();
    world.stop.stop();
    let error = world
        .maps()
        .wait_for_condition("a", "Ready", "True", None, &world.stop)
        .unwrap_err();
    assert!(
        error.is_stopped() && world.server.requests().is_empty(),
        "{error}"
    );
}

#[test]
fn timeout_ends_wait_in_every_phase() {
    for (phase, end) in phases().into_iter().zip([
        "last seen: no such object",
        "last seen: nothing",
        "last seen: nothing; last error: list configmaps in namespace \"default\": GET ",
        "last seen: nothing; last error: list configmaps in namespace \"default\": GET ",
    ]) {
        let world = World::new();
        phase.begin(&world);
        let minute = Duration::from_secs(60);
        let error = world
            .during(
                |world| {
                    world
                        .maps()
                        .wait_for("a", |map| map.is_some(), minute, &world.stop)
                },
                || {
                    phase.reached(&world, 1);
                    world.clock.advance(minute);
                },
            )
            .unwrap_err();
        assert!(
            error.is_timed_out() && !error.is_stopped(),
            "{}: {error}",
            phase.name
        );
        let text = error.to_string();
        let start = "timed out after 60s waiting for configmaps \"a\" in namespace \"default\"; ";
        assert!(
            text.strip_prefix(start)
                .is_some_and(|rest| rest.starts_with(end)),
            "{text}"
        );
        let code = error
            .last_error()
            .and_then(|error| Some(error.status()?.code));
        let expected = match phase.name {
            "back-off" => Some(503),
            "retry delay" => Some(429),
            _ => None,
        };
        assert_eq!(code, expected);
        assert!(
            !world.stop.is_stopped(),
            "the stop of the caller must not be set"
        );
    }
}

#[test]
fn last_error_is_forgotten_after_a_list() {
    let world = World::new();
    world.server.fail_next(Fault::status(503).on(Verb::List));
    let minute = Duration::from_secs(60);
    let error = world
        .during(
            |world| {
                world
                    .maps()
                    .wait_for("a", |map| map.is_some(), minute, &world.stop)
            },
            || {
                // The first wait is that of the timeout, unless the back-off begins earlier.
                world.clock.wait_for_waits(2, TIMEOUT).unwrap();
                world.clock.advance(Duration::from_secs(1));
                world.watch_is_open();
                world.clock.advance(minute);
            },
        )
        .unwrap_err();
    assert!(
        error.is_timed_out() && error.last_error().is_none(),
        "{error}"
    );
}

#[test]
fn errors_that_do_not_heal_end_the_wait_at_once() {
    for verb in [Verb::List, Verb::Watch] {
        for code in [400, 401, 403, 404, 405, 422] {
            let world = World::new();
            world.server.fail_next(Fault::status(code).on(verb));
            let error = wait_for_red(&world).unwrap_err();
            assert!(
                error.is_refused() && !error.is_timed_out(),
                "{code}: {error}"
            );
            let last = error.last_error().unwrap();
            assert_eq!(last.status().unwrap().code, code);
            let text = error.to_string();
            let start = "failed waiting for configmaps \"a\" in namespace \"default\": ";
            assert!(
                text.starts_with(start) && text.ends_with(&last.to_string()),
                "{text}"
            );
            assert!(world.clock.waits().is_empty());
        }
    }
}

#[test]
fn body_above_the_limit_ends_the_wait_at_once() {
    let world = World::new();
    world.create_map("blue");
    let clock = Arc::new(world.clock.clone());
    let config = Config::new(world.server.url()).clock(clock).body_limit(100);
    let maps = Client::new(config)
        .unwrap()
        .api::<ConfigMap>(Some("default"));
    let error = world
        .during(
            |world| maps.wait_for("a", |map| map.is_none(), None, &world.stop),
            || {},
        )
        .unwrap_err();
    let end = "the body is larger than 100 bytes";
    assert!(
        error.is_refused() && error.to_string().ends_with(end),
        "{error}"
    );
    assert!(error.last_error().unwrap().is_decode());
}

#[test]
fn expired_id_token_ends_the_wait_at_once() {
    let world = World::new();
    let server = world.server.url();
    let text = json!({
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "jane"}}],
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        // The claims are {"exp":1700000000}.
        "users": [{"name": "jane", "user": {"auth-provider": {"name": "oidc", "config":
            {"id-token": "e30.eyJleHAiOjE3MDAwMDAwMDB9.c2ln"}}}}],
    });
    let config = KubeconfigOptions::new().load_bytes(text.to_string(), "");
    let config = config.unwrap().clock(Arc::new(world.clock.clone()));
    let maps = Client::new(config)
        .unwrap()
        .api::<ConfigMap>(Some("default"));
    let error = world
        .during(
            |world| maps.wait_for("a", |map| map.is_none(), None, &world.stop),
            || {},
        )
        .unwrap_err();
    let text = "the id-token of user \"jane\" has expired";
    assert!(
        error.is_refused() && error.to_string().contains(text),
        "{error}"
    );
    assert!(error.last_error().unwrap().is_credentials());
}

#[test]
fn unknown_kinds_and_invalid_arguments_are_refused() {
    let world = World::new();
    let stop = &world.stop;
    let refused = |result: Result<(), WaitError>| {
        let error = result.unwrap_err();
        assert!(error.is_refused(), "{error}");
        error.to_string()
    };
    let gadgets = GroupVersionResource::new("example.com", "v1", "gadgets");
    let gadgets = world.client.dynamic_api(&gadgets, Some("default"));
    let text = refused(
        gadgets
            .wait_for_condition("a", "Ready", "True", None, stop)
            .map(drop),
    );
    assert!(text.contains("404"), "{text}");
    let text = refused(gadgets.wait_for_deletion("a", None, None, stop));
    assert!(text.contains("404"), "{text}");
    world.server.clear_requests();

    for name in ["", "a/b", ".."] {
        refused(world.maps().wait_for(name, |_| true, None, stop).map(drop));
    }
    let everywhere = world.client.api::<Pod>(None);
    let text = refused(
        everywhere
            .wait_for_condition("a", "Ready", "True", None, stop)
            .map(drop),
    );
    assert!(
        text.ends_with("this kind is namespaced, but no namespace was given"),
        "{text}"
    );
    let namespaced = world.client.api::<Namespace>(Some("default"));
    refused(
        namespaced
            .wait_for_condition("a", "Ready", "True", None, stop)
            .map(drop),
    );
    let text = refused(world.maps().wait_for_deletion("a", Some(""), None, stop));
    assert!(
        text.ends_with("the UID is empty; pass the UID of an object, or None"),
        "{text}"
    );
    let metadata = GroupVersionResource::new("", "v1", "pods");
    let metadata = world.client.metadata_api(&metadata, Some("default"));
    let text = refused(
        metadata
            .wait_for_condition("a", "Ready", "True", None, stop)
            .map(drop),
    );
    assert!(
        text.ends_with("this Api reads only the metadata, which contains no status"),
        "{text}"
    );
    assert!(world.server.requests().is_empty());
}

#[test]
fn object_of_another_namespace_is_refused() {
    let world = World::new();
    let maps = GroupVersionResource::new("", "v1", "configmaps");
    let everywhere = world.client.dynamic_api(&maps, None);
    everywhere
        .wait_for_deletion("a", None, None, &world.stop)
        .unwrap();
    world.create_map("red");
    let error = everywhere
        .wait_for_deletion("a", None, None, &world.stop)
        .unwrap_err();
    let text = "the server sent configmaps \"a\" in namespace \"default\"; wait for an object of one namespace";
    assert!(
        error.is_refused() && error.to_string().ends_with(text),
        "{error}"
    );
}

#[test]
fn names_are_escaped_in_the_selector() {
    let world = World::new();
    let map = world
        .maps()
        .wait_for("a,b=c\\", |map| map.is_none(), None, &world.stop);
    assert!(map.unwrap().is_none());
    let requests = world.server.requests();
    assert_eq!(
        requests[0].param("fieldSelector"),
        Some("metadata.name=a\\,b\\=c\\\\")
    );
}

fn create_widget(world: &World, status: Value) {
    let widget = json!({"metadata": {"name": "w", "generation": 2}, "status": status});
    world.server.create(WIDGETS, widget).unwrap();
}

fn set_status(world: &World, status: Value) {
    let patch = Patch::merge(json!({ "status": status }));
    world
        .widgets()
        .status()
        .patch("w", &patch, &Stop::never())
        .unwrap();
}

fn ready(status: &str, changes: Value) -> Value {
    let mut condition =
        json!({"type": "Ready", "status": status, "reason": "Joining", "message": "s3cret"});
    for (field, value) in changes.as_object().unwrap() {
        condition[field] = value.clone();
    }
    json!({ "conditions": [{"type": "Other", "status": "True"}, condition] })
}

#[test]
fn condition_is_awaited_in_any_form_of_object() {
    let world = World::new();
    let widgets = GroupVersionResource::new("example.com", "v1", "widgets");
    let slim = world
        .client
        .dynamic_api_as::<Slim>(&widgets, Some("default"));
    let stop = &world.stop;
    let name = world.during(
        |world| {
            let widget = world
                .widgets()
                .wait_for_condition("w", "Ready", "True", None, stop);
            widget.map(|widget| widget.name().to_owned())
        },
        || {
            world.watch_is_open();
            create_widget(&world, json!(null));
            set_status(&world, ready("Unknown", json!({})));
            set_status(&world, ready("False", json!({})));
            // It was determined for an earlier generation.
            set_status(&world, ready("True", json!({"observedGeneration": 1})));
            set_status(&world, ready("True", json!({"observedGeneration": 2})));
        },
    );
    assert_eq!(name.unwrap(), "w");
    let slim = slim
        .wait_for_condition("w", "Ready", "True", None, stop)
        .unwrap();
    assert_eq!(slim.metadata.name, "w");
    set_status(&world, ready("False", json!({})));
    world
        .widgets()
        .wait_for_condition("w", "Ready", "False", None, stop)
        .unwrap();
}

#[test]
fn timeout_of_a_condition_names_it_without_object_contents() {
    for (status, expected) in [
        (json!(null), "resource version 2, no condition Ready"),
        (
            ready("False", json!({})),
            "resource version 2, Ready=False (Joining)",
        ),
        (
            ready("True", json!({"observedGeneration": 1})),
            "resource version 2, Ready=True (Joining) of an older generation",
        ),
        (
            ready("True", json!({"status": 7, "reason": {}})),
            "resource version 2, Ready=",
        ),
    ] {
        let world = World::new();
        create_widget(&world, status);
        let version = world.server.get(&format!("{WIDGETS}/w")).unwrap();
        let version = version["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .to_owned();
        let minute = Duration::from_secs(60);
        let error = world
            .during(
                |world| {
                    let widgets = world.widgets();
                    widgets.wait_for_condition("w", "Ready", "True", minute, &world.stop)
                },
                || {
                    world.watch_is_open();
                    world.clock.wait_for_waits(1, TIMEOUT).unwrap();
                    world.clock.advance(minute);
                },
            )
            .unwrap_err();
        let seen = expected.replace("version 2", &format!("version {version}"));
        assert_eq!(
            format!("{error:?}"),
            format!(
                "timed out after 60s waiting for the condition Ready=True of widgets.example.com \"w\" in namespace \
                 \"default\"; last seen: {seen}"
            )
        );
    }
}

#[test]
fn undecodable_object_is_the_last_error_until_it_is_gone() {
    let world = World::new();
    let map = json!({"metadata": {"name": "a"}, "data": {"color": 7, "key": "s3cret"}});
    world.server.create(MAPS, map).unwrap();
    let minute = Duration::from_secs(60);
    let error = world
        .during(
            |world| {
                world
                    .maps()
                    .wait_for("a", |map| map.is_some(), minute, &world.stop)
            },
            || {
                world.clock.wait_for_waits(2, TIMEOUT).unwrap();
                world.clock.advance(minute);
            },
        )
        .unwrap_err();
    assert!(
        error.is_timed_out() && error.last_error().unwrap().is_decode(),
        "{error}"
    );
    assert!(!error.to_string().contains("s3cret"), "{error}");
    // A deletion needs only the metadata.
    world
        .during(
            |world| world.maps().wait_for_deletion("a", None, None, &world.stop),
            || {
                world.watch_is_open();
                world.server.delete(&format!("{MAPS}/a")).unwrap();
            },
        )
        .unwrap();
}

#[test]
fn deletion_of_a_held_object_ends_with_its_finalizer() {
    let world = World::new();
    let held = json!({"metadata": {"name": "a", "finalizers": ["example.com/hold"]}});
    let map = world.maps().create(&held, &world.stop).unwrap();
    world
        .during(
            |world| {
                world
                    .maps()
                    .wait_for_deletion("a", Some(map.uid()), None, &world.stop)
            },
            || {
                world.watch_is_open();
                let options = DeleteOptions::same_object(&*map);
                world.maps().delete("a", &options, &Stop::never()).unwrap();
                let release = json!({"metadata": {"finalizers": null}});
                world.server.patch(&format!("{MAPS}/a"), release).unwrap();
            },
        )
        .unwrap();
    world
        .maps()
        .wait_for_deletion("a", Some(map.uid()), None, &world.stop)
        .unwrap();
    world
        .maps()
        .wait_for_deletion("a", None, None, &world.stop)
        .unwrap();
}

#[test]
fn recreated_object_counts_as_gone_only_with_a_uid() {
    let world = World::new();
    world.create_map("blue");
    let uid = world.maps().get("a", &world.stop).unwrap().uid().to_owned();
    let recreate = || {
        world.server.delete(&format!("{MAPS}/a")).unwrap();
        world.create_map("red");
    };
    // The new object is seen by a list, because the watch has missed the deletion.
    world
        .during(
            |world| {
                world
                    .maps()
                    .wait_for_deletion("a", Some(&uid), None, &world.stop)
            },
            || {
                world.break_watch(1, || world.server.cut_watches());
                recreate();
                world.end_wait(1);
            },
        )
        .unwrap();
    let error = world
        .during(
            |world| {
                let second = Duration::from_secs(1);
                world
                    .maps()
                    .wait_for_deletion("a", None, second, &world.stop)
            },
            || {
                world.watch_is_open();
                world.clock.wait_for_waits(2, TIMEOUT).unwrap();
                world.clock.advance(Duration::from_secs(1));
            },
        )
        .unwrap_err();
    assert!(
        error.to_string().ends_with(", not being deleted"),
        "{error}"
    );
}

#[test]
fn panic_of_the_condition_ends_the_timeout_thread() {
    let world = World::new();
    let minute = Duration::from_secs(60);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let panics = |_: Option<&ConfigMap>| panic!("the condition panics");
        world.maps().wait_for("a", panics, minute, &world.stop)
    }));
    // The scope of the thread has ended, so the panic arrives only after the thread has ended.
    assert!(panicked.is_err() && !world.stop.is_stopped());
}

#[test]
fn condition_waits_for_the_observed_generation_of_the_status() {
    let world = World::new();
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let available = |generation: i64| {
        let conditions = json!([{"type": "Available", "status": "True"}]);
        json!({"status": {"observedGeneration": generation, "conditions": conditions}})
    };
    let web = json!({"metadata": {"name": "web"}, "spec": {"replicas": 1}});
    let created = world.server.create(path, web).unwrap();
    let generation = created["metadata"]["generation"].as_i64().unwrap();
    let (web, status) = (format!("{path}/web"), format!("{path}/web/status"));
    world.server.patch(&status, available(generation)).unwrap();
    let scale = json!({"spec": {"replicas": 2}});
    world.server.patch(&web, scale).unwrap();

    let deployments = world.client.api::<Deployment>(Some("default"));
    thread::scope(|scope| {
        let stop = &world.stop;
        let waiter = scope
            .spawn(move || deployments.wait_for_condition("web", "Available", "True", None, stop));
        world.server.wait_for_watches(1, TIMEOUT).unwrap();
        world
            .server
            .patch(&status, available(generation + 1))
            .unwrap();
        let web = waiter.join().unwrap().unwrap();
        assert_eq!(
            web.status.as_ref().unwrap().observed_generation,
            Some(generation + 1)
        );
    });
}
