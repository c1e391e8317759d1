//! The metrics of clients, with the names of `component-base/metrics/prometheus/restclient`.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::handles::{Gauge, Histogram, Labelled};
use super::series::{Family, SeriesMap, counter, histogram};
use k8s_informer::metrics::ClientMetrics;

/// The series of the clients.
pub(super) struct ClientSeries {
    map: Arc<SeriesMap>,
    certificate_end: Gauge,
    certificate_age: Histogram,
}

impl ClientSeries {
    pub(super) fn new(map: &Arc<SeriesMap>) -> Self {
        let of = Labelled::new(map, &[]);
        Self {
            map: Arc::clone(map),
            certificate_end: of.countdown(
                "rest_client_exec_plugin_ttl_seconds",
                "Seconds until the client certificate of the exec plugin expires; +Inf without one.",
            ),
            certificate_age: of.histogram(
                "rest_client_exec_plugin_certificate_rotation_age",
                "Number of seconds the last exec plugin client certificate lived before being rotated.",
                // From ten minutes to four years.
                &[
                    600.0,
                    1800.0,
                    3600.0,
                    14_400.0,
                    86_400.0,
                    604_800.0,
                    2_592_000.0,
                    7_776_000.0,
                    15_552_000.0,
                    31_104_000.0,
                    124_416_000.0,
                ],
            ),
        }
    }

    fn count(&self, family: &Family, labels: &[(&str, &str)]) {
        self.map.get(family, labels).increment_by(1);
    }

    fn observe_request(&self, family: &Family, method: &str, host: &str, value: f64) {
        let labels = [("verb", method), ("host", host)];
        self.map.get(family, &labels).observe(value);
    }
}

impl ClientMetrics for ClientSeries {
    fn request(&self, code: &str, method: &str, host: &str) {
        let labels = [("code", code), ("method", method), ("host", host)];
        self.count(&REQUESTS, &labels);
    }

    fn request_retry(&self, code: &str, method: &str, host: &str) {
        let labels = [("code", code), ("verb", method), ("host", host)];
        self.count(&RETRIES, &labels);
    }

    fn request_duration(&self, method: &str, host: &str, duration: Duration) {
        self.observe_request(&REQUEST_DURATION, method, host, duration.as_secs_f64());
    }

    fn request_size(&self, method: &str, host: &str, bytes: u64) {
        self.observe_request(&REQUEST_SIZE, method, host, bytes as f64);
    }

    fn response_size(&self, method: &str, host: &str, bytes: u64) {
        self.observe_request(&RESPONSE_SIZE, method, host, bytes as f64);
    }

    fn rate_limiter_duration(&self, method: &str, host: &str, duration: Duration) {
        self.observe_request(&RATE_LIMITER_DURATION, method, host, duration.as_secs_f64());
    }

    fn exec_plugin_call(&self, exit_code: i32, call_status: &str) {
        let labels = [
            ("code", &*exit_code.to_string()),
            ("call_status", call_status),
        ];
        self.count(&PLUGIN_CALLS, &labels);
    }

    fn certificate_rotation_age(&self, age: Duration) {
        self.certificate_age.observe_time(age);
    }

    fn certificate_expiry(&self, expiry: Option<SystemTime>) {
        let seconds = expiry.map_or(f64::INFINITY, |expiry| {
            expiry
                .duration_since(UNIX_EPOCH)
                .map_or(0.0, |since| since.as_secs_f64())
        });
        self.certificate_end.set(seconds);
    }
}

static REQUESTS: Family = counter(
    "rest_client_requests_total",
    "Number of HTTP requests, partitioned by status code, method, and host.",
);
static RETRIES: Family = counter(
    "rest_client_request_retries_total",
    "Number of request retries, partitioned by status code, verb, and host.",
);
static REQUEST_DURATION: Family = histogram(
    "rest_client_request_duration_seconds",
    "Request latency in seconds. Broken down by verb, and host.",
    SECONDS,
);
static REQUEST_SIZE: Family = histogram(
    "rest_client_request_size_bytes",
    "Request size in bytes. Broken down by verb and host.",
    BYTES,
);
static RESPONSE_SIZE: Family = histogram(
    "rest_client_response_size_bytes",
    "Response size in bytes. Broken down by verb and host.",
    BYTES,
);
static RATE_LIMITER_DURATION: Family = histogram(
    "rest_client_rate_limiter_duration_seconds",
    "Client side rate limiter latency in seconds. Broken down by verb, and host.",
    SECONDS,
);
static PLUGIN_CALLS: Family = counter(
    "rest_client_exec_plugin_call_total",
    "Number of calls to an exec plugin, partitioned by the type of event and the exit code.",
);

const SECONDS: &[f64] = &[
    0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0,
];
const BYTES: &[f64] = &[
    64.0,
    256.0,
    512.0,
    1024.0,
    4096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
];
