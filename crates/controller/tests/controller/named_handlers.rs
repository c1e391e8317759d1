//! Named handlers: each has its own retries, and hands objects on within one run.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use k8s_informer::client::api::Patch;
use k8s_informer::informer::InformerScope;
use k8s_informer_controller::{HandlerContext, HandlerErrors, NamedHandlers, generation_changed};
use k8s_informer_testing::{ControllerTest, Verb};

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

type Handled = Result<Next, Failure>;

/// What the handlers have done, in order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn push(&self, entry: impl Into<String>) {
        self.0.lock().unwrap().push(entry.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    /// Returns a handler that records its calls as `name` and `attempt`, and then runs `then`.
    fn handler(
        &self,
        name: &str,
        then: impl Fn(&HandlerContext<'_, ConfigMap>) -> Handled + Send + Sync + 'static,
    ) -> impl Fn(&HandlerContext<'_, ConfigMap>, Option<&Arc<ConfigMap>>) -> Handled
    + Send
    + Sync
    + 'static {
        let (log, name) = (self.clone(), name.to_owned());
        move |cx, _| {
            log.push(format!("{name} {}", cx.attempt()));
            then(cx)
        }
    }
}

fn done(_: &HandlerContext<'_, ConfigMap>) -> Handled {
    Ok(Next::Done)
}

/// Fails in the first calls.
fn failing(times: usize) -> impl Fn(&HandlerContext<'_, ConfigMap>) -> Handled {
    move |cx| match cx.attempt() <= times {
        true => Err(Failure::new("not yet")),
        false => Ok(Next::Done),
    }
}

fn test_of(
    handlers: impl Fn() -> NamedHandlers<ConfigMap> + Send + 'static,
) -> ControllerTest<ConfigMap> {
    let build = move |builder: ControllerBuilder<ConfigMap>| builder.by_handlers(handlers());
    ControllerTest::new(Source::of::<ConfigMap>(), build).unwrap()
}

fn create(test: &ControllerTest<ConfigMap>, name: &str) {
    let map = json!({"metadata": {"name": name}});
    test.server().create(MAPS, map).unwrap();
}

fn change(test: &ControllerTest<ConfigMap>, name: &str) {
    let patch = json!({"metadata": {"annotations": {"changed": "yes"}}});
    let path = format!("{MAPS}/{name}");
    test.server().patch(&path, patch).unwrap();
}

fn note_of(map: &ConfigMap) -> Option<String> {
    map.metadata.annotations.as_ref()?.get("note").cloned()
}

#[test]
fn ls12_failing_handler_is_retried_alone() {
    let log = Log::default();
    let handlers = {
        let log = log.clone();
        move || {
            NamedHandlers::new()
                .on_change("a", log.handler("a", done))
                .on_change("b", log.handler("b", failing(2)))
                .on_change("c", log.handler("c", failing(1)))
        }
    };
    let mut test = test_of(handlers);
    create(&test, "x");
    test.run_until_idle().unwrap();
    assert_eq!(log.take(), ["a 1", "b 1", "c 1", "b 2", "c 2", "b 3"]);
    assert!(test.controller().failures().is_empty());

    // A change calls all of them, and each count starts again.
    change(&test, "x");
    test.run_until_idle().unwrap();
    assert_eq!(log.take(), ["a 1", "b 1", "c 1", "b 2", "c 2", "b 3"]);
}

#[test]
fn each_handler_has_its_own_back_off() {
    let times = Arc::new(Mutex::new(Vec::new()));
    let handlers = {
        let times = Arc::clone(&times);
        move || {
            let times = Arc::clone(&times);
            NamedHandlers::new()
                .on_change("failing", move |cx, _: Option<&Arc<ConfigMap>>| {
                    times.lock().unwrap().push(cx.clock().now());
                    failing(12)(cx)
                })
                .on_change("often", |_, _| Ok(Next::After(SECOND)))
        }
    };
    let mut test = test_of(handlers);
    create(&test, "x");
    test.run_until_idle().unwrap();
    let times = times.lock().unwrap();
    let delays: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // As if the other handler did not exist.
    let expected = (0..12).map(|failures| Duration::from_millis(5) * 2_u32.pow(failures));
    assert!(delays.iter().copied().eq(expected), "{delays:?}");
    assert!(test.calls("default/x") > 30);
}

#[test]
fn change_during_a_back_off_calls_all_handlers() {
    let cluster = Cluster::new();
    let log = Log::default();
    let handlers = NamedHandlers::new()
        .on_change("a", log.handler("a", done))
        .on_change("b", log.handler("b", failing(20)));
    let controller = cluster.controller::<ConfigMap>("handlers");
    let running = Running::new(controller.by_handlers(handlers).unwrap());
    cluster.create(MAPS, "x");
    running.until_delayed();
    assert_eq!(log.take(), ["a 1", "b 1"]);
    // The clock stands still, so the retry is not due.
    cluster.touch(MAPS, "x", "1");
    let is_called = || log.0.lock().unwrap().len() == 2;
    until("the change is handled", is_called);
    running.until_delayed();
    assert_eq!(log.take(), ["a 1", "b 2"]);
    cluster.advance(&running, SECOND);
    until("the handler is called again", || {
        log.0.lock().unwrap().len() == 1
    });
    assert_eq!(log.take(), ["b 3"]);
    running.end(());
}

#[test]
fn next_after_calls_only_its_handler() {
    let log = Log::default();
    let handlers = {
        let log = log.clone();
        move || {
            let slow = |_: &HandlerContext<'_, ConfigMap>| Ok(Next::After(10 * MINUTE));
            let fast = |_: &HandlerContext<'_, ConfigMap>| Ok(Next::After(4 * MINUTE));
            NamedHandlers::new()
                .on_change("slow", log.handler("slow", slow))
                .on_change("done", log.handler("done", done))
                .on_change("fast", log.handler("fast", fast))
        }
    };
    let mut test = test_of(handlers);
    create(&test, "x");
    test.run_until_idle().unwrap();
    assert_eq!(log.take(), ["slow 1", "done 1", "fast 1"]);
    test.advance(12 * MINUTE).unwrap();
    assert_eq!(log.take(), ["fast 1", "fast 1", "slow 1", "fast 1"]);
}

#[test]
fn enqueued_keys_call_all_handlers() {
    let log = Log::default();
    let handlers = {
        let log = log.clone();
        move || {
            let slow = |_: &HandlerContext<'_, ConfigMap>| Ok(Next::After(10 * MINUTE));
            NamedHandlers::new()
                .on_change("slow", log.handler("slow", slow))
                .on_change("done", log.handler("done", done))
        }
    };
    let mut test = test_of(handlers);
    create(&test, "x");
    test.run_until_idle().unwrap();
    log.take();
    test.controller().enqueue_after("default/x", MINUTE);
    test.advance(2 * MINUTE).unwrap();
    assert_eq!(log.take(), ["slow 1", "done 1"]);
    test.controller().enqueue("default/x");
    test.run_until_idle().unwrap();
    assert_eq!(log.take(), ["slow 1", "done 1"]);
    // The next call of `slow` is ten minutes after its last one.
    test.advance(9 * MINUTE).unwrap();
    assert_eq!(log.take(), [""; 0]);
    test.advance(MINUTE).unwrap();
    assert_eq!(log.take(), ["slow 1"]);
}

#[test]
fn ls11_object_is_handed_on_within_one_run() {
    let log = Log::default();
    let handlers = {
        let log = log.clone();
        move || {
            let seen = |log: &Log, name: &str, map: Option<&Arc<ConfigMap>>| {
                let note = map.and_then(|map| note_of(map));
                log.push(format!("{name} {note:?}"));
            };
            let (first, second) = (log.clone(), log.clone());
            NamedHandlers::new()
                .on_change("first", move |cx, map| {
                    seen(&first, "first", map);
                    if map.is_some_and(|map| note_of(map).is_none()) {
                        let note = json!({"metadata": {"annotations": {"note": "yes"}}});
                        let maps = cx.api::<ConfigMap>(Some(cx.namespace()));
                        let patched = maps.patch(cx.name(), &Patch::merge(note), cx.stop())?;
                        cx.hand_on(patched.into_inner());
                    }
                    Ok(Next::Done)
                })
                .on_change("second", move |cx, map| {
                    seen(&second, "second", map);
                    // The retry reads the cache, which has the write of the first handler.
                    failing(1)(cx)
                })
        }
    };
    let mut test = test_of(handlers);
    create(&test, "x");
    test.step().unwrap();
    assert_eq!(log.take(), ["first None", r#"second Some("yes")"#]);
    test.run_until_idle().unwrap();
    let calls = log.take();
    assert!(calls.iter().all(|call| call.contains("yes")), "{calls:?}");
    assert_eq!(test.writes().len(), 1);
}

#[test]
fn gone_object_calls_on_change_with_none() {
    let log = Log::default();
    let handlers = {
        let log = log.clone();
        move || {
            let changed = log.clone();
            NamedHandlers::new()
                .on_remove(
                    "example.com/a",
                    |_: &ConfigMap| false,
                    |_, _| unreachable!("there is no finalizer"),
                )
                .on_change("changed", move |cx, map| {
                    changed.push(format!("{} {}", cx.key(), map.is_some()));
                    failing(1)(cx)
                })
        }
    };
    let mut test = test_of(handlers);
    create(&test, "x");
    test.run_until_idle().unwrap();
    log.take();
    test.server().delete(&format!("{MAPS}/x")).unwrap();
    test.run_until_idle().unwrap();
    assert_eq!(log.take(), ["default/x false"; 2]);
    // A key without an object, for work that belongs to none (WR10).
    test.controller().enqueue("_all_");
    test.run_until_idle().unwrap();
    assert_eq!(log.take(), ["_all_ false"; 2]);
}

/// A call reads the cache before its handlers run. A change after that needs another call of all
/// handlers, also if one of them waits for its time.
#[test]
fn change_after_the_read_of_the_cache_calls_all_handlers() {
    let cluster = Cluster::new();
    let (sender, recreated) = unbounded::<()>();
    let (gone, is_gone) = unbounded();
    let log = Log::default();
    let found = log.clone();
    let handlers = NamedHandlers::new()
        .on_change("found", move |_, map: Option<&Arc<ConfigMap>>| {
            found.push(format!("{}", map.is_some()));
            Ok(Next::Done)
        })
        .on_change("waiting", |_, _| Ok(Next::After(MINUTE)));
    let controller = cluster
        .controller::<ConfigMap>("handlers")
        .on_gone(move |_| {
            gone.send(()).unwrap();
            let _ = recreated.recv_timeout(LIMIT);
        })
        .by_handlers(handlers)
        .unwrap();
    let running = Running::new(controller);
    cluster.create(MAPS, "x");
    running.until_delayed();
    assert_eq!(log.take(), ["true"]);
    cluster.server.delete(&format!("{MAPS}/x")).unwrap();
    is_gone.recv_timeout(LIMIT).unwrap();
    cluster.create(MAPS, "x");
    running.until("the new object is queued", |status| status.queued == 1);
    sender.send(()).unwrap();
    until("the new object is handled", || {
        log.0.lock().unwrap().len() == 2
    });
    assert_eq!(log.take(), ["false", "true"]);
    running.end(());
}

/// The finalizer of the controller itself precedes all handlers.
#[test]
fn failing_finalizer_of_the_controller_delays_all_handlers() {
    let log = Log::default();
    let build = {
        let log = log.clone();
        move |builder: ControllerBuilder<ConfigMap>| {
            let handlers = NamedHandlers::new()
                .on_change("a", log.handler("a", done))
                .on_change("b", log.handler("b", done));
            builder
                .finalizer("example.com/a", |_| true, |_, _| Ok(Next::Done))
                .by_handlers(handlers)
        }
    };
    let mut test = ControllerTest::new(Source::of::<ConfigMap>(), build).unwrap();
    let fault = Fault::status(500).on(Verb::Patch).times(2);
    test.server().fail_next(fault);
    create(&test, "x");
    test.step().unwrap();
    assert_eq!(log.take(), [""; 0]);
    test.run_until_idle().unwrap();
    assert_eq!(log.take()[..2], ["a 1", "b 1"]);
}

#[test]
fn wr2_finalizer_is_present_for_later_handlers() {
    let log = Log::default();
    let handlers = {
        let log = log.clone();
        move || {
            let (cleanup, changed) = (log.clone(), log.clone());
            let other = log.clone();
            NamedHandlers::new()
                .on_remove(
                    "example.com/one",
                    |_: &ConfigMap| true,
                    move |cx, _| {
                        cleanup.push(format!("one {}", cx.attempt()));
                        match cx.attempt() {
                            1 => Err(Failure::new("not yet")),
                            _ => Ok(Next::Done),
                        }
                    },
                )
                .on_remove(
                    "example.com/two",
                    |_: &ConfigMap| true,
                    move |_, _| {
                        other.push("two");
                        Ok(Next::Done)
                    },
                )
                .on_change("changed", move |_, map| {
                    let finalizers = map.and_then(|map| map.metadata.finalizers.clone());
                    changed.push(format!(
                        "changed {}",
                        finalizers.unwrap_or_default().join(" ")
                    ));
                    Ok(Next::Done)
                })
        }
    };
    let mut test = test_of(handlers);
    create(&test, "x");
    test.step().unwrap();
    assert_eq!(log.take(), ["changed example.com/one example.com/two"]);
    test.run_until_idle().unwrap();
    log.take();

    test.server().delete(&format!("{MAPS}/x")).unwrap();
    test.run_until_idle().unwrap();
    let calls = log.take();
    let of = |name: &str| calls.iter().filter(|call| call.starts_with(name)).count();
    assert_eq!(
        (of("one 1"), of("one 2"), of("two")),
        (1, 1, 1),
        "{calls:?}"
    );
    assert_eq!(calls.last().unwrap(), "changed ", "{calls:?}");
    assert!(test.server().get(&format!("{MAPS}/x")).is_err());
}

#[test]
fn missing_finalizer_holds_back_later_handlers() {
    let log = Log::default();
    let handlers = {
        let log = log.clone();
        move || {
            NamedHandlers::new()
                .on_change("before", log.handler("before", done))
                .on_remove("example.com/a", |_: &ConfigMap| true, |_, _| Ok(Next::Done))
                .on_change("after", log.handler("after", done))
        }
    };
    let mut test = test_of(handlers);
    let fault = Fault::status(500).on(Verb::Patch).times(2);
    test.server().fail_next(fault);
    create(&test, "x");
    test.step().unwrap();
    assert_eq!(log.take(), ["before 1"]);
    let last = test.controller().last_failure("default/x").unwrap();
    let errors = last.failure.downcast_ref::<HandlerErrors>().unwrap();
    let failed: Vec<_> = errors.iter().map(|(name, _)| name).collect();
    assert_eq!(failed, ["example.com/a"]);

    test.run_until_idle().unwrap();
    let calls = log.take();
    assert_eq!(calls[0], "after 1", "{calls:?}");
    assert_eq!(test.writes().len(), 1);
}

#[test]
fn cleanups_of_one_run_send_one_patch_each() {
    let handlers = || {
        let handlers = NamedHandlers::new();
        ["example.com/a", "example.com/b"]
            .into_iter()
            .fold(handlers, |handlers, name| {
                handlers.on_remove(name, |_: &ConfigMap| true, |_, _| Ok(Next::Done))
            })
    };
    let mut test = test_of(handlers);
    create(&test, "x");
    test.run_until_idle().unwrap();
    test.server().clear_requests();
    test.server().delete(&format!("{MAPS}/x")).unwrap();
    test.run_until_idle().unwrap();
    let requests = test.server().requests();
    let count = |verb| requests.iter().filter(|of| of.verb() == verb).count();
    assert_eq!((count(Verb::Patch), count(Verb::Get)), (2, 0));
    assert!(test.server().get(&format!("{MAPS}/x")).is_err());
}

#[test]
fn handlers_after_the_end_of_the_time_limit_run_next() {
    let log = Log::default();
    let handlers = {
        let log = log.clone();
        move || {
            let ends = |cx: &HandlerContext<'_, ConfigMap>| {
                cx.stop().stop(); // The time limit does this.
                Ok(Next::Done)
            };
            NamedHandlers::new()
                .on_change("slow", log.handler("slow", ends))
                .on_change("after", log.handler("after", done))
        }
    };
    let mut test = test_of(handlers);
    create(&test, "x");
    test.step().unwrap();
    assert_eq!(log.take(), ["slow 1"]);
    test.run_until_idle().unwrap();
    assert_eq!(log.take(), ["after 1"]);
    assert!(test.controller().failures().is_empty());
}

#[test]
fn last_failure_names_all_failing_handlers() {
    let cluster = Cluster::new();
    let fails = Arc::new(AtomicUsize::new(1));
    let handlers = {
        let fails = Arc::clone(&fails);
        NamedHandlers::new()
            .on_change("one", |_, _: Option<&Arc<ConfigMap>>| {
                Err(Failure::terminal("no quota"))
            })
            .on_change("two", move |_, _| match fails.load(Relaxed) {
                0 => Ok(Next::Done),
                _ => Err(Failure::new("no answer")),
            })
            .on_change("three", |_, _| panic!("a bug"))
    };
    let controller = cluster.controller::<ConfigMap>("handlers");
    let running = Running::new(controller.by_handlers(handlers).unwrap());
    cluster.create(MAPS, "x");
    let failure = || {
        let last = running.controller.last_failure("default/x");
        last.map(|last| last.failure.to_string())
            .unwrap_or_default()
    };
    let [one, two, three] = [
        "handler \"one\": no quota",
        "handler \"two\": no answer",
        "handler \"three\": the handler panicked: a bug",
    ];
    until("all have failed", || {
        failure() == format!("{one}; {two}; {three}")
    });
    // The first handler is not called again, but its failure remains.
    fails.store(0, Relaxed);
    until("the second has succeeded", || {
        cluster.advance(&running, SECOND);
        failure() == format!("{one}; {three}")
    });
    let last = running.controller.last_failure("default/x").unwrap();
    assert!(!last.failure.is_terminal() && last.attempts >= 2);
    running.end(());
}

#[test]
fn terminal_failures_of_all_handlers_are_not_retried() {
    let log = Log::default();
    let handlers = {
        let log = log.clone();
        move || {
            let terminal = |_: &HandlerContext<'_, ConfigMap>| Err(Failure::terminal("no quota"));
            NamedHandlers::new()
                .on_change("a", log.handler("a", terminal))
                .on_change("b", log.handler("b", failing(1)))
        }
    };
    let mut test = test_of(handlers);
    create(&test, "x");
    test.run_until_idle().unwrap();
    assert_eq!(log.take(), ["a 1", "b 1", "b 2"]);
    let last = test.controller().last_failure("default/x").unwrap();
    assert!(last.failure.is_terminal());
    change(&test, "x");
    test.run_until_idle().unwrap();
    assert_eq!(log.take(), ["a 2", "b 1", "b 2"]);
}

#[test]
fn wr7_related_object_calls_all_handlers() {
    let log = Log::default();
    let build = {
        let log = log.clone();
        move |builder: ControllerBuilder<ConfigMap>| {
            let handlers = NamedHandlers::new()
                .on_change("a", log.handler("a", done))
                .on_change("b", log.handler("b", done));
            builder
                .when(generation_changed())
                .watches(Source::of::<Deployment>(), |deployment| {
                    let key = |name| Key::from(format!("default/{name}"));
                    deployment.label("map").map(key)
                })
                .by_handlers(handlers)
        }
    };
    let mut test = ControllerTest::new(Source::of::<ConfigMap>(), build).unwrap();
    create(&test, "x");
    test.run_until_idle().unwrap();
    log.take();
    let web = json!({"metadata": {"name": "web", "labels": {"map": "x"}}});
    test.server().create(DEPLOYMENTS, web).unwrap();
    test.run_until_idle().unwrap();
    assert_eq!(log.take(), ["a 1", "b 1"]);
}

#[test]
fn contradictory_handlers_are_rejected() {
    let cluster = Cluster::new();
    let builder = || cluster.controller::<ConfigMap>("handlers");
    let change = |name: &str| {
        let handler =
            |_: &HandlerContext<'_, ConfigMap>, _: Option<&Arc<ConfigMap>>| Ok(Next::Done);
        NamedHandlers::new().on_change(name, handler)
    };
    let remove = |name: &str| {
        NamedHandlers::new().on_remove(name, |_: &ConfigMap| true, |_, _| Ok(Next::Done))
    };
    let team = InformerScope::all().label_selector("team".parse().unwrap());
    for (built, expected) in [
        (
            builder().by_handlers(NamedHandlers::new()),
            "there are no handlers: add one with `on_change` or `on_remove`",
        ),
        (
            builder().by_handlers(change("")),
            "the name of a handler is empty",
        ),
        (
            builder().by_handlers(change("a").on_change("a", |_, _| Ok(Next::Done))),
            "two handlers have the name \"a\"",
        ),
        (
            builder().by_handlers(remove("cleanup")),
            "the finalizer \"cleanup\" is not a qualified name",
        ),
        (
            builder().scope(team).by_handlers(remove("example.com/a")),
            "the finalizer \"example.com/a\" needs a scope without selectors",
        ),
        (
            builder()
                .finalizer("example.com/b", |_| true, |_, _| Ok(Next::Done))
                .by_handlers(remove("example.com/a")),
            "`finalizer` and the `on_remove` handler \"example.com/a\" exclude each other",
        ),
    ] {
        let error = built.unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("controller \"handlers\": {expected}")),
            "{error}"
        );
    }
}

/// Otherwise the effect that the cleanup has removed would exist again.
#[test]
fn deleted_object_calls_only_cleanups_before_it_is_gone() {
    let log = Log::default();
    let handlers = {
        let log = log.clone();
        move || {
            let (cleanup, changed) = (log.clone(), log.clone());
            NamedHandlers::new()
                .on_remove(
                    "example.com/a",
                    |_: &ConfigMap| true,
                    move |cx, _| {
                        cleanup.push(format!("cleanup {}", cx.attempt()));
                        failing_cleanup(cx.attempt())
                    },
                )
                .on_change("changed", move |_, map| {
                    changed.push(format!("changed {}", map.is_some()));
                    Ok(Next::After(SECOND))
                })
        }
    };
    let mut test = test_of(handlers);
    create(&test, "x");
    test.run_until_idle().unwrap();
    log.take();
    test.server().delete(&format!("{MAPS}/x")).unwrap();
    test.run_until_idle().unwrap();
    assert_eq!(log.take(), ["cleanup 1", "cleanup 2", "changed false"]);
}

fn failing_cleanup(attempt: usize) -> Handled {
    match attempt {
        1 => Err(Failure::new("not yet")),
        _ => Ok(Next::Done),
    }
}

/// The update that makes the finalizer necessary does not pass the predicate.
#[test]
fn finalizer_is_added_before_a_delayed_handler() {
    let log = Log::default();
    let build = {
        let log = log.clone();
        move |builder: ControllerBuilder<ConfigMap>| {
            let log = log.clone();
            let handlers = NamedHandlers::new()
                .on_remove(
                    "example.com/a",
                    |map: &ConfigMap| note_of(map).is_some(),
                    |_, _| Ok(Next::Done),
                )
                .on_change("effect", move |_, map| {
                    let of = map.map(|map| (note_of(map), map.metadata.finalizers.is_some()));
                    log.push(format!("{of:?}"));
                    Ok(Next::After(10 * MINUTE))
                });
            let never = k8s_informer_controller::Predicate::new(|_, _| false);
            builder.when(never).by_handlers(handlers)
        }
    };
    let mut test = ControllerTest::new(Source::of::<ConfigMap>(), build).unwrap();
    create(&test, "x");
    test.run_until_idle().unwrap();
    let note = json!({"metadata": {"annotations": {"note": "yes"}}});
    test.server().patch(&format!("{MAPS}/x"), note).unwrap();
    test.run_until_idle().unwrap();
    assert_eq!(log.take(), ["Some((None, false))"]);
    test.advance(10 * MINUTE).unwrap();
    assert_eq!(log.take()[0], r#"Some((Some("yes"), true))"#);
}

#[test]
fn terminal_failure_of_a_gone_object_is_forgotten() {
    let log = Log::default();
    let handlers = {
        let log = log.clone();
        move || {
            let log = log.clone();
            NamedHandlers::new()
                .on_change("terminal", |_, map| match map {
                    Some(_) => Ok(Next::Done),
                    None => Err(Failure::terminal("no such map")),
                })
                .on_change("retried", move |cx, map: Option<&Arc<ConfigMap>>| {
                    log.push(format!("{} {}", map.is_some(), cx.attempt()));
                    match map {
                        None if cx.attempt() < 3 => Err(Failure::new("not yet")),
                        _ => Ok(Next::Done),
                    }
                })
        }
    };
    let mut test = test_of(handlers);
    create(&test, "x");
    test.run_until_idle().unwrap();
    test.server().delete(&format!("{MAPS}/x")).unwrap();
    test.step().unwrap();
    // The retry is ahead, so this failure is not forgotten.
    let failures = test.controller().failures();
    assert_eq!(failures.len(), 1, "{failures:?}");
    let failure = failures[0].1.failure.to_string();
    assert_eq!(failure, r#"handler "retried": not yet"#);
    test.run_until_idle().unwrap();
    assert_eq!(log.take(), ["true 1", "false 1", "false 2", "false 3"]);
    assert!(test.controller().failures().is_empty());
    assert_eq!(test.controller().status().failing, 0);
    // A key that never had an object.
    test.controller().enqueue("default/y");
    test.run_until_idle().unwrap();
    assert!(test.controller().failures().is_empty());
    // A new object starts again.
    log.take();
    create(&test, "x");
    test.run_until_idle().unwrap();
    assert_eq!(log.take(), ["true 1"]);
}
