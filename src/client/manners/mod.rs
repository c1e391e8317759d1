//! How a client behaves beside what it is asked to do: how much it asks for, what it passes on of what the
//! server says aside, and what it tells of itself.

mod account;
mod encoded_words;
mod throttle;
mod warnings;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ureq::http::{HeaderMap, Uri};

pub(super) use self::account::Account;
use self::throttle::Throttle;
pub(super) use self::warnings::Handler;
pub use self::warnings::Warning;
use self::warnings::Warnings;
use crate::error::Error;
use crate::metrics::{ClientMetrics, Meter};
use crate::stop::Stop;
use crate::time::{Clock, RealClock};

/// What a configuration says of manners.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) on_warning: Option<Handler>,
    /// A second, and at once.
    pub(super) rate_limit: Option<(f64, usize)>,
    pub(super) metrics: Option<Arc<dyn ClientMetrics>>,
    pub(super) body_limit: u64,
    pub(super) clock: Arc<dyn Clock>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            on_warning: None,
            rate_limit: None,
            metrics: None,
            body_limit: super::Config::DEFAULT_BODY_LIMIT,
            clock: Arc::new(RealClock),
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("on_warning", &self.on_warning)
            .field("rate_limit", &self.rate_limit)
            .field("metrics", &self.metrics.is_some())
            .field("body_limit", &self.body_limit)
            .finish_non_exhaustive()
    }
}

/// The manners of one client.
pub(super) struct Manners {
    warnings: Warnings,
    throttle: Option<Throttle>,
    meter: Meter<dyn ClientMetrics>,
    /// The label of all metrics.
    host: String,
    pub(super) body_limit: u64,
    clock: Arc<dyn Clock>,
}

impl Manners {
    pub(super) fn new(settings: Settings, server: &Uri) -> Result<Self, Error> {
        let Settings {
            on_warning,
            rate_limit,
            metrics,
            body_limit,
            clock,
        } = settings;
        let throttle = rate_limit.map(|(qps, burst)| Throttle::new(qps, burst, Arc::clone(&clock)));
        let host = match (server.host().unwrap_or_default(), server.port()) {
            (host, Some(port)) => format!("{host}:{port}"),
            (host, None) => host.to_owned(),
        };
        Ok(Self {
            warnings: Warnings::new(on_warning),
            throttle: throttle.transpose()?,
            meter: Meter::new(metrics),
            host,
            body_limit,
            clock,
        })
    }

    /// Passes on what the head of an answer warns of; `asked` is for the log.
    pub(super) fn warn(&self, headers: &HeaderMap, asked: &str) {
        self.warnings.tell(headers, asked);
    }

    /// Waits as long as the server wants.
    pub(super) fn wait(&self, wait: Duration, stop: &Stop) -> Result<(), Error> {
        if self.clock.wait(wait, stop) {
            Ok(())
        } else {
            Err(Error::stopped())
        }
    }
}
