//! The connections to the server. They are replaced when certificates change, because certificate
//! files are rotated while a program runs.

use ureq::Agent;
use ureq::http::Uri;
use ureq::http::uri::Scheme;

use super::proxy::Proxy;
use super::tls_config::{Peer, Pems, server_tls};
use super::tls_error::PeerKind;
use crate::base::last_problem::LastProblem;
use crate::base::sync::Mutex;
use crate::client::config::{Config, ProxyChoice};
use crate::client::credential_data::{Pem, PemSource, Secret, config_error, credentials_error};
use crate::error::Error;
use crate::log;

pub(in crate::client) struct Connections {
    /// `None` for a server without TLS.
    tls: Option<TlsSettings>,
    proxy: Option<Proxy>,
    /// The current agent. If it is replaced, requests in progress keep the old agent and its
    /// connections. Innermost lock, not held while files are read, an agent is created, or a
    /// message is logged.
    current: Mutex<Current>,
}

struct TlsSettings {
    peer: Peer,
    insecure: bool,
    ca: Option<PemSource>,
    identity: Option<(PemSource, PemSource)>,
}

struct Current {
    agent: Agent,
    /// The number of times the agent was replaced.
    generation: u64,
    /// The PEM data that the agent was created from.
    pems: Option<Pems>,
    /// The reason why the current files can't be used.
    problem: LastProblem<Error>,
}

impl Connections {
    pub(in crate::client) fn new(config: &Config, server: &Uri) -> Result<Self, Error> {
        let tls = match server.host() {
            Some(host) if server.scheme() == Some(&Scheme::HTTPS) => {
                Some(TlsSettings::new(config, host)?)
            }
            _ if config.client_certificate.is_some() => {
                return Err(config_error("a client certificate needs an https server"));
            }
            _ => None,
        };
        let pems = tls.as_ref().map(|tls| tls.pems(None)).transpose()?;
        let proxy = match &config.proxy {
            ProxyChoice::Url(Secret(url)) => Some(Proxy::parse(url)?),
            ProxyChoice::Environment => {
                Proxy::from_environment(server, |name| std::env::var(name).ok())?
            }
            ProxyChoice::Direct => None,
        };
        let proxy = match (proxy, &tls) {
            // Without TLS to the server, the agent is never replaced, so the proxy gets its TLS
            // settings here. Otherwise it gets them with every new agent, because the authorities
            // may change.
            (Some(proxy), None) => {
                let ca = config.ca.as_ref().map(PemSource::read).transpose()?;
                Some(proxy.secured(config.insecure, ca.as_ref())?)
            }
            (proxy, _) => proxy,
        };
        let agent = agent(tls.as_ref(), pems.as_ref(), proxy.as_ref())?;
        Ok(Self {
            tls,
            proxy,
            current: Mutex::new(Current {
                agent,
                generation: 0,
                pems,
                problem: LastProblem::default(),
            }),
        })
    }

    /// Returns the agent for the next request, and the generation of this agent. If `identity` is
    /// given, the agent uses this client certificate.
    ///
    /// The configured files are read for every call: they are small, and every change is noticed.
    /// If their content can't be used, the previous content is used.
    ///
    /// # Errors
    ///
    /// Returns an error if `identity` can't be used.
    pub(in crate::client) fn agent(
        &self,
        identity: Option<&(Pem, Pem)>,
    ) -> Result<(Agent, u64), Error> {
        let Some(tls) = &self.tls else {
            return match identity {
                None => Ok(self.current.lock().agent()),
                Some((certificate, _)) => Err(credentials_error(format!(
                    "{certificate} needs an https server"
                ))),
            };
        };
        let current_agent = tls.pems(identity).and_then(|pems| self.renewed(tls, pems));
        let error = match current_agent {
            Ok(current_agent) => {
                self.current.lock().problem.ended();
                return Ok(current_agent);
            }
            Err(error) => error,
        };
        let current_agent = match identity {
            None => self.current.lock().agent(),
            // The identity may be valid although the files are not, so it is tried with the
            // previous CA.
            Some(identity) => {
                let ca = self
                    .current
                    .lock()
                    .pems
                    .as_ref()
                    .and_then(|pems| pems.ca.clone());
                self.renewed(
                    tls,
                    Pems {
                        ca,
                        identity: Some(identity.clone()),
                    },
                )?
            }
        };
        let is_new = self.current.lock().problem.occurred(error.clone());
        if is_new {
            log::error!("{error}; using the previous certificates");
        }
        Ok(current_agent)
    }

    /// Returns the current agent if it was created from `pems`. Otherwise replaces it and returns
    /// the new one.
    fn renewed(&self, tls: &TlsSettings, pems: Pems) -> Result<(Agent, u64), Error> {
        {
            let current = self.current.lock();
            if current.pems.as_ref() == Some(&pems) {
                return Ok(current.agent());
            }
        }
        let new = agent(Some(tls), Some(&pems), self.proxy.as_ref())?;
        let mut current = self.current.lock();
        if current.pems.as_ref() == Some(&pems) {
            // Another thread has replaced the agent in the meantime.
            return Ok(current.agent());
        }
        let old = std::mem::replace(&mut current.agent, new);
        current.generation += 1;
        current.pems = Some(pems);
        let current_agent = current.agent();
        drop(current);
        // Closes the idle connections of the old agent, after the lock is released.
        drop(old);
        log::debug!("certificates have changed: new connections use the new ones");
        Ok(current_agent)
    }
}

impl Current {
    fn agent(&self) -> (Agent, u64) {
        (self.agent.clone(), self.generation)
    }
}

impl TlsSettings {
    fn new(config: &Config, host: &str) -> Result<Self, Error> {
        let (what, name) = match &config.tls_server_name {
            Some(setting) => (&*setting.what, &*setting.name),
            None => ("the host of the server's URL", host),
        };
        let peer = Peer::new(PeerKind::Server, what, name, config.insecure)?;
        if config.insecure {
            if let Some(ca) = &config.ca {
                return Err(config_error(format!(
                    "{ca} and insecure-skip-tls-verify can't be used together"
                )));
            }
            log::warn!(
                "the certificate of {} is NOT verified (insecure-skip-tls-verify): anyone on the network path can read and change all data, \
                 including credentials",
                &*config.server
            );
        }
        let identity = match (&config.client_certificate, &config.client_key) {
            (None, None) => None,
            (Some(only), None) | (None, Some(only)) => {
                return Err(config_error(format!(
                    "{only}: a client certificate and its key must be set together"
                )));
            }
            (Some(certificate), Some(key)) => Some((certificate.clone(), key.clone())),
        };
        Ok(Self {
            peer,
            insecure: config.insecure,
            ca: config.ca.clone(),
            identity,
        })
    }

    fn pems(&self, identity: Option<&(Pem, Pem)>) -> Result<Pems, Error> {
        let identity = match (identity, &self.identity) {
            (Some(identity), _) => Some(identity.clone()),
            (None, Some((certificate, key))) => Some((certificate.read()?, key.read()?)),
            (None, None) => None,
        };
        Ok(Pems {
            ca: self.ca.as_ref().map(PemSource::read).transpose()?,
            identity,
        })
    }
}

fn agent(
    tls: Option<&TlsSettings>,
    pems: Option<&Pems>,
    proxy: Option<&Proxy>,
) -> Result<Agent, Error> {
    let (Some(tls), Some(pems)) = (tls, pems) else {
        return Ok(super::agent(None, proxy.cloned()));
    };
    let proxy = proxy
        .map(|proxy| proxy.secured(tls.insecure, pems.ca.as_ref()))
        .transpose()?;
    Ok(super::agent(Some(server_tls(&tls.peer, pems)?), proxy))
}
