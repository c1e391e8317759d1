//! How a client behaves beside what it is asked to do.

mod connections;
#[cfg(feature = "gzip")]
mod gzip;
mod limits;
mod metrics;
mod rate_limit;
mod retries;
mod warnings;

use std::sync::{Arc, Mutex, OnceLock};

use k8s_informer::testing::FakeClock;
use k8s_informer::{Client, Config};

use crate::server::{SOON, Server};

/// One whose waits are the test's.
fn client_by(clock: &FakeClock, server: &Server) -> Client {
    let config = Config::new(server.url()).clock(Arc::new(clock.clone()));
    Client::new(config.response_timeout(SOON)).unwrap()
}

/// What all tests log.
#[derive(Default)]
struct Log(Mutex<Vec<String>>);

impl log::Log for Log {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.target().starts_with("k8s_informer")
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            self.0.lock().unwrap().push(format!("{} {}", record.level(), record.args()));
        }
    }

    fn flush(&self) {}
}

/// The lines that are about this server; to be called before anything is logged, too.
fn logged(server: &Server) -> Vec<String> {
    static LOG: OnceLock<&'static Log> = OnceLock::new();
    let log = LOG.get_or_init(|| {
        let log: &'static Log = Box::leak(Box::default());
        log::set_logger(log).unwrap();
        log::set_max_level(log::LevelFilter::Debug);
        log
    });
    let about = format!("{}/", server.address);
    log.0.lock().unwrap().iter().filter(|line| line.contains(&about)).cloned().collect()
}
