//! A controller that runs on a thread, and its stop.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;

use super::pace::Pace;
use crate::FakeClock;
use k8s_informer::informer::SharedInformerFactory;
use k8s_informer::object::Object;
use k8s_informer::stop::Stopper;
use k8s_informer_controller::__private::Drive;
use k8s_informer_controller::{Controller, ControllerError};

/// A controller with its thread and informers. Dropping it stops and joins them.
pub(super) struct Running<T: Object + DeserializeOwned> {
    pub(super) controller: Controller<T>,
    pub(super) drive: Drive,
    pub(super) pace: Arc<Pace>,
    factory: SharedInformerFactory,
    clock: FakeClock,
    stop: Stopper,
    thread: Option<JoinHandle<Result<(), ControllerError>>>,
}

impl<T: Object + DeserializeOwned> Running<T> {
    pub(super) fn start(
        controller: Controller<T>,
        drive: Drive,
        pace: Arc<Pace>,
        factory: SharedInformerFactory,
        clock: FakeClock,
    ) -> io::Result<Self> {
        let stop = Stopper::new();
        let run = {
            let (controller, stop) = (controller.clone(), stop.clone());
            let end = EndOnDrop(Arc::clone(&pace));
            move || {
                let _end = end;
                controller.run(&stop)
            }
        };
        let thread = thread::Builder::new()
            .name("controller-test".to_owned())
            .spawn(run)?;
        Ok(Self {
            controller,
            drive,
            pace,
            factory,
            clock,
            stop,
            thread: Some(thread),
        })
    }

    /// Stops the controller, and waits until its threads have ended.
    pub(super) fn stop(&mut self) -> Result<(), ControllerError> {
        let Some(thread) = self.thread.take() else {
            return Ok(());
        };
        self.stop.stop();
        self.pace.open();
        // A call that hangs ends with the grace period, in virtual time. Afterwards it gets some real
        // time before it counts as stuck.
        let grace = self.drive.grace_period().max(Duration::from_secs(1));
        let mut patience = Duration::from_millis(100);
        while !self.pace.wait_until_ended(Instant::now() + patience) {
            if !self.controller.status().running.is_empty() {
                self.clock.advance(grace);
                patience = Duration::from_secs(3);
            }
        }
        let result = thread.join();
        // Without a timeout, the only error is a call from within a callback, which this is not.
        let _ = self.factory.shut_down(None);
        // The panic hook has already reported a panic.
        result.unwrap_or(Ok(()))
    }
}

impl<T: Object + DeserializeOwned> Drop for Running<T> {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            log::error!("{error}");
        }
    }
}

struct EndOnDrop(Arc<Pace>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end();
    }
}
