//! Runs a shared informer in the loop of the program.

use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::run::Run;
use super::{SharedIndexInformer, Started};
use crate::base::threads::Owner;
use crate::informer::driver::{Driver, Progress, Steps};
use crate::informer::error::InformerError;
use crate::informer::pipeline::{InlinePipeline, Pipeline};
use crate::object::Object;
use crate::reflector::FeedProgress;
use crate::stop::Stop;

impl<T: Object + DeserializeOwned> SharedIndexInformer<T> {
    /// Returns the drivers of this informer, one for each namespace, instead of [`run`](Self::run):
    /// the program steps them, and the informer has no thread of its own. See [`Driver`].
    ///
    /// The informer ends when `stop` is set and each driver has been stepped once more or dropped.
    /// Dropping one of them sets the signal for the others. An informer without namespaces has no
    /// drivers, and ends at once.
    ///
    /// # Errors
    ///
    /// Fails if the informer was started before.
    pub fn drivers(&self, stop: &Stop) -> Result<Vec<Driver>, InformerError> {
        let owner = self.shared.state.owner;
        let (run, pipelines) = owner.adopt(|| self.begin(stop, Started::ByDrivers))?;
        let run = Arc::new(run);
        let driver = |pipeline: Pipeline<T>| {
            let name = Arc::clone(&pipeline.state.name);
            let driven = Driven {
                owner,
                pipeline: owner.adopt(|| pipeline.begin_inline(&run.stop)),
                run: Arc::clone(&run),
            };
            Driver::new(name, Box::new(Driving(Some(driven))))
        };
        Ok(pipelines.into_iter().map(driver).collect())
    }
}

/// The pipeline of a driver, until the informer has ended.
struct Driving<T: Object>(Option<Driven<T>>);

struct Driven<T: Object> {
    owner: Owner,
    pipeline: InlinePipeline<T>,
    /// The informer ends with the last driver.
    run: Arc<Run<T>>,
}

impl<T: Object> Steps for Driving<T> {
    fn step(&mut self, timeout: Duration) -> Progress {
        let Some(driven) = &mut self.0 else {
            return Progress::Ended;
        };
        let (pipeline, stop) = (&mut driven.pipeline, &driven.run.stop);
        if !stop.is_stopped() {
            // Waits of callbacks for the informer return an error.
            let step = || pipeline.step(Some(timeout), stop);
            let progress = driven.owner.adopt(step);
            if !stop.is_stopped() {
                return match progress {
                    FeedProgress::Requesting => Progress::Requesting,
                    FeedProgress::Progressed | FeedProgress::Interrupted => Progress::Active,
                    FeedProgress::Idle => Progress::Idle,
                };
            }
        }
        self.end();
        Progress::Ended
    }
}

impl<T: Object> Driving<T> {
    /// Ends the pipeline, and with the last one the informer. The other drivers are stopped.
    fn end(&mut self) {
        let Some(driven) = self.0.take() else {
            return;
        };
        let Driven {
            owner,
            pipeline,
            run,
        } = driven;
        run.stop.stop();
        owner.adopt(|| {
            pipeline.end();
            drop(run);
        });
    }
}

impl<T: Object> Drop for Driving<T> {
    fn drop(&mut self) {
        self.end();
    }
}
