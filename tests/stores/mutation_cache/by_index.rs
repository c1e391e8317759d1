use std::time::Duration;

use k8s_informer::Deleted;
use k8s_informer::store::{IndexError, MutationCache};

use super::{Thing, accessor, pairs, thing, valued, with_adds, without_adds};

#[test]
fn m3_newer_mutations_are_found_by_index() {
    let subject = without_adds();
    subject
        .indexer
        .replace(vec![thing("a", 1), thing("b", 5), thing("c", 1)], "9")
        .unwrap();
    subject.cache.mutation(thing("a", 2)).unwrap();
    subject.cache.mutation(thing("b", 4)).unwrap();
    subject.cache.mutation(thing("new", 4)).unwrap();
    assert_eq!(
        subject.by_value("x"),
        pairs(&[("a", 2), ("b", 5), ("c", 1)])
    );
    assert_eq!(with_adds().by_value("x"), []);
    let subject = with_adds();
    subject.cache.mutation(valued("new", 4, "x y x")).unwrap();
    assert_eq!(subject.by_value("x"), pairs(&[("new", 4)]), "once");
    assert_eq!(subject.by_value("y"), pairs(&[("new", 4)]));
    assert_eq!(subject.by_value("z"), []);
}

#[test]
fn m3_mutation_without_the_value_is_not_found() {
    for subject in [without_adds(), with_adds()] {
        subject.indexer.add(valued("a", 1, "x")).unwrap();
        subject.cache.mutation(valued("a", 2, "y")).unwrap();
        assert_eq!(subject.by_value("x"), []);
        assert_eq!(subject.version("a").unwrap(), "2");
    }
}

#[test]
fn m3_mutation_to_the_value_is_found_only_with_include_adds() {
    for (subject, found) in [
        (without_adds(), pairs(&[])),
        (with_adds(), pairs(&[("a", 2)])),
    ] {
        subject.indexer.add(valued("a", 1, "x")).unwrap();
        subject.cache.mutation(valued("a", 2, "y")).unwrap();
        assert_eq!(subject.by_value("y"), found);
    }
}

#[test]
fn m3_mutation_older_than_the_store_is_not_found() {
    let subject = with_adds();
    subject.cache.mutation(valued("a", 2, "x")).unwrap();
    subject.indexer.add(valued("a", 3, "y")).unwrap();
    assert_eq!(
        (subject.by_value("x"), subject.by_value("y")),
        (pairs(&[]), pairs(&[("a", 3)]))
    );
}

#[test]
fn m3_failing_index_function_omits_the_mutation() {
    for value in ["bad", "worse"] {
        let subject = with_adds();
        subject.indexer.add(valued("stored", 1, "x")).unwrap();
        subject.cache.mutation(valued("stored", 2, value)).unwrap();
        subject.cache.mutation(valued("new", 2, value)).unwrap();
        subject.cache.mutation(valued("fine", 2, "x")).unwrap();
        assert_eq!(subject.by_value("x"), pairs(&[("fine", 2), ("stored", 1)]));
        assert_eq!(subject.by_value(value), []);
        assert_eq!(subject.version("new").unwrap(), "2");
    }
}

#[test]
fn m3_unknown_index_or_no_indexer_is_an_error() {
    let subject = with_adds();
    assert_eq!(
        subject.cache.by_index("nope", "x").unwrap_err(),
        IndexError::NoIndex {
            name: "nope".into()
        }
    );
    let cache = MutationCache::builder(accessor(), subject.indexer.clone() as _).build();
    let error = cache.by_index("value", "x").unwrap_err();
    assert_eq!(
        (error.to_string().as_str(), error),
        ("the mutation cache has no indexer", IndexError::NoIndexer)
    );
    assert!(cache.get_by_key("a").unwrap().is_none());
}

/// Random writes: an index returns the same objects as reads by key, and these are never older than
/// the store.
#[test]
fn m3_index_returns_the_same_objects_as_reads_by_key() {
    const NAMES: [&str; 4] = ["a", "b", "c", "d"];
    let subject = with_adds();
    let mut random = 1u64;
    let mut below = |limit: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) % limit
    };
    let mut version = 0;
    for _ in 0..4000 {
        version += below(2);
        let name = NAMES[below(4) as usize];
        let value = ["x", "y", "x y", ""][below(4) as usize];
        let object = valued(name, version - below(3).min(version), value);
        match below(6) {
            0 | 1 => subject.cache.mutation(object).unwrap(),
            2 => subject.indexer.update(object).unwrap(),
            3 => subject.indexer.delete(Deleted::Final(object)).unwrap(),
            4 => subject.cache.on_delete(&Deleted::Final(object)).unwrap(),
            _ => subject.clock.advance(Duration::from_secs(below(100))),
        }
        // Index reads come first: reads by key remove mutations that the store has caught up with.
        let found = ["x", "y"].map(|value| subject.by_value(value));
        let by_key: Vec<_> = NAMES.iter().filter_map(|name| subject.get(name)).collect();
        for (value, found) in ["x", "y"].into_iter().zip(found) {
            let with_value = by_key
                .iter()
                .filter(|thing| thing.value.split(' ').any(|one| one == value));
            let expected: Vec<_> = with_value
                .map(|thing| (thing.name.clone(), thing.version.clone()))
                .collect();
            assert_eq!(found, expected);
        }
        for stored in subject.indexer.list() {
            let number = |thing: &Thing| thing.version.parse::<u64>().unwrap();
            assert!(
                subject
                    .get(&stored.name)
                    .is_none_or(|thing| number(&thing) >= number(&stored))
            );
        }
    }
}
