//! The paths of a manager's HTTP server.

use super::checks::Checks;
use super::http::{Request, Response, Routes};
use super::registry::MetricsRegistry;

/// The content of `/healthz`, `/readyz`, `/metrics` and `/status`.
pub(crate) struct Endpoints<S> {
    pub(crate) healthz: Checks,
    pub(crate) readyz: Checks,
    pub(crate) metrics: MetricsRegistry,
    pub(crate) status: S,
}

impl<S: Fn() -> String + Send + Sync + 'static> Endpoints<S> {
    /// Creates the endpoints without checks. Checks can be added while the server is running.
    /// `status` returns the current status as JSON.
    pub(crate) fn new(metrics: MetricsRegistry, status: S) -> Self {
        Self {
            healthz: Checks::new("healthz"),
            readyz: Checks::new("readyz"),
            metrics,
            status,
        }
    }
}

impl<S: Fn() -> String + Send + Sync + 'static> Routes for Endpoints<S> {
    fn get(&self, request: &Request) -> Option<Response> {
        match request.path() {
            "/metrics" => {
                let text = self.metrics.render();
                Some(Response::new(200, MetricsRegistry::CONTENT_TYPE, text))
            }
            "/status" => {
                let json = (self.status)();
                Some(Response::new(200, "application/json", json))
            }
            _ => {
                let probe = self.healthz.get(request);
                probe.or_else(|| self.readyz.get(request))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::sync::Arc;

    use super::*;
    use crate::metrics::ControllerMetricsProvider;
    use crate::serve::http::HttpServer;

    #[test]
    fn cr11_endpoints_are_served_over_http() {
        let registry = MetricsRegistry::new();
        registry.controller_metrics("team");
        let endpoints = Arc::new(Endpoints::new(registry, || "{}\n".to_owned()));
        let server = HttpServer::start("127.0.0.1:0", endpoints.clone()).unwrap();
        let get = |path: &str| {
            let mut connection = TcpStream::connect(server.local_addr()).unwrap();
            write!(connection, "GET {path} HTTP/1.1\r\n\r\n").unwrap();
            let mut response = String::new();
            connection.read_to_string(&mut response).unwrap();
            response
        };
        let metrics = get("/metrics");
        assert!(metrics.contains("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
        assert!(metrics.contains("controller_runtime_active_workers{controller=\"team\"} 0\n"));
        let status = get("/status");
        assert!(status.contains("\r\nContent-Type: application/json\r\n"));
        assert!(status.ends_with("\r\n\r\n{}\n"), "{status}");

        assert!(get("/healthz?verbose").ends_with("[+]ping ok\nhealthz check passed\n"));
        assert!(get("/readyz").starts_with("HTTP/1.1 200 "));
        endpoints.readyz.add("informers", || Err("not synced"));
        assert!(get("/readyz").starts_with("HTTP/1.1 500 "));
        assert!(get("/readyz/informers").ends_with(": not synced\n"));
        assert!(get("/healthz").ends_with("\r\n\r\nok"));
        assert!(get("/").starts_with("HTTP/1.1 404 "));
    }
}
