//! A blocking HTTP client for the API server, and its configuration.
//!
//! | type | purpose | client-go |
//! |---|---|---|
//! | [`Client`] | connections, credentials and limits; shared by its clones | `rest.RESTClient`, clientsets |
//! | [`Config`] | server, certificates, credentials, timeouts, rate limit | `rest.Config` |
//! | `Kubeconfig`, `KubeconfigOptions` | kubeconfig files (feature `kubeconfig`) | `clientcmd` |
//! | [`ExecConfig`] | credentials from a plugin | `clientcmdapi.ExecConfig` |
//! | [`Impersonation`] | requests on behalf of another user | `rest.ImpersonationConfig` |
//! | [`Request`], [`Response`] | any HTTP request | `rest.Request` |
//! | [`WriteGate`] | when a client may change something | `leaderelection.WriteGate` |
//! | [`api`] | read, write, list and watch objects | typed, dynamic and metadata clients |
//! | [`crds`] | installs CustomResourceDefinitions | `envtest.InstallCRDs` |
//! | [`discovery`] | the groups, versions and resources of a server | `discovery`, `restmapper` |
//!
//! ```
//! use k8s_informer::client::Request;
//! use k8s_informer::{Client, Config, Stop};
//! use k8s_informer_testing::ApiServer;
//!
//! let server = ApiServer::start()?;
//! let client = Client::new(Config::new(server.url()))?;
//! let version: serde_json::Value = client.request(&Request::get("/version"), &Stop::never())?.json()?;
//! assert_eq!(version["major"], "1");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod api;
pub(crate) mod auth;
#[expect(clippy::module_inception, reason = "the file of `Client`")]
mod client;
mod config;
pub mod crds;
mod credential_data;
pub mod discovery;
mod exchange;
mod gate;
mod policy;
mod request;
pub(crate) mod transport;
mod wait;
#[cfg(feature = "kubeconfig")]
mod yaml;

pub use self::client::Client;
pub use self::config::{Config, ExecConfig, Impersonation, InteractiveMode};
#[cfg(feature = "kubeconfig")]
pub use self::config::{Kubeconfig, KubeconfigOptions};
pub use self::exchange::Response;
pub use self::gate::WriteGate;
pub use self::policy::Warning;
pub use self::request::Request;
