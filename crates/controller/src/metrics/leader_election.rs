/// Receives the metrics of a leader elector. client-go's `leaderelection.MetricsProvider`.
///
/// The thread that runs the elector calls these methods, so they must be fast. Every method has a
/// default that does nothing. A panic is caught and logged.
///
/// ```
/// use k8s_informer::{Client, Config, Stop};
/// use k8s_informer_controller::leader_election::{LeaderElectionOptions, LeaderElector, LeaseLock};
/// use k8s_informer_controller::metrics::LeaderElectionMetrics;
/// use k8s_informer_testing::ApiServer;
/// use std::sync::{Arc, Mutex};
///
/// #[derive(Default)]
/// struct Leads(Mutex<Vec<bool>>);
///
/// impl LeaderElectionMetrics for Leads {
///     fn is_leader(&self, is_leader: bool) {
///         self.0.lock().unwrap().push(is_leader);
///     }
/// }
///
/// let server = ApiServer::start()?;
/// let client = Client::new(Config::new(server.url()))?;
/// let leads = Arc::new(Leads::default());
/// let lock = LeaseLock::new(&client, "default", "my-controller");
/// let elector = LeaderElector::new(lock, LeaderElectionOptions::new().metrics(leads.clone()))?;
/// elector.run(|_| (), &Stop::never())?;
/// assert_eq!(*leads.0.lock().unwrap(), [false, true, false]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait LeaderElectionMetrics: Send + Sync + 'static {
    /// Whether this candidate leads: `false` when the elector is built, `true` when a term begins,
    /// `false` when it ends. `leader_election_master_status`.
    fn is_leader(&self, is_leader: bool) {
        let _ = is_leader;
    }

    /// The Lease was renewed with a read before the write, because the version of the Lease had
    /// changed or a request had failed. `leader_election_slowpath_total`.
    fn slow_path(&self) {}

    /// A term has ended because the Lease was lost, and its work has ended. Called after the release,
    /// and not if the work is stuck. `leader_election_lost_terms_total`, which client-go does not
    /// have.
    fn term_lost(&self) {}
}
