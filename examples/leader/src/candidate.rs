//! A candidate: it waits until it leads, works, and gives up the Lease in order.

use std::error::Error;
use std::time::Duration;

use k8s_informer::Stop;
use k8s_informer_controller::leader_election::{
    Ended, LeaderElectionOptions, LeaderElector, Leading, LeaseLock,
};

/// How fast another candidate takes over.
#[derive(Clone, Copy)]
pub(crate) enum Speed {
    /// The defaults of Kubernetes: within 20 seconds after a crash, for one write every 2 seconds.
    Default,
    /// Within 8 seconds after a crash, for a demo that people watch.
    Demo,
}

/// The time between two steps of the work.
const STEP: Duration = Duration::from_millis(500);

/// The beginning of the line that a new leader prints.
pub(crate) const LEADS: &str = "leads";

/// Takes part in the election until `stop` is set.
pub(crate) fn run(lock: LeaseLock, speed: Speed, stop: &Stop) -> Result<(), Box<dyn Error>> {
    let mut options = LeaderElectionOptions::new().on_new_leader(|leader| match leader {
        None => println!("the Lease is free"),
        Some(leader) => println!("the leader is {leader}"),
    });
    if let Speed::Demo = speed {
        options = options
            .lease_duration(Duration::from_secs(5))
            .renew_deadline(Duration::from_secs(3))
            .retry_period(Duration::from_secs(1));
    }
    let elector = LeaderElector::new(lock, options)?;
    println!("candidate {}", elector.identity());
    loop {
        // Informers of the work would already run here, so that a new leader has a full cache.
        match elector.run(|leading| work(&leading), stop)? {
            // `None` if this candidate did not lead.
            Ended::Stopped(steps) => {
                println!("stopped after {} steps", steps.unwrap_or_default());
                return Ok(());
            }
            // Many programs exit here, and start again with an empty memory.
            Ended::Lost(steps) => println!("lost the Lease after {steps} steps; a candidate again"),
            // The work of this example ends only when it is stopped.
            Ended::Finished(steps) => return Err(format!("ended after {steps} steps").into()),
        }
    }
}

/// Does the work of the leader until it is stopped. Returns the number of steps.
fn work(leading: &Leading) -> usize {
    println!("{LEADS} in term {}", leading.token());
    let mut steps = 0;
    while !leading.stop().wait_timeout(STEP) {
        // The check before a step that must not happen twice.
        match leading.ensure() {
            Ok(()) => {
                steps += 1;
                println!("step {steps}");
            }
            // A renewal is late. Either the next one succeeds, or the work is stopped.
            Err(error) => println!("no step: {error}"),
        }
    }
    steps
}
