//! Controllers on the embedded server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use k8s_informer::client::api::Patch;
use k8s_informer::informer::{FactoryOptions, Source};
use k8s_informer::object::{Key, ResourceVersion};
use k8s_informer::reflector::ReflectorOptions;
use k8s_informer::time::Backoff;
use k8s_informer::{
    Client, Config, Object, ObjectMeta, SharedInformerFactory, Stop, Stopper, impl_object,
};
use k8s_informer_controller::{Context, Controller, ControllerBuilder, Failure, Next};
use k8s_informer_testing::{ApiServer, Fault, RequestRecord, Verb};
use serde::Deserialize;
use serde_json::json;

use super::{Item, LIMIT, MAPS, cpu_of, wait_until};

const OWNERS: &str = "/apis/apps/v1/namespaces/default/deployments";

/// The primary object: a Deployment.
#[derive(Deserialize)]
struct Owner {
    metadata: ObjectMeta,
}

impl_object!(Owner, "apps/v1", "Deployment", "deployments", Namespaced);

pub(crate) fn calls(n: usize) -> Duration {
    let cluster = Cluster::new(n);
    let counted = cluster.controller(|builder| builder, |_| Ok(()));
    counted.measure(|counted| cpu_of(|| counted.wait_for_calls(n)))
}

/// The last call is caused by a later update.
pub(crate) fn mapped_keys(n: usize) -> Duration {
    let cluster = Cluster::new(1);
    let many: Vec<Key> = (0..n).map(|n| format!("default/key-{n}").into()).collect();
    cluster.create(MAPS, "many");
    let keys = move |map: &Item| match map.name() {
        "many" => many.clone(),
        _ => vec![owner(0)],
    };
    let controller = cluster.controller(
        |builder| builder.watches(Source::of::<Item>(), keys),
        |_| Ok(()),
    );
    controller.measure(|controller| {
        controller.wait_for_calls(1);
        cluster.create(MAPS, "one");
        controller.wait_for_calls(1);
        // The keys of the initial list have a low priority.
        wait_until(|| controller.controller.status().queued == 0);
        cpu_of(|| {
            for name in ["many", "one"] {
                let patch = json!({"metadata": {"labels": {"updated": "yes"}}});
                let path = format!("{MAPS}/{name}");
                cluster.server.patch(&path, patch).unwrap();
            }
            controller.wait_for_calls(1);
        })
    })
}

/// The events arrive after the call that has written. Then the next call can begin.
pub(crate) fn writes_of_one_key(n: usize) -> Duration {
    own_writes(1, move |cx, writes| {
        for number in 0..n {
            let map = json!({"metadata": {"name": format!("map-{number}")}});
            writes.create(&map, cx.stop())?;
        }
        Ok(())
    })
}

/// The events arrive after the last call that has written. Then its next call can begin.
pub(crate) fn writes_to_one_object(n: usize) -> Duration {
    own_writes(n, |cx, writes| {
        let patch = Patch::merge(json!({"metadata": {"labels": {"by": cx.name()}}}));
        writes.patch("shared", &patch, cx.stop())?;
        Ok(())
    })
}

type Writes = k8s_informer::client::api::Api<Item>;

/// Lets each of `owners` write while the server refuses to watch and to list ConfigMaps. Returns the
/// CPU time from the end of this until the call that has waited for the writes of the last owner.
fn own_writes(
    owners: usize,
    write: impl Fn(&Context, &Writes) -> Result<(), Failure> + Send + Sync + 'static,
) -> Duration {
    let cluster = Cluster::new(owners);
    let is_writing = Arc::new(AtomicBool::new(false));
    let writing = Arc::clone(&is_writing);
    let controller = cluster.controller(
        |builder| {
            let builder = builder.own_writes_timeout(LIMIT);
            builder.watches(Source::of::<Item>(), |_| Vec::new())
        },
        move |cx| match writing.load(Ordering::Relaxed) {
            true => write(cx, &cx.api(Some("default"))),
            false => Ok(()),
        },
    );
    controller.measure(|controller| {
        controller.wait_for_calls(owners);
        let server = &cluster.server;
        server.wait_for_watches(2, LIMIT).unwrap();
        // A watch that has had an event resumes from its version.
        cluster.create(MAPS, "shared");
        let maps = cluster.factory.informer::<Item>();
        let version = ResourceVersion::new(&server.resource_version().to_string()).unwrap();
        maps.wait_for_resource_version(&version, LIMIT, &Stop::never())
            .unwrap();
        for verb in [Verb::Watch, Verb::List] {
            let refusal = Fault::status(429).on(verb).resource("configmaps");
            server.fail_next(refusal.always());
        }
        server.clear_requests();
        server.fail_watches(&Fault::end_watch().resource("configmaps"));
        let is_refused = |request: &RequestRecord| {
            request.verb() == Verb::Watch && request.resource() == Some("configmaps")
        };
        server
            .wait_for_requests(|all| all.iter().any(is_refused), LIMIT)
            .unwrap();
        is_writing.store(true, Ordering::Relaxed);
        for n in 0..owners {
            controller.controller.enqueue(owner(n));
        }
        controller.wait_for_calls(owners);
        is_writing.store(false, Ordering::Relaxed);
        cpu_of(|| {
            controller.controller.enqueue(owner(owners - 1));
            wait_until(|| controller.controller.status().postponed == 1);
            server.clear_faults();
            controller.wait_for_calls(1);
        })
    })
}

fn owner(n: usize) -> Key {
    format!("default/owner-{n}").into()
}

/// A server with owners.
struct Cluster {
    server: ApiServer,
    client: Client,
    factory: SharedInformerFactory,
}

impl Cluster {
    fn new(owners: usize) -> Self {
        let server = ApiServer::start().unwrap();
        let client = Client::new(Config::new(server.url())).unwrap();
        let pause = Duration::from_millis(10);
        let reflector = ReflectorOptions::new().backoff(Backoff::new(pause));
        let options = FactoryOptions::new().reflector(reflector);
        let cluster = Self {
            factory: SharedInformerFactory::with_options(client.clone(), options),
            client,
            server,
        };
        (0..owners).for_each(|n| cluster.create(OWNERS, &format!("owner-{n}")));
        cluster
    }

    fn create(&self, collection: &str, name: &str) {
        let object = json!({"metadata": {"name": name}});
        self.server.create(collection, object).unwrap();
    }

    fn controller(
        &self,
        set: impl FnOnce(ControllerBuilder<Owner>) -> ControllerBuilder<Owner>,
        call: impl Fn(&Context) -> Result<(), Failure> + Send + Sync + 'static,
    ) -> Counted {
        let (ended, calls) = mpsc::channel();
        let builder = Controller::builder(&self.client, Source::of::<Owner>(), "growth");
        let controller = set(builder.factory(&self.factory)).by(move |cx, _| {
            call(cx)?;
            // The bench has ended if nothing receives.
            let _ = ended.send(());
            Ok(Next::Done)
        });
        Counted {
            controller: controller.unwrap(),
            calls,
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.factory.shut_down(None).unwrap();
    }
}

/// A controller, and its calls that have ended.
struct Counted {
    controller: Controller<Owner>,
    calls: Receiver<()>,
}

impl Counted {
    fn wait_for_calls(&self, count: usize) {
        for _ in 0..count {
            self.calls.recv_timeout(LIMIT).unwrap();
        }
    }

    /// Runs the controller meanwhile.
    fn measure(&self, measured: impl FnOnce(&Self) -> Duration) -> Duration {
        let stop = Stopper::new();
        let run = (self.controller.clone(), stop.clone());
        let thread = thread::spawn(move || run.0.run(&run.1).unwrap());
        let cpu = measured(self);
        stop.stop();
        thread.join().unwrap();
        cpu
    }
}
