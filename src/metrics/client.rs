use std::time::{Duration, SystemTime};

/// Is told of a client's requests; given with [`Config::metrics`](crate::Config::metrics). client-go's
/// `tools/metrics`, in which each of the figures is a metric of its own.
///
/// `method` is that of HTTP, `GET` or `PATCH`, which client-go calls the verb; `host` is that of the server's
/// URL, with its port if it has one. `code` is the answer's, or `<error>` where there was none: what an error
/// says has no end of forms.
///
/// Each has a default that does nothing. They are called by the threads that make requests and read answers,
/// so they must be quick; a panic in one is logged. Where nobody wants to know, nothing is measured.
///
/// ```
/// use k8s_informer::testing::ApiServer;
/// use k8s_informer::{Client, Config, Stop};
/// use k8s_informer::client::Request;
/// use k8s_informer::metrics::ClientMetrics;
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
/// client.request(&Request::get("/api/v1/pods"), &Stop::new())?;
/// client.request(&Request::get("/api/v1/no-such-thing"), &Stop::new()).unwrap_err();
/// assert_eq!(*codes.0.lock().unwrap(), ["GET 200", "GET 404"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait ClientMetrics: Send + Sync + 'static {
    /// A request was sent, be it for the first time or again, and this is what came. The counter
    /// `rest_client_requests_total`.
    fn request(&self, code: &str, method: &str, host: &str) {
        let _ = (code, method, host);
    }

    /// It was not the first time. The counter `rest_client_request_retries_total`.
    fn request_retry(&self, code: &str, method: &str, host: &str) {
        let _ = (code, method, host);
    }

    /// How long a request took, all its tries and waits together, until its answer was read or given up.
    /// Not of watches, which take as long as they take. The histogram
    /// `rest_client_request_duration_seconds`.
    fn request_duration(&self, method: &str, host: &str, duration: Duration) {
        let _ = (method, host, duration);
    }

    /// How many bytes the body of a request had, each time that it was sent; 0 without one. The histogram
    /// `rest_client_request_size_bytes`.
    fn request_size(&self, method: &str, host: &str, bytes: u64) {
        let _ = (method, host, bytes);
    }

    /// How many bytes of an answer's body were read, decompressed if it was compressed. Not of watches. The
    /// histogram `rest_client_response_size_bytes`.
    fn response_size(&self, method: &str, host: &str, bytes: u64) {
        let _ = (method, host, bytes);
    }

    /// How long a request waited for the client's own [rate limit](crate::Config::rate_limit), if there is
    /// one, each time that it was sent. The histogram `rest_client_rate_limiter_duration_seconds`.
    fn rate_limiter_duration(&self, method: &str, host: &str, duration: Duration) {
        let _ = (method, host, duration);
    }

    /// A credential plugin was run, unless the request was stopped: its exit code (1 if it could not be
    /// started, -1 if it was killed), and `no_error`, `plugin_execution_error`,
    /// `plugin_not_found_error` or `client_internal_error`. The counter `rest_client_exec_plugin_call_total`.
    fn exec_plugin_call(&self, exit_code: i32, call_status: &str) {
        let _ = (exit_code, call_status);
    }

    /// How long the client certificate of a plugin had been in use when another one took its place. The
    /// histogram `rest_client_exec_plugin_certificate_rotation_age`.
    fn certificate_rotation_age(&self, age: Duration) {
        let _ = age;
    }

    /// Until when the plugin says that its client certificate is good, each time that it hands one out;
    /// `None` if it does not say. Kubernetes publishes what is left of that as the gauge
    /// `rest_client_exec_plugin_ttl_seconds`.
    fn certificate_expiry(&self, expiry: Option<SystemTime>) {
        let _ = expiry;
    }
}
