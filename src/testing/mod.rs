//! For tests, yours and ours: an API server, a source of objects that needs none
//! ([`FakeControllerSource`]), a lister-watcher that answers from a script ([`ScriptedListerWatcher`]), and a
//! clock that stands still until it is turned ([`FakeClock`]).
//!
//! # The API server
//!
//! It is for tests, examples and experiments: kube-apiserver's behaviour on a loopback port, without a
//! cluster.
//!
//! [`ApiServer`] speaks HTTP/1.1 and answers as a real kube-apiserver 1.36 does, which its own tests compare
//! with recorded exchanges: lists with pages, versions and selectors; watches with bookmarks, streaming lists
//! and selectors that objects enter and leave; writes with conflicts, finalizers, status and scale, dry runs,
//! and warnings of unknown fields; evictions that ask a PodDisruptionBudget; errors word for word. Objects
//! are [`serde_json::Value`]s of any resource, built-in, [declared](ApiResource) or made by a
//! CustomResourceDefinition; discovery tells of them all.
//!
//! Beyond that it does what a real one won't do when asked: it [goes wrong](#faults), goes away and comes
//! back ([`ApiServer::pause`]), and remembers who asked for what ([`ApiServer::requests`]).
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
//! ## Faults
//!
//! A [`Fault`] is planted for requests to come ([`ApiServer::fail_next`]) or for watches that are open
//! ([`ApiServer::fail_watches`]).
//!
//! | what goes wrong | how to say it |
//! | --- | --- |
//! | an error | `Fault::status(503)`, `Fault::status_with_message(403, "not yet")` |
//! | an error that says when to come again | `Fault::status(429).retry_after(1)` |
//! | any other answer | `Fault::response(502, "text/html", "<html>")`, `.header("X-Other", "1")` |
//! | a late answer | `Fault::delay(time)`, or its body alone: `Fault::delay(time).after_bytes(0)` |
//! | a late error | `Fault::status(504).after(time)` |
//! | a slow answer | `Fault::drip(16, time)`: 16 bytes, a pause, 16 bytes, ... |
//! | no answer | `Fault::close()` |
//! | a truncated answer | `Fault::close().after_bytes(100)` |
//! | a reset connection | `Fault::reset()`, `Fault::reset().after_bytes(100)` |
//! | a server that hangs, half of a connection | `Fault::stall()`, `Fault::stall().after_bytes(100)` |
//! | no HTTP | `Fault::garbage(bytes)` |
//! | garbage in a body | `Fault::garbage(bytes).after_bytes(100)` |
//! | a watch that breaks off | `close`, `reset` or `stall` with `.after_events(2)` |
//! | ... within an event | `Fault::close().after_events(2).after_bytes(10)` |
//! | garbage in a watch | `Fault::garbage("{no json\n").after_events(2)` |
//! | an `ERROR` event | `Fault::status(410).after_events(2)` |
//! | a very short watch | `Fault::end_watch()`, `Fault::end_watch().after_events(2)` |
//! | a streaming list that never ends | `Fault::no_bookmarks()` |
//! | no streaming lists at all | [`ApiServerBuilder::watch_list`] |
//! | watches that can't continue after a restart: 410 | [`ApiServer::forget_events`] |
//! | history that is forgotten: 410 | [`ApiServer::compact`], [`ApiServerBuilder::history`] |
//! | a resourceVersion that goes back | [`ApiServer::backup`], [`ApiServer::restore`] |
//! | a server that is away | [`ApiServer::pause`], [`ApiServer::resume`] |
//! | a token that expires | [`ApiServer::set_tokens`] |
//!
//! Each fault strikes one request, the first that it matches ([`on`](Fault::on),
//! [`resource`](Fault::resource), [`when`](Fault::when)), unless told [`times`](Fault::times) or
//! [`always`](Fault::always). So faults planted in a row are a script, request by request:
//!
//! ```
//! use k8s_informer::testing::{ApiServer, Fault, Verb};
//! use std::io::{Write, read_to_string};
//! use std::time::Duration;
//!
//! let server = ApiServer::start()?;
//! for name in ["a", "b"] {
//!     server.create("/api/v1/nodes", serde_json::json!({ "metadata": { "name": name } }))?;
//! }
//! let watches = |fault: Fault| fault.on(Verb::Watch).resource("nodes");
//! server.fail_next(watches(Fault::status(429).retry_after(1)));
//! server.fail_next(watches(Fault::status(410).after_events(1)));
//! server.fail_next(watches(Fault::stall().after_events(2)));
//!
//! let watch = || {
//!     let mut stream = std::net::TcpStream::connect(server.address())?;
//!     stream.write_all(b"GET /api/v1/nodes?watch=true HTTP/1.1\r\nConnection: close\r\n\r\n")?;
//!     Ok::<_, std::io::Error>(stream)
//! };
//! assert!(read_to_string(watch()?)?.starts_with("HTTP/1.1 429 Too Many Requests\r\n"));
//! let expired = read_to_string(watch()?)?;
//! assert!(expired.contains(r#""name":"a""#) && expired.contains(r#"{"type":"ERROR","object":{"#));
//! // The third says nothing more, until one side gives up: here the client.
//! let stalled = watch()?;
//! assert!(server.wait_for_watches(1, Duration::from_secs(5)));
//! drop(stalled);
//! assert!(server.wait_for_watches(0, Duration::from_secs(5)));
//! assert_eq!(server.pending_faults(), 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ## What it leaves out
//!
//! No TLS, HTTP/2, compression, YAML or protobuf; no schemas or validation beyond names and the
//! types within `metadata`, and of fields knows only those at the top of built-in kinds and in their
//! metadata; no defaults but a pod's and a namespace's phase; no admission; no garbage
//! collection, whatever propagation policy a deletion asks for. Server-side apply takes JSON only, replaces
//! lists as a whole, and knows no owners (`managedFields`) but those who have applied: what is created,
//! updated or patched belongs to nobody. Creating an object needs no Namespace object, but is forbidden in
//! one that is being deleted; and as with a kube-apiserver on its own, nobody empties a namespace that is
//! being deleted or takes its finalizer. A version that is yet to come is answered at once, where the real
//! one waits 3 seconds for it.

mod apiserver;
mod clock;
mod fake_controller_source;
mod scripted;

pub use apiserver::{
    ApiResource, ApiServer, ApiServerBuilder, Backup, Fault, RequestRecord, StatusError, Verb,
};
pub use clock::FakeClock;
pub use fake_controller_source::FakeControllerSource;
pub use scripted::{Answer, Request, ScriptedListerWatcher};
