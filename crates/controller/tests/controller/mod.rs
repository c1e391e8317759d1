//! Controllers on the embedded server. The tests answer each reconcile call, and advance the clock.

mod apply;
mod builds;
mod calls;
mod deletions;
mod events;
mod finalizers;
mod lifecycle;
mod optional;
mod optional_starts;
mod own_writes;
mod priorities;
mod remove_finalizers;
mod sources;
mod vanished;

use std::cell::RefCell;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use k8s_informer::informer::{FactoryOptions, Source};
use k8s_informer::object::Key;
use k8s_informer::reflector::ReflectorOptions;
use k8s_informer::stop::Subscription;
use k8s_informer::time::Backoff;
use k8s_informer::{Client, Config, Object, Resource, SharedInformerFactory, Stop, Stopper};
use k8s_informer_controller::__private::Drive;
use k8s_informer_controller::{
    Context, Controller, ControllerBuilder, ControllerError, ControllerStatus, Failure, Next,
};
use k8s_informer_testing::{ApiServer, FakeClock, Fault};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::support::until;

const LIMIT: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

/// A server, and a clock for controllers. Informers use the real clock.
struct Cluster {
    server: ApiServer,
    client: Client,
    clock: FakeClock,
    /// Its informers continue soon after an outage.
    factory: SharedInformerFactory,
}

impl Cluster {
    fn new() -> Self {
        Self::with_server(ApiServer::start().unwrap())
    }

    fn with_server(server: ApiServer) -> Self {
        Self::with_factory(server, |factory| factory)
    }

    fn with_factory(
        server: ApiServer,
        configure: impl FnOnce(FactoryOptions) -> FactoryOptions,
    ) -> Self {
        let client = Client::new(Config::new(server.url())).unwrap();
        let mut options = ReflectorOptions::default();
        let pause = Duration::from_millis(20);
        options.backoff = Backoff::new(pause);
        let options = configure(FactoryOptions::new().reflector(options));
        Self {
            factory: SharedInformerFactory::with_options(client.clone(), options),
            clock: FakeClock::new(),
            client,
            server,
        }
    }

    /// Returns a builder for a controller with the clock of the test.
    fn controller<T: Resource + DeserializeOwned>(&self, name: &str) -> ControllerBuilder<T> {
        let builder = Controller::builder(&self.client, Source::of::<T>(), name);
        builder.clock(Arc::new(self.clock.clone()))
    }

    fn create(&self, collection: &str, name: &str) -> Value {
        self.create_with(collection, json!({"metadata": {"name": name}}))
    }

    fn create_with(&self, collection: &str, object: Value) -> Value {
        self.server.create(collection, object).unwrap()
    }

    /// Creates a ConfigMap with a controller reference to a Deployment.
    fn create_child(&self, name: &str, owner: &Value) -> Value {
        self.create_with(
            MAPS,
            json!({"metadata": {"name": name, "ownerReferences": [reference(owner)]}}),
        )
    }

    /// Patches an object, so that it has a new version.
    fn touch(&self, collection: &str, name: &str, value: &str) {
        let patch = json!({"metadata": {"annotations": {"touched": value}}});
        self.server
            .patch(&format!("{collection}/{name}"), patch)
            .unwrap();
    }

    /// Lets all open watches of a resource hang.
    fn stall(&self, resource: &str) {
        let fault = Fault::stall().resource(resource);
        until("a watch is open", || self.server.fail_watches(&fault) > 0);
    }

    /// Breaks all connections. The informers continue with new watches.
    fn reconnect(&self) {
        self.server.pause();
        self.server.resume().unwrap();
    }

    /// Advances the clock, and queues the keys and runs the timers that are due: the threads of the
    /// queue and of the timers may have computed their waits before the clock has advanced.
    fn advance<T: Object + DeserializeOwned>(&self, running: &Running<T>, by: Duration) {
        self.clock.advance(by);
        running.controller.status();
        Drive::of(&running.controller).due_timers_done();
    }

    /// Advances the clock until the next call.
    #[track_caller]
    fn advance_until_call<T: Object + DeserializeOwned>(
        &self,
        running: &Running<T>,
        calls: &Calls,
    ) -> Call {
        let next = RefCell::new(None);
        until("a call", || {
            self.advance(running, SECOND);
            next.replace(calls.0.try_recv().ok());
            next.borrow().is_some()
        });
        next.into_inner().unwrap()
    }

    /// Waits until the controller has begun this number of waits of this duration. A wait that
    /// begins after an advance of the clock would last too long.
    #[track_caller]
    fn wait_for_waits(&self, duration: Duration, count: usize) {
        let waits = || {
            self.clock
                .waits()
                .into_iter()
                .filter(|wait| *wait == duration)
        };
        until("the clock is waited for", || waits().count() >= count);
    }

    fn names(&self, collection: &str) -> Vec<String> {
        let list = self.server.list(collection).unwrap();
        let items = list["items"].as_array().unwrap().iter();
        items
            .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.factory.shut_down(None).unwrap();
    }
}

fn reference(owner: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "controller": true,
        "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
    })
}

/// A reconcile call that waits for its answer.
struct Call {
    key: String,
    attempt: usize,
    stop: Stop,
    answer: Sender<Box<Answer>>,
}

type Answer = dyn FnOnce(&Context) -> Result<Next, Failure> + Send;

impl Call {
    #[track_caller]
    fn is(self, key: &str) -> Self {
        assert_eq!(self.key, key);
        self
    }

    /// Ends the call.
    fn answer(self, result: Result<Next, Failure>) {
        self.run(move |_| result);
    }

    fn done(self) {
        self.answer(Ok(Next::Done));
    }

    fn fail(self, message: &str) {
        self.answer(Err(Failure::new(message)));
    }

    /// Runs code on the thread of the call, and ends the call with its result.
    fn run(self, answer: impl FnOnce(&Context) -> Result<Next, Failure> + Send + 'static) {
        self.answer.send(Box::new(answer)).unwrap();
    }
}

/// A callback on a stop that blocks until this value is dropped.
struct BlockedCallback {
    is_running: Stopper,
    release: Stopper,
    _subscription: Subscription,
}

impl BlockedCallback {
    fn new(stop: &Stop) -> Self {
        let (is_running, release) = (Stopper::new(), Stopper::new());
        let (running, released) = (is_running.clone(), release.clone());
        Self {
            _subscription: stop.on_stop(move || {
                running.stop();
                released.wait();
            }),
            is_running,
            release,
        }
    }
}

impl Drop for BlockedCallback {
    fn drop(&mut self) {
        self.release.stop();
    }
}

/// The calls of a controller, in order.
struct Calls(Receiver<Call>);

impl Calls {
    /// Waits for the next call.
    #[track_caller]
    fn next(&self) -> Call {
        self.0.recv_timeout(LIMIT).unwrap()
    }

    /// Answers calls until one has this key. After an outage, informers may list, and then notify
    /// handlers of all objects.
    #[track_caller]
    fn next_of(&self, key: &str) -> Call {
        loop {
            let call = self.next();
            if call.key == key {
                return call;
            }
            call.done();
        }
    }

    #[track_caller]
    fn assert_none(&self) {
        let call = self.0.try_recv().ok();
        assert_eq!(call.map(|call| call.key), None);
    }
}

/// Returns a reconcile function whose calls the test answers.
fn answered<T>() -> (impl Fn(&Context, &Arc<T>) -> Result<Next, Failure>, Calls) {
    let (sender, calls) = unbounded();
    let reconcile = move |cx: &Context, _: &Arc<T>| {
        let (answer, answers) = bounded::<Box<Answer>>(1);
        let call = Call {
            key: cx.key().to_string(),
            attempt: cx.attempt(),
            stop: cx.stop().clone(),
            answer,
        };
        // The test has ended if a channel is closed.
        match sender.send(call).ok().and_then(|()| answers.recv().ok()) {
            Some(answer) => answer(cx),
            None => Ok(Next::Done),
        }
    };
    (reconcile, Calls(calls))
}

/// A controller that runs on a thread.
struct Running<T> {
    controller: Controller<T>,
    stop: Stopper,
    thread: JoinHandle<Result<(), ControllerError>>,
}

impl<T: Object + DeserializeOwned> Running<T> {
    fn new(controller: Controller<T>) -> Self {
        let stop = Stopper::new();
        let run = (controller.clone(), stop.clone());
        Self {
            controller,
            stop,
            thread: std::thread::spawn(move || run.0.run(&run.1)),
        }
    }

    /// Waits until the status of the controller has this property.
    #[track_caller]
    fn until(&self, what: &str, condition: impl Fn(&ControllerStatus) -> bool) {
        until(what, || condition(&self.controller.status()));
    }

    /// Waits until a key has a retry or a [`Next::After`] ahead.
    #[track_caller]
    fn until_delayed(&self) {
        self.until("a key is delayed", |status| status.delayed == 1);
        // One status reads the calls before the delays.
        self.until("no call runs", |status| status.running.is_empty());
    }

    #[track_caller]
    fn until_idle(&self) {
        self.until("the controller is idle", |status| {
            status.queued + status.delayed + status.postponed + status.running.len() == 0
        });
    }

    /// Answers calls until the controller is idle.
    fn drain(&self, calls: &Calls) {
        self.until("the controller is idle", |status| {
            calls.0.try_iter().for_each(Call::done);
            status.queued + status.running.len() == 0
        });
    }

    fn enqueue(&self, key: &str) {
        self.controller.enqueue(key);
    }

    fn join(self) -> Result<(), ControllerError> {
        self.thread.join().unwrap()
    }

    /// Ends the controller. Calls without an answer end.
    fn end(self, calls: impl Sized) {
        drop(calls);
        self.stop.stop();
        self.join().unwrap();
    }
}
