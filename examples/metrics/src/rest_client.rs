//! The request metrics of a client. The names are those of the components of Kubernetes
//! (`component-base/metrics/prometheus/restclient`).

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use k8s_informer::metrics::ClientMetrics;

use super::prometheus::{Histogram, Text, label, lock};

const SECONDS: &[f64] = &[
    0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0,
];

const BYTES: &[f64] = &[
    64.,
    256.,
    512.,
    1024.,
    4096.,
    16384.,
    65536.,
    262_144.,
    1_048_576.,
    4_194_304.,
    16_777_216.,
];

/// The upper bounds of the buckets in seconds, from ten minutes to four years.
const AGES: &[f64] = &[
    600.,
    1800.,
    3600.,
    14_400.,
    86_400.,
    604_800.,
    2_592_000.,
    7_776_000.,
    15_552_000.,
    31_104_000.,
    124_416_000.,
];

/// The values by label set.
type Counters = Mutex<BTreeMap<String, u64>>;
type Histograms = Mutex<BTreeMap<String, Histogram>>;

/// The metrics of one client, or of several that share this value.
#[derive(Default)]
pub(crate) struct RestClient {
    requests: Counters,
    retries: Counters,
    durations: Histograms,
    request_sizes: Histograms,
    response_sizes: Histograms,
    rate_limiter: Histograms,
    plugin_calls: Counters,
    certificate_ages: Histograms,
    certificate_expiry: Mutex<Option<SystemTime>>,
}

impl ClientMetrics for RestClient {
    fn request(&self, code: &str, method: &str, host: &str) {
        count(
            &self.requests,
            [("code", code), ("method", method), ("host", host)],
        );
    }

    fn request_retry(&self, code: &str, method: &str, host: &str) {
        count(
            &self.retries,
            [("code", code), ("verb", method), ("host", host)],
        );
    }

    fn request_duration(&self, method: &str, host: &str, duration: Duration) {
        observe(
            &self.durations,
            SECONDS,
            [("verb", method), ("host", host)],
            duration.as_secs_f64(),
        );
    }

    fn request_size(&self, method: &str, host: &str, bytes: u64) {
        observe(
            &self.request_sizes,
            BYTES,
            [("verb", method), ("host", host)],
            bytes as f64,
        );
    }

    fn response_size(&self, method: &str, host: &str, bytes: u64) {
        observe(
            &self.response_sizes,
            BYTES,
            [("verb", method), ("host", host)],
            bytes as f64,
        );
    }

    fn rate_limiter_duration(&self, method: &str, host: &str, duration: Duration) {
        observe(
            &self.rate_limiter,
            SECONDS,
            [("verb", method), ("host", host)],
            duration.as_secs_f64(),
        );
    }

    fn exec_plugin_call(&self, exit_code: i32, call_status: &str) {
        count(
            &self.plugin_calls,
            [
                ("code", &*exit_code.to_string()),
                ("call_status", call_status),
            ],
        );
    }

    fn certificate_rotation_age(&self, age: Duration) {
        observe(&self.certificate_ages, AGES, [], age.as_secs_f64());
    }

    fn certificate_expiry(&self, expiry: Option<SystemTime>) {
        *lock(&self.certificate_expiry) = expiry;
    }
}

fn labels<const N: usize>(labels: [(&str, &str); N]) -> String {
    labels.map(|(name, value)| label(name, value)).join(",")
}

fn count<const N: usize>(counters: &Counters, with: [(&str, &str); N]) {
    *lock(counters).entry(labels(with)).or_default() += 1;
}

fn observe<const N: usize>(
    histograms: &Histograms,
    buckets: &'static [f64],
    with: [(&str, &str); N],
    value: f64,
) {
    lock(histograms)
        .entry(labels(with))
        .or_insert_with(|| Histogram::new(buckets))
        .observe(value);
}

impl RestClient {
    /// Returns the current values of all metrics.
    pub(crate) fn text(&self) -> String {
        let mut text = Text::default();
        for (name, help, counters) in [
            (
                "rest_client_requests_total",
                "Number of HTTP requests, partitioned by status code, method, and host.",
                &self.requests,
            ),
            (
                "rest_client_request_retries_total",
                "Number of request retries, partitioned by status code, verb, and host.",
                &self.retries,
            ),
            (
                "rest_client_exec_plugin_call_total",
                "Number of calls to an exec plugin, partitioned by the type of event and the exit code.",
                &self.plugin_calls,
            ),
        ] {
            let counters = lock(counters);
            text.family(name, "counter", help, counters.iter());
        }
        for (name, help, histograms) in [
            (
                "rest_client_request_duration_seconds",
                "Request latency in seconds. Broken down by verb, and host.",
                &self.durations,
            ),
            (
                "rest_client_request_size_bytes",
                "Request size in bytes. Broken down by verb and host.",
                &self.request_sizes,
            ),
            (
                "rest_client_response_size_bytes",
                "Response size in bytes. Broken down by verb and host.",
                &self.response_sizes,
            ),
            (
                "rest_client_rate_limiter_duration_seconds",
                "Client side rate limiter latency in seconds. Broken down by verb, and host.",
                &self.rate_limiter,
            ),
            (
                "rest_client_exec_plugin_certificate_rotation_age",
                "Number of seconds the last exec plugin client certificate lived before being rotated.",
                &self.certificate_ages,
            ),
        ] {
            let histograms = lock(histograms).clone();
            text.histograms(
                name,
                help,
                histograms.iter().map(|(labels, it)| (labels, it.clone())),
            );
        }
        let left = lock(&self.certificate_expiry).map_or(f64::INFINITY, |expiry| {
            match expiry.duration_since(SystemTime::now()) {
                Ok(left) => left.as_secs_f64(),
                Err(over) => -over.duration().as_secs_f64(),
            }
        });
        let left = if left.is_infinite() {
            "+Inf".to_owned()
        } else {
            left.to_string()
        };
        text.family(
            "rest_client_exec_plugin_ttl_seconds",
            "gauge",
            "Seconds until the client certificate of the exec plugin expires; +Inf without one.",
            [(&String::new(), left)].into_iter(),
        );
        text.into_string()
    }
}
