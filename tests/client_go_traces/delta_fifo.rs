use k8s_informer::Deleted;
use k8s_informer::object::KeyError;
use k8s_informer::queue::{Delta, DeltaFifo, DeltaFifoOptions, Deltas, Origin, PopError, Queue};
use k8s_informer::store::ReflectorStore;
use serde_json::{Value, json};

use super::Replay;
use super::deltas::{read_delta, write_deltas};
use super::known::Known;
use super::object::{Obj, accessor, done, obj, objs, tombstone, transform, version};

pub(crate) fn build(config: &Value) -> Box<dyn Replay> {
    let known = Known::new(&config["known"]);
    let emit_replaced = config["emit_replaced"].as_bool().unwrap();
    let mut options = DeltaFifoOptions::new().emit_replaced(emit_replaced);
    if let Some(known) = known.objects() {
        options = options.known_objects(known);
    }
    if let Some(transform) = transform(&config["transform"]) {
        options = options.transform(transform);
    }
    Box::new(Subject {
        queue: DeltaFifo::with_options(accessor(), options),
        known,
    })
}

struct Subject {
    queue: DeltaFifo<Obj>,
    known: Known,
}

impl Replay for Subject {
    fn step(&mut self, op: &str, step: &Value) -> Value {
        let Self { queue, known } = self;
        match op {
            "add" => done(queue.add(obj(&step["obj"]))),
            "update" => done(queue.update(obj(&step["obj"]))),
            "delete" => done(queue.delete(Deleted::Final(obj(&step["obj"])))),
            "delete_tombstone" => done(queue.delete(tombstone(step))),
            "replace" => done(queue.replace(objs(&step["list"]), version(step))),
            "resync" => done(queue.resync()),
            "pop" => self.pop(step["process"] == "error"),
            "has_synced" => json!({"value": queue.has_synced()}),
            "done_fired" => json!({"value": queue.synced().is_done()}),
            "is_closed" => json!({"value": queue.is_closed()}),
            "close" => {
                queue.close();
                json!({})
            }
            "key_of" => key_of(step),
            _ if op.starts_with("known_") => known.step(op, step),
            other => panic!("op {other}"),
        }
    }
}

impl Subject {
    fn pop(&self, fails: bool) -> Value {
        if self.queue.is_empty() && !self.queue.is_closed() {
            return json!({"would_block": true});
        }
        let mut initial = false;
        let result = self.queue.pop(&mut |deltas, origin| {
            initial = origin == Origin::InitialList;
            if fails {
                return Err("process".into());
            }
            self.known.apply(deltas)
        });
        match result {
            Ok(popped) => json!({"deltas": write_deltas(&popped), "initial": initial}),
            Err(PopError::Closed) => json!({"error": "closed"}),
            Err(PopError::Process { popped, .. }) => {
                json!({"deltas": write_deltas(&popped), "initial": initial, "error": "process"})
            }
            Err(other) => panic!("{other}"),
        }
    }
}

fn key_of(step: &Value) -> Value {
    let key = if step["deltas"].is_array() {
        let deltas = step["deltas"].as_array().unwrap().iter().map(read_delta);
        // Without a key, there is no delta.
        let deltas: Result<Vec<Delta<Obj>>, KeyError> = deltas.collect();
        deltas.map(|deltas| Deltas::from(deltas).key().cloned())
    } else if step["tombstone"].is_object() {
        accessor()
            .key_of_deleted(&tombstone(&step["tombstone"]))
            .map(Some)
    } else {
        accessor().key(&obj(&step["obj"])).map(Some)
    };
    match key {
        Ok(Some(key)) => json!({"key": &*key}),
        Ok(None) => json!({"error": "zero_deltas"}),
        Err(_) => json!({"error": "key"}),
    }
}
