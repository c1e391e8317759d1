use super::record::{Lease, Record};
use crate::events::ObjectReference;
use k8s_informer::error::Error;
use k8s_informer::stop::Stop;

/// A place for the record of an election, which all candidates share. client-go's
/// `resourcelock.Interface`.
///
/// [`LeaseLock`](super::LeaseLock) keeps it in a Lease. Implement this trait for tests and for
/// other backends. A lock has no state: the elector passes the last Lease to `update`.
///
/// Each method blocks until the backend has responded, or until `stop` is set; then it returns
/// promptly. A write whose result is unknown returns an error. A panic is caught, and is an error:
/// of [`build`](super::LeaderElectorBuilder::build) if `name` or `identity` panics, which are called
/// only there. A panic of `reference` is logged, and there is no event.
///
/// ```
/// use k8s_informer::error::{Error, Status};
/// use k8s_informer_controller::leader_election::{Ended, LeaderElector, Lease, Lock, Record};
/// use k8s_informer::Stop;
/// use std::sync::Mutex;
///
/// /// An election between the threads of a process.
/// #[derive(Default)]
/// struct Local(Mutex<Option<Lease>>);
///
/// fn refused(code: u16) -> Error {
///     let mut status = Status::default();
///     status.code = code;
///     Error::from_status(status)
/// }
///
/// impl Lock for Local {
///     fn name(&self) -> &str {
///         "local"
///     }
///
///     fn identity(&self) -> &str {
///         "a"
///     }
///
///     fn get(&self, _: &Stop) -> Result<Lease, Error> {
///         self.0.lock().unwrap().clone().ok_or_else(|| refused(404))
///     }
///
///     fn create(&self, record: &Record, _: &Stop) -> Result<Lease, Error> {
///         let mut stored = self.0.lock().unwrap();
///         if stored.is_some() {
///             return Err(refused(409));
///         }
///         let mut lease = Lease::default();
///         lease.record = record.clone();
///         lease.resource_version = "1".to_owned();
///         *stored = Some(lease.clone());
///         Ok(lease)
///     }
///
///     fn update(&self, record: &Record, last: &Lease, _: &Stop) -> Result<Lease, Error> {
///         let mut stored = self.0.lock().unwrap();
///         let lease = stored.as_mut().ok_or_else(|| refused(404))?;
///         if lease.resource_version != last.resource_version {
///             return Err(refused(409));
///         }
///         lease.record = record.clone();
///         lease.resource_version = format!("{}0", last.resource_version);
///         Ok(lease.clone())
///     }
/// }
///
/// let elector = LeaderElector::builder(Local::default()).build()?;
/// assert!(matches!(elector.run(&Stop::new(), |_| 7)?, Ended::Finished(7)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Lock: Send + Sync + 'static {
    /// Returns the name of the lock for messages and threads, such as `kube-system/my-controller`.
    /// client-go's `Describe`.
    fn name(&self) -> &str;

    /// Returns the identity of this candidate. No other process may have the same.
    fn identity(&self) -> &str;

    /// Reads the Lease.
    ///
    /// # Errors
    ///
    /// Returns an [`is_not_found`](Error::is_not_found) error if there is none. The elector then
    /// creates it.
    fn get(&self, stop: &Stop) -> Result<Lease, Error>;

    /// Creates the Lease with this record.
    ///
    /// # Errors
    ///
    /// Returns an error if it exists.
    fn create(&self, record: &Record, stop: &Stop) -> Result<Lease, Error>;

    /// Replaces the record of the Lease, and returns the Lease with its new version.
    ///
    /// # Errors
    ///
    /// Returns an error if the Lease is not the one of `last`, or has another resource version.
    fn update(&self, record: &Record, last: &Lease, stop: &Stop) -> Result<Lease, Error>;

    /// Returns the object that the [events](super::LeaderElectorBuilder::recorder) of the election
    /// are about. The default is `None`: no events.
    fn reference(&self, lease: &Lease) -> Option<ObjectReference> {
        let _ = lease;
        None
    }

    /// Watches the Lease until `stop` is set, and calls `on_free` whenever it has no holder or was
    /// deleted. A waiting candidate then tries at once.
    ///
    /// It may return at any time: candidates also poll. The default returns immediately.
    fn watch(&self, stop: &Stop, on_free: &mut dyn FnMut()) {
        let _ = (stop, on_free);
    }
}
