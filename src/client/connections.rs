//! The connections to the server, made anew when what they are made of changes: certificates in files are
//! rotated while a program runs.

use ureq::Agent;
use ureq::http::Uri;
use ureq::http::uri::Scheme;

use super::config::{Config, ProxyChoice};
use super::material::{Material, Pem, Secret, config_error, credentials_error};
use super::transport;
use super::transport::proxy::Proxy;
use super::transport::tls::{Peer, Pems, tls};
use crate::error::Error;
use crate::sync::Mutex;

pub(super) struct Connections {
    /// `None` for a server without TLS.
    secure: Option<Secure>,
    proxy: Option<Proxy>,
    /// Requests that are under way keep the agent with which they began, and so their connection. Innermost;
    /// not held while files are read, an agent is made, or anything is logged.
    current: Mutex<Current>,
}

struct Secure {
    peer: Peer,
    insecure: bool,
    ca: Option<Material>,
    identity: Option<(Material, Material)>,
}

struct Current {
    agent: Agent,
    /// How often it was made anew.
    times: u64,
    /// What it was made of.
    pems: Option<Pems>,
    /// Why what is there now can't be used; said once.
    problem: Option<String>,
}

impl Connections {
    pub(super) fn new(config: &Config, server: &Uri) -> Result<Self, Error> {
        let secure = match server.host() {
            Some(host) if server.scheme() == Some(&Scheme::HTTPS) => {
                Some(Secure::new(config, host)?)
            }
            _ if config.client_certificate.is_some() => {
                return Err(config_error("a client certificate needs an https server"));
            }
            _ => None,
        };
        let pems = secure
            .as_ref()
            .map(|secure| secure.pems(None))
            .transpose()?;
        let proxy = match &config.proxy {
            ProxyChoice::Url(Secret(url)) => Some(Proxy::parse(url)?),
            ProxyChoice::Environment => {
                Proxy::from_environment(server, |name| std::env::var(name).ok())?
            }
            ProxyChoice::Direct => None,
        };
        let proxy = match (proxy, &secure) {
            // With TLS to the server its authorities may change, and those for its proxy with them.
            (Some(proxy), None) => {
                let ca = config.ca.as_ref().map(Material::read).transpose()?;
                Some(proxy.secured(config.insecure, ca.as_ref())?)
            }
            (proxy, _) => proxy,
        };
        let agent = agent(secure.as_ref(), pems.as_ref(), proxy.as_ref())?;
        Ok(Self {
            secure,
            proxy,
            current: Mutex::new(Current {
                agent,
                times: 0,
                pems,
                problem: None,
            }),
        })
    }

    /// What to make the next request with, which shows this certificate if it is given one, and how often
    /// that has been made anew. Reads the files
    /// of the configuration each time: they are small, and a change never goes unseen. As long as what they
    /// hold can't be used, what they held before is.
    ///
    /// # Errors
    ///
    /// The certificate that was given can't be used.
    pub(super) fn agent(&self, identity: Option<&(Pem, Pem)>) -> Result<(Agent, u64), Error> {
        let Some(secure) = &self.secure else {
            return match identity {
                None => Ok(self.current.lock().made()),
                Some((certificate, _)) => Err(credentials_error(format!(
                    "{certificate} needs an https server"
                ))),
            };
        };
        let made = secure
            .pems(identity)
            .and_then(|pems| self.renewed(secure, pems));
        let error = match made {
            Ok(made) => {
                self.current.lock().problem = None;
                return Ok(made);
            }
            Err(error) => error,
        };
        let made = match identity {
            None => self.current.lock().made(),
            // It may be fine, and the authority not.
            Some(identity) => {
                let ca = self
                    .current
                    .lock()
                    .pems
                    .as_ref()
                    .and_then(|pems| pems.ca.clone());
                self.renewed(
                    secure,
                    Pems {
                        ca,
                        identity: Some(identity.clone()),
                    },
                )?
            }
        };
        let problem = Some(error.to_string());
        let before = std::mem::replace(&mut self.current.lock().problem, problem.clone());
        if before != problem {
            log::error!("{error}; using what was there before");
        }
        Ok(made)
    }

    /// The agent of these, which becomes the current one if it is not.
    fn renewed(&self, secure: &Secure, pems: Pems) -> Result<(Agent, u64), Error> {
        {
            let current = self.current.lock();
            if current.pems.as_ref() == Some(&pems) {
                return Ok(current.made());
            }
        }
        let new = agent(Some(secure), Some(&pems), self.proxy.as_ref())?;
        let mut current = self.current.lock();
        if current.pems.as_ref() == Some(&pems) {
            // Somebody else was faster.
            return Ok(current.made());
        }
        let old = std::mem::replace(&mut current.agent, new);
        current.times += 1;
        current.pems = Some(pems);
        let made = current.made();
        drop(current);
        // Its idle connections are closed.
        drop(old);
        log::debug!("certificates have changed: new connections are made with the new ones");
        Ok(made)
    }
}

impl Current {
    fn made(&self) -> (Agent, u64) {
        (self.agent.clone(), self.times)
    }
}

impl Secure {
    fn new(config: &Config, host: &str) -> Result<Self, Error> {
        let peer = Peer::new(
            config.tls_server_name.as_deref().unwrap_or(host),
            config.insecure,
        )?;
        if config.insecure {
            if let Some(ca) = &config.ca {
                return Err(config_error(format!(
                    "{ca} and insecure-skip-tls-verify exclude each other"
                )));
            }
            log::warn!(
                "the certificate of {} is NOT verified (insecure-skip-tls-verify): anyone in between can read and change everything, \
                 credentials included",
                &*config.server
            );
        }
        let identity = match (&config.client_certificate, &config.client_key) {
            (None, None) => None,
            (Some(only), None) | (None, Some(only)) => {
                return Err(config_error(format!(
                    "{only}: a client certificate and its key belong together"
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
            ca: self.ca.as_ref().map(Material::read).transpose()?,
            identity,
        })
    }
}

fn agent(
    secure: Option<&Secure>,
    pems: Option<&Pems>,
    proxy: Option<&Proxy>,
) -> Result<Agent, Error> {
    let (Some(secure), Some(pems)) = (secure, pems) else {
        return Ok(transport::agent(None, proxy.cloned()));
    };
    let proxy = proxy
        .map(|proxy| proxy.secured(secure.insecure, pems.ca.as_ref()))
        .transpose()?;
    Ok(transport::agent(Some(tls(&secure.peer, pems)?), proxy))
}
