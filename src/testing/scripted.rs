use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Cursor, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::reflector::{Body, ListerWatcher};
use crate::stop::Stop;
use crate::sync::{Condvar, Mutex};
use crate::wire::ListOptions;

/// A [`ListerWatcher`] that answers from a script, whatever it is asked, and writes down what it was asked.
///
/// When the script is over it keeps whoever asks waiting until the stop. Clones are the same script.
///
/// ```
/// use k8s_informer::testing::{Answer, Request, ScriptedListerWatcher};
/// use k8s_informer::{DynamicObject, Indexer, Stop};
/// use k8s_informer::reflector::{Reflector, ReflectorOptions};
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// let script = ScriptedListerWatcher::new([
///     Answer::body(r#"{"kind": "List", "metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "a"}}]}"#),
///     Answer::open(r#"{"type": "DELETED", "object": {"metadata": {"name": "a", "resourceVersion": "8"}}}"#),
/// ]);
/// let store = Arc::new(Indexer::<DynamicObject>::for_objects());
/// let reflector = Reflector::new(Arc::new(script.clone()), store.clone(), ReflectorOptions::default());
/// let stop = Stop::new();
/// std::thread::scope(|scope| {
///     scope.spawn(|| reflector.run(&stop));
///     assert!(script.until_read(2, Duration::from_secs(10)));
///     stop.stop();
/// });
/// assert!(store.list().is_empty());
/// let versions: Vec<_> = script.requests().iter().map(|request| request.options().resource_version.clone()).collect();
/// assert_eq!(versions, [Some("0".to_owned()), Some("7".to_owned())]);
/// # let _: &[Request] = &script.requests();
/// ```
#[derive(Clone)]
pub struct ScriptedListerWatcher {
    shared: Arc<Shared>,
    watch_list: bool,
}

struct Shared {
    /// Innermost.
    state: Mutex<State>,
    /// Waits for a change of `state`; woken by every request and by every body that has been read to where
    /// it goes no further.
    changed: Condvar,
}

struct State {
    answers: VecDeque<Answer>,
    requests: Vec<Request>,
    read: usize,
}

/// What a [`ScriptedListerWatcher`] was asked.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Request {
    /// A LIST.
    List(ListOptions),
    /// A WATCH.
    Watch(ListOptions),
}

impl Request {
    /// The options of the request.
    pub fn options(&self) -> &ListOptions {
        match self {
            Self::List(options) | Self::Watch(options) => options,
        }
    }
}

/// What a [`ScriptedListerWatcher`] answers.
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
    /// A body that ends in order.
    pub fn body(body: impl Into<Vec<u8>>) -> Self {
        Self {
            result: Ok(body.into()),
            end: End::Close,
        }
    }

    /// A body after which nothing comes until the stop. A line end is added.
    pub fn open(body: impl Into<Vec<u8>>) -> Self {
        let mut body = body.into();
        body.push(b'\n');
        Self {
            result: Ok(body),
            end: End::Hold,
        }
    }

    /// A body after which the connection breaks.
    pub fn broken(body: impl Into<Vec<u8>>) -> Self {
        Self {
            result: Ok(body.into()),
            end: End::Break,
        }
    }

    /// No body, but an error.
    pub fn error(error: Error) -> Self {
        Self {
            result: Err(error),
            end: End::Close,
        }
    }
}

impl ScriptedListerWatcher {
    /// Answers these, one a request.
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

    /// Says that a watch may ask for the objects that are there, too: then the first request is such a watch.
    #[must_use]
    pub fn with_watch_list(self) -> Self {
        Self {
            watch_list: true,
            ..self
        }
    }

    /// What was asked so far.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.state.lock().requests.clone()
    }

    /// Blocks until this many requests were made, or until `timeout`; says whether they were.
    pub fn until_requests(&self, requests: usize, timeout: Duration) -> bool {
        self.until(timeout, |state| state.requests.len() >= requests)
    }

    /// Blocks until this many bodies have been read whole, so that what they said has been dealt with, or
    /// until `timeout`; says whether they have.
    pub fn until_read(&self, bodies: usize, timeout: Duration) -> bool {
        self.until(timeout, |state| state.read >= bodies)
    }

    fn until(&self, timeout: Duration, reached: impl Fn(&State) -> bool) -> bool {
        let deadline = Instant::now() + timeout;
        let mut state = self.shared.state.lock();
        while !reached(&state) {
            if self
                .shared
                .changed
                .wait_until(&mut state, deadline)
                .timed_out()
            {
                return reached(&state);
            }
        }
        true
    }

    fn respond(&self, request: Request, stop: &Stop) -> Result<Body, Error> {
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
        Ok(Body::new(ScriptedBody {
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
        self.respond(Request::List(options.clone()), stop)
    }

    fn watch(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error> {
        self.respond(Request::Watch(options.clone()), stop)
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

impl Read for ScriptedBody {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.bytes.read(buffer)?;
        if length > 0 {
            return Ok(length);
        }
        // Whoever reads on has dealt with what came before.
        if !std::mem::replace(&mut self.whole, true) {
            self.script.shared.state.lock().read += 1;
            self.script.shared.changed.notify_all();
        }
        match self.end {
            End::Close => Ok(0),
            End::Break => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the script breaks the connection here",
            )),
            End::Hold => {
                self.stop.wait();
                Err(io::Error::other(Error::stopped()))
            }
        }
    }
}
