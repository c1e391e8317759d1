//! `MutationCache` through its public API. Ports the mutation_cache_test of client-go 1.37, and
//! tests what this crate adds.

mod by_index;
mod user_code;

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use k8s_informer::object::{Accessor, KeyError, meta_namespace_key};
use k8s_informer::store::{IndexFunc, Indexers, MutationCache, MutationCacheBuilder, StoreError};
use k8s_informer::testing::FakeClock;
use k8s_informer::{Deleted, Indexer, Object};

const ONE_NANOSECOND: Duration = Duration::from_nanos(1);
const FIVE_MINUTES: Duration = Duration::from_secs(300);

#[derive(Clone, Debug, PartialEq)]
struct Thing {
    name: String,
    version: String,
    uid: &'static str,
    value: &'static str,
}

impl Object for Thing {
    fn name(&self) -> &str {
        &self.name
    }
    fn namespace(&self) -> &str {
        ""
    }
    fn uid(&self) -> &str {
        assert!(self.uid != "panic", "uid function");
        self.uid
    }
    fn resource_version(&self) -> &str {
        assert!(self.version != "panic", "version function");
        &self.version
    }
    fn label(&self, _: &str) -> Option<&str> {
        None
    }
}

fn thing(name: &str, version: impl ToString) -> Arc<Thing> {
    valued(name, version, "x")
}

fn valued(name: &str, version: impl ToString, value: &'static str) -> Arc<Thing> {
    Arc::new(Thing {
        name: name.to_owned(),
        version: version.to_string(),
        uid: "",
        value,
    })
}

fn with_uid(name: &str, version: impl ToString, uid: &'static str) -> Arc<Thing> {
    Arc::new(Thing {
        name: name.to_owned(),
        version: version.to_string(),
        uid,
        value: "x",
    })
}

fn accessor() -> Accessor<Thing> {
    Accessor::new(|thing: &Thing| match &*thing.name {
        "unkeyable" => Err(KeyError::new("no key")),
        "panic" => panic!("key function"),
        _ => Ok(meta_namespace_key(thing)),
    })
    .with_resource_version(|thing| Some(thing.resource_version()))
}

/// Indexes by value. Fails on `bad`, and panics on `worse`.
fn by_value() -> IndexFunc<Thing> {
    IndexFunc::fallible(|thing: &Thing| match thing.value {
        "bad" => Err("a bad value"),
        "worse" => panic!("a worse value"),
        value => Ok(value.split(' ').map(str::to_owned).collect()),
    })
}

struct Subject {
    cache: MutationCache<Thing>,
    indexer: Arc<Indexer<Thing>>,
    clock: FakeClock,
}

fn subject(
    options: impl FnOnce(MutationCacheBuilder<Thing>) -> MutationCacheBuilder<Thing>,
) -> Subject {
    let clock = FakeClock::new();
    let indexer = Arc::new(Indexer::new(
        accessor(),
        Indexers::new().with("value", by_value()),
    ));
    let builder = MutationCache::builder(accessor(), Arc::clone(&indexer) as _)
        .indexer(Arc::clone(&indexer))
        .clock(Arc::new(clock.clone()));
    Subject {
        cache: options(builder).build(),
        indexer,
        clock,
    }
}

fn without_adds() -> Subject {
    subject(|builder| builder)
}

fn with_adds() -> Subject {
    subject(|builder| builder.include_adds(true))
}

impl Subject {
    fn get(&self, key: &str) -> Option<Arc<Thing>> {
        self.cache.get_by_key(key).unwrap()
    }

    fn version(&self, key: &str) -> Option<String> {
        self.get(key).map(|thing| thing.version.clone())
    }

    fn by_value(&self, value: &str) -> Vec<(String, String)> {
        let things = self.cache.by_index("value", value).unwrap();
        let mut found: Vec<_> = things
            .iter()
            .map(|thing| (thing.name.clone(), thing.version.clone()))
            .collect();
        found.sort();
        found
    }
}

fn pairs(pairs: &[(&str, u32)]) -> Vec<(String, String)> {
    pairs
        .iter()
        .map(|(name, version)| ((*name).to_owned(), version.to_string()))
        .collect()
}

fn assert_rejected(result: Result<(), StoreError>, bad: &str) {
    match result {
        Err(StoreError::ResourceVersion {
            key,
            resource_version,
        }) => {
            assert_eq!((&*key, resource_version.as_deref()), ("a", Some(bad)));
        }
        other => panic!("{bad:?}: {other:?}"),
    }
}

#[test]
fn m1_the_newest_mutation_is_kept() {
    let subject = without_adds();
    subject.indexer.add(thing("a", 9)).unwrap();
    subject.cache.mutation(thing("a", 11)).unwrap();
    subject.cache.mutation(thing("a", 10)).unwrap();
    assert_eq!(
        subject.version("a").unwrap(),
        "11",
        "an older mutation is ignored"
    );
    subject.cache.mutation(thing("a", 100)).unwrap();
    assert_eq!(
        subject.version("a").unwrap(),
        "100",
        "versions are compared as numbers, not as text"
    );
    subject.cache.mutation(valued("a", 100, "other")).unwrap();
    assert_eq!(
        subject.get("a").unwrap().value,
        "other",
        "a mutation of an equal version replaces the old one"
    );
    subject.cache.mutation(thing("a", u64::MAX)).unwrap();
    assert_eq!(subject.version("a").unwrap(), u64::MAX.to_string());
}

#[test]
fn m1_missing_version_counts_as_zero() {
    let subject = without_adds();
    subject.indexer.add(valued("a", "", "stored")).unwrap();
    subject.cache.mutation(valued("a", "", "mine")).unwrap();
    assert_eq!(subject.get("a").unwrap().value, "stored");
    subject.cache.mutation(thing("a", 1)).unwrap();
    assert_eq!(subject.version("a").unwrap(), "1");
}

#[test]
fn m1_non_numeric_version_is_rejected() {
    let subject = without_adds();
    subject.indexer.add(thing("a", 1)).unwrap();
    subject.cache.mutation(thing("a", 5)).unwrap();
    for bad in [
        "abc",
        "-1",
        "+7",
        "7.0",
        " 7",
        "0x7",
        "18446744073709551616",
    ] {
        assert_rejected(subject.cache.mutation(thing("a", bad)), bad);
        assert_rejected(subject.cache.on_add_or_update(&thing("a", bad)), bad);
        assert_rejected(
            subject.cache.on_delete(&Deleted::Final(thing("a", bad))),
            bad,
        );
        assert_eq!(
            subject.version("a").unwrap(),
            "5",
            "the known mutation stays"
        );
    }
    let error = subject
        .cache
        .mutation(thing("a", "abc"))
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        r#"the resourceVersion "abc" of a is not a whole number"#
    );
    // If the versions cannot be compared, reads return the store's object.
    subject.indexer.update(thing("a", "abc")).unwrap();
    assert_eq!(subject.by_value("x"), [("a".to_owned(), "abc".to_owned())]);
    assert_eq!(subject.version("a").unwrap(), "abc");
    let unversioned = MutationCache::builder(
        Accessor::new(|thing: &Thing| Ok(meta_namespace_key(thing))),
        subject.indexer.clone(),
    );
    let error = unversioned.build().mutation(thing("a", 1)).unwrap_err();
    assert_eq!(error.to_string(), "a has no resourceVersion");
}

#[test]
fn m1_mutation_is_kept_for_the_ttl() {
    for options in [
        |builder: MutationCacheBuilder<Thing>| builder,
        |builder: MutationCacheBuilder<Thing>| builder.ttl(Duration::ZERO),
        |builder: MutationCacheBuilder<Thing>| builder.ttl(FIVE_MINUTES),
    ] {
        let subject = subject(options);
        subject.indexer.add(thing("a", 1)).unwrap();
        subject.cache.mutation(thing("a", 2)).unwrap();
        subject.clock.advance(FIVE_MINUTES);
        assert_eq!(subject.version("a").unwrap(), "2");
        assert_eq!(subject.by_value("x"), pairs(&[("a", 2)]));
        subject.clock.advance(ONE_NANOSECOND);
        assert_eq!(subject.by_value("x"), pairs(&[("a", 1)]));
        assert_eq!(
            subject.version("a").unwrap(),
            "1",
            "reads must not extend the TTL"
        );
        subject.cache.mutation(thing("a", 2)).unwrap();
        subject.clock.advance(FIVE_MINUTES);
        subject.cache.mutation(thing("a", 2)).unwrap();
        subject.clock.advance(FIVE_MINUTES);
        assert_eq!(
            subject.version("a").unwrap(),
            "2",
            "another mutation restarts the TTL"
        );
    }
    let unlimited = subject(|builder| builder.include_adds(true).ttl(Duration::MAX));
    unlimited.cache.mutation(thing("a", 2)).unwrap();
    unlimited.clock.advance(Duration::from_secs(1 << 30));
    assert_eq!(unlimited.version("a").unwrap(), "2");
}

#[test]
fn m1_least_recently_used_of_101_mutations_is_evicted() {
    for options in [
        |builder: MutationCacheBuilder<Thing>| builder.include_adds(true),
        |builder: MutationCacheBuilder<Thing>| builder.include_adds(true).max_size(0),
        |builder: MutationCacheBuilder<Thing>| builder.include_adds(true).max_size(100),
    ] {
        let subject = subject(options);
        for at in 0..100 {
            subject.cache.mutation(thing(&at.to_string(), 1)).unwrap();
        }
        assert_eq!(
            subject.by_value("x").len(),
            100,
            "index reads do not change the order"
        );
        assert!(
            subject.get("0").is_some(),
            "a read by key makes the entry the most recent one"
        );
        subject.cache.mutation(thing("100", 1)).unwrap();
        assert_eq!((subject.get("0").is_some(), subject.get("1")), (true, None));
    }
    let one = subject(|builder| builder.include_adds(true).max_size(1));
    one.cache.mutation(thing("a", 1)).unwrap();
    one.cache.mutation(thing("b", 1)).unwrap();
    assert_eq!((one.get("a"), one.get("b")), (None, Some(thing("b", 1))));
}

#[test]
fn m2_newer_of_store_and_mutation_is_returned() {
    let subject = without_adds();
    assert_eq!(subject.get("a"), None);
    subject.cache.mutation(thing("a", 2)).unwrap();
    assert_eq!(subject.get("a"), None, "the store does not have the object");
    subject.indexer.add(thing("a", 1)).unwrap();
    assert_eq!(subject.version("a").unwrap(), "2");
    subject.indexer.update(valued("a", 2, "stored")).unwrap();
    assert_eq!(subject.get("a").unwrap().value, "stored");
    subject.indexer.update(thing("a", 1)).unwrap();
    assert_eq!(
        subject.version("a").unwrap(),
        "1",
        "the mutation is forgotten once the store has it"
    );
}

#[test]
fn m2_object_not_yet_in_store_is_found_by_every_read() {
    let subject = with_adds();
    subject.cache.mutation(thing("a", 2)).unwrap();
    for _ in 0..3 {
        assert_eq!(subject.version("a").unwrap(), "2");
        assert_eq!(subject.by_value("x"), pairs(&[("a", 2)]));
    }
    subject.indexer.add(thing("a", 3)).unwrap();
    assert_eq!(subject.version("a").unwrap(), "3");
    subject
        .indexer
        .delete(Deleted::Final(thing("a", 4)))
        .unwrap();
    assert_eq!(
        subject.get("a"),
        None,
        "the mutation is forgotten once the store has it"
    );
}

/// A writer, an informer that follows the writer, and readers run concurrently. No reader gets an
/// older object than before, and the writer always reads its own writes.
#[test]
fn m2_writer_reads_its_own_writes() {
    const ROUNDS: u64 = 300;
    const WRITES: u64 = 10;
    let version =
        |thing: Option<Arc<Thing>>| thing.map_or(0, |thing| thing.version.parse::<u64>().unwrap());
    for _ in 0..ROUNDS {
        let subject = with_adds();
        let read = |at: u64| match at % 2 {
            0 => version(subject.get("a")),
            _ => version(subject.cache.by_index("value", "x").unwrap().pop()),
        };
        let (sender, receiver) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                for object in receiver {
                    subject.indexer.update(Arc::clone(&object)).unwrap();
                    subject.cache.on_add_or_update(&object).unwrap();
                }
            });
            scope.spawn(|| {
                let mut last = 0;
                for at in 0..100 {
                    let now = read(at);
                    assert!(now >= last, "{now} after {last}");
                    last = now;
                }
            });
            // The closure owns the sender, so that the channel disconnects even if an assertion
            // fails.
            let sender = sender;
            for write in 1..=WRITES {
                let object = thing("a", write);
                subject.cache.mutation(Arc::clone(&object)).unwrap();
                sender.send(object).unwrap();
                for at in 0..4 {
                    assert_eq!(read(at), write);
                }
            }
        });
        assert_eq!(subject.by_value("x"), pairs(&[("a", WRITES as u32)]));
    }
}

#[test]
fn m4_mutation_is_forgotten_once_the_store_has_it() {
    let subject = with_adds();
    subject.cache.mutation(thing("a", 5)).unwrap();
    subject.cache.on_add_or_update(&thing("a", 4)).unwrap();
    assert_eq!(subject.version("a").unwrap(), "5");
    subject
        .cache
        .on_add_or_update(&with_uid("a", 5, "another"))
        .unwrap();
    assert_eq!(subject.get("a"), None);
    subject
        .cache
        .on_add_or_update(&thing("never seen", 5))
        .unwrap();
}

#[test]
fn m4_deletion_also_rejects_late_mutations_of_the_object() {
    let subject = with_adds();
    // This deletion removes the mutation because the UIDs are equal, although the mutation is newer
    // than the deletion.
    subject.cache.mutation(with_uid("a", 9, "u1")).unwrap();
    subject
        .cache
        .on_delete(&Deleted::Final(with_uid("a", 7, "u1")))
        .unwrap();
    assert_eq!(
        (subject.get("a"), subject.by_value("x")),
        (None, pairs(&[]))
    );
    for (version, uid) in [(10, "u1"), (7, "u2"), (6, "u2")] {
        subject.cache.mutation(with_uid("a", version, uid)).unwrap();
        assert_eq!(
            (subject.get("a"), subject.by_value("x")),
            (None, pairs(&[])),
            "{version} {uid}"
        );
    }
    subject.cache.mutation(with_uid("a", 8, "u2")).unwrap();
    assert_eq!(subject.version("a").unwrap(), "8", "recreated");
    // This deletion removes the mutation because its version is not older, although the UIDs
    // differ.
    subject
        .cache
        .on_delete(&Deleted::Final(with_uid("a", 8, "u3")))
        .unwrap();
    assert_eq!(subject.get("a"), None);
    subject.clock.advance(FIVE_MINUTES + ONE_NANOSECOND);
    subject.cache.mutation(with_uid("a", 1, "u1")).unwrap();
    assert_eq!(
        subject.version("a").unwrap(),
        "1",
        "a deletion is remembered as long as a mutation"
    );
}

#[test]
fn m4_deletion_of_an_older_object_keeps_the_newer_one() {
    let subject = with_adds();
    subject.cache.mutation(with_uid("a", 9, "u2")).unwrap();
    subject
        .cache
        .on_delete(&Deleted::Final(with_uid("a", 8, "u1")))
        .unwrap();
    assert_eq!(subject.version("a").unwrap(), "9");
    subject.cache.mutation(with_uid("a", 10, "u1")).unwrap();
    assert_eq!(
        subject.version("a").unwrap(),
        "10",
        "the older deletion must not be remembered"
    );
}

#[test]
fn m4_missed_deletion_with_last_state_is_applied() {
    let subject = with_adds();
    let missed = |last_known| Deleted::FinalStateUnknown {
        key: "a".into(),
        last_known,
    };
    subject.cache.mutation(with_uid("a", 9, "u1")).unwrap();
    subject.cache.on_delete(&missed(None)).unwrap();
    assert_eq!(
        subject.version("a").unwrap(),
        "9",
        "without the last state, the deleted object is unknown"
    );
    subject
        .cache
        .on_delete(&missed(Some(with_uid("a", 3, "u1"))))
        .unwrap();
    assert_eq!(subject.get("a"), None);
}

#[test]
fn m4_delete_ahead_of_the_store_hides_the_object() {
    let subject = without_adds();
    subject.indexer.add(thing("a", 1)).unwrap();
    subject
        .cache
        .on_delete(&Deleted::Final(thing("a", 2)))
        .unwrap();
    assert_eq!(
        (subject.by_value("x"), subject.get("a")),
        (pairs(&[]), None)
    );
    subject.indexer.update(thing("a", 2)).unwrap();
    assert_eq!(
        (subject.by_value("x"), subject.version("a").unwrap()),
        (pairs(&[("a", 2)]), "2".to_owned())
    );
    subject.indexer.update(thing("a", 1)).unwrap();
    assert_eq!(
        subject.version("a").unwrap(),
        "1",
        "the deletion is forgotten once the store has the object"
    );
}
