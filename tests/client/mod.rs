//! The client against test servers and, with `USE_EXISTING_CLUSTER=true`, against a real API
//! server.

mod api;
mod cluster;
mod config;
mod crds;
mod decode_errors;
mod deep;
mod discovery;
mod error_reasons;
#[cfg(unix)]
mod exec;
mod explained;
mod folder;
mod gate;
mod hostile;
mod hostile_responses;
mod http;
mod identity;
mod kubeconfigs;
mod nulls;
mod paths;
#[cfg(unix)]
mod plugin;
mod policy;
mod proxy;
mod rediscovery;
mod rotation;
#[cfg(unix)]
mod script;
pub(crate) mod server;
mod sizes;
#[cfg(target_os = "linux")]
mod states;
mod stop;
#[cfg(target_os = "linux")]
mod stop_anytime;
mod timeouts;
mod tls;
mod tls_cases;
mod tls_differences;
mod tunnels;
mod verbs;
mod waits;
mod watches;
