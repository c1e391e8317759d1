/// Returns unused objects to the thread that decoded them, which frees them there. The informer's `ReclaimQueue` has the
/// reason and the figures.
pub(crate) trait Reclaim: Send + Sync {
    /// The thread begins to decode: objects may be returned from now on.
    fn begin(&self);

    /// Frees one returned object, if there is one. Call it before decoding the next.
    fn one(&self);

    /// The thread has finished: frees all returned objects. Call it as often as [`begin`](Self::begin).
    fn end(&self);
}

/// Calls `end` also after a panic.
pub(super) struct Reclaiming<'a>(Option<&'a dyn Reclaim>);

impl<'a> Reclaiming<'a> {
    pub(super) fn begin(reclaim: Option<&'a dyn Reclaim>) -> Self {
        reclaim.inspect(|reclaim| reclaim.begin());
        Self(reclaim)
    }
}

impl Drop for Reclaiming<'_> {
    fn drop(&mut self) {
        self.0.inspect(|reclaim| reclaim.end());
    }
}
