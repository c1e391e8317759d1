use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use super::Policy;
use crate::client::Request;
use crate::client::request::Purpose;
use crate::error::Error;
use crate::stop::Stop;

/// The metrics of one request, from before it is first sent until its response has been read or
/// dropped. The counterpart is client-go's use of `tools/metrics`.
///
/// It also applies the rate limit, because the waiting time is one of the metrics.
pub(in crate::client) struct RequestMetrics {
    policy: Arc<Policy>,
    method: String,
    is_watch: bool,
    begun: Option<Instant>,
    /// Whether the request has been sent before. Used only by the thread that makes the request.
    sent: AtomicBool,
    /// The number of bytes read from the body of the last response.
    received: AtomicU64,
    /// Whether that body was read to its end. This distinguishes an empty body from an unread one.
    complete: AtomicBool,
}

impl RequestMetrics {
    pub(in crate::client) fn open(policy: &Arc<Policy>, request: &Request) -> Arc<Self> {
        Arc::new(Self {
            policy: Arc::clone(policy),
            method: request.method.to_string(),
            is_watch: request.purpose == Purpose::Watch,
            begun: policy.meter.is_on().then(|| policy.clock.now()),
            sent: AtomicBool::new(false),
            received: AtomicU64::new(0),
            complete: AtomicBool::new(false),
        })
    }

    /// Waits for the rate limit, if there is one.
    pub(in crate::client) fn wait_for_rate_limit(
        &self,
        context: &str,
        stop: &Stop,
    ) -> Result<(), Error> {
        let Policy {
            throttle,
            meter,
            host,
            ..
        } = &*self.policy;
        if let Some(throttle) = throttle {
            let waited = throttle.wait(context, stop)?;
            meter.event(|metrics| metrics.rate_limiter_duration(&self.method, host, waited));
        }
        Ok(())
    }

    /// Records one attempt, with the status code of the response. `None` means that there was no
    /// response.
    pub(in crate::client) fn sent(&self, request: &Request, code: Option<u16>) {
        let again = self.sent.swap(true, Ordering::Relaxed);
        self.received.store(0, Ordering::Relaxed);
        self.complete.store(false, Ordering::Relaxed);
        let Policy { meter, host, .. } = &*self.policy;
        if !meter.is_on() {
            return;
        }
        let code = code.map_or("<error>".to_owned(), |code| code.to_string());
        let bytes = request.body.as_ref().map_or(0, Vec::len) as u64;
        if !self.is_watch {
            meter.event(|metrics| metrics.request_size(&self.method, host, bytes));
        }
        meter.event(|metrics| metrics.request(&code, &self.method, host));
        if again {
            meter.event(|metrics| metrics.request_retry(&code, &self.method, host));
        }
    }

    /// Records the number of bytes returned by one read of the body; 0 marks its end.
    pub(in crate::client) fn received(&self, bytes: usize) {
        if bytes == 0 {
            self.complete.store(true, Ordering::Relaxed);
        }
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl Drop for RequestMetrics {
    fn drop(&mut self) {
        let Policy {
            meter, host, clock, ..
        } = &*self.policy;
        let Some(begun) = self.begun.filter(|_| !self.is_watch) else {
            return;
        };
        let took = clock.now().saturating_duration_since(begun);
        meter.event(|metrics| metrics.request_duration(&self.method, host, took));
        let bytes = self.received.load(Ordering::Relaxed);
        if bytes > 0 || self.complete.load(Ordering::Relaxed) {
            meter.event(|metrics| metrics.response_size(&self.method, host, bytes));
        }
    }
}
