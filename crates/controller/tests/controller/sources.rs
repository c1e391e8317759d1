//! Other sources of a controller: owned and watched objects.

use k8s_informer::client::api::Patch;
use k8s_informer::informer::InformerScope;
use k8s_informer::selector::Selector;
use k8s_informer_controller::{Predicate, generation_changed};
use k8s_informer_testing::{RequestRecord, Verb};
use k8s_openapi::api::core::v1::Secret;

use super::*;

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

/// Runs a controller of Deployments with a ConfigMap source, and answers the calls for `names`.
fn start(
    cluster: &Cluster,
    names: &[&str],
    options: impl FnOnce(ControllerBuilder<Deployment>) -> ControllerBuilder<Deployment>,
) -> (Running<Deployment>, Calls) {
    let (reconcile, calls) = answered();
    let builder = cluster.controller("sources").factory(&cluster.factory);
    let running = Running::new(options(builder).by(reconcile).unwrap());
    for _ in names {
        let call = calls.next();
        assert!(
            names
                .iter()
                .any(|name| call.key == format!("default/{name}"))
        );
        call.done();
    }
    running.until_idle();
    calls.assert_none();
    (running, calls)
}

fn owns(builder: ControllerBuilder<Deployment>) -> ControllerBuilder<Deployment> {
    builder.owns(Source::of::<ConfigMap>())
}

/// Answers the next calls, and returns their sorted keys.
fn next_keys(calls: &Calls, count: usize) -> Vec<String> {
    let mut keys: Vec<_> = (0..count)
        .map(|_| {
            let call = calls.next();
            let key = call.key.clone();
            call.done();
            key
        })
        .collect();
    keys.sort();
    keys
}

#[test]
fn changes_of_owned_objects_reconcile_the_owner() {
    let cluster = Cluster::new();
    let a = cluster.create(DEPLOYMENTS, "a");
    cluster.create(DEPLOYMENTS, "b");
    let (running, calls) = start(&cluster, &["a", "b"], owns);
    cluster.create_child("m", &a);
    calls.next().is("default/a").done();
    cluster.touch(MAPS, "m", "1");
    calls.next().is("default/a").done();
    cluster.server.delete(&format!("{MAPS}/m")).unwrap();
    calls.next().is("default/a").done();
    running.until_idle();
    calls.assert_none();
    running.end(calls);
}

#[test]
fn objects_of_other_controllers_reconcile_no_owner() {
    let cluster = Cluster::new();
    let a = cluster.create(DEPLOYMENTS, "a");
    let (running, calls) = start(&cluster, &["a"], owns);
    let mut other_kind = reference(&a);
    other_kind["kind"] = json!("StatefulSet");
    let mut other_group = reference(&a);
    other_group["apiVersion"] = json!("example.com/v1");
    let mut no_controller = reference(&a);
    no_controller["controller"] = json!(false);
    for (name, owner) in [("k", other_kind), ("g", other_group), ("n", no_controller)] {
        cluster.create_with(
            MAPS,
            json!({"metadata": {"name": name, "ownerReferences": [owner]}}),
        );
    }
    cluster.create(MAPS, "free");
    cluster.create_child("last", &a);
    calls.next().is("default/a").done();
    running.until_idle();
    calls.assert_none();
    running.end(calls);
}

#[test]
fn new_owner_and_old_owner_are_reconciled() {
    let cluster = Cluster::new();
    let (a, b) = (
        cluster.create(DEPLOYMENTS, "a"),
        cluster.create(DEPLOYMENTS, "b"),
    );
    let (running, calls) = start(&cluster, &["a", "b"], owns);
    let mut child = cluster.create_child("m", &a);
    calls.next().is("default/a").done();
    child["metadata"]["ownerReferences"] = json!([reference(&b)]);
    cluster.server.update(&format!("{MAPS}/m"), child).unwrap();
    assert_eq!(next_keys(&calls, 2), ["default/a", "default/b"]);
    running.end(calls);
}

#[test]
fn watched_object_reconciles_keys_of_both_states() {
    let cluster = Cluster::new();
    for name in ["a", "b", "c"] {
        cluster.create(DEPLOYMENTS, name);
    }
    let team = |map: &ConfigMap| {
        map.label("team")
            .map(|team| Key::from(format!("default/{team}")))
    };
    let labelled = |team: &str| json!({"metadata": {"name": "m", "labels": {"team": team}}});
    let (running, calls) = start(&cluster, &["a", "b", "c"], |builder| {
        builder.watches(Source::of(), team)
    });
    cluster.create_with(MAPS, labelled("a"));
    calls.next().is("default/a").done();
    cluster
        .server
        .patch(&format!("{MAPS}/m"), labelled("b"))
        .unwrap();
    assert_eq!(next_keys(&calls, 2), ["default/a", "default/b"]);
    cluster.server.delete(&format!("{MAPS}/m")).unwrap();
    calls.next().is("default/b").done();
    running.until_idle();
    calls.assert_none();
    running.end(calls);
}

#[test]
fn panic_for_one_state_keeps_the_keys_of_the_other() {
    let cluster = Cluster::new();
    cluster.create(DEPLOYMENTS, "a");
    let team = |map: &ConfigMap| {
        let team = map.label("team")?;
        assert_ne!(team, "bad", "no such team");
        Some(Key::from(format!("default/{team}")))
    };
    let labelled = |team: &str| json!({"metadata": {"name": "m", "labels": {"team": team}}});
    let (running, calls) = start(&cluster, &["a"], |builder| {
        builder.watches(Source::of(), team)
    });
    cluster.create_with(MAPS, labelled("a"));
    calls.next().is("default/a").done();
    let map = format!("{MAPS}/m");
    for team in ["bad", "a"] {
        cluster.server.patch(&map, labelled(team)).unwrap();
        calls.next().is("default/a").done();
    }
    running.until_idle();
    calls.assert_none();
    running.end(calls);
}

#[test]
fn deletions_during_an_outage_are_noticed() {
    let cluster = Cluster::new();
    let a = cluster.create(DEPLOYMENTS, "a");
    cluster.create(DEPLOYMENTS, "b");
    let (gone, keys) = unbounded();
    let (running, calls) = start(&cluster, &["a", "b"], |builder| {
        owns(builder).on_gone(move |key| gone.send(Key::clone(key)).unwrap())
    });
    cluster.create_child("m", &a);
    calls.next().is("default/a").done();
    cluster.server.pause();
    cluster.server.delete(&format!("{MAPS}/m")).unwrap();
    cluster.server.delete(&format!("{DEPLOYMENTS}/b")).unwrap();
    cluster.server.compact();
    cluster.server.resume().unwrap();
    calls.next().is("default/a").done();
    assert_eq!(&*keys.recv_timeout(LIMIT).unwrap(), "default/b");
    // The list after the outage has "a" as well, which may have caused another call.
    running.drain(&calls);
    running.end(calls);
}

#[test]
fn children_are_the_objects_with_the_uid_of_the_owner() {
    let cluster = Cluster::new();
    let (a, b) = (
        cluster.create(DEPLOYMENTS, "a"),
        cluster.create(DEPLOYMENTS, "b"),
    );
    for (name, owner) in [("z", &a), ("x", &a), ("y", &b)] {
        cluster.create_child(name, owner);
    }
    let mut former = a;
    former["metadata"]["uid"] = json!("former");
    cluster.create_child("former", &former);
    cluster.create(MAPS, "free");
    let (sender, children) = unbounded();
    // The same informer twice, and another type.
    let controller = owns(owns(cluster.controller("children"))).owns(Source::of::<Secret>());
    let controller = controller.by(move |cx, _| {
        let maps = cx.children::<ConfigMap>()?;
        let names: Vec<_> = maps.iter().map(|map| map.name().to_owned()).collect();
        let counts = (
            cx.children::<Secret>()?.len(),
            cx.lister::<ConfigMap>().list().len(),
        );
        sender.send((cx.name().to_owned(), names, counts)).unwrap();
        Ok(Next::Done)
    });
    let running = Running::new(controller.unwrap());
    let mut both = [(); 2].map(|()| children.recv_timeout(LIMIT).unwrap());
    both.sort();
    let names = |names: &[&str]| {
        names
            .iter()
            .map(|&name| name.to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(both[0], ("a".to_owned(), names(&["x", "z"]), (0, 5)));
    assert_eq!(both[1], ("b".to_owned(), names(&["y"]), (0, 5)));
    running.end(());
}

#[test]
fn children_of_a_type_without_owns_are_an_error() {
    let cluster = Cluster::new();
    cluster.create(DEPLOYMENTS, "a");
    let (running, calls) = start(&cluster, &["a"], owns);
    running.enqueue("default/a");
    calls.next().run(|cx| {
        cx.children::<Deployment>()?;
        Ok(Next::Done)
    });
    running.until("the call has panicked", |status| status.failing == 1);
    let last = running
        .controller
        .last_failure("default/a")
        .unwrap()
        .failure
        .to_string();
    assert!(
        last.contains(r#"the controller "sources" owns no objects of type"#),
        "{last}"
    );
    running.end(calls);
}

#[test]
fn controllers_with_one_informer_share_the_index_of_children() {
    let cluster = Cluster::new();
    let factory = SharedInformerFactory::new(cluster.client.clone());
    let a = cluster.create(DEPLOYMENTS, "a");
    cluster.create_child("m", &a);
    let both = ["first", "second"].map(|name| {
        let (reconcile, calls) = answered::<Deployment>();
        let builder = owns(cluster.controller(name)).factory(&factory);
        let running = Running::new(builder.by(reconcile).unwrap());
        // The second controller is built while the informers run.
        running.until("a call runs", |status| !status.running.is_empty());
        (running, calls)
    });
    for (running, calls) in both {
        calls.next().is("default/a").run(|cx| {
            assert_eq!(cx.children::<ConfigMap>()?.len(), 1);
            Ok(Next::Done)
        });
        running.drain(&calls);
        assert_eq!(running.controller.status().failing, 0);
        running.end(calls);
    }
    factory.shut_down(None).unwrap();
}

/// Lasso calls all handlers of the kind again.
#[test]
fn ls12_controllers_of_a_kind_retry_alone() {
    let cluster = Cluster::new();
    cluster.create(MAPS, "a");
    let [failing, other] = ["failing", "other"].map(|name| {
        let (reconcile, calls) = answered::<ConfigMap>();
        let builder = cluster.controller(name).factory(&cluster.factory);
        (Running::new(builder.by(reconcile).unwrap()), calls)
    });
    failing.1.next().fail("no");
    other.1.next().done();
    other.0.until_idle();
    failing.0.until_delayed();
    cluster.advance(&failing.0, SECOND);
    let retry = failing.1.next();
    assert_eq!(retry.attempt, 2);
    retry.done();
    failing.0.until_idle();
    other.0.until_idle();
    other.1.assert_none();
    cluster.touch(MAPS, "a", "1");
    failing.1.next().done();
    other.1.next().done();
    let requests = cluster.server.requests();
    let is_watch = |request: &&RequestRecord| request.verb() == Verb::Watch;
    assert_eq!(requests.iter().filter(is_watch).count(), 1);
    for (running, calls) in [failing, other] {
        running.end(calls);
    }
}

#[test]
fn ls11_write_of_another_controller_is_in_the_cache() {
    let cluster = Cluster::new();
    let of = |name| {
        let builder = cluster.controller::<ConfigMap>(name);
        builder.factory(&cluster.factory)
    };
    let (sender, sizes) = unbounded();
    let reader = of("reader").by(move |_, map| {
        sender.send(map.data.as_ref().map(|data| data["size"].clone()))?;
        Ok(Next::Done)
    });
    let reader = Running::new(reader.unwrap());
    let (reconcile, calls) = answered();
    let writer = Running::new(of("writer").by(reconcile).unwrap());
    cluster.create(MAPS, "a");
    assert_eq!(sizes.recv_timeout(LIMIT).unwrap(), None);
    calls.next().run(|cx| {
        let patch = Patch::merge(json!({"data": {"size": "3"}}));
        let maps = cx.api::<ConfigMap>(Some(cx.namespace()));
        maps.patch(cx.name(), &patch, cx.stop())?;
        Ok(Next::Done)
    });
    assert_eq!(sizes.recv_timeout(LIMIT).unwrap().unwrap(), "3");
    writer.end(calls);
    reader.end(());
}

#[test]
fn predicates_select_updates_but_not_deletions() {
    let cluster = Cluster::new();
    cluster.create(DEPLOYMENTS, "a");
    let (gone, keys) = unbounded();
    let (running, calls) = start(&cluster, &["a"], |builder| {
        builder
            .when(generation_changed())
            .on_gone(move |key| gone.send(Key::clone(key)).unwrap())
    });
    cluster.touch(DEPLOYMENTS, "a", "1");
    let replicas = json!({"spec": {"replicas": 2}});
    cluster
        .server
        .patch(&format!("{DEPLOYMENTS}/a"), replicas)
        .unwrap();
    calls.next().done();
    running.until_idle();
    calls.assert_none();
    cluster.server.delete(&format!("{DEPLOYMENTS}/a")).unwrap();
    assert_eq!(&*keys.recv_timeout(LIMIT).unwrap(), "default/a");
    running.end(calls);
}

#[test]
fn update_passes_a_predicate_that_panics() {
    let cluster = Cluster::new();
    cluster.create(MAPS, "a");
    let (reconcile, calls) = answered::<ConfigMap>();
    let broken = Predicate::new(|_: &ConfigMap, _: &ConfigMap| panic!("predicate failure"));
    let controller = cluster
        .controller("broken")
        .when(broken)
        .by(reconcile)
        .unwrap();
    let running = Running::new(controller);
    calls.next().done();
    cluster.touch(MAPS, "a", "1");
    calls.next().done();
    running.end(calls);
}

#[test]
fn object_that_leaves_the_scope_is_gone() {
    let cluster = Cluster::new();
    let labelled = |team: &str| json!({"metadata": {"name": "s", "labels": {"team": team}}});
    cluster.create_with(SECRETS, labelled("ours"));
    let selector: Selector = "team=ours".parse().unwrap();
    let (gone, keys) = unbounded();
    let (reconcile, calls) = answered::<Secret>();
    let controller = cluster
        .controller("scoped")
        .scope(InformerScope::all().label_selector(selector))
        .on_gone(move |key| gone.send(Key::clone(key)).unwrap())
        .by(reconcile)
        .unwrap();
    let running = Running::new(controller);
    calls.next().done();
    cluster
        .server
        .patch(&format!("{SECRETS}/s"), labelled("theirs"))
        .unwrap();
    assert_eq!(&*keys.recv_timeout(LIMIT).unwrap(), "default/s");
    running.end(calls);
}
