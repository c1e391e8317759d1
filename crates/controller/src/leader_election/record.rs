/// Microseconds since the Unix epoch.
pub(crate) type Micros = i64;

/// The part of a [`Lease`] that the election reads and writes. client-go's `LeaderElectionRecord`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Record {
    /// The identity of the candidate that holds the Lease. It is empty after a release.
    pub holder: String,
    /// How long other candidates must wait after the last change of the record, in seconds.
    pub lease_duration_seconds: i32,
    /// When the holder acquired the Lease, in microseconds since the Unix epoch. It identifies the
    /// term, together with `transitions`.
    pub acquire_time: Option<i64>,
    /// When the holder last renewed the Lease, in microseconds since the Unix epoch. It is for
    /// people: clocks differ, so no candidate decides by it.
    pub renew_time: Option<i64>,
    /// How many terms there were before this one.
    pub transitions: i32,
    /// The strategy of a coordinated election, in which this crate does not take part.
    pub strategy: String,
    /// The holder that a coordinated election prefers.
    pub preferred_holder: String,
}

/// A Lease as a [`Lock`](super::Lock) returned it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lease {
    /// Distinguishes a Lease from one that was deleted and created again.
    pub uid: String,
    /// The version that an update must name. Versions are compared as numbers, if they are numbers.
    pub resource_version: String,
    /// The record of the election.
    pub record: Record,
    /// The complete object, in any form that the lock understands. The elector passes it back to
    /// [`Lock::update`](super::Lock::update), so that other fields survive.
    pub object: String,
}
