//! Installs CustomResourceDefinitions, with faults and with virtual time.

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use k8s_informer::client::crds::InstallOptions;
use k8s_informer::error::WaitError;
use k8s_informer::informer::Source;
use k8s_informer::object::GroupVersionResource;
use k8s_informer::{DynamicObject, SharedInformerFactory, Stopper};
use k8s_informer_testing::{Fault, RequestRecord, Verb};
use serde_json::{Value, json};

use super::waits::World;
use crate::log_capture;

const TIMEOUT: Duration = Duration::from_secs(20);
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// The definition of a kind, such as `Team` with the plural name `teams`.
fn definition(kind: &str) -> Value {
    let plural = format!("{}s", kind.to_lowercase());
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.acme.test")},
        "spec": {
            "group": "acme.test", "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")},
            "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}},
                {"name": "v1alpha1", "served": false, "storage": false, "schema": {"openAPIV3Schema": {"type": "object"}}},
            ],
        },
    })
}

fn path(plural: &str) -> String {
    format!("{DEFINITIONS}/{plural}.acme.test")
}

fn options() -> InstallOptions {
    InstallOptions::new("acme-controller")
}

fn install(world: &World, definitions: &[Value]) -> Result<(), WaitError> {
    world
        .client
        .install_crds(definitions, &options(), &world.stop)
}

/// Runs an installation on a thread, and `meanwhile` on this one.
fn during(
    world: &World,
    definitions: &[Value],
    options: &InstallOptions,
    meanwhile: impl FnOnce(),
) -> Result<(), WaitError> {
    let (sender, result) = channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            let installed = world.client.install_crds(definitions, options, &world.stop);
            let _ = sender.send(installed);
        });
        meanwhile();
        let result = result.recv_timeout(TIMEOUT);
        world.stop.stop();
        result.expect("the installation did not end")
    })
}

fn version(world: &World, plural: &str) -> Value {
    world.server.get(&path(plural)).unwrap()["metadata"]["resourceVersion"].clone()
}

fn writes(world: &World) -> usize {
    let requests = world.server.requests();
    requests
        .iter()
        .filter(|request| request.method() != "GET")
        .count()
}

#[test]
fn installed_resources_are_established_and_served() {
    let world = World::new();
    // A failed search before the installation must not delay the next one.
    assert!(
        world
            .client
            .discover("teams", &world.stop)
            .unwrap_err()
            .is_no_match()
    );
    install(&world, &[definition("Team"), definition("Player")]).unwrap();
    let factory = SharedInformerFactory::new(world.client.clone());
    for plural in ["teams", "players"] {
        let found = world.client.discover(plural, &world.stop).unwrap();
        assert_eq!(
            found.resource,
            GroupVersionResource::new("acme.test", "v1", plural)
        );
        factory.informer_for(Source::dynamic(found.resource));
    }
    factory.start(&world.stop).unwrap();
    factory.wait_for_cache_sync(TIMEOUT, &world.stop).unwrap();
    factory.shut_down(None).unwrap();
}

#[test]
fn second_installation_writes_nothing() {
    let world = World::new();
    let both = [definition("Team"), definition("Player")];
    install(&world, &both).unwrap();
    let before = (world.server.resource_version(), version(&world, "teams"));
    install(&world, &both).unwrap();
    assert_eq!(
        (world.server.resource_version(), version(&world, "teams")),
        before
    );
    // Other forms of the same definitions.
    let forms = both.map(|definition| DynamicObject::new(&definition).unwrap());
    world
        .client
        .install_crds(&forms, &options(), &world.stop)
        .unwrap();
    assert_eq!(world.server.resource_version(), before.0);

    // A new version is served after the installation.
    let mut changed = definition("Team");
    changed["spec"]["versions"][1]["served"] = true.into();
    install(&world, &[changed]).unwrap();
    let discovery = world.client.discovery(&world.stop).unwrap();
    let alpha = GroupVersionResource::new("acme.test", "v1alpha1", "teams");
    assert!(discovery.by_resource(&alpha).is_some());
}

#[test]
fn no_definitions_need_no_requests() {
    let world = World::new();
    install(&world, &[]).unwrap();
    assert!(world.server.requests().is_empty());
}

#[test]
fn invalid_definition_prevents_all_writes() {
    let changed = |pointer: &str, value: Value| {
        let mut definition = definition("Team");
        *definition.pointer_mut(pointer).unwrap() = value;
        definition
    };
    let kind = |kind: &str, version: &str| {
        format!(
            "number 2 (\"teams.acme.test\"): the kind is \"{kind}\" in \"{version}\" instead of \
             \"CustomResourceDefinition\" in \"apiextensions.k8s.io/v1\""
        )
    };
    let of_team = |why: &str| format!("number 2 (\"teams.acme.test\"): {why}");
    for (invalid, why) in [
        (
            changed("/kind", json!("ConfigMap")),
            kind("ConfigMap", "apiextensions.k8s.io/v1"),
        ),
        (
            changed("/apiVersion", json!("apiextensions.k8s.io/v1beta1")),
            kind("CustomResourceDefinition", "apiextensions.k8s.io/v1beta1"),
        ),
        (
            changed("/spec/group", json!("")),
            of_team("spec.group or spec.names.plural is missing"),
        ),
        (
            changed("/spec/names", json!(7)),
            of_team("spec.group or spec.names.plural is missing"),
        ),
        (
            changed("/spec/names/plural", json!("team")),
            of_team("the name must be \"team.acme.test\""),
        ),
        (
            changed("/spec/versions", json!([{"name": "v1"}, 7])),
            of_team("no version is served"),
        ),
        (
            json!(["s3cret"]),
            "number 2 (\"\"): the kind is \"\" in \"\" instead of \"CustomResourceDefinition\" in \
             \"apiextensions.k8s.io/v1\""
                .to_owned(),
        ),
        (
            definition("Player"),
            "\"players.acme.test\" is passed twice".to_owned(),
        ),
    ] {
        let world = World::new();
        let error = install(&world, &[definition("Player"), invalid]).unwrap_err();
        let text = error.to_string();
        let end = format!(": invalid CustomResourceDefinition: {why}; nothing was written");
        assert!(error.is_refused() && text.ends_with(&end), "{text}\n{end}");
        assert!(
            text.starts_with("failed installing ") && !text.contains("s3cret"),
            "{text}"
        );
        assert!(world.server.requests().is_empty());
    }
}

#[test]
fn name_conflict_ends_the_installation_at_once() {
    let world = World::new();
    install(&world, &[definition("Team")]).unwrap();
    let mut rival = definition("Rival");
    rival["spec"]["names"]["kind"] = "Team".into();
    rival["spec"]["names"]["shortNames"] = json!(["rv"]);
    let error = install(&world, &[definition("Player"), rival.clone()]).unwrap_err();
    assert!(error.is_refused(), "{error}");
    assert_eq!(
        error.to_string(),
        "failed installing players.acme.test, rivals.acme.test: \"rivals.acme.test\": KindConflict: \"Team\" is \
         already in use"
    );
    assert!(
        world
            .client
            .rediscover(&world.stop)
            .unwrap()
            .find("rivals")
            .is_err()
    );
    // With another kind, it can be installed.
    rival["spec"]["names"]["kind"] = "Rival".into();
    install(&world, &[rival]).unwrap();
}

#[test]
fn conflict_about_an_earlier_name_is_ignored() {
    let world = World::new();
    let team = definition("Team");
    let old = json!([
        {"type": "NamesAccepted", "status": "False", "reason": "KindConflict", "message": "\"Group\" is already in use"},
    ]);
    let mut stale = team.clone();
    stale["metadata"]["resourceVersion"] = "1".into();
    stale["status"] = json!({"conditions": old, "acceptedNames": {}});
    let list = json!({"kind": "CustomResourceDefinitionList", "apiVersion": "apiextensions.k8s.io/v1",
        "metadata": {"resourceVersion": "1"}, "items": [stale]});
    let list = Fault::response(200, "application/json", list.to_string());
    world.server.fail_next(list.on(Verb::List));
    // The watch from version 1 delivers the real state.
    install(&world, &[team]).unwrap();
    assert_eq!(world.server.pending_faults(), 0);
}

#[test]
fn fields_of_another_manager_are_taken_only_with_force() {
    let world = World::new();
    let mut theirs = definition("Team");
    theirs["spec"]["names"]["shortNames"] = json!(["t"]);
    let other = InstallOptions::new("helm");
    world
        .client
        .install_crds([&theirs], &other, &world.stop)
        .unwrap();
    let mut ours = definition("Team");
    ours["spec"]["names"]["shortNames"] = json!(["tm"]);
    let error = install(&world, &[ours.clone()]).unwrap_err();
    assert!(
        error.is_refused() && error.last_error().unwrap().is_conflict(),
        "{error}"
    );
    assert!(
        error.to_string().contains("conflict with \"helm\""),
        "{error}"
    );
    world
        .client
        .install_crds([&ours], &options().force(true), &world.stop)
        .unwrap();
    assert_eq!(
        world.client.discover("tm", &world.stop).unwrap().kind.kind,
        "Team"
    );
}

#[test]
fn definition_being_deleted_is_applied_again_when_it_is_gone() {
    let world = World::new();
    install(&world, &[definition("Team"), definition("Player")]).unwrap();
    let teams = "/apis/acme.test/v1/namespaces/default/teams";
    let held = json!({"metadata": {"name": "a", "finalizers": ["acme.test/hold"]}});
    world.server.create(teams, held).unwrap();
    let uid = |world: &World| world.server.get(&path("teams")).unwrap()["metadata"]["uid"].clone();
    let before = uid(&world);
    world.server.delete(&path("teams")).unwrap();
    during(
        &world,
        &[definition("Team"), definition("Player")],
        &options(),
        || {
            world.server.wait_for_watches(1, TIMEOUT).unwrap();
            let release = json!({"metadata": {"finalizers": null}});
            world.server.patch(&format!("{teams}/a"), release).unwrap();
        },
    )
    .unwrap();
    assert_ne!(uid(&world), before);
}

#[test]
fn faults_of_each_step_are_retried() {
    let world = World::new();
    let request = |path: &'static str| move |request: &RequestRecord| request.path() == path;
    let stale = world
        .client
        .request(&k8s_informer::client::Request::get("/apis"), &world.stop);
    let stale = stale.unwrap().bytes().unwrap();
    let fail = |fault: Fault| world.server.fail_next(fault);
    fail(Fault::status(503).on(Verb::Patch));
    fail(Fault::reset().after_bytes(0).on(Verb::Patch));
    fail(
        Fault::status(500)
            .on(Verb::List)
            .resource("customresourcedefinitions"),
    );
    // Discovery is late, and so is the storage.
    fail(Fault::status(503).when(request("/apis")));
    fail(Fault::response(200, "application/json", stale).when(request("/apis")));
    fail(Fault::status(404).on(Verb::List).resource("teams"));
    fail(Fault::status(429).on(Verb::List).resource("teams"));
    during(&world, &[definition("Team")], &options(), || {
        for number in 1..=7 {
            assert!(world.end_wait(number) <= Duration::from_secs(20));
        }
    })
    .unwrap();
    assert_eq!(world.server.pending_faults(), 0);
}

#[test]
fn repeated_failure_is_one_warning() {
    log_capture::start();
    let world = World::new();
    let fault = Fault::status(503).on(Verb::Patch).times(4);
    world.server.fail_next(fault);
    during(&world, &[definition("Logged")], &options(), || {
        for number in 1..=4 {
            assert!(world.end_wait(number) <= Duration::from_secs(20));
        }
    })
    .unwrap();
    let lines = |level| log_capture::lines_with(&[level, "loggeds", "retrying in"]).len();
    assert_eq!((lines("WARN"), lines("DEBUG")), (1, 3));
}

#[test]
fn missing_permission_to_list_the_resource_is_no_error() {
    let world = World::new();
    world
        .server
        .fail_next(Fault::status(403).on(Verb::List).resource("teams"));
    install(&world, &[definition("Team")]).unwrap();
    assert_eq!(world.server.pending_faults(), 0);
}

#[test]
fn refused_apply_ends_the_installation() {
    for code in [401, 403, 404, 422] {
        let world = World::new();
        world.server.fail_next(Fault::status(code).on(Verb::Patch));
        let error = install(&world, &[definition("Team"), definition("Player")]).unwrap_err();
        assert!(error.is_refused(), "{error}");
        assert_eq!(error.last_error().unwrap().status().unwrap().code, code);
        let start = "failed installing teams.acme.test, players.acme.test: apply \
                     customresourcedefinitions.apiextensions.k8s.io \"teams.acme.test\": ";
        assert!(error.to_string().starts_with(start), "{error}");
        assert_eq!(writes(&world), 1);
    }
}

/// Hides the conditions of the definitions, so that they never become established.
fn hide_conditions(world: &World) {
    let mut team = definition("Team");
    team["status"] = json!({"acceptedNames": {}});
    let list = json!({"kind": "CustomResourceDefinitionList", "apiVersion": "apiextensions.k8s.io/v1",
        "metadata": {"resourceVersion": "999999"}, "items": [team]});
    let list = Fault::response(200, "application/json", list.to_string());
    world.server.fail_next(list.on(Verb::List).always());
    world
        .server
        .fail_next(Fault::stall().on(Verb::Watch).always());
}

#[test]
fn timeout_names_what_is_missing() {
    let world = World::new();
    hide_conditions(&world);
    let options = options().timeout(Duration::from_secs(60));
    let error = during(&world, &[definition("Team")], &options, || {
        let is_watch = |request: &RequestRecord| request.verb() == Verb::Watch;
        let is_watching = |all: &[RequestRecord]| all.iter().any(is_watch);
        world
            .server
            .wait_for_requests(is_watching, TIMEOUT)
            .unwrap();
        world.clock.wait_for_waits(1, TIMEOUT).unwrap();
        world.clock.advance(Duration::from_secs(60));
    })
    .unwrap_err();
    assert!(error.is_timed_out(), "{error}");
    assert_eq!(
        error.to_string(),
        "timed out after 60s installing teams.acme.test; last seen: \"teams.acme.test\" not established yet"
    );

    let world = World::new();
    world
        .server
        .fail_next(Fault::status(404).on(Verb::List).resource("teams").always());
    let error = during(&world, &[definition("Team")], &options, || {
        world.clock.wait_for_waits(2, TIMEOUT).unwrap();
        world.clock.advance(Duration::from_secs(60));
    })
    .unwrap_err();
    let end = "last seen: teams.v1.acme.test cannot be listed yet";
    assert!(
        error.is_timed_out() && error.to_string().ends_with(end),
        "{error}"
    );
}

#[test]
fn stop_ends_the_installation() {
    let world = World::new();
    hide_conditions(&world);
    let error = during(&world, &[definition("Team")], &options(), || {
        let is_watch = |request: &RequestRecord| request.verb() == Verb::Watch;
        let is_watching = |all: &[RequestRecord]| all.iter().any(is_watch);
        world
            .server
            .wait_for_requests(is_watching, TIMEOUT)
            .unwrap();
        world.stop.stop();
    })
    .unwrap_err();
    assert!(error.is_stopped(), "{error}");
    let stop = Stopper::new();
    stop.stop();
    let error = world
        .client
        .install_crds([definition("Player")], &options(), &stop)
        .unwrap_err();
    assert!(error.is_stopped(), "{error}");
}

/// The error of a list whose objects the server cannot convert.
fn failed_conversion(message: &str) -> Fault {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": 500});
    Fault::response(500, "application/json", status.to_string())
}

#[test]
fn failing_conversion_webhook_does_not_block_the_installation() {
    for message in [
        "conversion webhook for acme.test/v1, Kind=Team failed: Post \
         \"https://team-webhook.acme.svc:443/convert?timeout=30s\": no endpoints available",
        "request to convert CR from an invalid group/version: acme.test/v1alpha0",
    ] {
        let world = World::new();
        let list = failed_conversion(message).on(Verb::List).resource("teams");
        world.server.fail_next(list.always());
        during(&world, &[definition("Team")], &options(), || {}).unwrap();
    }
}

#[test]
fn conversion_of_another_manager_is_not_waited_for() {
    let world = World::new();
    let mut theirs = definition("Team");
    theirs["spec"]["conversion"] = json!({"strategy": "Webhook"});
    world.server.create(DEFINITIONS, theirs).unwrap();
    let stalled = Fault::stall().on(Verb::List).resource("teams");
    world.server.fail_next(stalled.always());
    during(&world, &[definition("Team")], &options(), || {}).unwrap();
}

#[test]
fn no_converted_object_and_no_other_definition_is_read() {
    let world = World::new();
    install(&world, &[definition("Other"), definition("More")]).unwrap();
    let mut team = definition("Team");
    team["spec"]["versions"][1]["served"] = true.into();
    team["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://127.0.0.1:9/convert"}}});
    let mut wide = team.clone();
    wide["metadata"]["name"] = "wides.acme.test".into();
    wide["spec"]["scope"] = "Cluster".into();
    wide["spec"]["names"] =
        json!({"plural": "wides", "singular": "wide", "kind": "Wide", "listKind": "WideList"});
    world.server.clear_requests();
    install(&world, &[team, wide]).unwrap();
    for request in world.server.requests() {
        if [Verb::List, Verb::Watch].contains(&request.verb()) {
            assert_eq!(request.path(), DEFINITIONS);
            let selector = request.param("fieldSelector").unwrap_or_default();
            assert!(selector.starts_with("metadata.name="), "{request:?}");
        }
    }
}

#[test]
fn timeout_names_the_failed_discovery_of_the_group() {
    let world = World::new();
    let stale = json!({"kind": "APIGroupDiscoveryList", "items": [{"metadata": {"name": "acme.test"},
        "versions": [{"version": "v1", "freshness": "Stale"}]}]});
    let stale = Fault::response(200, "application/json", stale.to_string());
    let stale = stale.when(|request| request.path() == "/apis");
    world.server.fail_next(stale.always());
    let minute = Duration::from_secs(60);
    let error = during(
        &world,
        &[definition("Team")],
        &options().timeout(minute),
        || {
            world.clock.wait_for_waits(2, TIMEOUT).unwrap();
            world.clock.advance(minute);
        },
    )
    .unwrap_err();
    let end = "discovery lacks teams.v1.acme.test; last error: the API server of the group does not respond (503 \
               ServiceUnavailable)";
    assert!(
        error.is_timed_out() && error.to_string().ends_with(end),
        "{error}"
    );
}

#[test]
fn discovery_above_the_body_limit_ends_the_installation() {
    let world = World::new();
    let body = "x".repeat(65 << 20);
    let huge = Fault::response(200, "application/json", body);
    world
        .server
        .fail_next(huge.when(|request| request.path() == "/apis"));
    let error = during(&world, &[definition("Team")], &options(), || {}).unwrap_err();
    assert!(error.is_refused(), "{error}");
    assert!(
        error
            .to_string()
            .ends_with("the body is larger than 64 MiB"),
        "{error}"
    );
}
