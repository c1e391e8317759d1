use std::sync::Arc;
use std::time::Duration;

use k8s_informer::Deleted;
use k8s_informer::store::{
    ExpirationCache, ExpirationCacheOptions, KnownObjects, ReflectorStore, Store,
};
use k8s_informer_testing::FakeClock;
use serde_json::{Value, json};

use super::Replay;
use super::object::{
    Obj, accessor, class, done, found, keys, obj, objs, sorted, text, tombstone, version,
    version_text,
};

pub(crate) fn build(config: &Value) -> Box<dyn Replay> {
    let clock = FakeClock::new();
    // A TTL of this crate cannot be negative. Zero has the same effect as a negative TTL in
    // client-go.
    let ttl = Duration::from_millis(config["ttl_ms"].as_i64().unwrap().try_into().unwrap_or(0));
    let cache = ExpirationCache::with_options(
        accessor(),
        ExpirationCacheOptions::new()
            .ttl(ttl)
            .clock(Arc::new(clock.clone())),
    );
    Box::new(Subject { cache, clock })
}

struct Subject {
    cache: ExpirationCache<Obj>,
    clock: FakeClock,
}

impl Replay for Subject {
    fn step(&mut self, op: &str, step: &Value) -> Value {
        let cache = &self.cache;
        let looked_up = match op {
            "get" => cache.get(&obj(&step["obj"])),
            "get_by_key" => cache.get_by_key(text(&step["key"])),
            "add" => return done(cache.add(obj(&step["obj"]))),
            "update" => return done(cache.update(obj(&step["obj"]))),
            "delete" => return done(cache.delete(Deleted::Final(obj(&step["obj"])))),
            "delete_tombstone" => return done(cache.delete(tombstone(step))),
            "replace" => return done(cache.replace(objs(&step["list"]), version(step))),
            "list" => return json!({"objs": sorted(cache.list())}),
            "list_keys" => return json!({"keys": keys(cache.list_keys())}),
            "bookmark" => return done(ReflectorStore::bookmark(cache, version(step))),
            "last_rv" => return json!({"rv": version_text(cache.resource_version())}),
            "resync" => return done(cache.resync()),
            "advance_ms" => {
                self.clock
                    .advance(Duration::from_millis(step["ms"].as_u64().unwrap()));
                return json!({});
            }
            other => panic!("op {other}"),
        };
        looked_up.map_or_else(|error| json!({"error": class(&error)}), found)
    }
}
