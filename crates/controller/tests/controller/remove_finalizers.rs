//! The removal of finalizers for an uninstall.

use k8s_informer::informer::InformerScope;
use k8s_informer::object::GroupVersionResource;
use k8s_informer::reflector::Shard;
use k8s_informer_controller::{
    RemovalOutcome, RemoveFinalizersError, RemovedFinalizers, remove_finalizers,
};
use k8s_informer_testing::{RequestRecord, Verb};
use k8s_openapi::api::core::v1::Node;

use super::*;

const NAME: &str = "example.com/test";
const OTHER: &str = "example.com/other";

fn create(cluster: &Cluster, namespace: &str, name: &str, finalizers: &[&str]) {
    let map = json!({"metadata": {"name": name, "finalizers": finalizers}});
    cluster.create_with(&format!("/api/v1/namespaces/{namespace}/configmaps"), map);
}

fn finalizers(cluster: &Cluster, namespace: &str, name: &str) -> Value {
    let path = format!("/api/v1/namespaces/{namespace}/configmaps/{name}");
    cluster.server.get(&path).unwrap()["metadata"]["finalizers"].clone()
}

fn remove_from<T>(
    cluster: &Cluster,
    source: &Source<T>,
) -> Result<RemovedFinalizers, RemoveFinalizersError> {
    remove_finalizers(&cluster.client, source, [NAME], &Stop::never())
}

fn remove(cluster: &Cluster) -> Result<RemovedFinalizers, RemoveFinalizersError> {
    remove_from(cluster, &Source::of::<ConfigMap>())
}

#[track_caller]
fn assert_removed(
    result: Result<RemovedFinalizers, RemoveFinalizersError>,
    listed: usize,
    changed: usize,
) {
    let removed = result.unwrap();
    assert_eq!((removed.listed, removed.changed), (listed, changed));
}

fn requests(cluster: &Cluster, verb: Verb) -> usize {
    let requests = cluster.server.requests();
    requests.iter().filter(|of| of.verb() == verb).count()
}

#[test]
fn only_the_given_finalizers_are_removed() {
    let cluster = Cluster::new();
    create(
        &cluster,
        "default",
        "a",
        &[OTHER, NAME, "old.example.com/x"],
    );
    create(&cluster, "default", "b", &[NAME, OTHER, NAME]);
    create(&cluster, "default", "c", &[OTHER]);
    create(&cluster, "blue", "d", &[NAME]);
    let names = [NAME, "old.example.com/x", "unused.example.com/x"];
    let source = Source::of::<ConfigMap>();
    let remove = || remove_finalizers(&cluster.client, &source, names, &Stop::never());
    assert_removed(remove(), 4, 3);
    assert_eq!(finalizers(&cluster, "default", "a"), json!([OTHER]));
    assert_eq!(finalizers(&cluster, "default", "b"), json!([OTHER]));
    assert_eq!(finalizers(&cluster, "default", "c"), json!([OTHER]));
    // The list is empty, and some servers leave it out.
    let left = finalizers(&cluster, "blue", "d");
    assert!(left.is_null() || left == json!([]), "{left}");
    assert_removed(remove(), 4, 0);
    assert_eq!(requests(&cluster, Verb::Patch), 3);
}

#[test]
fn objects_that_are_being_deleted_are_released() {
    let cluster = Cluster::new();
    create(&cluster, "default", "a", &[NAME]);
    cluster.server.delete(&format!("{MAPS}/a")).unwrap();
    assert_removed(remove(&cluster), 1, 1);
    let error = cluster.server.get(&format!("{MAPS}/a")).unwrap_err();
    assert_eq!(error.code(), 404);
}

#[test]
fn every_form_of_source_is_read_as_metadata() {
    let maps = GroupVersionResource::new("", "v1", "configmaps");
    let run = |remove: &dyn Fn(&Cluster) -> Result<RemovedFinalizers, RemoveFinalizersError>| {
        let cluster = Cluster::new();
        create(&cluster, "default", "a", &[NAME]);
        assert_removed(remove(&cluster), 1, 1);
        let requests = cluster.server.requests();
        let list = requests.iter().find(|of| of.verb() == Verb::List).unwrap();
        let accept = list.header("accept").unwrap();
        assert!(accept.contains("PartialObjectMetadataList"), "{accept}");
        assert_eq!(list.param("limit"), Some("500"));
    };
    run(&remove);
    run(&|cluster| remove_from(cluster, &Source::dynamic(maps.clone())));
    run(&|cluster| remove_from(cluster, &Source::metadata(maps.clone())));
}

#[test]
fn cluster_scoped_objects_are_released() {
    let cluster = Cluster::new();
    let node = json!({"metadata": {"name": "n", "finalizers": [NAME]}});
    cluster.create_with("/api/v1/nodes", node);
    assert_removed(remove_from(&cluster, &Source::of::<Node>()), 1, 1);
}

#[test]
fn scope_limits_the_removal() {
    let cluster = Cluster::new();
    let path = "/api/v1/namespaces/blue/configmaps";
    for (name, app) in [("a", "web"), ("b", "db")] {
        let metadata = json!({"name": name, "finalizers": [NAME], "labels": {"app": app}});
        cluster.create_with(path, json!({"metadata": metadata}));
    }
    create(&cluster, "green", "a", &[NAME]);
    create(&cluster, "red", "a", &[NAME]);
    let source = |scope| Source::of::<ConfigMap>().scope(scope);
    let web = InformerScope::all()
        .namespace("blue")
        .label_selector("app=web".parse().unwrap());
    assert_removed(remove_from(&cluster, &source(web)), 1, 1);
    assert_eq!(finalizers(&cluster, "blue", "b"), json!([NAME]));
    let two = InformerScope::all().namespace("blue").namespace("green");
    assert_removed(remove_from(&cluster, &source(two)), 3, 2);
    assert_eq!(finalizers(&cluster, "red", "a"), json!([NAME]));
    let lists = cluster.server.requests();
    let lists = lists.iter().filter(|of| of.verb() == Verb::List);
    assert!(
        lists
            .map(|of| of.path())
            .all(|path| path.contains("/namespaces/"))
    );
}

#[test]
fn shards_divide_the_removal() {
    let cluster = Cluster::new();
    for name in 0..20 {
        create(&cluster, "default", &format!("m{name}"), &[NAME]);
    }
    let changed = [0, 1, 2].map(|index| {
        let scope = InformerScope::all().shard(Shard::new(index, 3).unwrap());
        let removed = remove_from(&cluster, &Source::of::<ConfigMap>().scope(scope));
        removed.unwrap().changed
    });
    assert_eq!(changed.iter().sum::<usize>(), 20);
    assert!(changed.iter().all(|of_shard| *of_shard < 20), "{changed:?}");
}

#[test]
fn objects_of_all_pages_are_released() {
    let cluster = Cluster::new();
    for name in 0..501 {
        create(&cluster, "default", &format!("m{name}"), &[NAME]);
    }
    assert_removed(remove(&cluster), 501, 501);
    assert_eq!(requests(&cluster, Verb::List), 2);
}

#[test]
fn expired_list_starts_again() {
    let cluster = Cluster::new();
    for name in 0..501 {
        create(&cluster, "default", &format!("m{name:03}"), &[NAME]);
    }
    let fail = |code, verb| cluster.server.fail_next(Fault::status(code).on(verb));
    // The object that fails is in the next list.
    fail(500, Verb::Patch);
    cluster
        .server
        .fail_next(Fault::status(410).on(Verb::List).skip(1));
    assert_removed(remove(&cluster), 500 + 501, 501);
    assert_eq!(cluster.server.pending_faults(), 0);
}

#[test]
fn expired_list_without_progress_is_an_error() {
    let cluster = Cluster::new();
    create(&cluster, "default", "a", &[NAME]);
    cluster.server.fail_next(Fault::status(410).on(Verb::List));
    let error = remove(&cluster).unwrap_err();
    assert!(
        error.error().is_gone() && error.outcome() == RemovalOutcome::Aborted,
        "{error}"
    );
    assert_eq!(requests(&cluster, Verb::List), 1);
}

#[test]
fn failing_object_does_not_end_the_others() {
    let cluster = Cluster::new();
    for name in 0..15 {
        create(&cluster, "default", &format!("m{name:02}"), &[NAME]);
    }
    cluster
        .server
        .fail_next(Fault::status(500).on(Verb::Patch).times(12));
    let error = remove(&cluster).unwrap_err();
    assert!(error.outcome() == RemovalOutcome::Partial && error.error().is_internal_error());
    assert_eq!((error.removed().listed, error.removed().changed), (15, 3));
    assert_eq!((error.failed(), error.objects().len()), (12, 10));
    let message = error.to_string();
    for part in [
        "can't remove the finalizers example.com/test from configmaps.v1 \"default/m00\", \"default/m01\"",
        "\"default/m09\" and 2 more (removed from 3 of 15 listed objects): ",
        "call it again after you have solved this",
    ] {
        assert!(message.contains(part), "{message}");
    }
    assert_removed(remove(&cluster), 15, 12);
}

#[test]
fn missing_credentials_end_the_removal() {
    let cluster = Cluster::new();
    create(&cluster, "default", "a", &[NAME]);
    create(&cluster, "default", "b", &[NAME]);
    let denied = Fault::status(401).on(Verb::Patch).always();
    cluster.server.fail_next(denied);
    let error = remove(&cluster).unwrap_err();
    assert!(error.outcome() == RemovalOutcome::Aborted);
    let failed = (error.failed(), error.objects());
    assert_eq!(failed, (1, &["default/a".into()][..]));
    let message = error.to_string();
    assert!(message.contains("the rest was not tried"), "{message}");
}

#[test]
fn denied_list_ends_the_removal() {
    for code in [401, 403] {
        let cluster = Cluster::new();
        create(&cluster, "default", "a", &[NAME]);
        let denied = Fault::status(code).on(Verb::List).always();
        cluster.server.fail_next(denied);
        let error = remove(&cluster).unwrap_err();
        assert_eq!((error.failed(), error.removed().listed), (0, 0));
        assert!(error.error().is_forbidden() || error.error().is_unauthorized());
    }
}

/// Admission plugins deny single objects with 403.
#[test]
fn object_denied_by_admission_does_not_end_the_others() {
    let cluster = Cluster::new();
    create(&cluster, "default", "a", &[NAME]);
    create(&cluster, "default", "b", &[NAME]);
    let denied = Fault::status(403).on(Verb::Patch);
    cluster.server.fail_next(denied);
    let error = remove(&cluster).unwrap_err();
    assert!(error.outcome() == RemovalOutcome::Partial && error.error().is_forbidden());
    assert_eq!((error.failed(), error.removed().changed), (1, 1));
    assert_eq!(finalizers(&cluster, "default", "a"), json!([NAME]));
}

#[test]
fn invalid_object_is_patched_and_read_once() {
    let cluster = Cluster::new();
    create(&cluster, "default", "a", &[NAME]);
    let invalid = Fault::status(422).on(Verb::Patch).always();
    cluster.server.fail_next(invalid);
    let error = remove(&cluster).unwrap_err();
    assert!(error.error().is_invalid(), "{error}");
    let sent = (
        requests(&cluster, Verb::Patch),
        requests(&cluster, Verb::Get),
    );
    assert_eq!(sent, (1, 1));
}

/// The patch was executed, but its response was lost.
#[test]
fn object_recreated_after_a_lost_response_is_not_released() {
    let cluster = Cluster::new();
    create(&cluster, "default", "a", &[NAME]);
    let lost = Fault::reset().after_bytes(0).on(Verb::Patch);
    cluster.server.fail_next(lost);
    let (arrived, arrivals) = unbounded();
    let (proceed, proceeds) = unbounded::<()>();
    let second = Fault::delay(Duration::ZERO).on(Verb::Patch).when(move |_| {
        arrived.send(()).unwrap();
        proceeds.recv_timeout(LIMIT).is_ok()
    });
    cluster.server.fail_next(second);
    let removed = std::thread::scope(|scope| {
        let removing = scope.spawn(|| remove(&cluster));
        arrivals.recv_timeout(LIMIT).unwrap();
        cluster.server.delete(&format!("{MAPS}/a")).unwrap();
        create(&cluster, "default", "a", &[NAME]);
        proceed.send(()).unwrap();
        removing.join().unwrap()
    });
    assert_removed(removed, 1, 1);
    assert_eq!(finalizers(&cluster, "default", "a"), json!([NAME]));
}

/// Removes the finalizers, and changes `a` between the list and the patch.
fn remove_while(
    cluster: &Cluster,
    change: impl FnOnce(),
) -> Result<RemovedFinalizers, RemoveFinalizersError> {
    let ((arrived, arrivals), (proceed, proceeds)) = (bounded(1), bounded::<()>(1));
    let waits = Fault::delay(Duration::ZERO).on(Verb::Patch).when(move |_| {
        arrived.send(()).unwrap();
        proceeds.recv_timeout(LIMIT).is_ok()
    });
    cluster.server.fail_next(waits);
    std::thread::scope(|scope| {
        let removing = scope.spawn(|| remove(cluster));
        arrivals.recv_timeout(LIMIT).unwrap();
        change();
        proceed.send(()).unwrap();
        removing.join().unwrap()
    })
}

#[test]
fn moved_finalizer_is_removed_at_its_new_position() {
    let cluster = Cluster::new();
    create(&cluster, "default", "a", &[NAME]);
    let removed = remove_while(&cluster, || {
        let moved = json!({"metadata": {"finalizers": [OTHER, NAME]}});
        cluster.server.patch(&format!("{MAPS}/a"), moved).unwrap();
    });
    assert_removed(removed, 1, 1);
    assert_eq!(finalizers(&cluster, "default", "a"), json!([OTHER]));
    assert_eq!(requests(&cluster, Verb::Get), 1);
}

/// Only the objects of the list are released.
#[test]
fn recreated_object_keeps_its_finalizers() {
    let cluster = Cluster::new();
    create(&cluster, "default", "a", &[NAME]);
    let removed = remove_while(&cluster, || {
        let none = json!({"metadata": {"finalizers": null}});
        cluster.server.patch(&format!("{MAPS}/a"), none).unwrap();
        cluster.server.delete(&format!("{MAPS}/a")).unwrap();
        create(&cluster, "default", "a", &[NAME]);
    });
    assert_removed(removed, 1, 1);
    assert_eq!(finalizers(&cluster, "default", "a"), json!([NAME]));
}

#[test]
fn conflicts_are_retried() {
    let cluster = Cluster::new();
    create(&cluster, "default", "a", &[NAME]);
    cluster
        .server
        .fail_next(Fault::status(409).on(Verb::Patch).times(4));
    assert_removed(remove(&cluster), 1, 1);
    create(&cluster, "default", "b", &[NAME]);
    cluster
        .server
        .fail_next(Fault::status(409).on(Verb::Patch).times(5));
    assert_eq!(remove(&cluster).unwrap_err().failed(), 1);
}

#[test]
fn objects_deleted_meanwhile_count_as_done() {
    let cluster = Cluster::new();
    create(&cluster, "default", "a", &[NAME]);
    cluster.server.fail_next(Fault::status(404).on(Verb::Patch));
    assert_removed(remove(&cluster), 1, 1);
    cluster.server.fail_next(Fault::status(409).on(Verb::Patch));
    cluster.server.fail_next(Fault::status(404).on(Verb::Get));
    assert_removed(remove(&cluster), 1, 1);
    assert_eq!(finalizers(&cluster, "default", "a"), json!([NAME]));
}

#[test]
fn lost_response_is_followed_by_a_read() {
    let cluster = Cluster::new();
    create(&cluster, "default", "a", &[NAME]);
    create(&cluster, "default", "b", &[NAME]);
    let lost = Fault::reset().after_bytes(0).on(Verb::Patch);
    cluster.server.fail_next(lost);
    assert_removed(remove(&cluster), 2, 2);
    assert_eq!(requests(&cluster, Verb::Get), 1);
}

#[test]
fn unreachable_server_ends_the_removal() {
    let cluster = Cluster::new();
    create(&cluster, "default", "a", &[NAME]);
    create(&cluster, "default", "b", &[NAME]);
    for verb in [Verb::Patch, Verb::Get] {
        cluster.server.fail_next(Fault::close().on(verb).always());
    }
    let error = remove(&cluster).unwrap_err();
    assert!(error.error().is_connection(), "{error}");
    assert_eq!(
        (error.failed(), error.outcome()),
        (1, RemovalOutcome::Aborted)
    );
}

#[test]
fn stop_ends_the_removal_at_once() {
    let cluster = Cluster::new();
    create(&cluster, "default", "a", &[NAME]);
    create(&cluster, "default", "b", &[NAME]);
    let (stop, signal) = (Stopper::new(), Stopper::new());
    let stopping = signal.clone();
    let hangs = Fault::stall().on(Verb::Patch).when(move |_| {
        stopping.stop();
        true
    });
    cluster.server.fail_next(hangs);
    let maps = Source::of::<ConfigMap>();
    let error = remove_finalizers(&cluster.client, &maps, [NAME], &signal).unwrap_err();
    assert!(
        error.error().is_stopped() && error.outcome() == RemovalOutcome::Aborted,
        "{error}"
    );
    // The server records the request after the condition of the fault.
    let patched = |all: &[RequestRecord]| all.iter().any(|of| of.verb() == Verb::Patch);
    cluster.server.wait_for_requests(patched, LIMIT).unwrap();
    assert_eq!(requests(&cluster, Verb::Patch), 1);
    stop.stop();
    let error = remove_finalizers(&cluster.client, &maps, [NAME], &stop).unwrap_err();
    assert_eq!((error.removed().listed, error.failed()), (0, 0));
}

#[test]
fn unknown_resource_is_an_error() {
    let cluster = Cluster::new();
    let source = Source::dynamic(GroupVersionResource::new("example.com", "v1", "teams"));
    let error = remove_from(&cluster, &source).unwrap_err();
    assert!(error.error().is_not_found(), "{error}");
}
