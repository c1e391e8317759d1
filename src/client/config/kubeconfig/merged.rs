use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::entry::{Entry, absolute, folder_of};
use super::overrides::Overrides;
use super::parse::{parse, read};
use super::schema::{Cluster, Context, File, User, non_empty};
use crate::base::derive::debug_fields;
use crate::base::text::Reason;
use crate::base::text::listed;
use crate::client::config::Config;
use crate::client::credential_data::config_error;
use crate::error::Error;
use crate::log;

/// The merged content of one or more kubeconfigs. The client-go counterpart is
/// `clientcmdapi.Config`.
///
/// If several files define a context, a cluster or a user with the same name, the first definition
/// is used. Of several `current-context`s, the first one is used.
///
/// ```
/// use k8s_informer::client::Kubeconfig;
///
/// let text = "
/// current-context: dev
/// contexts:
/// - {name: dev, context: {cluster: near, user: me}}
/// - {name: prod, context: {cluster: far, user: me}}
/// ";
/// let kubeconfig = Kubeconfig::parse(text, "")?;
/// assert_eq!(kubeconfig.current_context(), Some("dev"));
/// assert_eq!(kubeconfig.contexts().collect::<Vec<_>>(), ["dev", "prod"]);
/// # Ok::<(), k8s_informer::Error>(())
/// ```
#[derive(Default)]
pub struct Kubeconfig {
    /// The files that exist.
    pub(in crate::client::config) files: Vec<PathBuf>,
    current_context: Option<String>,
    clusters: Vec<Entry<Cluster>>,
    users: Vec<Entry<User>>,
    contexts: Vec<Entry<Context>>,
}

/// The reason why a kubeconfig does not yield a configuration.
pub(in crate::client::config) enum Unresolved {
    /// Neither the kubeconfig nor the overrides choose a cluster. The service account may be
    /// usable.
    Empty(String),
    Invalid(String),
}

impl From<String> for Unresolved {
    fn from(problem: String) -> Self {
        Self::Invalid(problem)
    }
}

impl From<Reason> for Unresolved {
    fn from(problem: Reason) -> Self {
        Self::Invalid(problem.to_string())
    }
}

impl Kubeconfig {
    /// Parses one kubeconfig from memory.
    ///
    /// Relative paths in it are relative to `folder`. An empty `folder` means the working directory
    /// of the process. The client-go counterpart is `clientcmd.Load`.
    ///
    /// # Errors
    ///
    /// Returns an error if the text is not a kubeconfig. The message contains the position in the
    /// text and what was expected there, but never the text itself.
    pub fn parse(text: impl AsRef<[u8]>, folder: impl AsRef<Path>) -> Result<Self, Error> {
        let mut kubeconfig = Self::default();
        parse(text.as_ref())
            .and_then(|file| kubeconfig.add(&absolute(folder.as_ref()), file))
            .map_err(|problem| config_error(format!("kubeconfig: {problem}")))?;
        Ok(kubeconfig)
    }

    /// Reads and merges the files. Missing files are skipped.
    pub(in crate::client::config) fn load(files: &[PathBuf]) -> Result<Self, Error> {
        let mut merged = Self::default();
        for path in files {
            let wrong = |problem| config_error(format!("{}: {problem}", path.display()));
            let Some(bytes) = read(path).map_err(wrong)? else {
                log::debug!("kubeconfig {}: there is no such file", path.display());
                continue;
            };
            let file = parse(&bytes).map_err(wrong)?;
            merged.add(&folder_of(path), file).map_err(wrong)?;
            merged.files.push(path.clone());
        }
        Ok(merged)
    }

    /// The context that is used by default.
    pub fn current_context(&self) -> Option<&str> {
        self.current_context.as_deref()
    }

    /// The names of all contexts, in the order of the files.
    pub fn contexts(&self) -> impl Iterator<Item = &str> {
        self.contexts.iter().map(|context| context.name.as_str())
    }

    fn add(&mut self, folder: &Path, file: File) -> Result<(), Reason> {
        if !["", "Config"].contains(&&*file.kind) {
            return Err("not a kubeconfig: the kind is not Config".into());
        }
        if !["", "v1"].contains(&&*file.api_version) {
            return Err("not a kubeconfig: the apiVersion is not v1".into());
        }
        if self.current_context.is_none() {
            self.current_context = non_empty(&file.current_context).map(str::to_owned);
        }
        let clusters = file.clusters.into_iter().map(|it| (it.name, it.cluster));
        let users = file.users.into_iter().map(|it| (it.name, it.user));
        let contexts = file.contexts.into_iter().map(|it| (it.name, it.context));
        merge("cluster", &mut self.clusters, clusters, folder)?;
        merge("user", &mut self.users, users, folder)?;
        merge("context", &mut self.contexts, contexts, folder)
    }

    /// Resolves the chosen context. The boolean is true if the overrides or the context set a
    /// namespace. The client-go counterpart is `DirectClientConfig.ClientConfig`.
    pub(in crate::client::config) fn resolve(
        &self,
        overrides: &Overrides,
    ) -> Result<(Config, bool), Unresolved> {
        // Destructured so that a new field can't be forgotten.
        let Overrides {
            context,
            cluster,
            user,
            namespace,
            server,
        } = overrides;
        let server = server.as_deref().filter(|url| !url.is_empty());
        let name = non_empty(context).or(self.current_context());
        // As in clientcmd: if no context, cluster or user is chosen, the entry with an empty name is
        // used.
        let context = match name {
            Some(name) => Some(find("context", name, &self.contexts)?),
            None => nameless(&self.contexts),
        };
        let nothing = Context::default();
        let context = context.map_or(&nothing, |entry| &entry.value);
        let chosen = non_empty(cluster).or(non_empty(&context.cluster));
        let cluster = match chosen {
            Some(chosen) => match find("cluster", chosen, &self.clusters) {
                Err(_) if server.is_some() && cluster.is_empty() => None,
                found => Some(found?),
            },
            None => nameless(&self.clusters),
        };
        if let (None, None, Some(name)) = (cluster, server, name) {
            return Err(Unresolved::Invalid(format!(
                "the context {name:?} has no cluster"
            )));
        }
        // Resolve the user before the missing cluster is reported as `Empty`: a chosen user that
        // does not exist is an error, and must not lead to the service account.
        // Without a user, requests are anonymous.
        let user = match non_empty(user).or(non_empty(&context.user)) {
            Some(user) => Some(find("user", user, &self.users)?),
            None => nameless(&self.users),
        };
        let url = match (server, cluster) {
            (Some(server), _) => server,
            (None, Some(cluster)) => non_empty(&cluster.value.server)
                .ok_or_else(|| format!("the cluster {:?} has no server", cluster.name))?,
            (None, None) => {
                let contexts = list_names("contexts", &self.contexts);
                return Err(Unresolved::Empty(format!(
                    "no current-context is set; {contexts}"
                )));
            }
        };

        let mut plain = Config::new(url);
        if let Some(cluster) = cluster {
            cluster.connection(&mut plain)?;
        }
        let mut config = plain.clone();
        if let Some(cluster) = cluster {
            cluster.trust(&mut config, server.is_some())?;
        }
        if let Some(user) = user {
            user.authenticate(&mut config, cluster.and_then(Entry::exec_config))?;
        }
        if !is_https(url) {
            config = without_tls(config, plain);
        }
        if let Some(user) = user {
            config.impersonation = user.impersonation()?;
            config.user = Some(user.name.clone());
        }
        let namespace = non_empty(namespace).or(non_empty(&context.namespace));
        if let Some(namespace) = namespace {
            config.default_namespace = namespace.to_owned();
        }
        Ok((config, namespace.is_some()))
    }
}

// The rest can contain credentials.
debug_fields!(Kubeconfig, this,
    files: this.files,
    current_context: this.current_context,
    contexts: this.contexts().collect::<Vec<_>>()
);

fn is_https(url: &str) -> bool {
    url.trim()
        .get(..8)
        .is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://"))
}

/// Returns the configuration to use for a server without TLS. As in kubectl, it has no
/// certificates. It has credentials only if the traffic stays on this machine, because otherwise
/// others could read them on the network.
fn without_tls(secure: Config, mut plain: Config) -> Config {
    if plain.server_is_local() {
        plain.token = secure.token;
        plain.token_file = secure.token_file;
        plain.basic = secure.basic;
        plain.id_token = secure.id_token;
        plain.exec = secure.exec;
    } else if secure.has_tls_settings() || secure.has_credentials() {
        log::warn!(
            "the server of the kubeconfig's context does not use https: as in kubectl, its credentials and \
             certificates are ignored"
        );
    }
    plain
}

/// Adds the entries of one file. Entries that an earlier file defined have precedence.
fn merge<T>(
    what: &str,
    entries: &mut Vec<Entry<T>>,
    list: impl Iterator<Item = (String, T)>,
    folder: &Path,
) -> Result<(), Reason> {
    let mut known: HashSet<String> = entries.iter().map(|entry| entry.name.clone()).collect();
    let mut seen = HashSet::new();
    for (name, value) in list {
        if !seen.insert(name.clone()) {
            return Err(format!("the {what} {name:?} is defined twice").into());
        }
        if known.insert(name.clone()) {
            entries.push(Entry {
                name,
                folder: folder.to_owned(),
                value,
            });
        }
    }
    Ok(())
}

fn nameless<T>(entries: &[Entry<T>]) -> Option<&Entry<T>> {
    entries.iter().find(|entry| entry.name.is_empty())
}

fn find<'a, T>(what: &str, name: &str, entries: &'a [Entry<T>]) -> Result<&'a Entry<T>, Reason> {
    entries
        .iter()
        .find(|entry| entry.name == name)
        .ok_or_else(|| {
            format!(
                "there is no {what} {name:?}; {}",
                list_names(&format!("{what}s"), entries)
            )
            .into()
        })
}

fn list_names<T>(what: &str, entries: &[Entry<T>]) -> String {
    const SHOWN: usize = 20;
    if entries.is_empty() {
        return format!("there are no {what}");
    }
    let names = entries.iter().map(|entry| format!("{:?}", entry.name));
    format!("the {what} are {}", listed(names, SHOWN))
}
