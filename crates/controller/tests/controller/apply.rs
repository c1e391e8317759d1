//! Server-side apply through the context of a call. `tests/end_to_end` compares with a real server.

use k8s_informer::client::api::Patch;
use k8s_informer::object::{DynamicObject, FullMetadata, GroupVersionResource};
use k8s_informer_controller::{Applied, ApplyOptions, ControllerErrorKind};
use k8s_informer_testing::{ApiResource, ControllerTest, RequestRecord, Verb};
use serde::Serialize;

use super::*;
use crate::log_capture;

const MAP: &str = "/api/v1/namespaces/default/configmaps/m";

type Results<R> = Receiver<Result<R, Failure>>;

/// Runs a controller of the Deployment `web` that owns ConfigMaps, and returns the results of its
/// calls.
fn run<R: Clone + Send + Sync + 'static>(
    options: impl Fn(ControllerBuilder<Deployment>) -> ControllerBuilder<Deployment> + Send + 'static,
    call: impl Fn(&Context) -> Result<R, Failure> + Clone + Send + Sync + 'static,
) -> (ControllerTest<Deployment>, Results<R>) {
    let (sender, results) = unbounded();
    let test = ControllerTest::new(Source::of::<Deployment>(), move |builder| {
        let (sender, call) = (sender.clone(), call.clone());
        options(builder).by(move |cx, _| {
            let result = call(cx);
            sender.send(result.clone())?;
            result.map(|_| Next::Done)
        })
    })
    .unwrap();
    let web = json!({"metadata": {"name": "web"}});
    test.server().create(DEPLOYMENTS, web).unwrap();
    (test, results)
}

fn maps(builder: ControllerBuilder<Deployment>) -> ControllerBuilder<Deployment> {
    builder.owns(Source::of::<ConfigMap>())
}

fn map() -> Value {
    json!({"metadata": {"name": "m"}, "data": {"a": "1"}})
}

/// Applies the map, also if another program has changed it.
fn forced(cx: &Context) -> Result<Applied, Failure> {
    cx.apply_with::<ConfigMap>(map(), ApplyOptions::new().force(true))
}

/// Runs the controller until it is idle. Returns what its calls have done, but no `NotSent`.
#[track_caller]
fn applied(test: &mut ControllerTest<Deployment>, results: &Results<Applied>) -> Vec<Applied> {
    test.run_until_idle().unwrap();
    let results = results.try_iter().flatten();
    results
        .filter(|result| *result != Applied::NotSent)
        .collect()
}

fn apply<C>(cx: &Context, child: Value) -> String
where
    C: FullMetadata + DeserializeOwned + Serialize,
{
    let failure = cx.apply::<C>(child).unwrap_err();
    assert!(failure.is_terminal(), "{failure}");
    failure.to_string()
}

#[test]
fn invalid_child_is_refused_before_sending() {
    let (mut test, results) = run(maps, |cx| {
        Ok([
            json!({"metadata": {"generateName": "m-"}}),
            json!({"metadata": {"name": "m", "resourceVersion": "1"}}),
            json!({"metadata": {"name": "m"}, "apiVersion": "v2"}),
            json!({"metadata": {"name": "m"}, "apiVersion": 7}),
        ]
        .map(|child| apply::<ConfigMap>(cx, child)))
    });
    test.run_until_idle().unwrap();
    let messages = results.recv().unwrap().unwrap();
    let expected = [
        "the child has no metadata.name: an apply needs one",
        "the child has a metadata.resourceVersion, so it was read from the server",
        r#"has objects of "v2 ConfigMap" in namespace "default": set apiVersion and kind"#,
        r#"has objects of " ConfigMap" in"#,
    ];
    for (message, expected) in messages.iter().zip(expected) {
        assert!(message.contains(expected), "{message}");
    }
    assert!(test.writes().is_empty());
}

#[test]
fn child_of_a_dynamic_source_is_found_by_its_kind() {
    let sources = |mut builder: ControllerBuilder<Deployment>| {
        for (group, resource) in [
            ("", "configmaps"),
            ("rbac.authorization.k8s.io", "rolebindings"),
            ("rbac.authorization.k8s.io", "roles"),
            ("networking.k8s.io", "networkpolicies"),
        ] {
            builder = builder.owns(Source::dynamic(GroupVersionResource::new(
                group, "v1", resource,
            )));
        }
        builder
    };
    let (mut test, results) = run(sources, |cx| {
        for (api_version, kind) in [
            ("rbac.authorization.k8s.io/v1", "Role"),
            ("rbac.authorization.k8s.io/v1", "RoleBinding"),
            ("networking.k8s.io/v1", "NetworkPolicy"),
        ] {
            cx.apply::<DynamicObject>(
                json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "m"}}),
            )?;
        }
        Ok(apply::<DynamicObject>(cx, map()))
    });
    test.run_until_idle().unwrap();
    let lines: Vec<_> = test.writes().iter().map(ToString::to_string).collect();
    let of = |resource| format!("patch {resource} default/m");
    assert_eq!(lines, ["roles", "rolebindings", "networkpolicies"].map(of));
    let message = results.recv().unwrap().unwrap();
    assert!(
        message.contains(r#"has objects of " " in namespace"#),
        "{message}"
    );
}

#[test]
#[should_panic(expected = "owns no objects of type")]
fn apply_without_a_source_of_its_type_panics() {
    let (mut test, results) = run(|builder| builder, |cx| Ok(apply::<ConfigMap>(cx, map())));
    test.run_until_idle().unwrap();
    panic!("{}", results.recv().unwrap().unwrap_err());
}

#[test]
fn request_has_kind_owner_and_uid() {
    let (mut test, results) = run(maps, forced);
    assert_eq!(applied(&mut test, &results), [Applied::Created]);
    let created = test.writes().remove(0).body;
    assert_eq!(
        (&created["apiVersion"], &created["kind"]),
        (&json!("v1"), &json!("ConfigMap"))
    );
    assert_eq!(created["metadata"]["ownerReferences"][0]["name"], "web");
    assert_eq!(created["metadata"].get("uid"), None);
    test.server()
        .patch(MAP, json!({"data": {"a": "2"}}))
        .unwrap();
    assert_eq!(applied(&mut test, &results), [Applied::Changed]);
    let uid = test.server().get(MAP).unwrap()["metadata"]["uid"].clone();
    assert_eq!(test.writes()[0].body["metadata"]["uid"], uid);
    assert_eq!(
        test.server()
            .requests()
            .iter()
            .filter(|request| request.verb() == Verb::Get)
            .count(),
        1
    );
}

#[test]
fn other_content_or_options_are_sent() {
    let turns = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let (mut test, results) = run(maps, move |cx| {
        let turn = turns.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let child = match turn {
            0..3 => map(),
            _ => json!({"metadata": {"name": "m"}, "data": {"a": "1", "b": null}}),
        };
        let options = ApplyOptions::new();
        cx.apply_with::<ConfigMap>(
            child,
            if turn == 1 {
                options
            } else {
                options.force(true)
            },
        )
    });
    for expected in [Applied::Created, Applied::Unchanged] {
        assert_eq!(test.step().unwrap().as_deref(), Some("default/web"));
        assert_eq!(results.recv().unwrap().unwrap(), expected);
        test.controller().enqueue("default/web");
    }
    for expected in [Applied::Unchanged, Applied::Unchanged, Applied::NotSent] {
        assert_eq!(test.step().unwrap().as_deref(), Some("default/web"));
        assert_eq!(results.recv().unwrap().unwrap(), expected);
        test.controller().enqueue("default/web");
    }
}

#[test]
fn failed_apply_is_sent_again() {
    for fault in [
        Fault::status(403),
        Fault::status(404),
        Fault::status(409),
        Fault::close(),
    ] {
        let (mut test, results) = run(maps, |cx| cx.apply::<ConfigMap>(map()));
        test.server().fail_next(fault.on(Verb::Patch));
        assert_eq!(applied(&mut test, &results), [Applied::Created]);
    }
    // The response is lost, but the server has executed the request.
    let (mut test, results) = run(maps, forced);
    test.server()
        .fail_next(Fault::close().after_bytes(1).on(Verb::Patch));
    assert_eq!(applied(&mut test, &results), [Applied::Unchanged]);
    test.server()
        .patch(MAP, json!({"data": {"a": "2"}}))
        .unwrap();
    test.server()
        .fail_next(Fault::close().after_bytes(1).on(Verb::Patch));
    // The next call finds the content that the server had answered before.
    assert_eq!(applied(&mut test, &results), []);
    assert_eq!(test.server().get(MAP).unwrap()["data"]["a"], "1");
    // A read fails before the create.
    let (mut test, results) = run(maps, |cx| cx.apply::<ConfigMap>(map()));
    test.server().fail_next(Fault::status(403).on(Verb::Get));
    assert_eq!(applied(&mut test, &results), [Applied::Created]);
}

#[test]
fn deleted_child_is_created_again() {
    let (mut test, results) = run(maps, |cx| cx.apply::<ConfigMap>(map()));
    assert_eq!(applied(&mut test, &results), [Applied::Created]);
    test.server().delete(MAP).unwrap();
    assert_eq!(applied(&mut test, &results), [Applied::Created]);
    // Another program creates it in the meantime.
    test.server().delete(MAP).unwrap();
    test.server().create(MAPS, map()).unwrap();
    assert_eq!(applied(&mut test, &results), []);
    let failure = test.controller().last_failure("default/web");
    let failure = failure.unwrap().failure.to_string();
    assert!(
        failure.contains("exists and has no controller"),
        "{failure}"
    );
}

#[test]
fn child_outside_the_scope_is_read_and_never_remembered() {
    let scope = k8s_informer::informer::InformerScope::all();
    let source = Source::of::<ConfigMap>().scope(scope.label_selector("app=web".parse().unwrap()));
    let owns = move |builder: ControllerBuilder<Deployment>| builder.owns(source.clone());
    let (mut test, results) = run(owns, |cx| cx.apply::<ConfigMap>(map()));
    assert_eq!(applied(&mut test, &results), [Applied::Created]);
    test.controller().enqueue("default/web");
    assert_eq!(applied(&mut test, &results), [Applied::Unchanged]);
}

#[test]
fn fight_is_logged_once_with_the_other_managers() {
    log_capture::start();
    let (mut test, results) = run(
        |builder| maps(builder).field_manager("keeper"),
        |cx| cx.apply_with::<ConfigMap>(map(), ApplyOptions::new().force(true)),
    );
    assert_eq!(applied(&mut test, &results), [Applied::Created]);
    let api = Client::new(Config::new(test.server().url()))
        .unwrap()
        .api::<ConfigMap>(Some("default"));
    let rival = |manager, data| {
        let child = json!({"metadata": {"name": "m"}, "data": data});
        api.patch(
            "m",
            &Patch::apply(manager, child).force(true),
            &Stop::never(),
        )
        .unwrap();
    };
    rival("bystander", json!({"b": "1"}));
    let lines = || log_capture::lines_with(&["default/web", "after each of 10 applies"]);
    for round in 1..=25 {
        rival("rival", json!({"a": format!("round {round}")}));
        assert_eq!(applied(&mut test, &results), [Applied::Changed], "{round}");
        assert_eq!(lines().len(), usize::from(round >= 10), "{round}");
    }
    let line = &lines()[0];
    assert!(
        line.starts_with("WARN ") && line.contains(r#"configmaps.v1 "default/m" has changed"#),
        "{line}"
    );
    assert!(
        line.ends_with(r#"its fields were taken from: "rival""#),
        "{line}"
    );
    // After a calm time, a new fight is a new line. Nobody owns these changes, as those of a webhook.
    test.advance(Duration::from_secs(300)).unwrap();
    for round in 1..=10 {
        let mut map = test.server().get(MAP).unwrap();
        map["data"]["a"] = format!("round {round}").into();
        map["metadata"]["managedFields"][0]["time"] = Value::Null;
        test.server().update(MAP, map).unwrap();
        test.run_until_idle().unwrap();
        assert_eq!(lines().len(), 1 + usize::from(round == 10));
    }
    assert!(
        lines()[1].contains("taken from: no known manager, so it may be a webhook"),
        "{}",
        lines()[1]
    );
    // Changes that no apply has to repair are no fight.
    test.advance(Duration::from_secs(300)).unwrap();
    for round in 1..=12 {
        test.server()
            .patch(MAP, json!({"data": {"b": format!("round {round}")}}))
            .unwrap();
        test.run_until_idle().unwrap();
    }
    assert_eq!(lines().len(), 2);
}

/// Conflicts with newer versions are debug messages. This one stays.
#[test]
fn conflict_of_managers_is_a_warning_in_the_log() {
    log_capture::start();
    let (mut test, results) = run(
        |builder| maps(builder).field_manager("loser"),
        |cx| cx.apply::<ConfigMap>(map()),
    );
    assert_eq!(applied(&mut test, &results), [Applied::Created]);
    let client = Client::new(Config::new(test.server().url())).unwrap();
    let rival = json!({"metadata": {"name": "m"}, "data": {"a": "2"}});
    let rival = Patch::apply("log-rival", rival).force(true);
    let api = client.api::<ConfigMap>(Some("default"));
    api.patch("m", &rival, &Stop::never()).unwrap();
    test.step().unwrap();
    let failure = results.recv().unwrap().unwrap_err();
    assert!(!failure.is_terminal(), "{failure}");
    let lines = log_capture::lines_with(&["WARN", r#"conflict with "log-rival""#]);
    assert_eq!(lines.len(), 1, "{lines:?}");
}

#[test]
fn source_of_the_namespace_is_chosen() {
    let sources = |mut builder: ControllerBuilder<Deployment>| {
        for namespace in ["other", "default"] {
            let scope = k8s_informer::informer::InformerScope::all().namespace(namespace);
            builder = builder.owns(Source::of::<ConfigMap>().scope(scope));
        }
        builder
    };
    let (mut test, results) = run(sources, |cx| cx.apply::<ConfigMap>(map()));
    assert_eq!(applied(&mut test, &results), [Applied::Created]);
    test.controller().enqueue("default/web");
    assert_eq!(applied(&mut test, &results), []);
}

/// The controller of a [`ControllerTest`] is named after its resource, and applies as that manager.
const MANAGER: &str = "deployments";

/// What a version of the program writes.
#[derive(Clone)]
enum Version {
    /// Creates the map as the manager of the controller, if there is none.
    Creates(Value),
    Applies(Value, ApplyOptions),
}

/// A program in one version after another, each of which begins with a restart. It owns ConfigMaps
/// as objects of some type.
struct Program {
    test: ControllerTest<Deployment>,
    version: Arc<std::sync::Mutex<Version>>,
    _results: Results<()>,
}

impl Program {
    fn start<C>(first: Version) -> Self
    where
        C: FullMetadata + Resource + DeserializeOwned + Serialize,
    {
        let version = Arc::new(std::sync::Mutex::new(first));
        let current = Arc::clone(&version);
        let sources = |builder: ControllerBuilder<Deployment>| builder.owns(Source::of::<C>());
        let (mut test, results) = run(sources, move |cx| {
            let map = |data| json!({"metadata": {"name": "m"}, "data": data});
            match current.lock().unwrap().clone() {
                Version::Creates(data) if cx.children::<C>()?.is_empty() => {
                    let api = cx.api::<C>(Some(cx.namespace())).field_manager(MANAGER);
                    api.create(&cx.owned(map(data))?, cx.stop())?;
                }
                Version::Creates(_) => {}
                Version::Applies(data, options) => {
                    cx.apply_with::<C>(map(data), options)?;
                }
            }
            Ok(())
        });
        test.run_until_idle().unwrap();
        assert_eq!(test.writes().len(), 1);
        Self {
            test,
            version,
            _results: results,
        }
    }

    /// Starts another version.
    fn restart(&mut self, next: Version) {
        *self.version.lock().unwrap() = next;
        self.test.restart().unwrap();
    }

    /// Runs another version until it is idle. Returns the number of its successful writes, and the
    /// data of the map.
    #[track_caller]
    fn next(&mut self, next: Version) -> (usize, Value) {
        self.restart(next);
        self.test.run_until_idle().unwrap();
        let failure = self.test.controller().last_failure("default/web");
        assert!(failure.is_none(), "{failure:?}");
        (self.test.writes().len(), self.map()["data"].clone())
    }

    fn map(&self) -> Value {
        self.test.server().get(MAP).unwrap()
    }

    /// Runs one call, and returns how it failed.
    #[track_caller]
    fn step(&mut self) -> Option<Failure> {
        let key = self.test.step().unwrap();
        assert_eq!(key.as_deref(), Some("default/web"));
        let last = self.test.controller().last_failure("default/web");
        last.map(|last| last.failure)
    }

    /// The managers of the map with their operations.
    fn managers(&self) -> Vec<String> {
        let map = self.map();
        let entries = map["metadata"]["managedFields"].as_array().unwrap().iter();
        let text = |entry: &Value, field: &str| entry[field].as_str().unwrap().to_owned();
        let name = |entry| format!("{} {}", text(entry, "manager"), text(entry, "operation"));
        entries.map(name).collect()
    }
}

#[test]
fn created_child_can_be_applied_and_loses_dropped_fields() {
    /// A type without managed fields.
    #[derive(serde::Deserialize, Serialize)]
    struct Slim {
        metadata: k8s_informer::object::FullObjectMeta,
    }
    k8s_informer::impl_object!(Slim, "v1", "ConfigMap", "configmaps", Namespaced);
    k8s_informer::impl_full_metadata!(Slim);

    fn check<C>()
    where
        C: FullMetadata + Resource + DeserializeOwned + Serialize,
    {
        let create = || {
            let first = Version::Creates(json!({"a": "1", "b": "1", "c": "1"}));
            let program = Program::start::<C>(first);
            assert_eq!(program.managers(), ["deployments Update"]);
            program
        };
        let plain = ApplyOptions::new();
        // The apply conflicts with the create. Then come the migration, and the apply once more.
        let mut program = create();
        let changed = json!({"a": "2", "b": "1"});
        let next = program.next(Version::Applies(changed.clone(), plain));
        assert_eq!(next, (2, changed));
        assert_eq!(program.managers(), ["deployments Apply"]);
        // Later versions send one request.
        let dropped = json!({"a": "2"});
        for _ in 0..2 {
            let next = program.next(Version::Applies(dropped.clone(), plain));
            assert_eq!(next, (1, dropped.clone()));
        }
        // Without a conflict, the answer to the first apply has the managers.
        for (data, options) in [
            (json!({"a": "1"}), plain),
            (json!({"a": "2"}), plain.force(true)),
        ] {
            let mut program = create();
            let next = program.next(Version::Applies(data.clone(), options));
            assert_eq!(next, (3, data));
            assert_eq!(program.managers(), ["deployments Apply"]);
        }
    }
    check::<ConfigMap>();
    check::<Slim>();
}

#[test]
fn migration_leaves_other_managers() {
    let first = Version::Creates(json!({"a": "1", "b": "1"}));
    let mut program = Program::start::<ConfigMap>(first);
    let other = json!({"data": {"other": "1"}});
    program.test.server().patch(MAP, other).unwrap();
    let applies = |data| Version::Applies(data, ApplyOptions::new());
    let next = program.next(applies(json!({"a": "1"})));
    assert_eq!(next, (3, json!({"a": "1", "other": "1"})));
    let managers = ["deployments Apply", "k8s-informer-testing Update"];
    assert_eq!(program.managers(), managers);
    // The field of another manager is still a conflict, without a write.
    program.restart(applies(json!({"a": "1", "other": "2"})));
    let text = program.step().unwrap().to_string();
    let conflict = r#"conflict with "k8s-informer-testing" using v1: .data.other"#;
    assert!(text.contains(conflict), "{text}");
    assert!(program.test.writes().is_empty());
}

fn is_json_patch(request: &RequestRecord) -> bool {
    request.header("content-type") == Some("application/json-patch+json")
}

#[test]
fn migration_is_repeated_a_limited_number_of_times() {
    let create = |fault: Fault| {
        let mut program = Program::start::<ConfigMap>(Version::Creates(json!({"a": "1"})));
        program.restart(Version::Applies(json!({"a": "2"}), ApplyOptions::new()));
        let server = program.test.server();
        server.clear_requests();
        server.fail_next(fault.on(Verb::Patch).when(is_json_patch));
        program
    };
    let migrations = |program: &Program| {
        let requests = program.test.server().requests();
        let migrations = requests.iter().filter(|request| is_json_patch(request));
        migrations.count()
    };
    // Another program writes at the same time, but not always.
    let mut program = create(Fault::status(409).times(3));
    assert!(program.step().is_none());
    assert_eq!(program.map()["data"], json!({"a": "2"}));
    assert_eq!(migrations(&program), 4);
    // The call fails, and a retry begins again.
    let mut program = create(Fault::status(409).always());
    let failure = program.step().unwrap();
    let error = failure.downcast_ref::<k8s_informer::Error>().unwrap();
    assert!(error.is_conflict() && !failure.is_terminal());
    assert_eq!(migrations(&program), 6);
    program.test.server().clear_faults();
    program.test.run_until_idle().unwrap();
    assert_eq!(program.map()["data"], json!({"a": "2"}));
}

const GROUP: &str = "kinds.example.com";

/// A server with custom resources whose plural names do not begin like their kinds.
fn server_with(resources: &[(&str, &str)]) -> ApiServer {
    let mut builder = ApiServer::builder().garbage_collection(true);
    for (plural, kind) in resources {
        builder = builder.resource(ApiResource::new(GROUP, "v1", *plural, *kind));
    }
    builder.start().unwrap()
}

fn dynamic(plural: &str) -> Source<DynamicObject> {
    Source::dynamic(GroupVersionResource::new(GROUP, "v1", plural))
}

#[test]
fn child_of_an_irregular_plural_goes_to_its_resource() {
    for (plural, kind, other, other_kind) in [
        ("analyses", "Analysis", "jobs", "Job"),
        ("indices", "Index", "data", "Datum"),
        ("nodes", "NodeMetrics", "pods", "PodMetrics"),
    ] {
        let server = server_with(&[(other, other_kind), (plural, kind)]);
        let mut test = ControllerTest::with_server(
            server,
            Source::of::<Deployment>(),
            move |builder| {
                let builder = builder.owns(dynamic(other)).owns_optional(dynamic(plural));
                builder.by(move |cx, _| {
                for name in ["m", "n"] {
                    for kind in [kind, other_kind] {
                        let api_version = format!("{GROUP}/v1");
                        let metadata = json!({"name": name});
                        let child = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata});
                        cx.apply::<DynamicObject>(child)?;
                    }
                }
                Ok(Next::Done)
            })
            },
        );
        let test = test.as_mut().unwrap();
        // While the controller starts, it asks discovery each second.
        test.run_until_idle().unwrap();
        let web = json!({"metadata": {"name": "web"}});
        test.server().create(DEPLOYMENTS, web).unwrap();
        test.run_until_idle().unwrap();
        let lines: Vec<_> = test.writes().iter().map(ToString::to_string).collect();
        let patches =
            ["m", "n"].map(|name| [plural, other].map(|of| format!("patch {of} default/{name}")));
        assert_eq!(lines, patches.concat());
        // The first child may make the controller ask. What it has learned is enough for the others.
        let requests = test.server().requests();
        let is_patch = |request: &RequestRecord| request.verb() == Verb::Patch;
        let first = requests.iter().position(is_patch).unwrap();
        let last = requests.iter().rposition(is_patch).unwrap();
        let mut paths = requests[first..last].iter().map(RequestRecord::path);
        assert!(!paths.any(|path| path == "/apis"));
    }
}

#[test]
fn child_of_a_missing_optional_kind_goes_nowhere() {
    let server = server_with(&[("jobs", "Job")]);
    let test = ControllerTest::with_server(server, Source::of::<Deployment>(), |builder| {
        let builder = builder.owns(dynamic("jobs"));
        builder.owns_optional(dynamic("analyses")).by(|cx, _| {
            let api_version = format!("{GROUP}/v1");
            let child =
                json!({"apiVersion": api_version, "kind": "Analysis", "metadata": {"name": "m"}});
            cx.apply::<DynamicObject>(child)?;
            Ok(Next::Done)
        })
    });
    let mut test = test.unwrap();
    let web = json!({"metadata": {"name": "web"}});
    test.server().create(DEPLOYMENTS, web).unwrap();
    test.run_until_idle().unwrap();
    let failure = test.controller().last_failure("default/web").unwrap();
    let text = failure.failure.to_string();
    assert!(text.contains("no source of `owns`"), "{text}");
    let is_patch = |request: &RequestRecord| request.verb() == Verb::Patch;
    assert!(!test.server().requests().iter().any(is_patch));
}

#[test]
fn child_of_another_kind_than_its_source_is_refused() {
    let (mut test, results) = run(maps, |cx| {
        Ok(["Secret", ""].map(|kind| {
            let child = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "m"}});
            apply::<ConfigMap>(cx, child)
        }))
    });
    test.run_until_idle().unwrap();
    for message in results.recv().unwrap().unwrap() {
        assert!(message.contains("no source of `owns`"), "{message}");
    }
    assert!(test.writes().is_empty());
}

#[test]
fn two_resources_of_one_kind_are_refused_at_the_start() {
    let resources = [
        ("templates", "Template"),
        ("processedtemplates", "Template"),
    ];
    let cluster = Cluster::with_server(server_with(&resources));
    let builder = cluster.controller::<Deployment>("kinds");
    let builder = builder
        .owns(dynamic("templates"))
        .owns(dynamic("processedtemplates"));
    let controller = builder.by(|_, _| Ok(Next::Done)).unwrap();
    let error = controller.run(&Stop::never()).unwrap_err();
    assert!(
        matches!(error.kind(), ControllerErrorKind::Invalid { .. }),
        "{error}"
    );
    let text = error.to_string();
    for expected in [
        "templates.v1",
        "processedtemplates.v1",
        "kind",
        "Source::dynamic_as",
    ] {
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn optional_of_two_kinds_of_one_type_is_refused() {
    let server = server_with(&[("analyses", "Analysis")]);
    let test = ControllerTest::with_server(server, Source::of::<Deployment>(), |builder| {
        let builder = builder.owns_optional(dynamic("analyses"));
        let builder = builder.watches_optional(dynamic("missing"), |_| None);
        builder.by(|cx, _| {
            cx.optional::<DynamicObject>();
            Ok(Next::Done)
        })
    });
    let mut test = test.unwrap();
    let web = json!({"metadata": {"name": "web"}});
    test.server().create(DEPLOYMENTS, web).unwrap();
    test.step().unwrap();
    let failure = test
        .controller()
        .last_failure("default/web")
        .unwrap()
        .failure;
    let text = failure.to_string();
    for expected in ["analyses.v1", "missing.v1", "Source::dynamic_as"] {
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn child_of_an_earlier_owner_is_awaited() {
    let (mut test, results) = run(maps, |cx| {
        let finalizers = ["example.com/hold"];
        let child =
            json!({"metadata": {"name": "m", "finalizers": finalizers}, "data": {"a": "1"}});
        cx.apply::<ConfigMap>(child)
    });
    assert_eq!(applied(&mut test, &results), [Applied::Created]);
    // The collector deletes the child after its owner, but a finalizer holds it.
    let web = json!({"metadata": {"name": "web"}});
    test.server().delete(&format!("{DEPLOYMENTS}/web")).unwrap();
    test.run_until_idle().unwrap();
    test.server().create(DEPLOYMENTS, web).unwrap();
    let uid = test.server().get(MAP).unwrap()["metadata"]["uid"].clone();
    test.writes();
    assert_eq!(test.step().unwrap().as_deref(), Some("default/web"));
    let failure = results.recv().unwrap().unwrap_err();
    assert!(!failure.is_terminal());
    let text = failure.to_string();
    assert!(
        text.contains(r#"is controlled by an earlier Deployment "web""#),
        "{text}"
    );
    assert!(!text.contains("another name"), "{text}");
    assert!(test.writes().is_empty());
    // Its deletion heals the key.
    let release = json!({"metadata": {"finalizers": null}});
    test.server().patch(MAP, release).unwrap();
    assert_eq!(applied(&mut test, &results), [Applied::Created]);
    assert_ne!(test.server().get(MAP).unwrap()["metadata"]["uid"], uid);
    assert!(test.controller().last_failure("default/web").is_none());
}

#[test]
fn child_outside_of_a_field_selector_is_never_remembered() {
    for (selector, is_remembered) in [("metadata.name=other", false), ("metadata.name=m", true)] {
        let scope = k8s_informer::informer::InformerScope::all().field_selector(selector);
        let owns = move |builder: ControllerBuilder<Deployment>| {
            builder.owns(Source::of::<ConfigMap>().scope(scope.clone()))
        };
        let (mut test, results) = run(owns, |cx| cx.apply::<ConfigMap>(map()));
        let first = applied(&mut test, &results);
        assert_eq!(first[0], Applied::Created);
        test.controller().enqueue("default/web");
        let expected = if is_remembered {
            vec![]
        } else {
            vec![Applied::Unchanged]
        };
        assert_eq!(applied(&mut test, &results), expected, "{selector}");
    }
}
