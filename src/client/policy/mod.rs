//! The policy that a client applies to all requests: rate limit, server warnings and metrics.

mod request_metrics;
mod throttle;
mod warnings;

use std::sync::Arc;
use std::time::Duration;

use ureq::http::{HeaderMap, Uri};

pub(super) use self::request_metrics::RequestMetrics;
use self::throttle::Throttle;
pub use self::warnings::Warning;
pub(super) use self::warnings::WarningHandler;
use self::warnings::Warnings;
use crate::base::derive::debug_fields;
use crate::error::Error;
use crate::metrics::{ClientMetrics, Meter};
use crate::stop::Stop;
use crate::time::{Clock, RateLimit, RealClock};

/// The part of the configuration that the policy uses.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) on_warning: Option<WarningHandler>,
    pub(super) rate_limit: Option<RateLimit>,
    pub(super) metrics: Option<Arc<dyn ClientMetrics>>,
    pub(super) body_limit: u64,
    pub(super) clock: Arc<dyn Clock>,
}

impl Settings {
    pub(super) fn new(body_limit: u64) -> Self {
        Self {
            on_warning: None,
            rate_limit: None,
            metrics: None,
            body_limit,
            clock: Arc::new(RealClock),
        }
    }
}

debug_fields!(Settings, this,
    on_warning: this.on_warning,
    rate_limit: this.rate_limit,
    metrics: this.metrics.is_some(),
    body_limit: this.body_limit
);

/// The policy of one client.
pub(super) struct Policy {
    warnings: Warnings,
    throttle: Option<Throttle>,
    meter: Meter<dyn ClientMetrics>,
    /// The `host` label of all metrics.
    host: String,
    pub(super) body_limit: u64,
    clock: Arc<dyn Clock>,
}

impl Policy {
    pub(super) fn new(settings: Settings, server: &Uri) -> Result<Self, Error> {
        let Settings {
            on_warning,
            rate_limit,
            metrics,
            body_limit,
            clock,
        } = settings;
        let throttle = rate_limit.map(|limit| Throttle::new(limit, Arc::clone(&clock)));
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

    /// Reports the warnings in the headers of a response. `context` describes the request in log
    /// records.
    pub(super) fn warn(&self, headers: &HeaderMap, context: &str) {
        self.warnings.report(headers, context);
    }

    pub(super) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// Waits for the delay before a retry. Returns an error if `stop` is set first.
    pub(super) fn wait(&self, wait: Duration, stop: &Stop) -> Result<(), Error> {
        if self.clock.wait(wait, stop) {
            Ok(())
        } else {
            Err(Error::stopped())
        }
    }
}
