/// What happened to the events of a recorder. Each recorded event counts in exactly one of the
/// fields after [`recorded`](Self::recorded), so their sum is `recorded`. Only
/// [`refused`](Self::refused) is not part of it.
/// [`EventRecorder::flush`](super::EventRecorder::flush) has an example.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventStats {
    /// The events that calls have accepted.
    pub recorded: u64,
    /// The events whose request the server has accepted.
    pub written: u64,
    /// The events that are part of the count of a written event.
    pub merged: u64,
    /// The events that were dropped because too many others were waiting.
    pub dropped: u64,
    /// The events that the server has refused, or that failed too often.
    pub failed: u64,
    /// The events that wait to be written, or to become part of a written count.
    pub pending: u64,
    /// The calls that returned an error. They are not part of `recorded`.
    pub refused: u64,
}
