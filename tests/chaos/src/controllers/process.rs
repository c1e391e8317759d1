//! The process of the controller.

use std::collections::HashSet;
use std::io::BufRead;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use k8s_informer::client::api::{Api, DeleteOptions, Patch};
use k8s_informer::informer::{InformerScope, Source};
use k8s_informer::object::FullMetadata;
use k8s_informer::store::Transform;
use k8s_informer::{Client, Config, Object, SharedInformerFactory, Stopper};
use k8s_informer_controller::{
    Context, Controller, Failure, Next, generation_changed, labels_changed,
};
use log::LevelFilter;
use serde_json::json;

use super::cloud::Cloud;
use super::site::{Child, FINALIZER, NAMESPACES, SITE, Site, Space, Status, TEAM};
use crate::logs;
use crate::server::TOKEN;

/// How long a key waits after a create with an unknown outcome.
const OWN_WRITES_TIMEOUT: Duration = Duration::from_secs(3);

/// Arguments: the number of the process, the URL of the server, the address of the cloud, the
/// number of workers, and a mutant or "none". The process ends with its standard input.
pub(crate) fn main(arguments: &[String]) -> ExitCode {
    let [number, url, cloud, workers, mutant] = arguments else {
        eprintln!("a controller needs 5 arguments");
        return ExitCode::from(2);
    };
    logs::print(LevelFilter::Debug);
    let config = Config::new(url).token(TOKEN);
    let client = Client::new(config.response_timeout(Duration::from_secs(30))).expect("a client");
    let sites = Arc::new(Sites {
        cloud: Cloud::new(cloud, number),
        forgets_writes: mutant == "own-writes",
        affected: (mutant == "finalizer").then(Mutex::default),
    });
    let [cleans, needs, reconciles] = [(); 3].map(|()| Arc::clone(&sites));
    let scope = || {
        NAMESPACES
            .into_iter()
            .fold(InformerScope::all(), InformerScope::namespace)
    };
    let selector = SITE.parse().expect("a selector");
    let spaces = Source::of::<Space>().scope(InformerScope::all().label_selector(selector));
    let factory = SharedInformerFactory::new(client.clone());
    let reject = Transform::new(|space: Arc<Space>| match Space::is_rejected(space.name()) {
        true => Err("the transform rejects this Namespace"),
        false => Ok(space),
    });
    let informer = factory.informer_for(spaces.clone());
    informer.set_transform(reject).expect("a transform");
    let controller = Controller::builder(&client, Source::of::<Site>().scope(scope()), "site")
        .factory(&factory)
        .watches(spaces, Space::site)
        .when(generation_changed().or(labels_changed()))
        .owns(Source::of::<Child>().scope(scope()))
        .finalizer(
            FINALIZER,
            move |site| needs.needs_finalizer(site),
            move |cx, site| cleans.clean_up(cx, site),
        )
        .workers(workers.parse().expect("a number"))
        .own_writes_timeout(OWN_WRITES_TIMEOUT)
        .by(move |cx, site| reconciles.reconcile(cx, site))
        .expect("a controller");
    let stop = Stopper::new();
    let stops = stop.clone();
    thread::spawn(move || {
        for _ in std::io::stdin().lock().lines().map_while(Result::ok) {}
        stops.stop();
    });
    let result = controller.run(&stop);
    factory.shut_down(None).expect("no callback calls this");
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::error!("the controller failed: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The controller's own logic.
struct Sites {
    cloud: Cloud,
    /// Whether the writes of this mutant are not recorded.
    forgets_writes: bool,
    /// The UIDs that this mutant has seen, if it adds the finalizer after the effect.
    affected: Option<Mutex<HashSet<String>>>,
}

impl Sites {
    fn needs_finalizer(&self, site: &Site) -> bool {
        let affected = self.affected.as_ref();
        affected.is_none_or(|affected| {
            let affected = affected.lock().unwrap_or_else(PoisonError::into_inner);
            affected.contains(site.uid())
        })
    }

    fn children(&self, cx: &Context) -> Api<Child> {
        match self.forgets_writes {
            true => cx.client().api(Some(cx.namespace())),
            false => cx.api(Some(cx.namespace())),
        }
    }

    /// Makes one step at a time, so that the events of its own writes cause the next call.
    fn reconcile(&self, cx: &Context, site: &Site) -> Result<Next, Failure> {
        self.cloud.effect(site.uid(), cx.key())?;
        if let Some(affected) = &self.affected {
            let mut affected = affected.lock().unwrap_or_else(PoisonError::into_inner);
            if affected.insert(site.uid().to_owned()) {
                return Ok(Next::After(Duration::from_millis(50)));
            }
        }
        let api = self.children(cx);
        let children = cx.children::<Child>()?;
        let wanted = site.spec.children;
        let mut names: Vec<_> = children
            .iter()
            .map(|child| child.name().to_owned())
            .collect();
        if names.len() < wanted {
            while names.len() < wanted {
                let child = json!({
                    "metadata": { "generateName": format!("{}-", cx.name()) },
                    "data": { "colour": site.spec.colour, "seen": names.join(",") },
                });
                let child = api.create(&cx.owned(child)?, cx.stop())?;
                names.push(child.name().to_owned());
            }
            return Ok(Next::Done);
        }
        if children.len() > wanted {
            return self.delete(cx, &children[wanted..]);
        }
        let mut is_changed = false;
        for child in &children {
            if child.data.colour != site.spec.colour {
                let colour = json!({ "data": { "colour": site.spec.colour } });
                api.patch(child.name(), &Patch::merge(colour), cx.stop())?;
                is_changed = true;
            }
        }
        let space = Space::wanted(cx.name(), site.uid(), &site.spec.colour);
        self.change_spaces(cx, site, space.as_deref())?;
        let status = Status {
            names,
            colour: site.spec.colour.clone(),
            team: site.label(TEAM).unwrap_or_default().to_owned(),
        };
        if !is_changed && site.status != status {
            let status = json!({ "metadata": { "uid": site.uid() }, "status": status });
            let sites = cx.api::<Site>(Some(cx.namespace()));
            sites
                .status()
                .patch(cx.name(), &Patch::merge(status), cx.stop())?;
        }
        Ok(Next::Done)
    }

    /// Deletes the children, then the effect. No garbage collector runs.
    fn clean_up(&self, cx: &Context, site: &Site) -> Result<Next, Failure> {
        let children = cx.children::<Child>()?;
        if !children.is_empty() {
            self.delete(cx, &children)?;
            return Ok(Next::After(Duration::from_secs(5)));
        }
        self.change_spaces(cx, site, None)?;
        self.cloud.cleanup(site.uid(), cx.key())?;
        Ok(Next::Done)
    }

    /// Creates the wanted Namespace, and deletes the others of the site.
    fn change_spaces(
        &self,
        cx: &Context,
        site: &Site,
        wanted: Option<&str>,
    ) -> Result<(), Failure> {
        let api = cx.api::<Space>(None);
        let spaces = cx.lister::<Space>();
        if let Some(name) = wanted.filter(|name| spaces.get_by_key(name).is_none()) {
            let labels = json!({ SITE: Space::label_of(cx.key()) });
            let space = json!({ "metadata": { "name": name, "labels": labels } });
            match api.create(&space, cx.stop()) {
                // The cache rejects it.
                Err(error) if error.is_already_exists() => {}
                created => drop(created?),
            }
        }
        for space in spaces.list() {
            let is_other = wanted != Some(space.name()) && !space.is_being_deleted();
            if is_other && space.name().starts_with(site.uid()) {
                api.delete(
                    space.name(),
                    &DeleteOptions::same_object(&*space),
                    cx.stop(),
                )?;
            }
        }
        Ok(())
    }

    fn delete(&self, cx: &Context, children: &[Arc<Child>]) -> Result<Next, Failure> {
        let api = self.children(cx);
        for child in children {
            let options = DeleteOptions::same_object(&**child);
            match api.delete(child.name(), &options, cx.stop()) {
                Ok(()) => {}
                // Another writer was faster. The event follows.
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Next::Done)
    }
}
