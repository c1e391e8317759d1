use std::hash::{BuildHasher, RandomState};

use serde_json::{Value, json};

use super::*;

struct Random(u64);

impl Random {
    fn below(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % below
    }

    /// Returns one of few strings, so that keys repeat. Some have a length at which the encoding of
    /// the length changes.
    fn string(&mut self) -> String {
        let part = ["", "a", "b", "\u{0}", "ü", "\"", "例", "~"][self.below(8)];
        let count = match self.below(16) {
            0 => [63, 64, 65, 4095, 4096][self.below(5)],
            count => 1 + count % 3,
        };
        part.repeat(count)
    }
}

fn entries(map: &StringMap) -> Vec<(String, String)> {
    map.iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

#[test]
fn random_operations_match_btree_map() {
    for seed in 1..=20_u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (mut map, mut model) = (StringMap::new(), BTreeMap::<String, String>::new());
        for step in 0..40 {
            let at = format!("seed {seed}, step {step}");
            let (before, model_before) = (map.clone(), model.clone());
            let (key, value) = (random.string(), random.string());
            match random.below(4) {
                0 => assert_eq!(map.remove(&key), model.remove(&key), "{at}"),
                _ => assert_eq!(
                    map.insert(&key, &value),
                    model.insert(key.clone(), value),
                    "{at}"
                ),
            }
            assert!(
                entries(&map)
                    .iter()
                    .map(|(key, value)| (key, value))
                    .eq(&model),
                "{at}"
            );
            assert_eq!(
                (map.len(), map.is_empty()),
                (model.len(), model.is_empty()),
                "{at}"
            );
            for key in [key, random.string()] {
                assert_eq!(map.get(&key), model.get(&key).map(String::as_str), "{at}");
            }
            assert_eq!(map == before, model == model_before, "{at}");
            assert_eq!(format!("{map:?}"), format!("{model:?}"), "{at}");
            assert_eq!(StringMap::from(model.clone()), map, "{at}");
            assert_eq!(BTreeMap::from(map.clone()), model, "{at}");
            let json = serde_json::to_string(&map).unwrap();
            assert_eq!(json, serde_json::to_string(&model).unwrap(), "{at}");
            assert_eq!(
                serde_json::from_str::<StringMap>(&json).unwrap(),
                map,
                "{at}"
            );
        }
    }
}

#[test]
fn unordered_and_duplicate_entries_match_btree_map() {
    for seed in 1..=100_u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let given: Vec<_> = (0..random.below(12))
            .map(|_| (random.string(), random.string()))
            .collect();
        let map: StringMap = given.iter().map(|(key, value)| (key, value)).collect();
        let model: BTreeMap<String, String> = given.iter().cloned().collect();
        assert_eq!(BTreeMap::from(map.clone()), model, "seed {seed}");
        let parts = given
            .iter()
            .map(|(key, value)| format!("{}:{}", json!(key), json!(value)));
        let json = format!("{{{}}}", parts.collect::<Vec<_>>().join(", "));
        let decoded: StringMap = serde_json::from_str(&json).unwrap();
        assert_eq!(decoded, map, "seed {seed}");
        let hasher = RandomState::new();
        assert_eq!(
            hasher.hash_one(&decoded),
            hasher.hash_one(&map),
            "seed {seed}"
        );
        // Decode from a tree too: a borrowed tree passes borrowed strings, and an owned tree owned
        // ones.
        let tree: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(StringMap::deserialize(&tree).unwrap(), map, "seed {seed}");
        assert_eq!(
            serde_json::from_value::<StringMap>(tree).unwrap(),
            map,
            "seed {seed}"
        );
    }
}

#[test]
fn decode_errors_match_btree_map() {
    let refused = [
        "7",
        "[]",
        r#""a""#,
        r#"{"a": 1}"#,
        r#"{"a": {}}"#,
        r#"{"a": "b""#,
        r#"{"a"}"#,
        r#"{"a": "\ud800"}"#,
        r#"{a: "b"}"#,
    ];
    for json in refused {
        let actual = serde_json::from_str::<StringMap>(json)
            .unwrap_err()
            .to_string();
        let expected = serde_json::from_str::<BTreeMap<String, String>>(json)
            .unwrap_err()
            .to_string();
        assert_eq!(actual, expected, "{json}");
    }
    // Unlike a `BTreeMap`, but as in Go.
    let empty: StringMap = serde_json::from_str(r#"{"a": null}"#).unwrap();
    assert_eq!(empty, StringMap::from([("a", "")]));
    let null: StringMap = serde_json::from_str("null").unwrap();
    assert!(null.is_empty());
}

#[test]
fn map_uses_one_allocation_of_exact_size() {
    assert_eq!(size_of::<StringMap>(), 2 * size_of::<usize>());
    assert_eq!(
        StringMap::from([("app", "web")]).text.len(),
        "app".len() + "web".len() + 2
    );
    assert_eq!(StringMap::new().text.len(), 0);
}

#[test]
#[should_panic(expected = "no entry found for key")]
fn index_panics_on_missing_key() {
    let _ = &StringMap::new()["app"];
}
