use std::sync::Arc;
use std::time::Duration;

use k8s_informer::store::{IndexError, MutationCache};
use k8s_informer::testing::FakeClock;
use k8s_informer::{Deleted, Indexer};
use serde_json::{Value, json};

use super::Replay;
use super::object::{
    Obj, accessor, class, done, found, index_answer, indexers, obj, objs, sorted, text,
};

pub(crate) fn build(config: &Value) -> Box<dyn Replay> {
    let clock = FakeClock::new();
    let indexer = Arc::new(Indexer::new(
        accessor(),
        indexers(&json!(["ns", "val", "labels", "fail"])),
    ));
    let mut builder = MutationCache::builder(accessor(), Arc::clone(&indexer) as _)
        .include_adds(config["include_adds"].as_bool().unwrap())
        .ttl(Duration::from_millis(config["ttl_ms"].as_u64().unwrap()))
        .clock(Arc::new(clock.clone()));
    if config["indexer"].as_bool().unwrap() {
        builder = builder.indexer(Arc::clone(&indexer));
    }
    Box::new(Subject {
        cache: builder.build(),
        indexer,
        clock,
    })
}

struct Subject {
    cache: MutationCache<Obj>,
    indexer: Arc<Indexer<Obj>>,
    clock: FakeClock,
}

impl Replay for Subject {
    /// The traces name the quirk M3 if an answer lacks the requested value. This method finds the
    /// other case: the store has a newer object.
    fn deviates(&self, step: &Value) -> Option<&'static str> {
        let mut answered = step["want"]["objs"].as_array().into_iter().flatten();
        let ahead = step["op"] == "by_index" && answered.any(|want| ahead(&self.indexer, want));
        ahead.then_some("M3")
    }

    fn step(&mut self, op: &str, step: &Value) -> Value {
        let Self {
            cache,
            indexer,
            clock,
        } = self;
        match op {
            // A tombstone is not an object, so there is no call. It would never be returned anyway.
            "mutation" if step["tombstone"].is_object() => json!({}),
            // Ignore the error, because client-go only logs why it ignores an object.
            "mutation" => {
                let _ignored = cache.mutation(obj(&step["obj"]));
                json!({})
            }
            "mutation_many" => {
                for at in 0..step["count"].as_u64().unwrap() {
                    let name = format!("{}{at:05}", text(&step["prefix"]));
                    let object =
                        json!({"ns": "n1", "name": name, "rv": (at + 1).to_string(), "val": "x"});
                    cache.mutation(obj(&object)).unwrap();
                }
                json!({})
            }
            "get_by_key" => match cache.get_by_key(text(&step["key"])) {
                Ok(object) => found(object),
                Err(error) => json!({"error": class(&error)}),
            },
            "by_index" => match cache.by_index(text(&step["name"]), text(&step["value"])) {
                Err(IndexError::NoIndexer) => json!({"error": "no_indexer"}),
                reply => index_answer("objs", reply, sorted),
            },
            "store_add" => done(indexer.add(obj(&step["obj"])).map(drop)),
            "store_update" => done(indexer.update(obj(&step["obj"])).map(drop)),
            "store_delete" => done(indexer.delete(Deleted::Final(obj(&step["obj"])))),
            "store_replace" => done(indexer.replace(objs(&step["list"]), text(&step["rv"]))),
            "advance_ms" => {
                clock.advance(Duration::from_millis(step["ms"].as_u64().unwrap()));
                json!({})
            }
            other => panic!("op {other}"),
        }
    }
}

/// Whether the store has a different object with this key that is not older.
fn ahead(indexer: &Indexer<Obj>, want: &Value) -> bool {
    let number = |object: &Obj| object.rv.parse().unwrap_or(0u64);
    let want = obj(want);
    let stored = indexer.get(&want).unwrap();
    stored.is_some_and(|stored| stored != want && number(&stored) >= number(&want))
}
