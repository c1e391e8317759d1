use std::sync::Arc;

use k8s_informer::Deleted;
use k8s_informer::queue::{Deltas, Origin, PopError, Queue, RealFifo, RealFifoOptions};
use k8s_informer::store::ReflectorStore;
use serde_json::{Map, Value, json};

use super::Replay;
use super::deltas::{write_delta, write_deltas};
use super::object::{Obj, accessor, done, obj, objs, text, tombstone, transform, version};

pub(crate) fn build(config: &Value) -> Box<dyn Replay> {
    let mut options = RealFifoOptions::new();
    if let Some(transform) = transform(&config["transform"]) {
        options = options.transform(transform);
    }
    Box::new(Subject {
        queue: RealFifo::with_options(accessor(), options),
    })
}

struct Subject {
    queue: RealFifo<Obj>,
}

impl Replay for Subject {
    fn step(&mut self, op: &str, step: &Value) -> Value {
        match op {
            "new" => json!({}),
            "pop" | "pop_batch" => self.pop(op == "pop_batch", step),
            _ => self.simple(op, step),
        }
    }
}

impl Subject {
    fn simple(&self, op: &str, step: &Value) -> Value {
        let queue = &self.queue;
        match op {
            "add" => done(queue.add(obj(&step["obj"]))),
            "add_many" => {
                for n in 0..step["count"].as_u64().unwrap() {
                    let name = format!("{}{n:05}", text(&step["prefix"]));
                    let object = Obj {
                        ns: "n1".to_owned(),
                        name,
                        rv: (n + 1).to_string(),
                        ..Obj::default()
                    };
                    queue.add(Arc::new(object)).unwrap();
                }
                json!({})
            }
            "update" => done(queue.update(obj(&step["obj"]))),
            "delete" => done(queue.delete(Deleted::Final(obj(&step["obj"])))),
            "delete_tombstone" => done(queue.delete(tombstone(step))),
            "replace" => done(queue.replace(objs(&step["list"]), version(step))),
            "resync" => done(queue.resync()),
            "bookmark" => done(queue.bookmark(version(step))),
            "has_synced" => json!({"value": queue.has_synced()}),
            "done_fired" => json!({"value": queue.synced().is_done()}),
            "is_closed" => json!({"value": queue.is_closed()}),
            "close" => {
                queue.close();
                json!({})
            }
            other => panic!("op {other}"),
        }
    }

    fn pop(&self, batch: bool, step: &Value) -> Value {
        let queue = &self.queue;
        if queue.is_empty() && !queue.is_closed() {
            return json!({"would_block": true});
        }
        let mut reply = Map::new();
        let mut process = |callback: &str, popped: &[Deltas<Obj>], origin: Origin| {
            if batch {
                reply.insert("callback".to_owned(), json!(callback));
            }
            let deltas: Vec<_> = popped
                .iter()
                .flat_map(|deltas| deltas.iter().cloned())
                .collect();
            match deltas.as_slice() {
                [first, .., last] if deltas.len() > 20 => {
                    reply.insert("count".to_owned(), json!(deltas.len()));
                    reply.insert("first".to_owned(), write_delta(first));
                    reply.insert("last".to_owned(), write_delta(last));
                }
                deltas => drop(reply.insert("deltas".to_owned(), write_deltas(deltas))),
            }
            reply.insert("initial".to_owned(), json!(origin == Origin::InitialList));
            reply.insert("done_during".to_owned(), json!(queue.synced().is_done()));
            if let Some(during) = step["during"].as_array() {
                let during: Vec<_> = during
                    .iter()
                    .map(|step| self.simple(text(&step["op"]), step))
                    .collect();
                reply.insert("during".to_owned(), json!(during));
            }
            if step["process"] == "error" {
                return Err("process".into());
            }
            Ok(())
        };
        let closed = match batch {
            false => {
                let popped = queue.pop(&mut |deltas, origin| {
                    process("single", std::slice::from_ref(deltas), origin)
                });
                matches!(popped, Err(PopError::Closed))
            }
            true => {
                let process = std::cell::RefCell::new(process);
                let popped = queue.pop_batch(
                    &mut |batch, origin| process.borrow_mut()("batch", batch, origin),
                    &mut |deltas, origin| {
                        process.borrow_mut()("single", std::slice::from_ref(deltas), origin)
                    },
                );
                matches!(popped, Err(PopError::Closed))
            }
        };
        if closed {
            return json!({"error": "closed"});
        }
        if step["process"] == "error" {
            reply.insert("error".to_owned(), json!("process"));
        }
        Value::Object(reply)
    }
}
