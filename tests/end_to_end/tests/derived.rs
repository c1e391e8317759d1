//! Custom resources with kube's derive macro. The guide page "Custom resources" shows this code.

use std::sync::Arc;
use std::thread;

use k8s_informer::client::api::Patch;
use k8s_informer::client::crds::InstallOptions;
use k8s_informer::informer::Source;
use k8s_informer::object::{FullMetadata, Referable, Scope};
use k8s_informer::{Client, Error, Object, Resource, Stop, Stopper, impl_object};
use k8s_informer_controller::{Context, Failure, Manager, Next};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{CustomResource, CustomResourceExt};
use parking_lot::{Mutex, MutexGuard};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::cluster::{Cluster, on_every_cluster};
use crate::support::{PATIENCE, names, shut_down, synced};
use crate::verbs::ONCE;

// guide: begin
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "web.example.com",
    version = "v1",
    kind = "Website",
    namespaced,
    status = "WebsiteStatus",
    shortname = "web",
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".spec.replicas"),
    validation = Rule::new("self.spec.replicas < 10").message("too many replicas")
)]
struct WebsiteSpec {
    title: String,
    #[schemars(range(min = 1, max = 20))]
    replicas: u32,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
struct WebsiteStatus {
    ready: bool,
}

impl_object!(Website as kube::Resource);

fn reconcile(cx: &Context, site: &Arc<Website>) -> Result<Next, Failure> {
    let map = json!({"metadata": {"name": cx.name()}, "data": {"title": site.spec.title}});
    cx.apply::<ConfigMap>(map)?;
    let status = Patch::merge(json!({"status": WebsiteStatus { ready: true }}));
    let sites = cx.api::<Website>(Some(cx.namespace()));
    sites.status().patch(cx.name(), &status, cx.stop())?;
    Ok(Next::Done)
}

fn run(client: Client, stop: &Stop) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    client.install_crds([Website::crd()], &InstallOptions::new("website"), stop)?;
    let manager = Manager::builder(client).build()?;
    let sites = manager.reconcile::<Website>("website");
    sites.owns(Source::of::<ConfigMap>()).by(reconcile)?;
    manager.run(stop)?;
    Ok(())
}
// guide: end

/// The definition, which is deleted on drop.
struct Installed<'a> {
    cluster: &'a Cluster,
    /// Tests on the same cluster must not delete the definition of each other.
    _alone: MutexGuard<'static, ()>,
}

impl<'a> Installed<'a> {
    fn new(cluster: &'a Cluster) -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let _alone = ALONE.lock();
        let (client, stop) = (cluster.client(), Stopper::new());
        let options = InstallOptions::new("website").timeout(PATIENCE);
        client
            .install_crds([Website::crd()], &options, &stop)
            .unwrap();
        Self { cluster, _alone }
    }
}

impl Drop for Installed<'_> {
    fn drop(&mut self) {
        let (stop, name) = (Stopper::new(), Website::crd_name());
        let definitions = self.cluster.client().api::<CustomResourceDefinition>(None);
        let _ = definitions.delete(name, &Default::default(), &stop);
        let _ = definitions.wait_for_deletion(name, None, PATIENCE, &stop);
    }
}

#[test]
fn derived_type_is_discovered_cached_and_reconciled() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("derived");
        let _installed = Installed::new(cluster);
        let (client, stop) = (cluster.client(), Stopper::new());
        let found = client.discover("web", &stop).unwrap();
        assert_eq!(found.resource, Website::group_version_resource());
        assert_eq!(found.kind, Website::group_version_kind());
        assert_eq!(
            (found.scope, Website::scope()),
            (Scope::Namespaced, Scope::Namespaced)
        );

        let sites = client.api::<Website>(Some(&namespace.name));
        let spec = WebsiteSpec {
            title: "Shop".to_owned(),
            replicas: 2,
        };
        let mut site = Website::new("shop", spec);
        site.metadata.labels = Some([("app".to_owned(), "web".to_owned())].into());
        let created = sites.create(&site, &stop).unwrap();
        assert_eq!(
            (created.namespace(), created.generation()),
            (&*namespace.name, 1)
        );

        thread::scope(|threads| {
            let running = threads.spawn(|| run(client.clone(), &stop));
            let is_ready = |site: &Website| site.status.as_ref().is_some_and(|status| status.ready);
            let ready = sites.wait_for("shop", |site| site.is_some_and(is_ready), PATIENCE, &stop);
            stop.stop();
            running.join().unwrap().unwrap();
            ready.unwrap();
        });

        let stop = Stopper::new();
        let map = client
            .api::<ConfigMap>(Some(&namespace.name))
            .get("shop", &stop)
            .unwrap();
        assert_eq!(map.data.as_ref().unwrap()["title"], "Shop");
        let owners = &map.full_metadata().unwrap().owner_references;
        assert_eq!(
            (&*owners[0].uid, &*owners[0].kind),
            (created.uid(), "Website")
        );

        let factory = cluster.factory_with(|options| options.namespace(&namespace.name));
        let cached = factory.informer::<Website>();
        synced(&factory, &cached);
        assert_eq!(names(&cached), ["shop"]);
        let site = &cached.lister().select(&"app=web".parse().unwrap())[0];
        assert_eq!((site.spec.replicas, site.is_being_deleted()), (2, false));
        assert_eq!(site.reference().api_version, "web.example.com/v1");
        shut_down(&factory, "of a derived type");
    });
}

/// kube's other derive macro calls `plural` of the inherited type, which is ambiguous where the trait
/// `k8s_informer::Resource` is imported.
mod settings {
    use std::collections::BTreeMap;

    use k8s_informer::impl_object;
    use k8s_openapi::api::core::v1::ConfigMap;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use serde::Deserialize;

    #[derive(kube::Resource, Deserialize)]
    #[resource(inherit = ConfigMap)]
    pub(super) struct Settings {
        metadata: ObjectMeta,
        pub(super) data: BTreeMap<String, String>,
    }

    impl_object!(Settings as kube::Resource);
}

#[test]
fn inherited_type_reads_the_objects_of_its_kind() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("inherit");
        let (client, stop) = (cluster.client(), Stopper::new());
        let maps = client.api::<ConfigMap>(Some(&namespace.name));
        let map = json!({"metadata": {"name": "a"}, "data": {"mode": "fast"}});
        let created = maps.create(&map, &stop).unwrap();
        namespace.wait_until_listed("a");
        let factory = cluster.factory_with(|options| options.namespace(&namespace.name));
        let settings = factory.informer::<settings::Settings>();
        factory.start(&stop).unwrap();
        factory.wait_for_cache_sync(None, &stop).unwrap();
        let a = settings.lister().get(&namespace.name, "a").unwrap();
        assert_eq!((a.uid(), &*a.data["mode"]), (created.uid(), "fast"));
        assert_eq!(a.reference(), created.reference());
        assert_eq!(settings::Settings::scope(), Scope::Namespaced);
        shut_down(&factory, "of an inherited type");
    });
}

#[test]
fn real_server_checks_schema_and_cel_rule_of_a_derived_type() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("rules");
        let _installed = Installed::new(cluster);
        let (client, stop) = (cluster.client(), Stopper::new());
        let sites = client.api::<Website>(Some(&namespace.name));
        let create = |name: &str, replicas| {
            let title = "Shop".to_owned();
            sites.create(&Website::new(name, WebsiteSpec { title, replicas }), &stop)
        };
        create("valid", 9).unwrap();
        for (name, replicas, message) in [
            ("rule", 10, "too many replicas"),
            ("minimum", 0, "spec.replicas"),
        ] {
            // The embedded server checks neither.
            match create(name, replicas) {
                Ok(_) => assert!(cluster.embedded_server().is_some(), "{name}"),
                Err(error) => {
                    assert!(error.is_invalid(), "{name}: {error}");
                    assert!(error.to_string().contains(message), "{name}: {error}");
                }
            }
        }
    });
}

#[test]
fn refused_rule_of_a_derived_type_is_reported() {
    on_every_cluster(ONCE, |cluster| {
        let (client, stop) = (cluster.client(), Stopper::new());
        let mut definition = Website::crd();
        definition.metadata.name = Some("websites.refused.example.com".to_owned());
        definition.spec.group = "refused.example.com".to_owned();
        let schema = definition.spec.versions[0].schema.as_mut().unwrap();
        let schema = schema.open_api_v3_schema.as_mut().unwrap();
        schema.x_kubernetes_validations.as_mut().unwrap()[0].rule = "self.spec.size > 1".to_owned();
        let options = InstallOptions::new("website").timeout(PATIENCE);
        let result = client.install_crds([definition], &options, &stop);
        if cluster.embedded_server().is_some() {
            return result.unwrap(); // It checks no rules.
        }
        let error = result.unwrap_err();
        assert!(error.is_refused(), "{error:?}");
        assert!(
            error.last_error().is_some_and(Error::is_invalid),
            "{error:?}"
        );
        let text = error.to_string();
        for part in [
            "installing websites.refused.example.com",
            "x-kubernetes-validations[0].rule",
            "undefined field 'size'",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    });
}

/// The lines between the markers in this file are in the guide.
#[test]
fn guide_page_shows_the_code_of_these_tests() {
    let page = include_str!("../../../docs/guide/custom_resources.md");
    let code = include_str!("derived.rs");
    let marker = format!("// {}: ", "guide");
    let shown = code.split(&marker).skip(1).step_by(2);
    let mut count = 0;
    for part in shown {
        let (_, part) = part.split_once('\n').unwrap();
        for line in part.lines().map(str::trim).filter(|line| !line.is_empty()) {
            assert!(page.lines().any(|shown| shown.trim() == line), "{line}");
            count += 1;
        }
    }
    assert!(count > 20, "{count}");
}
