//! An operator for more objects than one process can hold: each replica has one shard of them.
//!
//! ```text
//! cargo run -p sharded                 on an API server inside this program; ends on its own
//! cargo run -p sharded -- --live       one replica on the cluster of your kubeconfig, until Ctrl-C
//!     --shards COUNT                   the same for all replicas; default: 2
//!     --health ADDRESS                 the address of /healthz, /readyz, /metrics and /status
//! ```
//!
//! On a cluster, run it in three terminals, or apply `manifest.yaml`. Two replicas get a shard, and
//! the spare one takes the first that is free. `RUST_LOG=k8s_informer=info` shows why it waits.
//! Start reading in `operator.rs`.

mod demo;
mod operator;
#[cfg(test)]
mod tests;

use std::error::Error;

use k8s_informer::{Client, Stop};
use k8s_informer_controller::Manager;

fn main() -> Result<(), Box<dyn Error>> {
    use lexopt::prelude::*;

    env_logger::init();
    let (mut is_live, mut shards, mut health) = (false, 2, ":0".to_owned());
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("live") => is_live = true,
            Long("shards") => shards = arguments.value()?.parse()?,
            Long("health") => health = arguments.value()?.string()?,
            other => return Err(other.unexpected().into()),
        }
    }
    if !is_live {
        return demo::run();
    }
    let stop = Stop::on_signals()?;
    let client = Client::try_default()?;
    let builder = Manager::builder(client.clone()).health(health);
    let report = |task, is_new| println!("{task}: {}", if is_new { "new" } else { "has a Job" });
    let manager = operator::build(builder, client.default_namespace(), shards, report)?;
    println!("Probes and metrics: {:?}", manager.health_address());
    // A lost Lease is an error. The Pod then restarts, and takes a shard that is free.
    Ok(manager.run(&stop)?)
}
