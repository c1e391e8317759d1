//! Indexes by labels: selectors return what a scan of all objects returns.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use k8s_informer::informer::InformerError;
use k8s_informer::object::{Accessor, Key, meta_namespace_key};
use k8s_informer::store::{AddIndexersError, Indexers};
use k8s_informer::{
    Deleted, Indexer, Lister, Object, ObjectMeta, Selector, SharedIndexInformer, impl_object,
};
use k8s_informer_testing::{Answer, ScriptedListerWatcher};
use serde::Deserialize;
use serde_json::json;

use crate::informer::support::{SOON, version};
use crate::informer::versions::run;

#[derive(Debug, Deserialize)]
struct Thing {
    metadata: ObjectMeta,
}

impl_object!(Thing, "v1", "Thing", "things", Namespaced);

/// A cache without indexes, and its lister.
fn cache() -> (Arc<Indexer<Thing>>, Lister<Thing>) {
    let indexer = Arc::new(Indexer::new(Accessor::object(), Indexers::new()));
    (Arc::clone(&indexer), Lister::new(indexer))
}

fn add_label_index(indexer: &Indexer<Thing>, label: &str) -> Result<(), AddIndexersError> {
    indexer.add_indexers(Indexers::new().with_label(label)?)
}

fn thing(namespace: &str, name: &str, labels: &BTreeMap<&str, &str>) -> Arc<Thing> {
    let metadata = json!({"namespace": namespace, "name": name, "labels": labels});
    Arc::new(serde_json::from_value(json!({ "metadata": metadata })).unwrap())
}

fn keys(things: &[Arc<Thing>]) -> Vec<Key> {
    let mut keys: Vec<_> = things.iter().map(|it| meta_namespace_key(&**it)).collect();
    keys.sort();
    keys
}

const SELECTORS: [&str; 16] = [
    "",
    "app",
    "!app",
    "app=",
    "app=web",
    "app==db",
    "app!=web",
    "app in (web)",
    "app in (web, db, none)",
    "app in (,web)",
    "app notin (web, db)",
    "app=web,tier in (a, b)",
    "tier=a,app notin (db)",
    "tier=a,app!=web,size>1",
    "app=web,app=db",
    "size<3,other=1",
];

#[test]
fn selectors_with_label_indexes_equal_a_scan() {
    for round in 0..40_u64 {
        let mut random = Random(round + 1);
        let (indexer, things) = cache();
        // Half of the rounds have an index by namespace.
        if round % 2 == 0 {
            let namespace = Indexers::new().with_namespace();
            indexer.add_indexers(namespace).unwrap();
        }
        for step in 0..120 {
            if step == random.below(120) {
                let _ = add_label_index(&indexer, "app");
            } else if step == random.below(120) {
                let _ = add_label_index(&indexer, "tier");
            }
            let (namespace, name) = (random.one(&["n1", "n2"]), random.below(30).to_string());
            let mut labels = BTreeMap::new();
            for (label, values) in [
                ("app", &["", "web", "db", "none"][..]),
                ("tier", &["a", "b"]),
                ("size", &["1", "2", "x"]),
            ] {
                if random.below(4) > 0 {
                    labels.insert(label, random.one(values));
                }
            }
            let thing = thing(namespace, &name, &labels);
            match random.below(20) {
                0 => indexer.replace(vec![thing], Some(version("1"))).unwrap(),
                1..5 => indexer.delete(Deleted::Final(thing)).unwrap(),
                _ => indexer.add(thing).unwrap(),
            }
            let selector: Selector = random.one(&SELECTORS).parse().unwrap();
            let mut all = things.list();
            all.retain(|thing| selector.matches(&**thing));
            assert_eq!(keys(&things.select(&selector)), keys(&all), "{selector}");
            all.retain(|thing| thing.namespace() == namespace);
            let selected = things.namespace(namespace).select(&selector);
            assert_eq!(keys(&selected), keys(&all), "{namespace}: {selector}");
        }
    }
}

/// The smallest usable generator: xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % limit
    }

    fn one<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len() as u64) as usize]
    }
}

#[test]
fn selection_during_writes_shows_one_moment() {
    // More objects than are read under the lock, and fewer.
    for count in [6000, 50] {
        let (indexer, things) = cache();
        let generation = |number: &str| {
            let labels = BTreeMap::from([("app", "web"), ("generation", number)]);
            let thing = |name: u32| thing("n", &name.to_string(), &labels);
            (0..count).map(thing).collect::<Vec<_>>()
        };
        let (even, odd) = (generation("0"), generation("1"));
        indexer.replace(even.clone(), Some(version("1"))).unwrap();
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    indexer.replace(odd.clone(), Some(version("2"))).unwrap();
                    indexer.replace(even.clone(), Some(version("3"))).unwrap();
                }
            });
            let selector = "app=web".parse().unwrap();
            for round in 0..40 {
                if round == 20 {
                    add_label_index(&indexer, "app").unwrap();
                }
                let selected = things.select(&selector);
                assert_eq!(selected.len(), count as usize, "round {round}");
                let first = selected[0].label("generation");
                let is_same = |thing: &Arc<Thing>| thing.label("generation") == first;
                assert!(selected.iter().all(is_same), "round {round}");
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}

#[test]
fn label_index_with_a_million_values_is_exact() {
    let (indexer, things) = cache();
    let thing = |number: u32| {
        let mut metadata = ObjectMeta::default();
        metadata.name = number.to_string();
        metadata.labels = [("id", number.to_string())].into_iter().collect();
        Arc::new(Thing { metadata })
    };
    let million = (0..1_000_000).map(thing).collect();
    indexer.replace(million, Some(version("1"))).unwrap();
    add_label_index(&indexer, "id").unwrap();
    let select = |selector: &str| things.select(&selector.parse().unwrap());
    assert_eq!(keys(&select("id=77777")), ["77777"]);
    assert_eq!(keys(&select("id in (5, 6, x)")), ["5", "6"]);
    assert_eq!(select("id=1000000").len(), 0);
}

#[test]
fn label_index_added_while_running_finds_objects() {
    let item = json!({"metadata": {"namespace": "n", "name": "a", "labels": {"app": "web"}}});
    let list = json!({"kind": "List", "metadata": {"resourceVersion": "1"}, "items": [item]});
    let script = ScriptedListerWatcher::new([Answer::body(list.to_string()), Answer::open("")]);
    let things = SharedIndexInformer::<Thing>::new(Arc::new(script), Default::default());
    run(&things, |stop| {
        things.wait_for_sync(SOON, stop).unwrap();
        assert!(things.lister().index_names().is_empty());
        things.add_label_index("app").unwrap();
        let names = things.lister().index_names();
        assert_eq!(
            things.lister().index_keys(&names[0], "web").unwrap(),
            ["n/a"]
        );
        let select = |selector: &str| things.lister().select(&selector.parse().unwrap());
        assert_eq!(keys(&select("app=web")), ["n/a"]);
        assert!(select("app=db").is_empty());
    });
}

#[test]
fn duplicate_and_invalid_label_indexes_are_errors() {
    let script = Arc::new(ScriptedListerWatcher::new([]));
    let things = SharedIndexInformer::<Thing>::new(script, Default::default());
    things.add_label_index("app.kubernetes.io/name").unwrap();
    let error = things
        .add_label_index("app.kubernetes.io/name")
        .unwrap_err();
    assert!(
        matches!(&error, InformerError::Index(AddIndexersError::Conflict { names }) if names.len() == 1),
        "{error}"
    );
    for label in ["", "a b", "/a", "A.b/c", "a=b", "a/b/c"] {
        let error = things.add_label_index(label).unwrap_err();
        let text = format!("{label:?} is not the name of a label");
        assert!(error.to_string().starts_with(&text), "{error}");
    }
}
