//! [`Heap`] compared with a sorted list (F9). Equal objects keep the order of their writes.

use std::cmp::Ordering;
use std::sync::Arc;

use arbitrary::Arbitrary;
use k8s_informer::queue::{Heap, PopError, Refused};
use k8s_informer::store::StoreError;

use super::item::{Failure, Held, Item, NAMES, Numbering, Trouble, accessor, few, read};
use super::probe::{Probe, touch};

#[derive(Arbitrary, Debug)]
enum Op {
    Add(Item),
    Update(Item),
    AddIfNotPresent(Item),
    BulkAdd(#[arbitrary(with = few)] Vec<Item>),
    Delete(Item),
    Pop,
    Close,
}

#[derive(Debug, PartialEq)]
enum Refusal {
    Key,
    Compare,
    Closed,
    NotFound,
}

impl Refusal {
    fn of(error: &StoreError) -> Self {
        match error {
            StoreError::Key(_) => Self::Key,
            StoreError::Compare { message, .. } if &**message == "panicked: boom" => Self::Compare,
            StoreError::Closed => Self::Closed,
            StoreError::NotFound { .. } => Self::NotFound,
            other => panic!("{other:?}"),
        }
    }
}

#[derive(Default)]
struct Model {
    /// The items in sorted order.
    items: Vec<Item>,
    closed: bool,
}

impl Model {
    fn position(&self, item: &Item) -> Result<Option<usize>, Refusal> {
        let key = item.key().map_err(|_| Refusal::Key)?;
        Ok(self.items.iter().position(|other| other.name == key))
    }

    fn add(&mut self, item: Item) -> Result<(), Refusal> {
        let older = self.position(&item)?;
        if self.closed {
            return Err(Refusal::Closed);
        }
        if !self.items.is_empty() && fails(&item) {
            return Err(Refusal::Compare);
        }
        match older {
            Some(at) if self.items[at].value == item.value => {
                self.items[at] = item;
                return Ok(());
            }
            Some(at) => drop(self.items.remove(at)),
            None => {}
        }
        let after = self
            .items
            .iter()
            .filter(|other| other.value <= item.value)
            .count();
        self.items.insert(after, item);
        Ok(())
    }
}

/// Whether the comparison panics when this object is written.
fn fails(item: &Item) -> bool {
    matches!(item.trouble, Trouble::IndexFails | Trouble::IndexPanics)
}

fn compare(a: &Held, b: &Held) -> Ordering {
    touch();
    if fails(&a.0) {
        Failure::Panics.trigger();
    }
    a.0.value.cmp(&b.0.value)
}

/// Checks that a rejected write returns its object.
fn refused(result: Result<(), Refused<Arc<Held>>>, item: Item) -> Result<(), Refusal> {
    result.map_err(|Refused { value, reason }| {
        assert_eq!(value.0, item);
        Refusal::of(&reason)
    })
}

fn check(heap: &Heap<Held>, model: &Model) {
    assert_eq!(
        heap.list().iter().map(|held| held.0).collect::<Vec<_>>(),
        model.items
    );
    let keys = heap.list_keys();
    assert!(
        keys.iter()
            .map(|key| &**key)
            .eq(model.items.iter().map(|item| item.name)),
        "{keys:?}"
    );
    assert_eq!(
        (heap.len(), heap.is_empty()),
        (model.items.len(), model.items.is_empty())
    );
    for name in NAMES {
        let item = model.items.iter().find(|item| item.name == name).copied();
        assert_eq!(heap.get_by_key(name).map(|held| held.0), item);
    }
    assert_eq!(heap.is_closed(), model.closed);
}

/// Pops if the heap has objects or is closed. A pop of an empty open heap would block.
fn pop(heap: &Heap<Held>, model: &mut Model) {
    if !model.items.is_empty() {
        assert_eq!(heap.pop().unwrap().0, model.items.remove(0));
    } else if model.closed {
        assert!(matches!(heap.pop(), Err(PopError::Closed)));
    }
}

pub fn run(input: &[u8]) {
    let Ok(((), operations)) = read::<(), Op>(input) else {
        return;
    };
    let heap = Arc::new(Heap::new(accessor(), compare));
    let mut model = Model::default();
    let mut numbering = Numbering::default();
    let _probe = Probe::of(&heap, |heap| {
        let _ = heap.len();
    });
    for operation in &operations {
        match operation {
            Op::Add(item) | Op::Update(item) => {
                let item = numbering.number(*item);
                let is_add = matches!(operation, Op::Add(_));
                let result = if is_add {
                    heap.add(item.held())
                } else {
                    heap.update(item.held())
                };
                assert_eq!(refused(result, item), model.add(item));
            }
            Op::AddIfNotPresent(item) => {
                let item = numbering.number(*item);
                let present = !model.closed && matches!(model.position(&item), Ok(Some(_)));
                let result = heap.add_if_not_present(item.held()).map(|back| {
                    assert_eq!(back.map(|held| held.0), present.then_some(item));
                });
                let expected = if present { Ok(()) } else { model.add(item) };
                assert_eq!(refused(result, item), expected);
            }
            Op::BulkAdd(items) => {
                let items = numbering.number_all(items);
                let closed = if model.closed {
                    Err((0, Refusal::Closed))
                } else {
                    Ok(())
                };
                let expected = closed.and_then(|()| {
                    let mut all = items.iter().enumerate();
                    all.try_for_each(|(at, item)| model.add(*item).map_err(|refusal| (at, refusal)))
                });
                let result = heap.bulk_add(items.iter().map(|item| item.held()).collect());
                let result = result.map_err(|Refused { value, reason }| {
                    let at = items.len() - value.len();
                    assert!(
                        value
                            .iter()
                            .map(|held| held.0)
                            .eq(items[at..].iter().copied())
                    );
                    (at, Refusal::of(&reason))
                });
                assert_eq!(result, expected);
            }
            Op::Delete(item) => {
                let deleted = heap.delete(&Held(*item)).map(|held| held.0);
                let expected = model
                    .position(item)
                    .and_then(|at| at.ok_or(Refusal::NotFound));
                let expected = expected.map(|at| model.items.remove(at));
                assert_eq!(deleted.map_err(|error| Refusal::of(&error)), expected);
            }
            Op::Pop => pop(&heap, &mut model),
            Op::Close => {
                heap.close();
                model.closed = true;
            }
        }
        check(&heap, &model);
    }
    heap.close();
    model.closed = true;
    while !model.items.is_empty() {
        pop(&heap, &mut model);
    }
    pop(&heap, &mut model);
}
