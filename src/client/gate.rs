//! Requests that a program may send only at times, for example while it leads.

use std::sync::Arc;

use ureq::http::Method;

use crate::error::{Error, ErrorKind, Sent};
use crate::stop::Stop;

/// Decides when a [gated](crate::Client::gated) client may send requests that change something.
///
/// A leader election has one: use `Manager::gate` or `LeaderElector::gate` of the controller crate.
/// client-go's counterpart is `WriteGate` of `leaderelection`, a wrapper of transports, since 1.38.
///
/// ```
/// use k8s_informer::client::WriteGate;
/// use k8s_informer::{Client, Config, Stop, Stopper};
/// use k8s_informer_testing::ApiServer;
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use serde_json::json;
/// use std::error::Error;
///
/// /// Closes when its signal is set.
/// struct Until(Stop);
///
/// impl WriteGate for Until {
///     fn pass(&self) -> Result<Stop, Box<dyn Error + Send + Sync>> {
///         match self.0.is_stopped() {
///             true => Err("closed".into()),
///             false => Ok(self.0.clone()),
///         }
///     }
/// }
///
/// let server = ApiServer::start()?;
/// let client = Client::new(Config::new(server.url()))?;
/// let stop = Stopper::new();
/// let maps = client.gated(Until(stop.signal())).api::<ConfigMap>(Some("default"));
/// let map = |name| json!({"metadata": {"name": name}});
/// maps.create(&map("a"), &Stop::never())?;
/// stop.stop();
/// let error = maps.create(&map("b"), &Stop::never()).unwrap_err();
/// assert!(error.is_not_leading() && !error.is_outcome_unknown());
/// assert_eq!(maps.get("a", &Stop::never())?.metadata.name.as_deref(), Some("a"));
/// # Ok::<(), Box<dyn Error>>(())
/// ```
pub trait WriteGate: Send + Sync + 'static {
    /// Lets a request out. Returns the signal that ends it: set it when the gate closes for good.
    ///
    /// Called when a request begins, and again immediately before the first byte of each attempt, on
    /// the thread of the request. It must not block. Also called for the reason when the gate has ended
    /// a request.
    ///
    /// # Errors
    ///
    /// Fails if no request may be sent now: for a moment, or because the gate is closed for good. The
    /// error becomes the [source](std::error::Error::source) of that of the request. Requests in
    /// progress go on until their signal is set.
    fn pass(&self) -> Result<Stop, Box<dyn std::error::Error + Send + Sync>>;
}

/// Adds a gate to those of a client.
pub(super) fn added(
    outer: Option<&Arc<dyn WriteGate>>,
    gate: impl WriteGate,
) -> Arc<dyn WriteGate> {
    match outer {
        None => Arc::new(gate),
        Some(outer) => Arc::new(Both(Arc::clone(outer), gate)),
    }
}

/// Two gates, of which each can be closed.
struct Both<G>(Arc<dyn WriteGate>, G);

impl<G: WriteGate> WriteGate for Both<G> {
    fn pass(&self) -> Result<Stop, Box<dyn std::error::Error + Send + Sync>> {
        Ok(self.0.pass()?.or(&self.1.pass()?))
    }
}

/// What a request that a gate has let in must obey.
pub(super) struct Admission {
    gate: Arc<dyn WriteGate>,
    /// Set when the gate has closed for good.
    closed: Stop,
}

impl Admission {
    /// Lets a request in. Returns `None` if no gate applies to it.
    pub(super) fn of(
        gate: Option<&Arc<dyn WriteGate>>,
        method: &Method,
    ) -> Result<Option<Arc<Self>>, Error> {
        let Some(gate) = gate.filter(|_| changes(method)) else {
            return Ok(None);
        };
        let closed = gate.pass().map_err(|cause| refused(cause, Sent::No))?;
        Ok(Some(Arc::new(Self {
            gate: Arc::clone(gate),
            closed,
        })))
    }

    /// Returns the signal for the request: it is set with `stop`, and when the gate closes for good.
    pub(super) fn limited(&self, stop: &Stop) -> Stop {
        stop.or(&self.closed)
    }

    /// Asks the gate again, immediately before the first byte.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.gate.pass().map_err(|cause| refused(cause, Sent::No))?;
        // The gate can have closed and opened again since the request began. The signal was set before
        // the gate opened, so it is looked at last.
        match self.closed.is_stopped() {
            true => Err(self.closed(Sent::No)),
            false => Ok(()),
        }
    }

    /// Returns the error of a request that was ended by its signal.
    pub(super) fn ended(&self, sent: Sent) -> Error {
        match self.closed.is_stopped() {
            true => self.closed(sent),
            false => Error::stopped(),
        }
    }

    /// Completes the error of the last attempt. `sent` is about all attempts: the server may have executed
    /// an earlier one.
    pub(super) fn explain(&self, error: Error, sent: Sent) -> Error {
        if error.is_stopped() {
            return self.ended(sent);
        }
        match (error.is_not_leading(), sent) {
            (true, Sent::Maybe) => error.possibly_sent(),
            _ => error,
        }
    }

    fn closed(&self, sent: Sent) -> Error {
        let cause = match self.gate.pass() {
            Err(cause) => cause,
            Ok(_) => "the term in which the request began has ended".into(),
        };
        refused(cause, sent)
    }
}

fn refused(cause: Box<dyn std::error::Error + Send + Sync>, sent: Sent) -> Error {
    Error::new(ErrorKind::NotLeading {
        cause: cause.into(),
        sent,
    })
}

/// Whether requests with this method can change something.
fn changes(method: &Method) -> bool {
    ![Method::GET, Method::HEAD, Method::OPTIONS].contains(method)
}
