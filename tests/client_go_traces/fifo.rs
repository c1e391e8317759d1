use k8s_informer::Deleted;
use k8s_informer::queue::{Fifo, Origin, PopError};
use k8s_informer::store::ReflectorStore;
use serde_json::{Value, json};

use super::Replay;
use super::object::{Obj, accessor, done, obj, objs, sorted, version};

pub(crate) fn build(_: &Value) -> Box<dyn Replay> {
    Box::new(Fifo::new(accessor()))
}

impl Replay for Fifo<Obj> {
    fn step(&mut self, op: &str, step: &Value) -> Value {
        match op {
            "add" => done(self.add(obj(&step["obj"]))),
            "update" => done(self.update(obj(&step["obj"]))),
            "delete" => done(self.delete(Deleted::Final(obj(&step["obj"])))),
            "replace" => done(self.replace(objs(&step["list"]), version(step))),
            "resync" => done(self.resync()),
            "pop" => pop(self, step["process"] == "error"),
            "pop_all" => pop_all(self),
            "has_synced" => json!({"value": self.has_synced()}),
            "done_fired" => json!({"value": self.synced().is_done()}),
            "is_closed" => json!({"value": self.is_closed()}),
            "close" => {
                self.close();
                json!({})
            }
            other => panic!("op {other}"),
        }
    }
}

fn pop(queue: &Fifo<Obj>, fails: bool) -> Value {
    if queue.is_empty() && !queue.is_closed() {
        return json!({"would_block": true});
    }
    let (mut initial, mut done_during) = (false, false);
    let result = queue.pop(&mut |_, origin| {
        (initial, done_during) = (origin == Origin::InitialList, queue.synced().is_done());
        if fails { Err("process".into()) } else { Ok(()) }
    });
    match result {
        Ok(object) => json!({"obj": *object, "initial": initial, "done_during": done_during}),
        Err(PopError::Closed) => json!({"error": "closed"}),
        Err(PopError::Process { popped, .. }) => {
            json!({"obj": *popped, "initial": initial, "done_during": done_during, "error": "process"})
        }
        Err(other) => panic!("{other}"),
    }
}

fn pop_all(queue: &Fifo<Obj>) -> Value {
    let (mut objects, mut initial, mut done_during) = (Vec::new(), Vec::new(), Vec::new());
    while !queue.is_empty() {
        let object = queue.pop(&mut |_, origin| {
            initial.push(origin == Origin::InitialList);
            done_during.push(queue.synced().is_done());
            Ok(())
        });
        objects.push(object.unwrap());
    }
    json!({"objs": sorted(objects), "initial": initial, "done_during": done_during})
}
