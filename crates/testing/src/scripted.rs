use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Cursor, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::wait::check;
use k8s_informer::error::Error;
use k8s_informer::error::WaitError;
use k8s_informer::reflector::ListOptions;
use k8s_informer::reflector::{Body, ListerWatcher, TimedRead};
use k8s_informer::stop::Stop;
use parking_lot::{Condvar, Mutex};

/// A [`ListerWatcher`] that returns scripted responses, whatever the request, and records the
/// requests.
///
/// After the last response, further requests block until the stop. Clones share the same script.
///
/// ```
/// use k8s_informer::object::ResourceVersion;
/// use k8s_informer::reflector::{Reflector, ReflectorOptions};
/// use k8s_informer::{DynamicObject, Indexer, Stopper};
/// use k8s_informer_testing::{Answer, ScriptedListerWatcher, ScriptedRequest};
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// let script = ScriptedListerWatcher::new([
///     Answer::body(r#"{"kind": "List", "metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "a"}}]}"#),
///     Answer::open(r#"{"type": "DELETED", "object": {"metadata": {"name": "a", "resourceVersion": "8"}}}"#),
/// ]);
/// let store = Arc::new(Indexer::<DynamicObject>::for_objects());
/// let reflector = Reflector::new(Arc::new(script.clone()), store.clone(), ReflectorOptions::default());
/// let stop = Stopper::new();
/// std::thread::scope(|scope| {
///     scope.spawn(|| reflector.run(&stop));
///     script.wait_for_bodies(2, Duration::from_secs(10)).unwrap();
///     stop.stop();
/// });
/// assert!(store.list().is_empty());
/// let versions: Vec<_> = script.requests().iter().map(|request| request.options().resource_version.clone()).collect();
/// assert_eq!(versions, [ResourceVersion::new("0"), ResourceVersion::new("7")]);
/// # let _: &[ScriptedRequest] = &script.requests();
/// ```
#[derive(Clone)]
pub struct ScriptedListerWatcher {
    shared: Arc<Shared>,
    watch_list: bool,
}

struct Shared {
    /// This is an innermost lock: no other lock is taken while it is held.
    state: Mutex<State>,
    /// Notified of changes of `state`: by every request, and by every body that has been read to
    /// its end.
    changed: Condvar,
}

struct State {
    answers: VecDeque<Answer>,
    requests: Vec<ScriptedRequest>,
    read: usize,
}

/// A request that a [`ScriptedListerWatcher`] received.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ScriptedRequest {
    /// A LIST request.
    List(ListOptions),
    /// A WATCH request.
    Watch(ListOptions),
}

impl ScriptedRequest {
    /// Returns the options of the request.
    pub fn options(&self) -> &ListOptions {
        match self {
            Self::List(options) | Self::Watch(options) => options,
        }
    }
}

/// A response of a [`ScriptedListerWatcher`].
#[derive(Debug)]
pub struct Answer {
    result: Result<Vec<u8>, Error>,
    end: End,
}

#[derive(Clone, Copy, Debug)]
enum End {
    Close,
    Break,
    Hold,
}

impl Answer {
    /// Returns a response with a complete body.
    pub fn body(body: impl Into<Vec<u8>>) -> Self {
        Self {
            result: Ok(body.into()),
            end: End::Close,
        }
    }

    /// Returns a response that stays open after `body` until the stop. A newline is appended to
    /// `body`.
    pub fn open(body: impl Into<Vec<u8>>) -> Self {
        let mut body = body.into();
        body.push(b'\n');
        Self {
            result: Ok(body),
            end: End::Hold,
        }
    }

    /// Returns a response whose connection breaks after `body`.
    pub fn broken(body: impl Into<Vec<u8>>) -> Self {
        Self {
            result: Ok(body.into()),
            end: End::Break,
        }
    }

    /// Returns an error instead of a response.
    pub fn error(error: Error) -> Self {
        Self {
            result: Err(error),
            end: End::Close,
        }
    }
}

impl ScriptedListerWatcher {
    /// Creates a script with one response per request.
    pub fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        let state = State {
            answers: answers.into_iter().collect(),
            requests: Vec::new(),
            read: 0,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        Self {
            shared,
            watch_list: false,
        }
    }

    /// Declares support for streaming lists. A reflector then starts with a watch that requests the
    /// initial objects.
    #[must_use]
    pub fn with_watch_list(self) -> Self {
        Self {
            watch_list: true,
            ..self
        }
    }

    /// Returns the requests received so far.
    pub fn requests(&self) -> Vec<ScriptedRequest> {
        self.shared.state.lock().requests.clone()
    }

    /// Blocks until at least `requests` requests were received.
    ///
    /// # Errors
    ///
    /// Fails after `timeout`.
    pub fn wait_for_requests(&self, requests: usize, timeout: Duration) -> Result<(), WaitError> {
        self.wait_for("requests", requests, timeout, |state| state.requests.len())
    }

    /// Blocks until at least `bodies` response bodies were read to the end, so that their content
    /// has been processed.
    ///
    /// # Errors
    ///
    /// Fails after `timeout`.
    pub fn wait_for_bodies(&self, bodies: usize, timeout: Duration) -> Result<(), WaitError> {
        self.wait_for("bodies that were read", bodies, timeout, |state| state.read)
    }

    fn wait_for(
        &self,
        what: &str,
        count: usize,
        timeout: Duration,
        present: impl Fn(&State) -> usize,
    ) -> Result<(), WaitError> {
        let deadline = Instant::now() + timeout;
        let mut state = self.shared.state.lock();
        while present(&state) < count {
            if self
                .shared
                .changed
                .wait_until(&mut state, deadline)
                .timed_out()
            {
                let present = present(&state);
                return check(present >= count, timeout, || {
                    (format!("{count} {what}"), present.to_string())
                });
            }
        }
        Ok(())
    }

    fn respond(&self, request: ScriptedRequest, stop: &Stop) -> Result<Body, Error> {
        let answer = {
            let mut state = self.shared.state.lock();
            state.requests.push(request);
            self.shared.changed.notify_all();
            state.answers.pop_front()
        };
        let Some(Answer { result, end }) = answer else {
            stop.wait();
            return Err(Error::stopped());
        };
        let bytes = Cursor::new(result?);
        Ok(Body::timed(ScriptedBody {
            bytes,
            end,
            whole: false,
            stop: stop.clone(),
            script: self.clone(),
        }))
    }
}

impl ListerWatcher for ScriptedListerWatcher {
    fn list(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error> {
        self.respond(ScriptedRequest::List(options.clone()), stop)
    }

    fn watch(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error> {
        self.respond(ScriptedRequest::Watch(options.clone()), stop)
    }

    fn supports_watch_list(&self) -> bool {
        self.watch_list
    }

    fn description(&self) -> String {
        "scripted objects".to_owned()
    }
}

impl fmt::Debug for ScriptedListerWatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedListerWatcher")
            .finish_non_exhaustive()
    }
}

struct ScriptedBody {
    bytes: Cursor<Vec<u8>>,
    end: End,
    whole: bool,
    stop: Stop,
    script: ScriptedListerWatcher,
}

impl TimedRead for ScriptedBody {
    fn read_within(&mut self, buffer: &mut [u8], timeout: Option<Duration>) -> io::Result<usize> {
        let length = self.bytes.read(buffer)?;
        if length > 0 {
            return Ok(length);
        }
        // The data was returned by earlier reads. A reader that reads again has processed it.
        if !std::mem::replace(&mut self.whole, true) {
            self.script.shared.state.lock().read += 1;
            self.script.shared.changed.notify_all();
        }
        match self.end {
            End::Close => Ok(0),
            End::Break => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the script broke the connection",
            )),
            End::Hold => match timeout {
                Some(timeout) if !self.stop.wait_timeout(timeout) => {
                    Err(io::ErrorKind::TimedOut.into())
                }
                Some(_) => Err(io::Error::other(Error::stopped())),
                None => {
                    self.stop.wait();
                    Err(io::Error::other(Error::stopped()))
                }
            },
        }
    }
}
