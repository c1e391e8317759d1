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

RESOURCE is what kubectl calls it: pods (unless given), deploy, certificates.cert-manager.io
    --type k8s-openapi        the whole object, decoded (unless given)
    --type own                a struct with metadata, nodeName and phase of Pods
    --type dynamic            the whole object of any resource, as JSON text
    --type metadata           metadata alone, of any resource: the server sends no more
which server, unless it is that of kubectl's current context, or of the Pod that this runs in
    --server URL              this one, without credentials
    --kubeconfig PATH         that of another file
    --context NAME            that of another context
which objects
    --namespace NAME          only of this one (again for several)
    --selector LABELS         only with these labels: app=web,tier!=cache
    --field-selector FIELDS   only with these fields: spec.nodeName=worker-1
    --keep-managed-fields     decode managedFields, too
how they come
    --watch-list              by a watch, where the server can (unless given)
    --list                    by LIST, in pages of 500
    --page-size N             by LIST, in pages of this many
for how long it is watched, unless until Ctrl-C
    --events N                until so many events have come
    --seconds S               for so long
    --handlers N              so many handlers are told; 1 unless given
    --inline                  call one handler on the thread that keeps the cache
    --latency                 how long events take, of objects whose annotation example.com/sent-at says when
                              they were sent: nanoseconds since 1970
    --json                    print 'synced' once it has, and then nothing but the line of JSON
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
                Long("inline") => settings.inline = true,
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
            return Err(format!("there is no type {type}, only {}", TYPES.join(", ")).into());
        }
        if settings.inline && settings.handlers > 1 {
            return Err("--inline: there is one handler only".into());
        }
        if settings.handlers == 0 {
            return Err("--handlers: without any nothing can be counted".into());
        }
        let config = match (server, kubeconfig, context) {
            (None, None, None) => Config::try_default()?,
            (Some(server), None, None) => Config::new(server),
            (Some(_), ..) => return Err("--server needs neither --kubeconfig nor --context".into()),
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
