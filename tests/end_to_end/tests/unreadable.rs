//! Informers with a single unreadable object.

use std::collections::BTreeMap;

use k8s_informer::reflector::{ReflectorState, ReflectorStatus};
use k8s_informer::{ObjectMeta, SharedIndexInformer, SharedInformerFactory, Stop, impl_object};
use serde::Deserialize;
use serde_json::json;

use crate::cluster::{BOTH, Namespace, on_every_cluster};
use crate::interceptor::Interceptor;
use crate::support::{Follower, shut_down, wait_until};

/// A custom type for ConfigMaps. Its data must have a "round", which is a number in a string.
#[derive(Deserialize)]
struct Map {
    #[expect(dead_code, reason = "only the decoding is tested")]
    data: BTreeMap<String, Round>,
    metadata: ObjectMeta,
}

impl_object!(Map, "v1", "ConfigMap", "configmaps", Namespaced);

#[derive(Deserialize)]
#[serde(try_from = "String")]
struct Round;

impl TryFrom<String> for Round {
    type Error = std::num::ParseIntError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse::<u32>().map(|_| Self)
    }
}

fn set_round(namespace: &Namespace<'_>, name: &str, round: &str) {
    namespace.patch(name, &json!({ "data": { "round": round } }));
    namespace.wait_until_listed(name);
}

/// Waits for a matching status while the informer watches.
fn status(
    maps: &SharedIndexInformer<Map>,
    condition: impl Fn(&ReflectorStatus) -> bool,
) -> ReflectorStatus {
    wait_until("the status meets the condition", || {
        let status = maps.status();
        (status.state == ReflectorState::Watching && condition(&status)).then_some(status)
    })
}

#[test]
fn undecodable_object_affects_no_other_object() {
    on_every_cluster(BOTH, |cluster| {
        let namespace = cluster.namespace("unreadable");
        for name in ["a", "b", "bad"] {
            namespace.create(name, json!({}));
        }
        set_round(&namespace, "bad", "s3cret");
        let interceptor = Interceptor::expiring(cluster.client());
        let factory = SharedInformerFactory::with_options(
            interceptor,
            cluster.factory_options().namespace(&namespace.name),
        );
        let maps = factory.informer::<Map>();
        let follower = Follower::default();
        let registration = maps.add_handler(follower.clone()).unwrap();
        factory.start(&Stop::never()).unwrap();
        factory.wait_for_cache_sync(None, &Stop::never()).unwrap();
        registration.synced().wait();

        // The initial list contains the unreadable object "bad".
        assert_eq!(
            (follower.known().initial, maps.lister().list().len()),
            (2, 2)
        );
        let seen = status(&maps, |_| true);
        assert!(
            seen.unreadable >= 1 && !seen.complete && seen.listed,
            "{seen:?}"
        );
        let error = seen.last_error.unwrap();
        assert!(
            error.is_decode()
                && error
                    .to_string()
                    .contains(&format!("{}/bad: ", namespace.name))
        );
        assert!(!error.to_string().contains("s3cret"), "{error}");
        // "b" becomes unreadable in an event: the cached object stays.
        set_round(&namespace, "b", "s3cret");
        set_round(&namespace, "a", "1");
        follower.wait("the next event", |known| known.events.len() == 3);
        assert_eq!(follower.known().events[2], "~a");
        assert_eq!(maps.lister().list().len(), 2);
        status(&maps, |seen| seen.unreadable >= 2);
        // "bad" becomes readable.
        set_round(&namespace, "bad", "2");
        follower.wait("the object is delivered for the first time", |known| {
            known.events.len() == 4
        });
        assert_eq!(follower.known().events[3], "+bad");

        // In a relist: "b" is still unreadable and does not count as deleted.
        namespace.create("trigger", json!({}));
        follower.wait("the list", |known| known.events.len() == 5);
        assert_eq!(follower.known().events[4], "+trigger");
        assert_eq!(maps.lister().list().len(), 4);
        let seen = status(&maps, |seen| seen.unreadable >= 3);
        assert!(!seen.complete, "{seen:?}");

        // An unreadable object in a deletion event: the object is deleted anyway.
        namespace.delete("b");
        follower.wait("the deletion", |known| known.events.len() == 6);
        let known = follower.known();
        assert_eq!((known.events[5].as_str(), known.unknown.len()), ("-b", 1));
        assert_eq!(known.problems, [""; 0]);
        assert_eq!(known.versions, cluster.versions(&namespace));
        // Without "b", the next relist finds no unreadable object. The bodies of the interceptor
        // have no read timeouts, so only an event can start that relist.
        let mut round = 1;
        wait_until("the cache is complete", || {
            round += 1; // A patch without a change causes no event.
            set_round(&namespace, "a", &round.to_string());
            maps.status().complete.then_some(())
        });
        shut_down(&factory, "after an undecodable object");
    });
}

#[test]
fn list_of_decodable_objects_makes_the_cache_complete() {
    on_every_cluster(BOTH, |cluster| {
        let namespace = cluster.namespace("readable");
        namespace.create("bad", json!({}));
        set_round(&namespace, "bad", "none");
        let interceptor = Interceptor::expiring(cluster.client());
        let factory = SharedInformerFactory::with_options(
            interceptor,
            cluster.factory_options().namespace(&namespace.name),
        );
        let maps = factory.informer::<Map>();
        factory.start(&Stop::never()).unwrap();
        factory.wait_for_cache_sync(None, &Stop::never()).unwrap();
        assert!(!status(&maps, |_| true).complete);
        set_round(&namespace, "bad", "3");
        wait_until("the object is cached", || {
            maps.lister().namespace(&namespace.name).get("bad")
        });
        namespace.create("trigger", json!({}));
        let seen = status(&maps, |seen| seen.complete);
        assert!(seen.unreadable >= 1, "{seen:?}");
        shut_down(&factory, "after the object was decodable again");
    });
}
