//! The embedded API server from outside: raw HTTP over TCP, compared with a real kube-apiserver.

mod applies;
mod broken_responses;
mod client;
mod definitions;
mod discovery;
mod disturbed_watches;
mod faults;
mod garbage;
mod lifecycle;
mod lists;
mod protocol;
mod replay;
mod restore;
mod shards;
mod subresources;
mod validation;
mod versions;
mod watches;
mod writes;

use std::time::Duration;

/// Long enough for the slowest machine. Only a broken test waits this long.
const TIMEOUT: Duration = Duration::from_secs(20);
const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
