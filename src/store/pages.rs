use std::sync::Arc;

/// The number of places in a full page. A write copies a page that is shared, which takes some tens
/// of microseconds. In interleaving tests, where stores are small, the number is two.
const PAGE: usize = if cfg!(shuttle) { 2 } else { 256 };

/// A vector in pages. A clone shares the pages and keeps its content: a write copies the page that
/// it changes, if a clone shares it. Cloning a million items takes less than a millisecond.
#[derive(Clone)]
pub(super) struct Pages<E> {
    /// Full pages, and a last page that may be smaller and may have empty places at its end.
    pages: Vec<Arc<Page<E>>>,
    len: usize,
}

pub(super) type Page<E> = [Option<E>];

impl<E: Clone> Pages<E> {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self {
            pages: Vec::with_capacity(capacity.div_ceil(PAGE)),
            len: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, at: usize) -> Option<&E> {
        self.pages.get(at / PAGE)?.get(at % PAGE)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut E> {
        let page = Arc::make_mut(self.pages.get_mut(at / PAGE)?);
        page.get_mut(at % PAGE)?.as_mut()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &E> {
        self.pages.iter().flat_map(|page| page.iter()).flatten()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut E> {
        self.pages.iter_mut().flat_map(Arc::make_mut).flatten()
    }

    /// Returns the pages. Each of them is shared until it is dropped.
    pub(super) fn into_pages(self) -> impl Iterator<Item = Arc<Page<E>>> {
        self.pages.into_iter()
    }

    pub(super) fn push(&mut self, item: E) {
        let at = self.len % PAGE;
        match self.pages.last_mut() {
            Some(page) if at > 0 => {
                if at == page.len() {
                    let items = Arc::make_mut(page).iter_mut().map(Option::take);
                    *page = items.chain((0..at).map(|_| None)).collect();
                }
                Arc::make_mut(page)[at] = Some(item);
            }
            _ => self.pages.push([Some(item)].into()),
        }
        self.len += 1;
    }

    /// Removes an item and moves the last item into its place.
    pub(super) fn swap_remove(&mut self, at: usize) -> Option<E> {
        let page = Arc::make_mut(self.pages.last_mut()?);
        let last = page[(self.len - 1) % PAGE].take()?;
        self.len -= 1;
        if self.len.is_multiple_of(PAGE) {
            self.pages.pop();
        }
        match self.get_mut(at) {
            Some(item) => Some(std::mem::replace(item, last)),
            None => Some(last),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Random;

    impl<E> Pages<E> {
        /// Returns the number of items that fit into the allocated pages.
        pub(crate) fn capacity(&self) -> usize {
            self.pages.iter().map(|page| page.len()).sum()
        }
    }

    #[test]
    fn clones_keep_their_content_during_random_writes() {
        let mut random = Random::new();
        let mut below = |limit: usize| (random.unit() * limit as f64) as usize;
        let (mut pages, mut model) = (Pages::with_capacity(0), Vec::new());
        let mut clones: Vec<(Pages<usize>, Vec<usize>)> = Vec::new();
        for step in 0..5000 {
            // Mostly grows in the first half, and mostly shrinks in the second half.
            let is_push = below(3) > usize::from(step < 2500);
            if is_push == (step >= 2500) && !model.is_empty() {
                let at = below(model.len());
                assert_eq!(pages.swap_remove(at), Some(model.swap_remove(at)));
            } else {
                pages.push(step);
                model.push(step);
            }
            if !model.is_empty() {
                let at = below(model.len());
                *pages.get_mut(at).unwrap() += 1;
                model[at] += 1;
            }
            if below(50) == 0 {
                clones.push((pages.clone(), model.clone()));
            }
            assert_eq!(pages.len(), model.len());
            assert!(pages.capacity() <= pages.len() + PAGE);
        }
        clones.push((pages, model));
        for (pages, model) in clones {
            assert!(pages.iter().eq(&model));
            assert!((0..model.len()).all(|at| pages.get(at) == model.get(at)));
            assert_eq!(pages.get(model.len()), None);
        }
    }
}
