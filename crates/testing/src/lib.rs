//! Tests of programs that use [`k8s_informer`], without a cluster and without sleeping.
//!
//! | type | purpose |
//! |---|---|
//! | [`ApiServer`] | an API server inside the test, with faults |
//! | `ControllerTest` | runs a controller in virtual time, with the feature `controller` |
//! | `RealApiServer` | a real etcd and kube-apiserver as child processes, with the feature `real` |
//! | [`FakeControllerSource`] | client-go's source of objects in memory |
//! | [`ScriptedListerWatcher`] | exact responses |
//! | [`FakeClock`] | time that the test advances |
//!
//! Add the package to your dev-dependencies. Its page [`guide`] describes how to test.
//!
//! # The API server
//!
//! [`ApiServer`] behaves like kube-apiserver on a loopback port, without a cluster. Use it for
//! tests, examples and experiments.
//!
//! It speaks HTTP/1.1 and responds like kube-apiserver 1.36, as far as a test of a controller or an
//! informer depends on it. Its own tests compare it with recorded exchanges. It supports:
//!
//! - lists with pages, resource versions and selectors;
//! - watches with bookmarks and streaming lists; objects can enter and leave a selector;
//! - writes with conflicts, finalizers, status and scale, dry runs, and warnings about unknown
//!   fields;
//! - server-side apply, and JSON, merge and strategic merge patches;
//! - the [managers](#field-managers) of all fields;
//! - [Leases and Events](#leases-and-events) with their validation;
//! - error responses with the original codes and reasons;
//! - aggregated discovery.
//!
//! Objects are [`serde_json::Value`]s. Their resource is built in, [declared](ApiResource), or
//! defined by a CustomResourceDefinition.
//!
//! A test can also make the server [fail](#faults), go away and come back ([`ApiServer::pause`]),
//! and can inspect the requests it received ([`ApiServer::requests`]).
//!
//! ```
//! use std::time::Duration;
//!
//! use k8s_informer_testing::{ApiServer, RequestRecord, Verb};
//! use serde_json::json;
//!
//! let server = ApiServer::start()?;
//! let pods = "/api/v1/namespaces/default/pods";
//! server.create(pods, json!({ "metadata": { "name": "web-0" }, "spec": { "nodeName": "worker-1" } }))?;
//!
//! // A client, here a minimal one, sees what a cluster would return.
//! let mut stream = std::net::TcpStream::connect(server.address())?;
//! std::io::Write::write_all(
//!     &mut stream,
//!     format!("GET {pods}?fieldSelector=spec.nodeName%3Dworker-1 HTTP/1.1\r\nConnection: close\r\n\r\n").as_bytes(),
//! )?;
//! let answer = std::io::read_to_string(stream)?;
//! assert!(answer.starts_with("HTTP/1.1 200 "));
//! assert!(answer.contains(r#""kind":"PodList""#) && answer.contains(r#""name":"web-0""#));
//!
//! // The test sees the client's requests.
//! let has_listed = |all: &[RequestRecord]| all.iter().any(|request| request.verb() == Verb::List);
//! server.wait_for_requests(has_listed, Duration::from_secs(5))?;
//!
//! // The test can also act as the rest of the cluster.
//! let web = server.patch(&format!("{pods}/web-0/status"), json!({ "status": { "phase": "Running" } }))?;
//! assert_eq!(web["status"]["phase"], "Running");
//! assert_eq!(server.delete(&format!("{pods}/web-1")).unwrap_err().reason(), "NotFound");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ## Faults
//!
//! Inject a [`Fault`] into future requests with [`ApiServer::fail_next`], or into open watches with
//! [`ApiServer::fail_watches`].
//!
//! | failure | how to cause it |
//! | --- | --- |
//! | an error | `Fault::status(503)`, `Fault::status_with_message(403, "not yet")` |
//! | an error with `Retry-After` | `Fault::status(429).retry_after(1)` |
//! | any other response | `Fault::response(502, "text/html", "<html>")`, `.header("X-Other", "1")` |
//! | a late response | `Fault::delay(time)`; a late body only: `Fault::delay(time).after_bytes(0)` |
//! | a late error | `Fault::status(504).after(time)` |
//! | a slow response | `Fault::drip(16, time)`: 16 bytes, a pause, 16 bytes, ... |
//! | no response | `Fault::close()` |
//! | a truncated response | `Fault::close().after_bytes(100)` |
//! | a reset connection | `Fault::reset()`, `Fault::reset().after_bytes(100)` |
//! | a server that hangs, a half-open connection | `Fault::stall()`, `Fault::stall().after_bytes(100)` |
//! | a response that is not HTTP | `Fault::garbage(bytes)` |
//! | garbage in a body | `Fault::garbage(bytes).after_bytes(100)` |
//! | a watch that breaks | `close`, `reset` or `stall` with `.after_events(2)` |
//! | a watch that breaks within an event | `Fault::close().after_events(2).after_bytes(10)` |
//! | garbage in a watch | `Fault::garbage("{no json\n").after_events(2)` |
//! | an `ERROR` event | `Fault::status(410).after_events(2)` |
//! | a very short watch | `Fault::end_watch()`, `Fault::end_watch().after_events(2)` |
//! | a streaming list that never ends | `Fault::no_bookmarks()` |
//! | no streaming lists at all | [`ApiServerBuilder::watch_list`] |
//! | watches that cannot continue after a restart: 410 | [`ApiServer::forget_events`] |
//! | a compacted history: 410 | [`ApiServer::compact`], [`ApiServerBuilder::history`] |
//! | a resourceVersion that goes back | [`ApiServer::backup`], [`ApiServer::restore`] |
//! | a server that is unavailable | [`ApiServer::pause`], [`ApiServer::resume`] |
//! | a token that expires | [`ApiServer::set_tokens`] |
//!
//! Each fault strikes one request: the first that matches its [`on`](Fault::on),
//! [`resource`](Fault::resource) and [`when`](Fault::when) conditions. Faults injected in a row
//! therefore form a script, one fault per request. To strike more requests with one fault, use
//! [`times`](Fault::times) or [`always`](Fault::always). In this script, each of three watches gets
//! its own fault:
//!
//! ```
//! use k8s_informer_testing::{ApiServer, Fault, Verb};
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
//! assert!(read_to_string(watch()?)?.starts_with("HTTP/1.1 429 "));
//! let expired = read_to_string(watch()?)?;
//! assert!(expired.contains(r#""name":"a""#) && expired.contains(r#"{"type":"ERROR","object":{"#));
//! // The third watch stalls until one side gives up: here the client.
//! let stalled = watch()?;
//! server.wait_for_watches(1, Duration::from_secs(5)).unwrap();
//! drop(stalled);
//! server.wait_for_watches(0, Duration::from_secs(5)).unwrap();
//! assert_eq!(server.pending_faults(), 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ## Leases and Events
//!
//! The server applies the rules of kube-apiserver for Leases and Events. For example, times that
//! need six digits of fraction must have them. Core `v1` and `events.k8s.io/v1` are two views of
//! the same Events:
//!
//! ```
//! use k8s_informer_testing::ApiServer;
//! use serde_json::json;
//!
//! let server = ApiServer::start()?;
//! let events = "/apis/events.k8s.io/v1/namespaces/default/events";
//! let event = json!({
//!     "metadata": { "name": "web-0.1" },
//!     "regarding": { "kind": "Pod", "namespace": "default", "name": "web-0" },
//!     "type": "Warning", "reason": "FailedMount", "action": "Mount", "note": "no such volume",
//!     "reportingController": "example.com/team-controller", "reportingInstance": "team-controller-1",
//!     "eventTime": "2024-01-02T03:04:05.000000Z",
//! });
//! server.create(events, event)?;
//! let core = server.get("/api/v1/namespaces/default/events/web-0.1")?;
//! assert_eq!(core["involvedObject"]["name"], "web-0");
//! assert_eq!(core["message"], "no such volume");
//!
//! let refused = server.patch(&format!("{events}/web-0.1"), json!({ "note": "other" })).unwrap_err();
//! assert_eq!((refused.code(), refused.reason()), (422, "Invalid"));
//! assert!(refused.to_string().ends_with("message: Invalid value: field is immutable"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Events do not expire.
//!
//! ## Field managers
//!
//! Each create, update, patch and apply records its fields in `metadata.managedFields`, as in
//! kube-apiserver. The manager is the `fieldManager` of the request, else the user agent before the
//! first `/`. What a test writes through the methods of [`ApiServer`] belongs to
//! `k8s-informer-testing`. So an apply of another value is a conflict, unless it is forced:
//!
//! ```
//! use k8s_informer::client::api::Patch;
//! use k8s_informer::{Client, Config, Stop};
//! use k8s_informer_testing::ApiServer;
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use serde_json::json;
//!
//! let server = ApiServer::start()?;
//! let maps = "/api/v1/namespaces/default/configmaps";
//! server.create(maps, json!({ "metadata": { "name": "a" }, "data": { "x": "1" } }))?;
//! let api = Client::new(Config::new(server.url()))?.api::<ConfigMap>(Some("default"));
//! let wanted = Patch::apply("me", json!({ "metadata": { "name": "a" }, "data": { "x": "2" } }));
//! let error = api.patch("a", &wanted, &Stop::never()).unwrap_err();
//! assert!(error.to_string().contains(r#"conflict with "k8s-informer-testing" using v1: .data.x"#));
//! api.patch("a", &wanted.force(true), &Stop::never())?;
//! assert_eq!(server.get(&format!("{maps}/a"))?["data"]["x"], "2");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! To write as another manager, use a client, or pass an object with other `managedFields`: the
//! methods of the server store them as they are.
//!
//! ## Limitations
//!
//! - No TLS, HTTP/2, compression, YAML or protobuf. The body of a request needs a `Content-Length`.
//! - No schemas. Besides the rules for Leases and Events, validation covers the names, keys and
//!   types within `metadata`. The only known fields are those of `metadata` and the top-level fields
//!   of any built-in kind.
//! - Error messages differ from those of kube-apiserver. Depend on the code, the reason and the
//!   details of a `Status`.
//! - Values stay as they were written. The server does not add the zero values that kube-apiserver
//!   adds to some kinds, or change the form of times.
//! - Only the aggregated documents of discovery: `/api` and `/apis`.
//! - An eviction deletes the pod. PodDisruptionBudgets have no effect.
//! - A PUT of a missing object fails with 404 for all kinds.
//! - The versions of a custom resource differ only in their `apiVersion`: no version drops fields,
//!   and conversion webhooks are not called.
//! - Only a few defaults: the phase of a pod, the type of a Secret, the phase, finalizers and name
//!   label of a namespace, and some fields of a CustomResourceDefinition.
//! - No admission. Garbage collection is an option of the
//!   [builder](ApiServerBuilder::garbage_collection).
//! - Server-side apply accepts only JSON. It merges owner references by `uid`, the conditions of a
//!   status by `type`, finalizers as a set, and the lists that are maps or sets in the schema of a
//!   CustomResourceDefinition. It replaces other lists as a whole, and one manager owns such a list.
//!   New items of a merged list come last. `managedFields` have a `.` for each map, also where
//!   kube-apiserver has none, and no limit of managers.
//! - Strategic merge patches merge the same lists of built-in kinds. A patch with another list fails
//!   with 415.
//! - You can create an object in a namespace that has no Namespace object, but not in a namespace
//!   that is being deleted. As with a standalone kube-apiserver, nothing empties a namespace that
//!   is being deleted or removes its finalizer.
//! - A request for a future resource version is answered at once. kube-apiserver waits up to 3
//!   seconds for the version.

mod apiserver;
mod clock;
#[cfg(feature = "controller")]
mod controller_test;
mod fake_controller_source;
#[cfg(feature = "real")]
mod real;
mod scripted;
mod wait;

pub use apiserver::{
    ApiResource, ApiServer, ApiServerBuilder, Backup, Fault, RequestRecord, StatusError, Verb,
    WriteRecord,
};
pub use clock::FakeClock;
#[cfg(feature = "controller")]
pub use controller_test::{ControllerTest, ControllerTestError};
pub use fake_controller_source::FakeControllerSource;
#[cfg(feature = "real")]
pub use real::{RealApiServer, RealApiServerBuilder};
pub use scripted::{Answer, ScriptedListerWatcher, ScriptedRequest};

/// How to test an informer or a controller.
#[doc = include_str!("../docs/guide.md")]
#[cfg(doc)]
pub mod guide {}

/// Runs the example in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
