//! The policies of a client, from reused connections to retries and warnings.

mod connections;
#[cfg(feature = "gzip")]
mod gzip;
mod limits;
mod metrics;
mod rate_limit;
mod retries;
mod warnings;

use std::sync::Arc;

use k8s_informer::{Client, Config};
use k8s_informer_testing::FakeClock;

use crate::client::server::{SOON, Server};
use crate::log_capture;

/// A client with a fake clock.
fn client_with_clock(clock: &FakeClock, server: &Server) -> Client {
    let config = Config::new(server.url()).clock(Arc::new(clock.clone()));
    Client::new(config.response_timeout(SOON)).unwrap()
}

/// Returns the log lines about this server. The first call starts to collect lines, so make it
/// before anything is logged.
fn logged(server: &Server) -> Vec<String> {
    logs_about(&format!("{}/", server.address))
}

fn logs_about(about: &str) -> Vec<String> {
    log_capture::start();
    log_capture::lines_with(&[about])
}

#[test]
fn credentials_without_tls_are_logged() {
    assert!(logs_about("nowhere").is_empty());
    let warnings = |config: Config, server: &str| {
        drop(Client::new(config).unwrap());
        logs_about(&format!("{server}/ are sent WITHOUT TLS")).len()
    };
    let token = |server: &str| Config::new(server).token("s3cret");
    // A URL without a scheme is http if no TLS option is set.
    assert_eq!(
        warnings(token("plain.test:6443"), "http://plain.test:6443"),
        1
    );
    assert_eq!(
        warnings(
            Config::new("http://jane.test").basic_auth("jane", "s3cret"),
            "http://jane.test"
        ),
        1
    );
    let proxied = token("http://127.0.0.1:6").proxy_url("http://proxy.test");
    assert_eq!(warnings(proxied, "http://127.0.0.1:6"), 1);
    assert_eq!(
        warnings(token("http://127.0.0.1:7"), "http://127.0.0.1:7"),
        0
    );
    assert_eq!(
        warnings(token("http://localhost:8"), "http://localhost:8"),
        0
    );
    assert_eq!(
        warnings(Config::new("http://nobody.test"), "http://nobody.test"),
        0
    );
    assert_eq!(
        warnings(
            token("https://tls.test").insecure_skip_tls_verify(true),
            "tls.test"
        ),
        0
    );
}
