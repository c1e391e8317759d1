//! Credentials from a credential plugin. The client-go counterpart is
//! `plugin/pkg/client/auth/exec`.

mod exec_credential;
mod exec_info;
mod process;
#[cfg(test)]
#[cfg(unix)]
mod tests;

use std::io::{self, IsTerminal};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

pub use self::exec_credential::exec_credential;
pub(in crate::client) use self::exec_credential::{Credential, Identity};
pub(in crate::client) use self::exec_info::ClusterInfo;

use crate::base::panic;
use crate::base::sync::Mutex;
use crate::client::config::{ExecConfig, InteractiveMode};
use crate::client::credential_data::{config_error, credentials_error};
use crate::error::Error;
use crate::metrics::{ClientMetrics, Meter};
use crate::stop::guard::StopOnDrop;
use crate::stop::{DoneSetter, Stop, Stopper};

/// A credential plugin and its last credential. The client-go counterpart is `Authenticator`.
///
/// A run belongs to the plugin, not to the request that needs it: the end of a request ends only
/// its wait, and a later request finds the credential. Otherwise, requests that end before the
/// plugin does would start and kill it forever.
pub(in crate::client) struct Plugin {
    shared: Arc<Shared>,
    /// Ends the run when the plugin is dropped.
    run_stop: StopOnDrop,
}

/// What the thread of a run needs. It does not keep the plugin alive.
struct Shared {
    config: ExecConfig,
    cluster: ClusterInfo,
    host: Host,
    meter: Meter<dyn ClientMetrics>,
    /// Locked briefly and never while the plugin runs. Innermost lock, held while the thread of a
    /// run is started.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    last: Option<Arc<Credential>>,
    /// The time at which the current certificate was received.
    certificate_since: Option<Instant>,
    /// Whether the server rejected the last credential.
    rejected: bool,
    /// The current run.
    run: Option<Arc<Run>>,
}

struct Run {
    /// Set once, before `ended`.
    outcome: OnceLock<Result<Arc<Credential>, Error>>,
    ended: DoneSetter,
}

/// The parts of the system that tests replace.
struct Host {
    now: Box<dyn Fn() -> SystemTime + Send + Sync>,
    is_terminal: fn() -> bool,
}

/// The name of the plugin in messages.
fn display_name(config: &ExecConfig) -> String {
    format!("exec plugin {:?}", config.command)
}

/// The time limit of a run. An interactive run has no default limit, because the user may take any
/// time to respond.
fn limit(config: &ExecConfig, interactive: bool) -> Option<Duration> {
    config
        .time_limit
        .unwrap_or((!interactive).then_some(ExecConfig::DEFAULT_TIME_LIMIT))
}

impl Plugin {
    /// Creates a plugin without running it. It reports runs and certificates to these metrics.
    ///
    /// # Errors
    ///
    /// Returns an error if the configuration has no command, an unsupported version, or a variable
    /// without a name.
    pub(in crate::client) fn new(
        config: &ExecConfig,
        cluster: ClusterInfo,
        metrics: Option<Arc<dyn ClientMetrics>>,
    ) -> Result<Self, Error> {
        let host = Host {
            now: Box::new(SystemTime::now),
            is_terminal: || io::stdin().is_terminal(),
        };
        Self::with_host(host, config, cluster, metrics)
    }

    fn with_host(
        host: Host,
        config: &ExecConfig,
        cluster: ClusterInfo,
        metrics: Option<Arc<dyn ClientMetrics>>,
    ) -> Result<Self, Error> {
        if config.command.as_os_str().is_empty() {
            return Err(config_error("an exec plugin has no command"));
        }
        let name = display_name(config);
        if !exec_credential::API_VERSIONS.contains(&config.api_version.as_str()) {
            let advice = match config.api_version.ends_with("/v1alpha1") {
                true => {
                    " (Kubernetes has removed v1alpha1: regenerate the kubeconfig with the tool that wrote it)"
                }
                false => "",
            };
            return Err(config_error(format!(
                "{name}: the apiVersion {:?} is not supported; use {}{advice}",
                config.api_version,
                exec_credential::API_VERSIONS.join(" or ")
            )));
        }
        if config.env.iter().any(|(variable, _)| variable.is_empty()) {
            return Err(config_error(format!(
                "{name}: an environment variable has no name"
            )));
        }
        let shared = Shared {
            config: config.clone(),
            cluster,
            host,
            meter: Meter::new(metrics),
            state: Mutex::default(),
        };
        Ok(Self {
            shared: Arc::new(shared),
            run_stop: StopOnDrop(Stopper::new()),
        })
    }

    /// The name of the plugin in messages.
    pub(in crate::client) fn display_name(&self) -> String {
        display_name(&self.shared.config)
    }

    /// Returns the last credential, or runs the plugin if there is none, or if it has expired or
    /// was rejected.
    ///
    /// A credential that has already expired when the run ends is still returned to the callers
    /// that waited for this run.
    ///
    /// Blocks while the plugin runs, whether this call or another one started the run, until the
    /// stop. All callers that wait for a run get its outcome, including a failure.
    ///
    /// # Errors
    ///
    /// Returns an error if the call is stopped, if the plugin is missing or fails, or if its output
    /// can't be used.
    pub(in crate::client) fn credential(&self, stop: &Stop) -> Result<Arc<Credential>, Error> {
        let shared = &self.shared;
        let run = {
            let mut state = shared.state.lock();
            if let Some(last) = &state.last
                && !state.rejected
                && !shared.has_expired(last)
            {
                return Ok(last.clone());
            }
            if stop.is_stopped() {
                return Err(Error::stopped());
            }
            match &state.run {
                Some(run) => run.clone(),
                None => state.run.insert(self.start()?).clone(),
            }
        };
        let _ = run.ended.wait_until_either(None, stop);
        let outcome = run.outcome.get().cloned();
        outcome.unwrap_or_else(|| Err(Error::stopped()))
    }

    /// Starts a run on its own thread. The caller holds the lock of the state, in which it registers
    /// the run, so the run ends later.
    fn start(&self) -> Result<Arc<Run>, Error> {
        let run = Arc::new(Run {
            outcome: OnceLock::new(),
            ended: DoneSetter::new("exec plugin"),
        });
        let thread = thread::Builder::new().name("k8s-informer exec".to_owned());
        let (shared, stop) = (Arc::clone(&self.shared), self.run_stop.0.clone());
        let spawned = thread.spawn({
            let run = Arc::clone(&run);
            move || shared.run(&run, &stop)
        });
        let name = self.display_name();
        spawned.map_err(|error| credentials_error(format!("{name} can't be run: {error}")))?;
        Ok(run)
    }

    /// Marks the credential as rejected after a 401, so that the next request runs the plugin
    /// again. Does nothing if the plugin has returned another credential since.
    pub(in crate::client) fn reject(&self, used: &Arc<Credential>) {
        let mut state = self.shared.state.lock();
        if state
            .last
            .as_ref()
            .is_some_and(|last| Arc::ptr_eq(last, used))
        {
            state.rejected = true;
        }
    }
}

impl Shared {
    fn has_expired(&self, credential: &Credential) -> bool {
        credential
            .expires
            .is_some_and(|expires| (self.host.now)() > expires)
    }

    /// Carries out the run that is registered in the state.
    fn run(&self, run: &Run, stop: &Stop) {
        // Metrics and loggers are user code, and callers wait for the outcome.
        let outcome = panic::catch(|| self.execute(stop).map(|credential| self.cache(credential)));
        let outcome = outcome.unwrap_or_else(|panic| {
            let name = display_name(&self.config);
            Err(credentials_error(format!("{name}: the run {panic}")))
        });
        self.state.lock().run = None;
        let _ = run.outcome.set(outcome);
        run.ended.set();
    }

    fn execute(&self, stop: &Stop) -> Result<Credential, Error> {
        let config = &self.config;
        let name = display_name(config);
        let interactive = match config.interactive_mode {
            InteractiveMode::Never => false,
            InteractiveMode::IfAvailable => (self.host.is_terminal)(),
            InteractiveMode::Always if (self.host.is_terminal)() => true,
            InteractiveMode::Always => {
                return Err(credentials_error(format!(
                    "{name} requires an interactive terminal (interactiveMode: Always), but standard input is not a terminal"
                )));
            }
        };
        let cluster = config
            .provide_cluster_info
            .then_some((&self.cluster, config.cluster_config.as_ref()));
        let info = exec_info::encode(&config.api_version, interactive, cluster).map_err(|_| {
            config_error(format!(
                "{name}: the cluster information can't be serialized as JSON"
            ))
        })?;
        let output = process::run(
            config,
            &info,
            interactive,
            limit(config, interactive),
            stop,
            |(code, status)| {
                self.meter
                    .event(|metrics| metrics.exec_plugin_call(code, status));
            },
        )?;
        exec_credential::parse(&output, &config.api_version)
            .map_err(|problem| credentials_error(format!("{name} {problem}")))
    }

    fn cache(&self, credential: Credential) -> Arc<Credential> {
        let credential = Arc::new(credential);
        let now = Instant::now();
        let mut age = None;
        let mut state = self.state.lock();
        let before = state
            .last
            .as_ref()
            .and_then(|last| last.certificate.as_ref());
        if credential.certificate.is_some() && credential.certificate.as_ref() != before {
            let is_other = before.is_some();
            let since = state.certificate_since.replace(now).filter(|_| is_other);
            age = since.map(|since| now.saturating_duration_since(since));
        }
        state.last = Some(credential.clone());
        state.rejected = false;
        drop(state);
        if let Some(age) = age {
            self.meter
                .event(|metrics| metrics.certificate_rotation_age(age));
        }
        if credential.certificate.is_some() {
            self.meter
                .event(|metrics| metrics.certificate_expiry(credential.expires));
        }
        credential
    }
}
