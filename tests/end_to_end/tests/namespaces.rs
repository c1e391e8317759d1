//! One informer of several namespaces. Each namespace is listed and watched separately.

use k8s_informer::informer::{InformerScope, Source};
use k8s_informer::object::ResourceVersion;
use k8s_informer::reflector::{ReflectorState, ReflectorStatus};
use k8s_informer::{Error, SharedIndexInformer, SharedInformerFactory, Stopper};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use std::time::Duration;

use crate::cluster::{BOTH, Cluster, Namespace, on_every_cluster, on_every_disposable_cluster};
use crate::interceptor::Interceptor;
use crate::reader::Reader;
use crate::support::{Follower, PATIENCE, Versions, cached, shut_down, synced, wait_until};

fn scope(namespaces: &[&Namespace<'_>]) -> InformerScope {
    namespaces
        .iter()
        .fold(InformerScope::all(), |scope, namespace| {
            scope.namespace(&namespace.name)
        })
}

fn truth(cluster: &Cluster, namespaces: &[&Namespace<'_>]) -> Versions {
    namespaces
        .iter()
        .flat_map(|namespace| cluster.versions(namespace))
        .collect()
}

fn status_of(maps: &SharedIndexInformer<ConfigMap>, namespace: &Namespace<'_>) -> ReflectorStatus {
    let statuses = maps.statuses().into_iter();
    let (_, status) = statuses
        .into_iter()
        .find(|(name, _)| name.as_ref() == Some(&namespace.name))
        .unwrap();
    status
}

#[test]
fn one_informer_covers_several_namespaces_and_no_other() {
    on_every_cluster(BOTH, |cluster| {
        let [blue, green, red] = ["blue", "green", "red"].map(|name| cluster.namespace(name));
        for namespace in [&blue, &green, &red] {
            namespace.create("same", json!({}));
        }
        blue.create("only", json!({}));
        let factory = cluster.factory();
        let maps = factory.informer_for(Source::of::<ConfigMap>().scope(scope(&[&blue, &green])));
        let follower = synced(&factory, &maps);
        let known = follower.known();
        assert_eq!(
            (known.initial, &known.versions),
            (3, &truth(cluster, &[&blue, &green]))
        );

        red.patch("same", &json!({ "data": { "round": "1" } }));
        red.create("new", json!({}));
        blue.patch("same", &json!({ "data": { "round": "1" } }));
        green.delete("same");
        green.create("new", json!({}));
        let expected = truth(cluster, &[&blue, &green]);
        follower.wait("the changes", |known| known.versions == expected);
        let known = follower.known();
        assert_eq!(
            (known.events.len(), &known.problems[..]),
            (6, &[][..]),
            "{:?}",
            known.events
        );
        assert_eq!(cached(&maps), expected);
        let of = |namespace: &Namespace<'_>| maps.lister().namespace(&namespace.name).list().len();
        assert_eq!([&blue, &green, &red].map(of), [2, 1, 0]);
        let names: Vec<_> = maps
            .statuses()
            .into_iter()
            .map(|(name, _)| name.unwrap())
            .collect();
        assert_eq!(names, [&*blue.name, &*green.name]);

        // A late handler receives all objects.
        let late = Follower::default();
        let registration = maps.add_handler(late.clone()).unwrap();
        registration.synced().wait();
        green.patch("new", &json!({ "data": { "round": "1" } }));
        late.wait("the watch continues", |known| {
            known.events.contains(&"~new".to_owned())
        });
        let known = late.known();
        assert_eq!(
            (known.initial, known.events.len(), &known.problems[..]),
            (3, 4, &[][..])
        );
        assert_eq!(known.versions, truth(cluster, &[&blue, &green]));
        shut_down(&factory, "with several namespaces");
    });
}

#[test]
fn relist_of_one_namespace_leaves_other_namespace_unchanged() {
    on_every_cluster(BOTH, |cluster| {
        let [blue, green] = ["blue", "green"].map(|name| cluster.namespace(name));
        for namespace in [&blue, &green] {
            for name in ["a", "unseen"] {
                namespace.create(name, json!({}));
            }
        }
        let factory = SharedInformerFactory::with_options(
            Interceptor::losing(cluster.client(), "unseen"),
            cluster.factory_options().scope(scope(&[&blue, &green])),
        );
        let maps = factory.informer::<ConfigMap>();
        let follower = synced(&factory, &maps);

        blue.delete("unseen");
        blue.create("trigger", json!({}));
        follower.wait("the missed changes", |known| {
            ["-unseen", "+trigger"]
                .iter()
                .all(|event| known.events.contains(&(*event).to_owned()))
        });
        wait_until("the informer watches again", || {
            (status_of(&maps, &blue).state == ReflectorState::Watching).then_some(())
        });
        green.patch("unseen", &json!({ "data": { "round": "1" } }));
        follower.wait("the watch of the other namespace continues", |known| {
            known.events.contains(&"~unseen".to_owned())
        });
        let known = follower.known();
        assert_eq!(known.unknown, [format!("{}/unseen", blue.name)].into());
        assert_eq!(
            (known.events.len(), &known.problems[..]),
            (7, &[][..]),
            "{:?}",
            known.events
        );
        // The relist of one namespace notifies about every object in it, and about no object of the
        // other namespace.
        assert_eq!(known.echoes, 1);
        assert_eq!(known.versions, truth(cluster, &[&blue, &green]));
        assert_eq!(
            (
                status_of(&maps, &blue).relists,
                status_of(&maps, &green).relists
            ),
            (1, 0)
        );
        let error = status_of(&maps, &blue).last_error.unwrap();
        assert!(
            error.is_gone() && error.to_string().contains(&blue.name),
            "{error}"
        );
        assert!(status_of(&maps, &green).last_error.is_none());
        shut_down(&factory, "after the relist of one namespace");
    });
}

#[test]
fn deletes_during_outage_are_recovered_in_each_namespace() {
    on_every_disposable_cluster(BOTH, |cluster| {
        let [blue, green] = ["blue", "green"].map(|name| cluster.namespace(name));
        for namespace in [&blue, &green] {
            for name in ["kept", "lost"] {
                namespace.create(name, json!({}));
            }
        }
        let factory = cluster.factory_with(|options| options.scope(scope(&[&blue, &green])));
        let maps = factory.informer::<ConfigMap>();
        let follower = synced(&factory, &maps);
        cluster.kill();
        wait_until("both namespaces report the failure", || {
            let refused = |namespace| {
                status_of(&maps, namespace)
                    .last_error
                    .is_some_and(is_refused)
            };
            (refused(&blue) && refused(&green)).then_some(())
        });
        let lost =
            [&blue, &green].map(|namespace| format!("{}/lost", namespace.path("configmaps")));
        cluster.delete_unseen(&lost);
        cluster.restart();
        blue.create("new", json!({}));
        let expected = truth(cluster, &[&blue, &green]);
        follower.wait("the follower equals the state of the server", |known| {
            known.versions == expected
        });
        let known = follower.known();
        assert_eq!(
            (known.events.len(), known.unknown.len(), &known.problems[..]),
            (7, 2, &[][..])
        );
        assert_eq!(cached(&maps), expected);
        shut_down(&factory, "after an outage");
    });
}

fn is_refused(error: Error) -> bool {
    error.is_connection_refused()
}

#[test]
fn forbidden_namespace_does_not_block_the_others() {
    on_every_cluster(BOTH, |cluster| {
        let [blue, green] = ["blue", "green"].map(|name| cluster.namespace(name));
        for namespace in [&blue, &green] {
            namespace.create("a", json!({}));
        }
        let proxy = cluster.proxy();
        let Some(reader) = Reader::of(cluster, &proxy, &[&blue, &green]) else {
            return println!("skipped: there is no kubeconfig-nobody");
        };
        reader.allow(&blue);
        let factory = SharedInformerFactory::with_options(
            reader.client(),
            cluster.factory_options().scope(scope(&[&blue, &green])),
        );
        let maps = factory.informer::<ConfigMap>();
        let (follower, stop) = (Follower::default(), Stopper::new());
        maps.add_handler(follower.clone()).unwrap();
        factory.start(&stop).unwrap();
        follower.wait_for_events(&["+a"]);

        let error = wait_until("the status has the error", || {
            let status = status_of(&maps, &green);
            status
                .last_error
                .filter(|error| error.is_forbidden() && status.state == ReflectorState::BackingOff)
        });
        let text = error.to_string();
        assert!(
            text.starts_with(&format!(
                "list configmaps in namespace {:?}: GET ",
                green.name
            )),
            "{text}"
        );
        let why = format!(
            ": configmaps is forbidden: User \"token-nobody\" cannot list resource \"configmaps\" in API \
             group \"\" in the namespace {:?} (403 Forbidden)",
            green.name
        );
        assert!(text.ends_with(&why), "{text}");
        // One namespace is retried, and the other works as usual.
        blue.patch("a", &json!({ "data": { "round": "1" } }));
        follower.wait_for_events(&["+a", "~a"]);
        let status = status_of(&maps, &blue);
        assert!(
            status.listed && !status_of(&maps, &green).listed && !maps.has_synced(),
            "{status:?}"
        );
        let unsynced = factory
            .wait_for_cache_sync(Duration::from_millis(50), &stop)
            .unwrap_err();
        let (text, name) = (
            unsynced.to_string(),
            format!("configmaps in namespace {:?}", green.name),
        );
        assert!(
            unsynced.is_timed_out() && text.contains(&name) && text.contains("403 Forbidden"),
            "{text}"
        );

        reader.allow(&green);
        factory.wait_for_cache_sync(None, &stop).unwrap();
        follower.wait("the objects of both namespaces", |known| {
            known.versions == truth(cluster, &[&blue, &green])
        });

        // A revoked right does not remove cached objects.
        wait_until("the informer watches", || {
            (maps.status().state == ReflectorState::Watching).then_some(())
        });
        let before = status_of(&maps, &green).failures;
        reader.deny(&green);
        proxy.cut();
        wait_until("the namespace is forbidden again", || {
            let status = status_of(&maps, &green);
            let refused = status.last_error.is_some_and(|error| error.is_forbidden());
            (refused && status.failures > before).then_some(())
        });
        green.create("b", json!({}));
        blue.create("c", json!({}));
        follower.wait("the watch of the other namespace continues", |known| {
            known.events.contains(&"+c".to_owned())
        });
        assert_eq!(maps.lister().namespace(&green.name).list().len(), 1);
        assert!(maps.has_synced());
        reader.allow(&green);
        follower.wait("the watch continues", |known| {
            known.events.contains(&"+b".to_owned())
        });
        assert_eq!(follower.known().problems, [""; 0]);
        assert_eq!(cached(&maps), truth(cluster, &[&blue, &green]));
        shut_down(&factory, "after a forbidden namespace");
    });
}

#[test]
fn wait_for_object_waits_only_for_its_namespace() {
    on_every_cluster(BOTH, |cluster| {
        let [blue, green] = ["blue", "green"].map(|name| cluster.namespace(name));
        let factory = cluster.factory_with(|options| options.scope(scope(&[&blue, &green])));
        let maps = factory.informer::<ConfigMap>();
        synced(&factory, &maps);
        let (api, stop) = (
            cluster.client().api::<ConfigMap>(Some(&blue.name)),
            Stopper::new(),
        );
        for round in 0..20 {
            let name = format!("map-{round}");
            let written = api
                .create(&json!({ "metadata": { "name": name } }), &stop)
                .unwrap();
            // `wait_for_object` must not wait for the other namespace, whose version advances only
            // by a bookmark once a minute.
            maps.wait_for_object(&written, PATIENCE / 3, &stop).unwrap();
            assert!(maps.lister().get(&blue.name, &name).is_some());
            if cluster.embedded_server().is_some() {
                let version = written.metadata.resource_version.as_deref();
                let version = version.and_then(ResourceVersion::new).unwrap();
                let error = maps
                    .wait_for_resource_version(&version, Duration::ZERO, &stop)
                    .unwrap_err();
                assert!(error.is_timed_out(), "{error}");
            }
        }
        // `wait_for_resource_version` waits for all namespaces, so each of them needs an event.
        let other = green.create("last", json!({}));
        let version = other["metadata"]["resourceVersion"].as_str();
        let version = version.and_then(ResourceVersion::new).unwrap();
        let last = api
            .create(&json!({ "metadata": { "name": "last" } }), &stop)
            .unwrap();
        maps.wait_for_object(&last, PATIENCE / 3, &stop).unwrap();
        maps.wait_for_resource_version(&version, PATIENCE / 3, &stop)
            .unwrap();
        assert!(maps.lister().get(&green.name, "last").is_some());
        shut_down(&factory, "after waits for one namespace");
    });
}
