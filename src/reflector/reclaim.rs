/// Returns unused objects to the thread that decoded them, which frees them. The informer's
/// `ReclaimQueue` documents the reason and the figures.
pub(crate) trait Reclaim: Send + Sync {
    /// Called when the thread begins to decode. From now on, objects may be returned.
    fn begin(&self);

    /// Frees one returned object, if there is one. Call it before decoding the next object.
    fn free_one(&self);

    /// Called when the thread has finished decoding. Frees all returned objects. Call it once for
    /// each [`begin`](Self::begin).
    fn end(&self);
}

/// Calls [`Reclaim::end`] when dropped, also after a panic.
pub(super) struct ReclaimGuard<'a>(Option<&'a dyn Reclaim>);

impl<'a> ReclaimGuard<'a> {
    pub(super) fn begin(reclaim: Option<&'a dyn Reclaim>) -> Self {
        reclaim.inspect(|reclaim| reclaim.begin());
        Self(reclaim)
    }
}

impl Drop for ReclaimGuard<'_> {
    fn drop(&mut self) {
        self.0.inspect(|reclaim| reclaim.end());
    }
}
