//! Leader election: of several processes, one at a time does the work.
//!
//! The candidates compete for a Lease, an object of the API server. The holder renews it; if it
//! fails to, another candidate takes over after the lease duration. client-go's
//! `tools/leaderelection`.
//!
//! | type | purpose | client-go |
//! |---|---|---|
//! | [`LeaderElector`] | acquires, renews and releases; runs the work of the leader | `LeaderElector` |
//! | [`LeaderElectionOptions`] | durations, callbacks, metrics | `LeaderElectionConfig` |
//! | [`Leading`] | the term of a leader: its stop, `ensure` and its token | – |
//! | [`Ended`] | how a term has ended | – |
//! | [`LeaseLock`] | the Lease on an API server | `resourcelock.LeaseLock` |
//! | [`Lock`], [`Lease`], [`Record`] | other places to keep the record | `resourcelock.Interface`, `LeaderElectionRecord` |
//!
//! ```
//! use k8s_informer::{Client, Config, Stop};
//! use k8s_informer_controller::leader_election::{
//!     Ended, LeaderElectionOptions, LeaderElector, LeaseLock,
//! };
//! use k8s_informer_testing::ApiServer;
//!
//! let server = ApiServer::start()?;
//! let client = Client::new(Config::new(server.url()))?;
//! let lock = LeaseLock::new(&client, "default", "my-controller");
//! let elector = LeaderElector::new(lock, LeaderElectionOptions::new())?;
//!
//! // Blocks until this process leads, and then until the work has ended.
//! let ended = elector.run(|leading| {
//!     leading.ensure().map(|()| leading.token().transitions)
//! }, &Stop::never())?;
//! assert!(matches!(ended, Ended::Finished(Ok(0))));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # At most one leader
//!
//! While the work of one process runs, no other process starts it, if all of these hold:
//!
//! - Every candidate uses this module, with the same durations.
//! - The work ends when [`Leading::stop`] is set, or it calls [`Leading::ensure`] before each
//!   operation that must not happen twice.
//! - No two processes use the same identity, also not one after the other while the first may
//!   still run. A candidate takes a Lease with its own identity at once, without waiting. The
//!   default identity is unique. With the name of a Pod of a StatefulSet, this rule is broken when
//!   the Pod is deleted by force while its node is unreachable.
//! - The clock of no machine is faster than that of another by a factor of *lease duration* / *renew
//!   deadline*, which is 1.5 by default.
//! - The Lease is not edited, deleted or restored from a backup by other means.
//! - No machine is suspended and has its wall clock set back in the same term. The leader measures
//!   with the larger of the monotonic and the wall clock, because the monotonic clock does not
//!   advance while a machine is suspended. A wall clock that jumps forward can end a term early.
//! - No machine is paused together with all of its clocks, as a virtual machine can be. A leader that
//!   was learns of another one with its next renewal.
//!
//! The work runs on a separate thread, and is joined before the Lease is released. On a stop, the
//! elector goes on renewing the Lease until the work has ended. If the Lease is lost, for example
//! because the API server can't be reached, the work is stopped *retry period* + *renew deadline*
//! after the start of the last successful request: 12 s by default, 3 s before another candidate
//! can take over. [`Leading::ensure`] fails earlier, after the renew deadline. A renewal whose
//! response arrives after the end of the term does not continue it.
//!
//! A separate thread watches this deadline. A [`Lock`], a logger, metrics or a callback that blocks
//! can delay renewals, so that the Lease is lost, but not the end of the term. The exception is a
//! custom clock, with which the deadline is measured. If the term is over before the work has
//! started, for example because a logger has blocked, the work does not start, and the candidate
//! tries again. Callbacks of [`Leading::lost`] and [`Leading::stop`] run after both signals and
//! their children are set.
//!
//! `ensure` is check-then-act: the process can be paused between the check and the operation. To
//! exclude that, let the receiver of the operation compare a fencing token ([`Leading::token`]), or
//! write with the resource version that was read during the term.
//!
//! # Differences from client-go
//!
//! client-go starts to release the Lease before the work has ended, can empty the Lease of another
//! holder, and notices the loss of a Lease only after a deadline. The
//! rules LE1 to LE27 in `docs/client-go-rules.md` of the repository have the complete list.

mod clocks;
mod elector;
mod error;
mod lease;
mod options;
#[cfg(all(test, shuttle))]
mod shuttle_tests;
#[allow(missing_docs, reason = "tests use the steps through a hidden module")]
pub(crate) mod steps;

pub(crate) use clocks::Clocks;
pub(crate) use elector::Attempt;
pub use elector::{Ended, LeaderElector, Leading, Token};
pub use error::LeaderElectionError;
pub use lease::LeaseLock;
pub use lease::{Lease, Lock, Record};
pub(crate) use lease::{random, read_lease};
pub use options::LeaderElectionOptions;
pub(crate) use steps::Observation;
