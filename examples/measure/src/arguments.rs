//! The command line.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use k8s_informer::Config;
use k8s_informer::client::KubeconfigOptions;

use super::run::{Listing, Settings};
use super::types::TYPES;

const USAGE: &str = "\
usage: measure [RESOURCE] [--type TYPE] [options]

RESOURCE is a name as in kubectl: pods (default), deploy, certificates.cert-manager.io

Type of the objects
    --type k8s-openapi        the whole object, as a struct of k8s-openapi (default)
    --type custom             a custom struct with the metadata, nodeName and phase of Pods
    --type dynamic            the whole object as JSON text; any resource
    --type metadata           only the metadata, and the server sends nothing else; any resource

Server; default: the current context of kubectl, or the cluster of the Pod that this runs in
    --server URL              this server, without credentials
    --kubeconfig PATH         another kubeconfig file
    --context NAME            another context

Selection of objects
    --namespace NAME          only this namespace; repeat it for several
    --selector LABELS         only objects with these labels: app=web,tier!=cache
    --field-selector FIELDS   only objects with these fields: spec.nodeName=worker-1
    --keep-managed-fields     also decode managedFields

Initial objects
    --watch-list              by a watch, if the server supports it (default)
    --list                    by LIST, in pages of 500
    --page-size N             by LIST, in pages of N

Events after the sync; default: until Ctrl-C
    --events N                stop after N events
    --seconds S               stop after S seconds
    --handlers N              the number of handlers; default: 1
    --one-thread              use one thread, which also calls the handlers
    --latency                 measure the latency of events; the objects need the annotation
                              example.com/sent-at with their send time, in nanoseconds since 1970
    --json                    print only 'synced' after the sync, and the line of JSON at the end
";

pub(crate) struct Arguments {
    pub(crate) config: Config,
    pub(crate) resource: String,
    pub(crate) r#type: String,
    pub(crate) settings: Settings,
    pub(crate) json: bool,
}

impl Arguments {
    /// Returns `None` after printing the help.
    pub(crate) fn parse(mut arguments: lexopt::Parser) -> Result<Option<Self>, Box<dyn Error>> {
        use lexopt::prelude::*;

        let (mut server, mut kubeconfig, mut context) = (None, None::<PathBuf>, None::<String>);
        let (mut resource, mut r#type, mut json) = (None, TYPES[0].to_owned(), false);
        let mut settings = Settings {
            latency: false,
            ..Settings::default()
        };
        while let Some(argument) = arguments.next()? {
            let scope = settings.scope.clone();
            match argument {
                Long("server") => server = Some(arguments.value()?.string()?),
                Long("kubeconfig") => kubeconfig = Some(arguments.value()?.into()),
                Long("context") => context = Some(arguments.value()?.string()?),
                Long("type") => r#type = arguments.value()?.string()?,
                Long("namespace") | Short('n') => {
                    settings.scope = scope.namespace(arguments.value()?.string()?);
                }
                Long("selector") | Short('l') => {
                    settings.scope = scope.label_selector(arguments.value()?.parse()?);
                }
                Long("field-selector") => {
                    settings.scope = scope.field_selector(arguments.value()?.string()?);
                }
                Long("keep-managed-fields") => settings.keep_managed_fields = true,
                Long("watch-list") => settings.listing = Listing::WatchList,
                Long("list") => settings.listing = Listing::List(None),
                Long("page-size") => {
                    settings.listing = Listing::List(Some(arguments.value()?.parse()?));
                }
                Long("events") => settings.events = Some(arguments.value()?.parse()?),
                Long("seconds") => {
                    let seconds = Duration::try_from_secs_f64(arguments.value()?.parse()?);
                    settings.time = Some(seconds.map_err(|error| format!("--seconds: {error}"))?);
                }
                Long("one-thread") => settings.one_thread = true,
                Long("handlers") => settings.handlers = arguments.value()?.parse()?,
                Long("latency") => settings.latency = true,
                Long("json") => json = true,
                Long("help") | Short('h') => {
                    print!("{USAGE}");
                    return Ok(None);
                }
                Value(name) if resource.is_none() => resource = Some(name.string()?),
                other => return Err(format!("{}\n{USAGE}", other.unexpected()).into()),
            }
        }
        if !TYPES.contains(&r#type.as_str()) {
            return Err(
                format!("unknown type {type}; expected one of {}", TYPES.join(", ")).into(),
            );
        }
        if settings.handlers == 0 {
            return Err("--handlers must be at least 1".into());
        }
        let config = match (server, kubeconfig, context) {
            (None, None, None) => Config::try_default()?,
            (Some(server), None, None) => Config::new(server),
            (Some(_), ..) => {
                return Err("--server cannot be combined with --kubeconfig or --context".into());
            }
            (None, path, context) => {
                let mut options = KubeconfigOptions::new();
                if let Some(path) = path {
                    options = options.path(path);
                }
                if let Some(context) = context {
                    options = options.context(context);
                }
                options.load()?
            }
        };
        let resource = resource.unwrap_or_else(|| "pods".to_owned());
        Ok(Some(Self {
            config,
            resource,
            r#type,
            settings,
            json,
        }))
    }
}
