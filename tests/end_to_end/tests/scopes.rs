//! Several informers of one type in one factory, and observers that share them.

use k8s_informer::informer::{InformerScope, Observe, Source};
use k8s_informer::object::GroupVersionResource;
use k8s_informer::{SharedInformerFactory, Stop};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use crate::cluster::{BOTH, Cluster, LIST, ListMethod, on_every_cluster};
use crate::interceptor::{Interceptor, RequestKind};
use crate::support::{Follower, PATIENCE, names, shut_down, synced, wait_until};

fn labelled(selector: &str) -> InformerScope {
    InformerScope::all().label_selector(selector.parse().unwrap())
}

#[test]
fn fa1_informers_of_one_type_differ_by_their_selectors() {
    on_every_cluster(BOTH, |cluster| {
        let namespace = cluster.namespace("scopes");
        namespace.create("a", json!({ "tier": "web" }));
        namespace.create("b", json!({ "tier": "db" }));
        namespace.create("c", json!({}));
        let factory = cluster.factory();
        let informer = |scope: InformerScope| {
            factory.informer_for(Source::of::<ConfigMap>().scope(scope.namespace(&namespace.name)))
        };
        let web = informer(labelled("tier=web"));
        let db = informer(labelled("tier=db"));
        let one = informer(InformerScope::all().field_selector("metadata.name=b"));
        assert!(web.is_same(&informer(labelled("tier = web"))));
        let [of_web, of_db, of_one] = [&web, &db, &one].map(|informer| synced(&factory, informer));
        of_web.wait_for_events(&["+a"]);
        of_db.wait_for_events(&["+b"]);
        of_one.wait_for_events(&["+b"]);

        let move_to = |name: &str, tier: Option<&str>| {
            namespace.patch(name, &json!({ "metadata": { "labels": { "tier": tier } } }));
        };
        move_to("a", Some("db"));
        move_to("b", Some("web"));
        move_to("c", Some("web"));
        namespace.patch("c", &json!({ "data": { "round": "1" } }));
        move_to("a", None);
        namespace.delete("b");
        of_web.wait_for_events(&["+a", "-a", "+b", "+c", "~c", "-b"]);
        of_db.wait_for_events(&["+b", "+a", "-b", "-a"]);
        of_one.wait_for_events(&["+b", "~b", "-b"]);
        assert_eq!(
            [&web, &db, &one].map(names),
            [vec!["c".to_owned()], vec![], vec![]]
        );
        for follower in [of_web, of_db, of_one] {
            let known = follower.known();
            assert_eq!((&known.problems[..], known.initial), (&[][..], 1));
        }
        shut_down(&factory, "with three scopes");
    });
}

/// Asserts that `opened` watches were opened so far and `open` of them are still open.
#[track_caller]
fn assert_informers(cluster: &Cluster, interceptor: &Interceptor, opened: usize, open: usize) {
    let is_watch = |kind: &RequestKind| *kind != RequestKind::List;
    wait_until(&format!("{opened} informers have started a watch"), || {
        (interceptor
            .requests()
            .iter()
            .filter(|kind| is_watch(kind))
            .count()
            == opened)
            .then_some(())
    });
    let lists = if cluster.list_method == ListMethod::List {
        opened
    } else {
        0
    };
    assert_eq!(
        interceptor.requests().len(),
        opened + lists,
        "{:?}",
        interceptor.requests()
    );
    if let Some(server) = cluster.embedded_server() {
        server.wait_for_watches(open, PATIENCE).unwrap();
    }
}

fn observe(
    factory: &SharedInformerFactory,
    scope: &InformerScope,
) -> (Follower, Observe<ConfigMap>) {
    let follower = Follower::default();
    let mut handler = follower.clone();
    let observe = factory
        .observe(Source::of::<ConfigMap>())
        .scope(scope.clone());
    (
        follower,
        observe.on_event(move |event| event.deliver(&mut handler)),
    )
}

#[test]
fn observers_share_an_informer_if_type_and_scope_are_equal() {
    on_every_cluster(BOTH, |cluster| {
        let namespace = cluster.namespace("observe");
        namespace.create("a", json!({ "tier": "web" }));
        let interceptor = Interceptor::new(cluster.client(), |_, _, line| line);
        let factory = SharedInformerFactory::with_options(
            interceptor.clone(),
            cluster.factory_options().namespace(&namespace.name),
        );
        let here = || InformerScope::all().namespace(&namespace.name);
        let web = here().label_selector("tier=web".parse().unwrap());

        let begin = |(follower, observe): (Follower, Observe<ConfigMap>)| {
            let observation = observe.start().unwrap();
            observation.synced().wait();
            (follower, observation)
        };
        let (of_first, first) = begin(observe(&factory, &web));
        let (of_second, second) = begin(observe(&factory, &web));
        assert!(first.informer().is_same(second.informer()));
        assert_informers(cluster, &interceptor, 1, 1);
        let (of_all, all) = begin(observe(&factory, &here()));
        assert!(!first.informer().is_same(all.informer()));
        // `informer` returns the same informer.
        assert!(factory.informer::<ConfigMap>().is_same(all.informer()));
        // Another type gets another informer. An observation on one thread also gets its own.
        let other = factory.observe(Source::dynamic(GroupVersionResource::new(
            "",
            "v1",
            "configmaps",
        )));
        let other = other.scope(web.clone()).start().unwrap();
        other.wait_for_sync(PATIENCE, &Stop::never()).unwrap();
        let (follower, observer) = observe(&factory, &web);
        let (of_alone, alone) = begin((follower, observer.one_thread(true)));
        assert_informers(cluster, &interceptor, 4, 4);

        namespace.create("b", json!({}));
        namespace.patch("b", &json!({ "metadata": { "labels": { "tier": "web" } } }));
        namespace.patch("a", &json!({ "metadata": { "labels": { "tier": null } } }));
        for follower in [&of_first, &of_second, &of_alone] {
            follower.wait_for_events(&["+a", "+b", "-a"]);
        }
        of_all.wait_for_events(&["+a", "+b", "~b", "~a"]);

        // Only the last observer of an informer stops it.
        first.shut_down(None).unwrap();
        namespace.delete("b");
        for follower in [&of_second, &of_alone] {
            follower.wait_for_events(&["+a", "+b", "-a", "-b"]);
        }
        assert_eq!(
            of_first.known().events.len(),
            3,
            "a stopped observer must receive no events"
        );
        assert_informers(cluster, &interceptor, 4, 4);
        second.shut_down(None).unwrap();
        alone.shut_down(None).unwrap();
        other.shut_down(None).unwrap();
        assert_informers(cluster, &interceptor, 4, 1);
        // An informer that was requested directly outlives its observer.
        all.shut_down(None).unwrap();
        namespace.create("c", json!({}));
        let maps = factory.informer::<ConfigMap>();
        wait_until("the watch continues", || {
            (names(&maps) == ["a", "c"]).then_some(())
        });
        assert_informers(cluster, &interceptor, 4, 1);

        // A new observer starts a new informer.
        let (of_new, new) = begin(observe(&factory, &web));
        assert_informers(cluster, &interceptor, 5, 2);
        assert!(of_new.known().events.is_empty());
        drop(new);
        assert_informers(cluster, &interceptor, 5, 1);
        for follower in [of_first, of_second, of_all, of_alone] {
            assert_eq!(follower.known().problems, [""; 0]);
        }
        shut_down(&factory, "with observers");
    });
}

#[test]
fn standalone_observer_needs_no_factory() {
    on_every_cluster(LIST, |cluster| {
        let namespace = cluster.namespace("observe");
        namespace.create("a", json!({}));
        let follower = Follower::default();
        let mut handler = follower.clone();
        let maps = k8s_informer::observe::<ConfigMap>(cluster.client())
            .scope(InformerScope::all().namespace(&namespace.name))
            .on_event(move |event| event.deliver(&mut handler))
            .start()
            .unwrap();
        follower.wait_for_events(&["+a"]);
        namespace.patch("a", &json!({ "data": { "round": "1" } }));
        namespace.delete("a");
        follower.wait_for_events(&["+a", "~a", "-a"]);
        assert!(maps.lister().list().is_empty());
        // The harness checks after each test that no thread is left.
        maps.shut_down(None).unwrap();
    });
}
