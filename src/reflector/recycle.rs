/// Where objects come back to the thread that decoded them, to be dropped there: an allocator takes memory
/// back cheapest where it gave it.
pub(crate) trait Recycle: Send + Sync {
    /// The thread begins to decode: from now on objects may come.
    fn begin(&self);

    /// Drops one that has come, if one has. To be called before another one is made, which finds its room.
    fn one(&self);

    /// Drops all that have come; no more may. To be called as often as [`begin`](Self::begin).
    fn end(&self);
}

/// From a beginning to its end, also after a panic.
pub(super) struct Recycling<'a>(Option<&'a dyn Recycle>);

impl<'a> Recycling<'a> {
    pub(super) fn begin(recycle: Option<&'a dyn Recycle>) -> Self {
        recycle.inspect(|recycle| recycle.begin());
        Self(recycle)
    }
}

impl Drop for Recycling<'_> {
    fn drop(&mut self) {
        self.0.inspect(|recycle| recycle.end());
    }
}
