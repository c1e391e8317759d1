use k8s_informer::queue::{Heap, PopError, Refused};
use serde_json::{Value, json};

use super::Replay;
use super::object::{Obj, accessor, class, done, found, keys, obj, objs, sorted, text};

pub(crate) fn build(_: &Value) -> Box<dyn Replay> {
    let key = k8s_informer::object::meta_namespace_key::<Obj>;
    Box::new(Heap::new(accessor(), move |a, b| {
        (&a.val, key(a)).cmp(&(&b.val, key(b)))
    }))
}

impl Replay for Heap<Obj> {
    fn step(&mut self, op: &str, step: &Value) -> Value {
        match op {
            "add" => written(self.add(obj(&step["obj"]))),
            "update" => written(self.update(obj(&step["obj"]))),
            "add_if_not_present" => written(self.add_if_not_present(obj(&step["obj"]))),
            "bulk_add" => written(self.bulk_add(objs(&step["list"]))),
            "delete" => done(self.delete(&obj(&step["obj"])).map(drop)),
            "pop" if self.is_empty() && !self.is_closed() => json!({"would_block": true}),
            "pop" => match self.pop() {
                Ok(object) => json!({"obj": *object}),
                Err(PopError::Closed) => json!({"error": "closed"}),
            },
            "list" => json!({"objs": sorted(self.list())}),
            "list_keys" => json!({"keys": keys(self.list_keys())}),
            "get" => match self.get(&obj(&step["obj"])) {
                Ok(object) => found(object),
                Err(_) => json!({"error": "key"}),
            },
            "get_by_key" => found(self.get_by_key(text(&step["key"]))),
            "close" => {
                self.close();
                json!({})
            }
            "is_closed" => json!({"value": self.is_closed()}),
            other => panic!("op {other}"),
        }
    }
}

fn written<R, V>(result: Result<R, Refused<V>>) -> Value {
    match result {
        Ok(_) => json!({}),
        Err(refused) => json!({"error": class(&refused.reason)}),
    }
}
