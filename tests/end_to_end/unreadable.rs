//! Informers with a single unreadable object.

use std::collections::BTreeMap;

use k8s_informer::reflector::{ReflectorState, ReflectorStatus};
use k8s_informer::{ObjectMeta, SharedIndexInformer, SharedInformerFactory, Stop, impl_object};
use serde::Deserialize;
use serde_json::json;

use crate::cluster::{BOTH, Namespace, on_every_cluster};
use crate::interceptor::Interceptor;
use crate::support::{Follower, shut_down, wait_until};

/// A user's idea of a ConfigMap: "round" must exist and be a number in a string.
#[derive(Deserialize)]
struct Map {
    #[expect(dead_code, reason = "that it can be read is what matters")]
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
}

/// Waits for a matching status while the informer watches.
fn status(
    maps: &SharedIndexInformer<Map>,
    is_so: impl Fn(&ReflectorStatus) -> bool,
) -> ReflectorStatus {
    wait_until("the status follows", || {
        let status = maps.status();
        (status.state == ReflectorState::Watching && is_so(&status)).then_some(status)
    })
}

#[test]
fn one_object_that_can_not_be_decoded_costs_only_itself() {
    on_every_cluster(BOTH, |cluster| {
        let namespace = cluster.namespace("unreadable");
        for name in ["a", "b", "bad"] {
            namespace.create(name, json!({}));
        }
        set_round(&namespace, "bad", "s3cret");
        let interceptor = Interceptor::expiring(cluster.client());
        let builder = SharedInformerFactory::builder(interceptor).namespace(&namespace.name);
        let factory = builder.reflector_options(cluster.options()).build();
        let maps = factory.informer::<Map>();
        let follower = Follower::default();
        let registration = maps.add_handler(follower.clone()).unwrap();
        factory.start(&Stop::new()).unwrap();
        factory.wait_for_cache_sync(&Stop::new()).unwrap();
        registration.synced().wait();

        // The initial list contains the unreadable object "bad".
        assert_eq!(
            (follower.known().initial, maps.lister().list().len()),
            (2, 2)
        );
        let told = status(&maps, |_| true);
        assert!(
            told.unreadable >= 1 && !told.complete && told.listed,
            "{told:?}"
        );
        let error = told.last_error.unwrap();
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
        status(&maps, |told| told.unreadable >= 2);
        // "bad" becomes readable.
        set_round(&namespace, "bad", "2");
        follower.wait("it is seen for the first time", |known| {
            known.events.len() == 4
        });
        assert_eq!(follower.known().events[3], "+bad");

        // In a relist: "b" is still unreadable and does not count as deleted.
        namespace.create("trigger", json!({}));
        follower.wait("the list", |known| known.events.len() == 5);
        assert_eq!(follower.known().events[4], "+trigger");
        assert_eq!(maps.lister().list().len(), 4);
        let told = status(&maps, |told| told.unreadable >= 3);
        assert!(!told.complete, "{told:?}");

        // An unreadable object in a deletion event: the object is deleted anyway.
        namespace.delete("b");
        follower.wait("the deletion", |known| known.events.len() == 6);
        let known = follower.known();
        assert_eq!((known.events[5].as_str(), known.unknown.len()), ("-b", 1));
        assert_eq!(known.problems, [""; 0]);
        assert_eq!(known.versions, cluster.versions(&namespace));
        // The next relist finds no unreadable object. The bodies of the interceptor have no read
        // timeouts, so only an event can start that relist.
        let mut round = 1;
        wait_until("nothing is missing", || {
            round += 1; // A patch without a change causes no event.
            set_round(&namespace, "a", &round.to_string());
            maps.status().complete.then_some(())
        });
        shut_down(&factory, "after what can't be read");
    });
}

#[test]
fn a_list_that_has_none_such_any_more_makes_it_complete() {
    on_every_cluster(BOTH, |cluster| {
        let namespace = cluster.namespace("readable");
        namespace.create("bad", json!({}));
        set_round(&namespace, "bad", "none");
        let interceptor = Interceptor::expiring(cluster.client());
        let builder = SharedInformerFactory::builder(interceptor).namespace(&namespace.name);
        let factory = builder.reflector_options(cluster.options()).build();
        let maps = factory.informer::<Map>();
        factory.start(&Stop::new()).unwrap();
        factory.wait_for_cache_sync(&Stop::new()).unwrap();
        assert!(!status(&maps, |_| true).complete);
        set_round(&namespace, "bad", "3");
        wait_until("it is there", || {
            maps.lister().namespace(&namespace.name).get("bad")
        });
        namespace.create("trigger", json!({}));
        let told = status(&maps, |told| told.complete);
        assert!(told.unreadable >= 1, "{told:?}");
        shut_down(&factory, "after what can be read again");
    });
}
