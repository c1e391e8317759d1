//! For tests, yours and ours: an API server, a lister-watcher that answers from a script
//! ([`ScriptedListerWatcher`]), and a clock that stands still until it is turned ([`FakeClock`]).
//!
//! # The API server
//!
//! It is for tests, examples and experiments: kube-apiserver's behaviour on a loopback port, without a
//! cluster.
//!
//! [`ApiServer`] speaks HTTP/1.1 and answers as a real kube-apiserver 1.36 does, which its own tests compare
//! with recorded exchanges: lists with pages, versions and selectors; watches with bookmarks, streaming lists
//! and selectors that objects enter and leave; writes with conflicts, finalizers and status; errors word for
//! word. Objects are [`serde_json::Value`]s of any resource, built-in or [declared](ApiResource).
//!
//! Beyond that it does what a real one won't do when asked: it forgets history ([`ApiServer::compact`]),
//! fails ([`ApiServer::fail_next`]), ends, cuts and garbles watches, goes away and comes back
//! ([`ApiServer::pause`]), and remembers who asked for what ([`ApiServer::requests`]).
//!
//! ```
//! use std::time::Duration;
//!
//! use k8s_informer::testing::{ApiServer, Verb};
//! use serde_json::json;
//!
//! let server = ApiServer::start()?;
//! let pods = "/api/v1/namespaces/default/pods";
//! server.create(pods, json!({ "metadata": { "name": "web-0" }, "spec": { "nodeName": "worker-1" } }))?;
//!
//! // A client, here a very simple one, sees what a cluster would show.
//! let mut stream = std::net::TcpStream::connect(server.address())?;
//! std::io::Write::write_all(
//!     &mut stream,
//!     format!("GET {pods}?fieldSelector=spec.nodeName%3Dworker-1 HTTP/1.1\r\nConnection: close\r\n\r\n").as_bytes(),
//! )?;
//! let answer = std::io::read_to_string(stream)?;
//! assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"));
//! assert!(answer.contains(r#""kind":"PodList""#) && answer.contains(r#""name":"web-0""#));
//!
//! // The test sees what the client did.
//! let listed = server.wait_for_requests(|all| all.iter().any(|r| r.verb() == Verb::List), Duration::from_secs(5));
//! assert!(listed);
//!
//! // And it can be the rest of the cluster.
//! let web = server.patch(&format!("{pods}/web-0/status"), json!({ "status": { "phase": "Running" } }))?;
//! assert_eq!(web["status"]["phase"], "Running");
//! assert_eq!(server.delete(&format!("{pods}/web-1")).unwrap_err().reason(), "NotFound");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ## What it leaves out
//!
//! No TLS, HTTP/2, compression, YAML or protobuf; no discovery, schemas or validation beyond names and the
//! types within `metadata`; no defaults but a pod's and a namespace's phase; no managedFields, server-side
//! apply or admission; no garbage collection. Creating an object needs no Namespace object, but is forbidden
//! in one that is being deleted; and as with a kube-apiserver on its own, nobody empties a namespace that is
//! being deleted or takes its finalizer. A version that is yet to come is answered at once, where the real
//! one waits 3 seconds for it.

mod apiserver;
mod clock;
mod scripted;

pub use apiserver::{ApiResource, ApiServer, ApiServerBuilder, Fault, RequestRecord, StatusError, Verb};
pub use clock::FakeClock;
pub use scripted::{Answer, Request, ScriptedListerWatcher};
