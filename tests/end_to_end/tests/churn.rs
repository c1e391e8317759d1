//! A thousand objects are created, changed and deleted while the server goes down and restarts.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use k8s_informer::client::Request;
use k8s_informer::informer::{InformerScope, Source};
use k8s_informer::object::GroupVersionResource;
use k8s_informer::{
    Client, DynamicObject, Error, ObjectMeta, SharedIndexInformer, Stopper, impl_object,
};
use k8s_openapi::api::core::v1::ConfigMap;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cluster::{
    BOTH, Cluster, Namespace, merge_patch, on_every_cluster, on_every_disposable_cluster, versions,
};
use crate::support::{Follower, cached, shut_down, wait_until};

const OBJECTS: usize = 1000;
const NAMESPACES: usize = 5;
const WRITERS: usize = 4;
/// The number of objects that only the outage deletes. They are the first objects.
const VICTIMS: usize = 25;
const GROUPS: usize = 10;
/// The maximum time that a follower may take, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(300);

/// A minimal custom struct.
#[derive(Deserialize)]
struct Map {
    metadata: ObjectMeta,
    data: BTreeMap<String, String>,
}

impl_object!(Map, "v1", "ConfigMap", "configmaps", Namespaced);

#[test]
fn cache_and_events_match_churn_through_server_death() {
    on_every_disposable_cluster(BOTH, |cluster| follow(cluster, true));
}

#[test]
fn cache_and_events_match_churn_of_1000_objects() {
    on_every_cluster(BOTH, |cluster| follow(cluster, false));
}

fn follow(cluster: &Cluster, with_outage: bool) {
    let start = Instant::now();
    let namespaces: Vec<_> = (0..NAMESPACES)
        .map(|n| cluster.namespace(&format!("churn-{n}")))
        .collect();
    let objects: Vec<_> = (0..OBJECTS)
        .map(|n| Script::new(n, &namespaces[n % NAMESPACES]))
        .collect();
    // An existing cluster may have other users.
    let selector = format!("run={}", namespaces[0].name);
    let scope = InformerScope::all().label_selector(selector.parse().unwrap());
    let factory = cluster.factory_with(|options| options.scope(scope.clone()));
    let alone = cluster.factory_with(|options| options.scope(scope).one_thread(true));
    let typed = factory.informer::<ConfigMap>();
    let own = alone.informer::<Map>();
    let dynamic = factory.informer_for(Source::dynamic(GroupVersionResource::new(
        "",
        "v1",
        "configmaps",
    )));
    typed
        .add_index("group", |map| {
            group(map.data.as_ref().and_then(|data| data.get("group")))
        })
        .unwrap();

    // Three followers are added at the start, one to each informer. The fourth is added to the
    // first informer in the middle of the run, and the fifth to the second informer after the
    // deletions of the outage.
    let followers: [Follower; 5] = Default::default();
    typed.add_handler(followers[0].clone()).unwrap();
    own.add_handler(followers[1].clone()).unwrap();
    dynamic.add_handler(followers[2].clone()).unwrap();
    let stop = Stopper::new();
    for factory in [&factory, &alone] {
        factory.start(&stop).unwrap();
        factory.wait_for_cache_sync(None, &stop).unwrap();
    }
    for object in &objects[..VICTIMS] {
        object.create(&cluster.client(), &selector);
    }
    for follower in &followers[..3] {
        follower.wait("the first objects have arrived", |known| {
            known.versions.len() == VICTIMS
        });
    }

    let done = AtomicUsize::new(0);
    let (objects, selector, done) = (&objects, &selector, &done);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let client = cluster.client();
            scope.spawn(move || {
                let own_objects = || {
                    objects
                        .iter()
                        .skip(VICTIMS)
                        .filter(move |object| object.n % WRITERS == writer)
                };
                // Change each object only after the object 40 numbers later has been created.
                let mut later = own_objects().peekable();
                for object in own_objects() {
                    object.create(&client, selector);
                    while let Some(other) = later.next_if(|other| other.n + 40 <= object.n) {
                        other.change(&client, selector);
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                }
                later.for_each(|other| other.change(&client, selector));
            });
        }
        let reached = |part: usize| {
            wait_until("the writers make progress", || {
                (done.load(Ordering::Relaxed) >= part).then_some(())
            });
        };
        reached(OBJECTS / 4);
        typed.add_handler(followers[3].clone()).unwrap();
        if let Some(server) = cluster.embedded_server() {
            println!("  {} watches are cut", server.cut_watches());
        }
        reached(OBJECTS / 2);
        if with_outage {
            outage(cluster, &objects[..VICTIMS], (&typed, &own, &dynamic));
        }
        own.add_handler(followers[4].clone()).unwrap();
        own.add_index("group", |map| group(map.data.get("group")))
            .unwrap();
    });
    println!("  written after {:?}", start.elapsed());

    let list = Request::get("/api/v1/configmaps").query("labelSelector", selector);
    let list = cluster.send(list);
    let truth = versions(&list);
    assert_eq!(
        truth.len(),
        expected(with_outage),
        "the server has another number of objects than planned"
    );
    for (n, follower) in followers.iter().enumerate() {
        follower.wait(
            &format!("follower {n} has the state of the server"),
            |known| known.versions == truth,
        );
        let known = follower.known();
        assert_eq!(known.problems, [""; 0], "follower {n}");
        println!(
            "  follower {n}: {} events, {} of an initial list, {} deletions with unknown final state",
            known.events.len(),
            known.initial,
            known.unknown.len()
        );
        if with_outage {
            for victim in &objects[..VICTIMS] {
                // The last follower was added after these deletions.
                let deleted = known.events.contains(&format!("-{}", victim.name));
                assert_eq!(
                    deleted,
                    n != followers.len() - 1,
                    "follower {n}, {}",
                    victim.name
                );
            }
        }
        // The final states of the victims are unknown: they were deleted while no watch was open,
        // and a restarted server has no events of that time.
        let unseen = objects[..VICTIMS]
            .iter()
            .all(|victim| known.unknown.contains(&victim.key));
        assert_eq!(
            unseen,
            with_outage && n != followers.len() - 1,
            "follower {n}"
        );
    }
    assert_eq!(cached(&typed), truth);
    assert_eq!(cached(&own), truth);
    assert_eq!(cached(&dynamic), truth);
    for n in 0..GROUPS {
        let group = n.to_string();
        let items = list["items"].as_array().unwrap();
        let expected = items
            .iter()
            .filter(|item| item["data"]["group"] == group.as_str())
            .count();
        assert!(expected > 0);
        assert_eq!(
            typed.lister().by_index("group", &group).unwrap().len(),
            expected
        );
        assert_eq!(
            own.lister().by_index("group", &group).unwrap().len(),
            expected,
            "an index added late"
        );
        assert_eq!(
            typed
                .lister()
                .namespace(&namespaces[n % NAMESPACES].name)
                .list()
                .len(),
            {
                let namespace = format!("{}/", namespaces[n % NAMESPACES].name);
                truth
                    .keys()
                    .filter(|key| key.starts_with(&namespace))
                    .count()
            }
        );
    }
    // A handler added at the end receives everything as its initial list.
    let latest = Follower::default();
    let registration = dynamic.add_handler(latest.clone()).unwrap();
    registration.synced().wait_or_stop(None, &stop).unwrap();
    let latest = latest.known();
    assert_eq!(
        (latest.versions, latest.initial, latest.events.len()),
        (truth, list_len(&list), list_len(&list))
    );

    shut_down(&factory, "after 1000 objects");
    shut_down(&alone, "after 1000 objects, on one thread");
    assert!(typed.is_stopped() && own.is_stopped() && dynamic.is_stopped());
    let status = typed.status();
    println!(
        "  {} lists, {} watches, last error: {:?}",
        status.lists, status.watches, status.last_error
    );
}

/// Kills the server, deletes the victims unseen by any watch, and restarts the server.
fn outage(
    cluster: &Cluster,
    victims: &[Script],
    (typed, own, dynamic): (
        &SharedIndexInformer<ConfigMap>,
        &SharedIndexInformer<Map>,
        &SharedIndexInformer<DynamicObject>,
    ),
) {
    let start = Instant::now();
    cluster.kill();
    for status in [
        &(|| typed.status()) as &dyn Fn() -> _,
        &|| own.status(),
        &|| dynamic.status(),
    ] {
        wait_until("every informer reports the failure", || {
            status().last_error.filter(Error::is_connection_refused)
        });
    }
    cluster.delete_unseen(
        &victims
            .iter()
            .map(|victim| victim.path.clone())
            .collect::<Vec<_>>(),
    );
    let still_cached = || {
        [cached(typed), cached(own), cached(dynamic)].map(|cache| {
            victims
                .iter()
                .filter(|victim| cache.contains_key(&victim.key))
                .count()
        })
    };
    assert_eq!(
        still_cached(),
        [VICTIMS; 3],
        "the cache keeps its objects during the outage"
    );
    cluster.restart();
    println!("  the outage took {:?}", start.elapsed());
    wait_until("the deletions arrive", || {
        (still_cached() == [0; 3]).then_some(())
    });
}

fn list_len(list: &Value) -> usize {
    list["items"].as_array().unwrap().len()
}

fn group(value: Option<&String>) -> Vec<String> {
    value.cloned().into_iter().collect()
}

/// Returns the number of objects that are left at the end.
fn expected(with_outage: bool) -> usize {
    let kept = (VICTIMS..OBJECTS)
        .filter(|n| n % 3 != 0 || n % 6 == 0)
        .count();
    kept + if with_outage { 0 } else { VICTIMS }
}

/// The writes to one object.
struct Script {
    n: usize,
    name: String,
    key: String,
    collection: String,
    path: String,
}

impl Script {
    fn new(n: usize, namespace: &Namespace<'_>) -> Self {
        let name = format!("map-{n:04}");
        let collection = namespace.path("configmaps");
        Self {
            n,
            key: format!("{}/{name}", namespace.name),
            path: format!("{collection}/{name}"),
            collection,
            name,
        }
    }

    fn create(&self, client: &Client, selector: &str) {
        let run = selector.strip_prefix("run=").unwrap();
        let object = json!({
            "metadata": { "name": self.name, "labels": { "run": run } },
            "data": { "group": (self.n % GROUPS).to_string(), "round": "0" },
        });
        insist(
            client,
            &Request::post(&self.collection).json(&object).unwrap(),
            Error::is_already_exists,
        );
    }

    /// Changes every object, deletes every third and recreates half of these.
    fn change(&self, client: &Client, selector: &str) {
        let patch =
            json!({ "data": { "round": "1", "group": ((self.n + 1) % GROUPS).to_string() } });
        insist(client, &merge_patch(&self.path, &patch), |_| false);
        if self.n.is_multiple_of(3) {
            insist(client, &Request::delete(&self.path), Error::is_not_found);
        }
        if self.n.is_multiple_of(6) {
            self.create(client, selector);
        }
    }
}

/// Retries a write until it succeeds. If a response was lost, `done` recognizes the error of the
/// next try, which shows that the write had succeeded.
fn insist(client: &Client, request: &Request, done: fn(&Error) -> bool) {
    let stop = Stopper::new();
    let deadline = Instant::now() + LIMIT;
    for tries in 0.. {
        let error = match client
            .request(request, &stop)
            .and_then(|response| response.bytes())
        {
            Ok(_) => return,
            Err(error) if tries > 0 && done(&error) => return,
            Err(error) => error,
        };
        assert!(error.is_retryable() && Instant::now() < deadline, "{error}");
        stop.wait_timeout(error.retry_after().unwrap_or(Duration::from_millis(20)));
    }
}
