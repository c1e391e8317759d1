/// How the notifications of an informer reach its handlers.
///
/// It is chosen once, when the informer starts, from
/// [`SharedIndexInformerOptions::one_thread`](super::SharedIndexInformerOptions::one_thread). Until
/// then, handlers only wait in the list of the informer. The two ways from a listener to its handler
/// are in `listener/routes.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    /// client-go's threads: a reflector thread, a process thread, and two threads for each handler.
    /// Handlers have buffers, so neither the cache nor another handler waits for a slow one.
    Threads,
    /// The thread that steps the informer also calls the handlers. There are no buffers, and the
    /// cache is not ahead of a call. A callback must not wait for the informer, because it keeps its
    /// thread.
    Inline,
}
