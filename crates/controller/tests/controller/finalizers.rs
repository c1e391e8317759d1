//! The finalizer of a controller, from its first object to the last cleanup.

use k8s_informer_testing::Verb;

use super::*;

const NAME: &str = "example.com/test";

/// Runs a controller of ConfigMaps with a finalizer for objects with the label `needed`. Returns
/// the reconcile calls, the cleanup calls and the keys of objects that are gone.
fn start(cluster: &Cluster) -> (Running<ConfigMap>, Calls, Calls, Receiver<Key>) {
    start_with(cluster, &[])
}

/// Like [`start`], with former names of the finalizer.
fn start_with(
    cluster: &Cluster,
    former: &[&str],
) -> (Running<ConfigMap>, Calls, Calls, Receiver<Key>) {
    let (reconcile, calls) = answered();
    let (cleanup, cleanups) = answered();
    let (gone, keys) = unbounded();
    let mut builder = cluster
        .controller::<ConfigMap>("finalizing")
        .factory(&cluster.factory)
        .finalizer(NAME, |map| map.label("needed").is_some(), cleanup);
    if !former.is_empty() {
        builder = builder.former_finalizers(former.iter().copied());
    }
    let controller = builder
        .on_gone(move |key| gone.send(Key::clone(key)).unwrap())
        .by(reconcile)
        .unwrap();
    let running = Running::new(controller);
    until("the cache has synced", || {
        running.controller.informer().has_synced()
    });
    cluster.server.wait_for_watches(1, LIMIT).unwrap();
    (running, calls, cleanups, keys)
}

fn needed(name: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"needed": "yes"}}})
}

fn path(name: &str) -> String {
    format!("{MAPS}/{name}")
}

fn finalizers(cluster: &Cluster, name: &str) -> Value {
    cluster.server.get(&path(name)).unwrap()["metadata"]["finalizers"].clone()
}

fn patches(cluster: &Cluster) -> usize {
    let requests = cluster.server.requests();
    requests
        .iter()
        .filter(|request| request.verb() == Verb::Patch)
        .count()
}

/// Answers the call for a new object, and the one after the event of its new finalizer.
fn answer_two(cluster: &Cluster, calls: &Calls) {
    let call = calls.next().is("default/a");
    let finalizers = finalizers(cluster, "a");
    assert_eq!(finalizers.as_array().unwrap().last(), Some(&json!(NAME)));
    call.done();
    calls.next().is("default/a").done();
}

#[test]
fn finalizer_is_present_before_the_first_call() {
    let cluster = Cluster::new();
    let (running, calls, cleanups, gone) = start(&cluster);
    cluster.create_with(MAPS, needed("a"));
    answer_two(&cluster, &calls);

    cluster.server.delete(&path("a")).unwrap();
    cleanups
        .next()
        .is("default/a")
        .answer(Ok(Next::After(5 * SECOND)));
    running.until_delayed();
    assert_eq!(finalizers(&cluster, "a"), json!([NAME]));
    cluster.advance(&running, 5 * SECOND);
    cleanups.next().fail("not yet");
    running.until_delayed();
    assert_eq!(finalizers(&cluster, "a"), json!([NAME]));
    cluster.advance(&running, 5 * SECOND);
    let cleanup = cleanups.next();
    assert_eq!(cleanup.attempt, 2);
    cleanup.done();
    assert_eq!(&*gone.recv_timeout(LIMIT).unwrap(), "default/a");
    running.until_idle();
    assert_eq!(cluster.server.get(&path("a")).unwrap_err().code(), 404);
    calls.assert_none();
    cleanups.assert_none();
    assert_eq!(patches(&cluster), 2);
    running.end(calls);
}

/// The response to the patch that removes the last finalizer has the version of the cached object.
#[test]
fn cleanup_is_not_repeated_while_the_cache_is_behind() {
    let cluster = Cluster::new();
    let (running, calls, cleanups, gone) = start(&cluster);
    cluster.create_with(MAPS, needed("a"));
    answer_two(&cluster, &calls);
    cluster.server.delete(&path("a")).unwrap();
    let cleanup = cleanups.next();
    cluster.stall("configmaps");
    cleanup.done();
    until("the object is gone", || {
        cluster.server.get(&path("a")).is_err()
    });
    running.enqueue("default/a");
    running.until("the key waits for the deletion", |status| {
        status.postponed == 1 && status.queued == 0 && status.running.is_empty()
    });
    cleanups.assert_none();
    cluster.reconnect();
    assert_eq!(&*gone.recv_timeout(LIMIT).unwrap(), "default/a");
    cleanups.assert_none();
    running.end(calls);
}

#[test]
fn call_receives_the_object_with_its_finalizer() {
    let cluster = Cluster::new();
    let (seen, objects) = unbounded();
    let controller = cluster
        .controller::<ConfigMap>("seen")
        .finalizer(NAME, |_| true, |_, _| Ok(Next::Done))
        .by(move |_, map| {
            let finalizers = map.metadata.finalizers.clone().unwrap_or_default();
            seen.send(finalizers).unwrap();
            Ok(Next::Done)
        });
    let running = Running::new(controller.unwrap());
    cluster.create(MAPS, "a");
    assert_eq!(objects.recv_timeout(LIMIT).unwrap(), [NAME]);
    running.end(());
}

#[test]
fn objects_without_a_need_get_no_finalizer() {
    let cluster = Cluster::new();
    let (running, calls, cleanups, gone) = start(&cluster);
    cluster.create(MAPS, "a");
    calls.next().done();
    assert_eq!(finalizers(&cluster, "a"), Value::Null);
    cluster.server.delete(&path("a")).unwrap();
    gone.recv_timeout(LIMIT).unwrap();
    cleanups.assert_none();
    assert_eq!(patches(&cluster), 0);
    running.end(calls);
}

#[test]
fn cleanup_runs_although_the_need_has_ended() {
    let cluster = Cluster::new();
    let (running, calls, cleanups, gone) = start(&cluster);
    cluster.create_with(MAPS, needed("a"));
    answer_two(&cluster, &calls);
    let unneeded = json!({"metadata": {"labels": {"needed": null}}});
    cluster.server.patch(&path("a"), unneeded).unwrap();
    calls.next().done();
    cluster.server.delete(&path("a")).unwrap();
    cleanups.next().done();
    gone.recv_timeout(LIMIT).unwrap();
    running.end(calls);
}

#[test]
fn object_that_others_finalize_is_cleaned_up_once() {
    let cluster = Cluster::new();
    let (running, calls, cleanups, gone) = start(&cluster);
    let mut map = needed("a");
    map["metadata"]["finalizers"] = json!(["example.com/other"]);
    cluster.create_with(MAPS, map);
    answer_two(&cluster, &calls);
    cluster.server.delete(&path("a")).unwrap();
    cleanups.next().done();
    until("only the other finalizer is left", || {
        finalizers(&cluster, "a") == json!(["example.com/other"])
    });
    // A later change of the deleted object causes neither a call nor a cleanup.
    cluster.touch(MAPS, "a", "1");
    let free = json!({"metadata": {"finalizers": null}});
    cluster.server.patch(&path("a"), free).unwrap();
    gone.recv_timeout(LIMIT).unwrap();
    running.until_idle();
    calls.assert_none();
    cleanups.assert_none();
    running.end(calls);
}

#[test]
fn conflicts_of_patches_are_retried() {
    let cluster = Cluster::new();
    let (running, calls, cleanups, gone) = start(&cluster);
    cluster
        .server
        .fail_next(Fault::status(409).on(Verb::Patch).times(2));
    cluster.create_with(MAPS, needed("a"));
    answer_two(&cluster, &calls);
    running.until_idle();
    assert!(running.controller.last_failure("default/a").is_none());
    cluster
        .server
        .fail_next(Fault::status(409).on(Verb::Patch).times(2));
    cluster.server.delete(&path("a")).unwrap();
    cleanups.next().done();
    gone.recv_timeout(LIMIT).unwrap();
    cleanups.assert_none();
    running.end(calls);
}

#[test]
fn failing_patch_prevents_the_call() {
    let cluster = Cluster::new();
    let (running, calls, _cleanups, _gone) = start(&cluster);
    cluster.server.fail_next(Fault::status(403).on(Verb::Patch));
    cluster.create_with(MAPS, needed("a"));
    running.until_delayed();
    calls.assert_none();
    let last = running
        .controller
        .last_failure("default/a")
        .unwrap()
        .failure;
    assert!(
        last.downcast_ref::<k8s_informer::Error>()
            .unwrap()
            .is_forbidden()
    );
    cluster.advance(&running, SECOND);
    assert_eq!(calls.next().attempt, 2);
    running.end(calls);
}

/// Lets the first patch for `a` fail, stalls the watch, and changes `a` before the second patch.
fn stale(
    cluster: &Cluster,
    change: impl FnOnce(),
) -> (Running<ConfigMap>, Calls, Calls, Receiver<Key>) {
    cluster.create_with(MAPS, needed("a"));
    cluster.server.fail_next(Fault::status(403).on(Verb::Patch));
    let (running, calls, cleanups, gone) = start(cluster);
    running.until_delayed();
    cluster.stall("configmaps");
    change();
    cluster.advance(&running, SECOND);
    (running, calls, cleanups, gone)
}

#[test]
fn finalizer_is_added_to_the_list_of_a_concurrent_writer() {
    let cluster = Cluster::new();
    let (running, calls, ..) = stale(&cluster, || {
        let other = json!({"metadata": {"finalizers": ["example.com/other"]}});
        cluster.server.patch(&path("a"), other).unwrap();
    });
    let call = calls.next();
    assert_eq!(
        finalizers(&cluster, "a"),
        json!(["example.com/other", NAME])
    );
    call.done();
    running.end(calls);
}

#[test]
fn object_deleted_before_the_patch_is_not_reconciled() {
    let cluster = Cluster::new();
    let (running, calls, cleanups, gone) = stale(&cluster, || {
        cluster.server.delete(&path("a")).unwrap();
    });
    running.until_idle();
    cluster.reconnect();
    gone.recv_timeout(LIMIT).unwrap();
    calls.assert_none();
    cleanups.assert_none();
    running.end(calls);
}

#[test]
fn object_recreated_before_the_patch_is_reconciled_later() {
    let cluster = Cluster::new();
    let (running, calls, ..) = stale(&cluster, || {
        cluster.server.delete(&path("a")).unwrap();
        cluster.create_with(MAPS, needed("a"));
    });
    running.until_idle();
    calls.assert_none();
    assert_eq!(finalizers(&cluster, "a"), Value::Null);
    cluster.reconnect();
    let call = calls.next();
    assert_eq!(finalizers(&cluster, "a"), json!([NAME]));
    call.done();
    running.end(calls);
}

#[test]
fn deletion_that_begins_before_the_patch_rules_it_out() {
    let cluster = Cluster::new();
    let (running, calls, cleanups, gone) = stale(&cluster, || {
        let other = json!({"metadata": {"finalizers": ["example.com/other"]}});
        cluster.server.patch(&path("a"), other).unwrap();
        cluster.server.delete(&path("a")).unwrap();
    });
    running.until_idle();
    cluster.reconnect();
    let free = json!({"metadata": {"finalizers": null}});
    cluster.server.patch(&path("a"), free).unwrap();
    gone.recv_timeout(LIMIT).unwrap();
    calls.assert_none();
    cleanups.assert_none();
    running.end(calls);
}

#[test]
fn lost_response_of_the_removal_causes_no_second_cleanup() {
    let cluster = Cluster::new();
    let (running, calls, cleanups, gone) = start(&cluster);
    cluster.create_with(MAPS, needed("a"));
    answer_two(&cluster, &calls);
    running.until_idle();
    cluster
        .server
        .fail_next(Fault::reset().after_bytes(0).on(Verb::Patch));
    cluster.server.delete(&path("a")).unwrap();
    cleanups.next().done();
    let is_postponed = || running.controller.status().postponed == 1;
    until("the object is gone", || is_postponed() || !gone.is_empty());
    // The deletion arrived before the error of the patch, so nothing but the timeout follows.
    if is_postponed() {
        cluster.wait_for_waits(10 * SECOND, 1);
        cluster.advance(&running, 10 * SECOND);
    }
    gone.recv_timeout(LIMIT).unwrap();
    cluster.advance(&running, SECOND);
    running.until_idle();
    calls.assert_none();
    cleanups.assert_none();
    running.end(calls);
}

const OLD: &str = "old.example.com/test";
const OLDER: &str = "older.example.com/test";

fn finalized(name: &str, finalizers: &[&str]) -> Value {
    json!({"metadata": {"name": name, "finalizers": finalizers}})
}

#[test]
fn former_name_is_renamed_before_the_call() {
    for (before, after) in [
        (&[OLD][..], &[NAME][..]),
        (&["a.b/c", OLD, "d.e/f"], &["a.b/c", NAME, "d.e/f"]),
        (&[OLDER, "a.b/c", OLD], &[NAME, "a.b/c"]),
        (&["a.b/c", NAME, OLD], &["a.b/c", NAME]),
    ] {
        let cluster = Cluster::new();
        // Nothing needs a cleanup any more, but an effect may exist.
        cluster.create_with(MAPS, finalized("a", before));
        let (running, calls, cleanups, _gone) = start_with(&cluster, &[OLD, OLDER]);
        let call = calls.next().is("default/a");
        assert_eq!(finalizers(&cluster, "a"), json!(after));
        call.done();
        running.drain(&calls);
        assert_eq!(patches(&cluster), 1, "{before:?}");
        cleanups.assert_none();
        running.end(calls);
    }
}

#[test]
fn object_without_a_former_name_is_not_patched() {
    let cluster = Cluster::new();
    cluster.create_with(MAPS, finalized("a", &["a.b/c"]));
    cluster.create_with(MAPS, finalized("b", &[NAME, "a.b/c"]));
    let (running, calls, ..) = start_with(&cluster, &[OLD]);
    calls.next().done();
    calls.next().done();
    running.until_idle();
    assert_eq!(patches(&cluster), 0);
    running.end(calls);
}

#[test]
fn deleted_object_with_a_former_name_is_cleaned_up() {
    for names in [&[OLD][..], &[OLDER, NAME, OLD]] {
        let cluster = Cluster::new();
        let mut all = vec!["a.b/c"];
        all.extend(names);
        cluster.create_with(MAPS, finalized("a", &all));
        cluster.server.delete(&path("a")).unwrap();
        let (running, calls, cleanups, gone) = start_with(&cluster, &[OLD, OLDER]);
        let cleanup = cleanups.next().is("default/a");
        assert_eq!(finalizers(&cluster, "a"), json!(all));
        cleanup.answer(Ok(Next::After(SECOND)));
        running.until_delayed();
        assert_eq!(finalizers(&cluster, "a"), json!(all));
        cluster.advance(&running, SECOND);
        cleanups.next().done();
        until("our finalizers are removed", || {
            finalizers(&cluster, "a") == json!(["a.b/c"])
        });
        let free = json!({"metadata": {"finalizers": null}});
        cluster.server.patch(&path("a"), free).unwrap();
        gone.recv_timeout(LIMIT).unwrap();
        running.until_idle();
        assert_eq!(patches(&cluster), 1);
        calls.assert_none();
        cleanups.assert_none();
        running.end(calls);
    }
}

#[test]
fn former_name_is_renamed_in_the_list_of_a_concurrent_writer() {
    let cluster = Cluster::new();
    cluster.create_with(MAPS, finalized("a", &[OLD]));
    cluster.server.fail_next(Fault::status(403).on(Verb::Patch));
    let (running, calls, ..) = start_with(&cluster, &[OLD]);
    running.until_delayed();
    calls.assert_none();
    cluster.stall("configmaps");
    let other = json!({"metadata": {"finalizers": ["a.b/c", OLD]}});
    cluster.server.patch(&path("a"), other).unwrap();
    cluster.advance(&running, SECOND);
    let call = calls.next();
    assert_eq!(finalizers(&cluster, "a"), json!(["a.b/c", NAME]));
    call.done();
    running.end(calls);
}

/// The server rejects the current name then.
#[test]
fn deletion_before_the_rename_leads_to_the_cleanup() {
    let cluster = Cluster::new();
    cluster.create_with(MAPS, finalized("a", &[OLD]));
    cluster.server.fail_next(Fault::status(403).on(Verb::Patch));
    let (running, calls, cleanups, gone) = start_with(&cluster, &[OLD]);
    running.until_delayed();
    cluster.stall("configmaps");
    cluster.server.delete(&path("a")).unwrap();
    cluster.advance(&running, SECOND);
    running.until_idle();
    assert_eq!(finalizers(&cluster, "a"), json!([OLD]));
    cluster.reconnect();
    cleanups.next().done();
    gone.recv_timeout(LIMIT).unwrap();
    calls.assert_none();
    running.end(calls);
}

/// Someone has removed the former name by hand, and the object still needs the finalizer.
#[test]
fn finalizer_is_added_if_the_former_name_is_lost() {
    let cluster = Cluster::new();
    let mut map = needed("a");
    map["metadata"]["finalizers"] = json!([OLD]);
    cluster.create_with(MAPS, map);
    cluster.server.fail_next(Fault::status(403).on(Verb::Patch));
    let (running, calls, ..) = start_with(&cluster, &[OLD]);
    running.until_delayed();
    cluster.stall("configmaps");
    let none = json!({"metadata": {"finalizers": null}});
    cluster.server.patch(&path("a"), none).unwrap();
    cluster.advance(&running, SECOND);
    let call = calls.next();
    assert_eq!(finalizers(&cluster, "a"), json!([NAME]));
    call.done();
    running.end(calls);
}
