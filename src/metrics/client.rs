use std::time::{Duration, SystemTime};

/// Receives the metrics of a client's requests. Pass it to
/// [`Config::metrics`](crate::Config::metrics). client-go's `tools/metrics`, where each method is a
/// separate metric.
///
/// `method` is the HTTP method, such as `GET` or `PATCH`, which client-go calls the verb. `host` is
/// the host of the server's URL, with the port if it has one. `code` is the status code of the
/// response, or `<error>` if there was no response. Error texts are not used, because their number
/// is unlimited.
///
/// Every method has a default that does nothing. The threads that send requests and read responses
/// call these methods, so they must be fast. A panic is caught and logged. A client without metrics
/// measures nothing.
///
/// ```
/// use k8s_informer::client::Request;
/// use k8s_informer::metrics::ClientMetrics;
/// use k8s_informer::{Client, Config, Stop};
/// use k8s_informer_testing::ApiServer;
/// use std::sync::{Arc, Mutex};
///
/// #[derive(Default)]
/// struct Codes(Mutex<Vec<String>>);
///
/// impl ClientMetrics for Codes {
///     fn request(&self, code: &str, method: &str, _host: &str) {
///         self.0.lock().unwrap().push(format!("{method} {code}"));
///     }
/// }
///
/// let server = ApiServer::start()?;
/// let codes = Arc::new(Codes::default());
/// let client = Client::new(Config::new(server.url()).metrics(codes.clone()))?;
/// client.request(&Request::get("/api/v1/pods"), &Stop::never())?;
/// client.request(&Request::get("/api/v1/no-such-thing"), &Stop::never()).unwrap_err();
/// assert_eq!(*codes.0.lock().unwrap(), ["GET 200", "GET 404"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait ClientMetrics: Send + Sync + 'static {
    /// A request was sent, for the first time or as a retry, and `code` is the result. The counter
    /// `rest_client_requests_total`.
    fn request(&self, code: &str, method: &str, host: &str) {
        let _ = (code, method, host);
    }

    /// The request was a retry. The counter `rest_client_request_retries_total`.
    fn request_retry(&self, code: &str, method: &str, host: &str) {
        let _ = (code, method, host);
    }

    /// The duration of a request, including all attempts and waits, until its response was read or
    /// abandoned. Not called for watches, whose duration is not a latency. The histogram
    /// `rest_client_request_duration_seconds`.
    fn request_duration(&self, method: &str, host: &str, duration: Duration) {
        let _ = (method, host, duration);
    }

    /// The size of a request body, for each attempt; 0 for a request without a body. The histogram
    /// `rest_client_request_size_bytes`.
    fn request_size(&self, method: &str, host: &str, bytes: u64) {
        let _ = (method, host, bytes);
    }

    /// The number of bytes read from a response body, after decompression. Not called for watches.
    /// The histogram `rest_client_response_size_bytes`.
    fn response_size(&self, method: &str, host: &str, bytes: u64) {
        let _ = (method, host, bytes);
    }

    /// The time that a request waited for the client's own [rate limit](crate::Config::rate_limit),
    /// if there is one, for each attempt. The histogram
    /// `rest_client_rate_limiter_duration_seconds`.
    fn rate_limiter_duration(&self, method: &str, host: &str, duration: Duration) {
        let _ = (method, host, duration);
    }

    /// A credential plugin was run. Not called if the request was stopped meanwhile. `exit_code` is
    /// 1 if the plugin could not be started, and -1 if it was killed. `call_status` is `no_error`,
    /// `plugin_execution_error`, `plugin_not_found_error` or `client_internal_error`. The counter
    /// `rest_client_exec_plugin_call_total`.
    fn exec_plugin_call(&self, exit_code: i32, call_status: &str) {
        let _ = (exit_code, call_status);
    }

    /// The time that a plugin's client certificate was in use when another one replaced it. The
    /// histogram `rest_client_exec_plugin_certificate_rotation_age`.
    fn certificate_rotation_age(&self, age: Duration) {
        let _ = age;
    }

    /// The expiry of a plugin's client certificate, each time that the plugin returns one; `None`
    /// if the plugin reports no expiry. Kubernetes publishes the remaining time as the gauge
    /// `rest_client_exec_plugin_ttl_seconds`.
    fn certificate_expiry(&self, expiry: Option<SystemTime>) {
        let _ = expiry;
    }
}
