//! Tests of the whole crate against a server. The same tests run against the embedded server and a
//! real one.
//!
//! The embedded server is always tested. A real kube-apiserver is tested if the environment names
//! one with the variables of envtest: `USE_EXISTING_CLUSTER=true` with a `KUBECONFIG`, or
//! `KUBEBUILDER_ASSETS` with the binaries of etcd and kube-apiserver, which the tests then start.
//! If both are set, only the tests that kill their server use the binaries.

#![allow(clippy::unwrap_used, reason = "a test fails if it cannot continue")]

mod access;
mod account;
mod api_versions;
mod apply;
mod churn;
mod cluster;
mod conditions;
mod config;
mod controllers;
mod credentials;
mod deletions;
mod derived;
mod discovery;
mod events;
mod faults;
mod finalizers;
mod history;
mod interceptor;
mod kinds;
mod leader;
mod leases;
mod lifecycle;
mod lists;
mod local;
mod measure;
mod metadata;
mod namespaces;
mod network;
mod node_agent;
mod one_thread;
mod optional;
mod proxy;
mod quickstart;
mod reader;
mod real_server;
mod recorder;
mod sample;
mod scopes;
#[cfg(unix)]
#[path = "../../client/script.rs"]
mod script;
mod select;
mod sharded;
mod shards;
mod shutdown;
mod support;
mod takeover;
mod tunnel;
mod unreadable;
mod unshared;
mod vanished;
mod verbs;
mod versions;
mod waits;
mod watch_lists;
mod writes;
