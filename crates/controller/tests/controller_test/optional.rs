//! Kinds that may not exist, in virtual time.

use std::sync::Mutex;

use k8s_informer::DynamicObject;
use k8s_informer::object::meta_namespace_key;

use super::*;
use crate::support::widgets;

const SECOND: Duration = Duration::from_secs(1);

/// What the calls have seen: the number of widgets, or that the kind is absent. `mapped` are the
/// widgets for which keys were requested.
#[derive(Clone, Default)]
struct Seen {
    calls: Arc<Mutex<Vec<Option<usize>>>>,
    mapped: Arc<Mutex<Vec<String>>>,
    gone: Arc<Mutex<Vec<String>>>,
}

impl Seen {
    fn take(&self) -> Vec<Option<usize>> {
        std::mem::take(&mut *self.calls.lock().unwrap())
    }

    fn take_mapped(&self) -> Vec<String> {
        std::mem::take(&mut *self.mapped.lock().unwrap())
    }
}

/// Runs a controller of ConfigMaps that watches the widgets of the same names. The ConfigMap `a`
/// exists.
fn start(server: ApiServer) -> (ControllerTest<ConfigMap>, Seen) {
    let seen = Seen::default();
    let of = seen.clone();
    let build = move |builder: ControllerBuilder<ConfigMap>| {
        let (
            Seen {
                calls,
                mapped,
                gone,
            },
            source,
        ) = (of.clone(), widgets::source());
        builder
            .watches_optional(source, move |widget| {
                mapped.lock().unwrap().push(widget.name().to_owned());
                Some(meta_namespace_key(widget))
            })
            .on_gone(move |key| gone.lock().unwrap().push(key.to_string()))
            .by(move |cx, _| {
                let widgets = cx.optional::<DynamicObject>();
                calls
                    .lock()
                    .unwrap()
                    .push(widgets.map(|widgets| widgets.list().len()));
                Ok(Next::Done)
            })
    };
    server
        .create(MAPS, json!({"metadata": {"name": "a"}}))
        .unwrap();
    let mut test = ControllerTest::with_server(server, Source::of::<ConfigMap>(), build).unwrap();
    test.run_until_idle().unwrap();
    (test, seen)
}

#[test]
fn kind_that_appears_and_goes_causes_calls_for_all_keys() -> TestResult {
    let (mut test, seen) = start(ApiServer::start()?);
    assert_eq!(seen.take(), [None]);
    widgets::install(test.server());
    widgets::create(test.server(), "a");
    test.run_until_idle()?;
    assert_eq!(seen.take(), [Some(1)]);

    test.server().delete(&format!("{}/a", widgets::WIDGETS))?;
    test.run_until_idle()?;
    widgets::create(test.server(), "a");
    test.run_until_idle()?;
    assert_eq!(seen.take(), [Some(0), Some(1)]);
    assert_eq!(seen.take_mapped(), ["a", "a", "a"]);

    // The server deletes the objects of a definition first.
    widgets::uninstall(test.server());
    test.run_until_idle()?;
    assert_eq!(
        (seen.take(), seen.take_mapped()),
        (vec![Some(0)], vec!["a".to_owned()])
    );
    test.advance(4 * SECOND)?;
    assert_eq!(seen.take(), []);
    test.advance(2 * SECOND)?;
    assert_eq!(seen.take(), [None]);

    widgets::install(test.server());
    test.advance(MINUTE)?;
    widgets::create(test.server(), "a");
    test.run_until_idle()?;
    assert_eq!(seen.take(), [Some(0), Some(1)]);
    assert_eq!(seen.take_mapped(), ["a"]);
    Ok(())
}

#[test]
fn restarted_controller_finds_the_kind() -> TestResult {
    let (mut test, seen) = start(ApiServer::start()?);
    widgets::install(test.server());
    test.restart()?;
    test.run_until_idle()?;
    assert_eq!(seen.take(), [None, Some(0)]);
    widgets::uninstall(test.server());
    test.restart()?;
    test.run_until_idle()?;
    assert_eq!(seen.take(), [None]);
    Ok(())
}

#[derive(Deserialize)]
struct Widget {
    metadata: FullObjectMeta,
}

impl_object!(
    Widget,
    "optional.example.com/v1",
    "Widget",
    "widgets",
    Namespaced
);
impl_full_metadata!(Widget);

/// An operator that creates a widget for each ConfigMap, if there are widgets.
#[test]
fn optional_kind_is_owned_while_it_exists() -> TestResult {
    let server = ApiServer::builder().garbage_collection(true).start()?;
    let mut test = ControllerTest::with_server(server, Source::of::<ConfigMap>(), |builder| {
        builder.owns_optional(Source::of::<Widget>()).by(|cx, _| {
            let is_missing = cx.children::<Widget>()?.is_empty();
            if cx.optional::<Widget>().is_some() && is_missing {
                let widget = cx.owned(json!({"metadata": {"name": cx.name()}}))?;
                cx.api::<Widget>(Some(cx.namespace()))
                    .create(&widget, cx.stop())?;
            }
            Ok(Next::Done)
        })
    })?;
    test.server()
        .create(MAPS, json!({"metadata": {"name": "a"}}))?;
    test.run_until_idle()?;
    assert!(test.writes().is_empty());
    widgets::install(test.server());
    test.advance(MINUTE)?;
    assert_eq!(test.writes(), ["create widgets default/a"]);
    test.server().delete(&format!("{}/a", widgets::WIDGETS))?;
    test.run_until_idle()?;
    assert_eq!(test.writes(), ["create widgets default/a"]);
    widgets::uninstall(test.server());
    // The deletion of the object is real. The creation fails, because the kind is gone.
    test.advance(MINUTE)?;
    assert!(test.writes().is_empty());
    assert!(test.controller().failures().is_empty());
    Ok(())
}

/// Whatever the threads of the informer do first, the next run sees a new kind, and one that is back.
#[test]
fn each_run_sees_the_kinds_that_exist() -> TestResult {
    for _ in 0..40 {
        let (mut test, seen) = start(ApiServer::start()?);
        assert_eq!(seen.take(), [None]);
        widgets::install(test.server());
        test.run_until_idle()?;
        assert_eq!(seen.take(), [Some(0)]);
        widgets::uninstall(test.server());
        test.advance(6 * SECOND)?;
        assert_eq!(seen.take(), [None]);
        widgets::install(test.server());
        test.run_until_idle()?;
        assert_eq!(seen.take(), [Some(0)]);
    }
    Ok(())
}
