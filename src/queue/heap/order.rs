use std::collections::HashMap;
use std::iter;
use std::sync::Arc;

use crate::object::Key;
use crate::shrink::Shrink;
use crate::time::Random;

/// A slot number that means "no slot".
const NONE: usize = usize::MAX;

const BEFORE: usize = 0;
const AFTER: usize = 1;

/// The waiting objects in order, without locks and user code.
///
/// This is a treap: a search tree that random weights keep balanced. Unlike a binary heap, it
/// compares only to find the position of a new object, and that search changes nothing. A
/// comparison can therefore panic only in a write, before anything has changed. Objects are in
/// numbered slots. A removal moves the last slot into the gap.
pub(super) struct Order<T> {
    by_key: HashMap<Key, usize>,
    nodes: Vec<Node<T>>,
    root: usize,
    random: Random,
}

struct Node<T> {
    key: Key,
    object: Arc<T>,
    parent: usize,
    /// The subtrees before and after the node.
    children: [usize; 2],
    /// Never greater than the weight of the parent.
    weight: f64,
}

impl<T> Order<T> {
    pub(super) fn new() -> Self {
        Self {
            by_key: HashMap::new(),
            nodes: Vec::new(),
            root: NONE,
            random: Random::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn slot(&self, key: &str) -> Option<usize> {
        self.by_key.get(key).copied()
    }

    pub(super) fn object(&self, slot: usize) -> &Arc<T> {
        &self.nodes[slot].object
    }

    /// Returns all keys and objects in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Key, &Arc<T>)> {
        let slot = |slot: usize| (slot != NONE).then_some(slot);
        let slots = iter::successors(slot(self.outermost(self.root, BEFORE)), move |at| {
            slot(self.next(*at))
        });
        slots.map(|slot| (&self.nodes[slot].key, &self.nodes[slot].object))
    }

    /// Returns the root, where a search starts.
    pub(super) fn top(&self) -> Option<(usize, Arc<T>)> {
        self.found(self.root)
    }

    /// Returns the child of `slot` where a search continues. If `before` is set, this is the root
    /// of the objects before `slot`, otherwise of those after it.
    pub(super) fn below(&self, slot: usize, before: bool) -> Option<(usize, Arc<T>)> {
        self.found(self.nodes[slot].children[if before { BEFORE } else { AFTER }])
    }

    fn found(&self, slot: usize) -> Option<(usize, Arc<T>)> {
        self.nodes
            .get(slot)
            .map(|node| (slot, Arc::clone(&node.object)))
    }

    /// Inserts an object directly behind the slot `after`, or at the front if `after` is `None`.
    pub(super) fn insert(&mut self, after: Option<usize>, key: Key, object: Arc<T>) {
        let slot = self.nodes.len();
        let weight = self.random.unit();
        self.by_key.insert(Arc::clone(&key), slot);
        self.nodes.push(Node {
            key,
            object,
            parent: NONE,
            children: [NONE; 2],
            weight,
        });
        self.link(slot, after);
    }

    /// Replaces the object in `slot` and returns the old one. Moves the slot directly behind
    /// `after`, or to the front. If `after` is the slot itself, it does not move.
    pub(super) fn replace(&mut self, slot: usize, after: Option<usize>, object: Arc<T>) -> Arc<T> {
        if after != Some(slot) {
            self.unlink(slot);
            self.link(slot, after);
        }
        std::mem::replace(&mut self.nodes[slot].object, object)
    }

    pub(super) fn pop(&mut self) -> Option<Arc<T>> {
        let first = self.outermost(self.root, BEFORE);
        (first != NONE).then(|| self.remove(first))
    }

    pub(super) fn remove(&mut self, slot: usize) -> Arc<T> {
        self.unlink(slot);
        let removed = self.nodes.swap_remove(slot);
        self.by_key.remove(&removed.key);
        if let Some(Node {
            key,
            parent,
            children,
            ..
        }) = self.nodes.get(slot)
        {
            let (parent, children) = (*parent, *children);
            let last = self.nodes.len();
            if let Some(number) = self.by_key.get_mut(key) {
                *number = slot;
            }
            self.attach(slot, parent, self.side(last, parent));
            self.attach(children[BEFORE], slot, BEFORE);
            self.attach(children[AFTER], slot, AFTER);
        }
        self.nodes.shrink_when_empty();
        self.by_key.shrink_when_empty();
        removed.object
    }

    fn next(&self, mut slot: usize) -> usize {
        let Node {
            mut parent,
            children,
            ..
        } = self.nodes[slot];
        if children[AFTER] != NONE {
            return self.outermost(children[AFTER], BEFORE);
        }
        while parent != NONE && self.side(slot, parent) == AFTER {
            (slot, parent) = (parent, self.nodes[parent].parent);
        }
        parent
    }

    /// Returns the first or last slot of a subtree.
    fn outermost(&self, mut slot: usize, side: usize) -> usize {
        while let Some(node) = self.nodes.get(slot)
            && node.children[side] != NONE
        {
            slot = node.children[side];
        }
        slot
    }

    /// Returns whether `slot` is the child before or after `parent`.
    fn side(&self, slot: usize, parent: usize) -> usize {
        let after = self
            .nodes
            .get(parent)
            .is_some_and(|parent| parent.children[AFTER] == slot);
        if after { AFTER } else { BEFORE }
    }

    /// Links a child to its parent. If `parent` is `NONE`, the child becomes the root. If `child`
    /// is `NONE`, the parent has no child on this side.
    fn attach(&mut self, child: usize, parent: usize, side: usize) {
        match self.nodes.get_mut(parent) {
            Some(parent) => parent.children[side] = child,
            None => self.root = child,
        }
        if let Some(child) = self.nodes.get_mut(child) {
            child.parent = parent;
        }
    }

    fn link(&mut self, slot: usize, after: Option<usize>) {
        let (parent, side) = match after {
            Some(other) if self.nodes[other].children[AFTER] == NONE => (other, AFTER),
            Some(other) => (
                self.outermost(self.nodes[other].children[AFTER], BEFORE),
                BEFORE,
            ),
            None => (self.outermost(self.root, BEFORE), BEFORE),
        };
        self.attach(slot, parent, side);
        while let Some(parent) = self.nodes.get(self.nodes[slot].parent)
            && parent.weight < self.nodes[slot].weight
        {
            self.rotate_up(slot);
        }
    }

    fn unlink(&mut self, slot: usize) {
        loop {
            let [before, after] = self.nodes[slot].children;
            let heavier = if self.weight(before) > self.weight(after) {
                before
            } else {
                after
            };
            if heavier == NONE {
                break;
            }
            self.rotate_up(heavier);
        }
        let parent = self.nodes[slot].parent;
        self.attach(NONE, parent, self.side(slot, parent));
        self.nodes[slot].parent = NONE;
    }

    fn weight(&self, slot: usize) -> Option<f64> {
        self.nodes.get(slot).map(|node| node.weight)
    }

    /// Rotates a node above its parent. The order stays the same.
    fn rotate_up(&mut self, slot: usize) {
        let parent = self.nodes[slot].parent;
        let grandparent = self.nodes[parent].parent;
        let (side, parents_side) = (self.side(slot, parent), self.side(parent, grandparent));
        self.attach(self.nodes[slot].children[1 - side], parent, side);
        self.attach(slot, grandparent, parents_side);
        self.attach(parent, slot, 1 - side);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    impl<T> Order<T> {
        /// Checks a subtree and returns its depth.
        fn check(&self, slot: usize, parent: usize) -> usize {
            let Some(node) = self.nodes.get(slot) else {
                return 0;
            };
            assert_eq!((node.parent, self.by_key[&node.key]), (parent, slot));
            assert!(
                self.nodes
                    .get(parent)
                    .is_none_or(|parent| parent.weight >= node.weight)
            );
            1 + node
                .children
                .map(|child| self.check(child, slot))
                .into_iter()
                .max()
                .unwrap_or(0)
        }
    }

    /// Compares the order with a vector as the model.
    #[test]
    fn heap_order_matches_a_vector_on_insert_move_and_remove() {
        let (mut order, mut model) = (Order::new(), Vec::new());
        let mut random = Random::new();
        for number in 0..4000 {
            let mut below = |limit: usize| (random.unit() * limit as f64) as usize;
            let action = if number % 1000 < 700 {
                below(8)
            } else {
                4 + below(4)
            };
            let at = below(model.len() + 1);
            let slot = |order: &Order<usize>, number: usize| order.slot(&number.to_string());
            let before = |model: &[usize], at: usize| at.checked_sub(1).map(|before| model[before]);
            match action {
                0..4 => {
                    let after = before(&model, at).and_then(|before| slot(&order, before));
                    order.insert(after, number.to_string().into(), Arc::new(number));
                    model.insert(at, number);
                }
                4 | 5 if at < model.len() => {
                    let moved = model[at];
                    let from = slot(&order, moved).unwrap();
                    let to = below(model.len() + 1);
                    let after = before(&model, to).and_then(|before| slot(&order, before));
                    assert_eq!(*order.replace(from, after, Arc::new(moved)), moved);
                    model.remove(at);
                    model.insert(if to > at { to - 1 } else { to }, moved);
                }
                6 if at < model.len() => {
                    let slot = slot(&order, model[at]).unwrap();
                    assert_eq!(*order.remove(slot), model.remove(at));
                }
                _ => {
                    let first = (!model.is_empty()).then(|| model.remove(0));
                    assert_eq!(order.pop().map(|first| *first), first);
                }
            }
            order.check(order.root, NONE);
            assert!(
                order
                    .iter()
                    .map(|(_, object)| **object)
                    .eq(model.iter().copied())
            );
            assert_eq!(
                (order.len(), order.by_key.len()),
                (model.len(), model.len())
            );
        }
    }

    #[test]
    fn sorted_inserts_keep_heap_tree_flat_and_pops_free_memory() {
        let mut order = Order::new();
        for number in 0..100_000 {
            let last = order.nodes.len().checked_sub(1);
            order.insert(last, number.to_string().into(), Arc::new(number));
        }
        assert!(
            order.check(order.root, NONE) < 100,
            "a balanced tree has depth 17"
        );
        assert!((0..100_000).all(|number| order.pop().is_some_and(|first| *first == number)));
        assert!(
            order.pop().is_none() && order.nodes.capacity() == 0 && order.by_key.capacity() == 0
        );
    }
}
