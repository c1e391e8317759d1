//! Time that passes faster: the minutes that a reflector waits for a silent server become seconds.

use std::io::{self, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_informer::client::Request;
use k8s_informer::object::GroupVersionResource;
use k8s_informer::reflector::{Body, ListOptions, ListerWatcher, ListerWatcherSource, TimedRead};
use k8s_informer::time::Clock;
use k8s_informer::{Client, Error, Stop};

/// The factor by which time passes faster.
const SPEED: u32 = 40;

/// The idle timeout of a watch request. The reflector's own timeout is longer and known only at
/// each read, so [`Patient`] repeats reads of this length until the reflector's timeout has passed.
const SLICE: Duration = Duration::from_millis(25);

pub(crate) struct HurriedClock(Instant);

impl HurriedClock {
    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }
}

impl Clock for HurriedClock {
    fn now(&self) -> Instant {
        self.0 + self.0.elapsed() * SPEED
    }

    fn wait(&self, duration: Duration, stop: &Stop) -> bool {
        !stop.wait_timeout(duration / SPEED)
    }
}

/// A client whose watches time out [`SPEED`] times faster, in step with [`HurriedClock`].
pub(crate) struct Hurried(pub(crate) Client);

impl ListerWatcherSource for Hurried {
    fn lister_watcher(
        &self,
        resource: &GroupVersionResource,
        namespace: Option<&str>,
    ) -> Arc<dyn ListerWatcher> {
        let path = resource.path(namespace).expect("a path");
        Arc::new(Resource {
            client: self.0.clone(),
            path,
            inner: self.0.lister_watcher(resource, namespace),
        })
    }
}

struct Resource {
    client: Client,
    path: String,
    inner: Arc<dyn ListerWatcher>,
}

impl ListerWatcher for Resource {
    fn list(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error> {
        self.inner.list(options, stop)
    }

    fn watch(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error> {
        let request = Request::get(&self.path).raw_query(&options.to_watch_query());
        let request = request.retries(0).idle_timeout(SLICE);
        let body = self.client.request(&request, stop)?.into_body();
        Ok(Body::timed(Patient { body }))
    }

    fn supports_watch_list(&self) -> bool {
        self.inner.supports_watch_list()
    }

    fn description(&self) -> String {
        self.inner.description()
    }
}

/// Repeats a read until its timeout has passed.
struct Patient {
    body: Body,
}

impl TimedRead for Patient {
    fn read_within(&mut self, buffer: &mut [u8], timeout: Option<Duration>) -> io::Result<usize> {
        let patience = timeout.map_or(Duration::MAX, |timeout| timeout / SPEED);
        let start = Instant::now();
        loop {
            match self.body.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    if start.elapsed() >= patience {
                        return Err(error);
                    }
                }
                read => return read,
            }
        }
    }
}
