//! The numbers of series.

use std::sync::Arc;
use std::time::Duration;

use super::series::{Family, Kind, Series, SeriesMap, family};

/// A number that only grows. [`MetricsRegistry::counter`](crate::MetricsRegistry::counter) returns it
/// and has an example. Clones share the number.
#[derive(Clone, Debug)]
pub struct Counter {
    pub(super) series: Arc<Series>,
}

impl Counter {
    /// Adds 1.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Adds `count`.
    pub fn add(&self, count: u64) {
        self.series.increment_by(count);
    }
}

/// A number that can go up and down. [`MetricsRegistry::gauge`](crate::MetricsRegistry::gauge)
/// returns it and has an example. Clones share the number.
#[derive(Clone, Debug)]
pub struct Gauge {
    pub(super) series: Arc<Series>,
}

impl Gauge {
    /// Sets the value.
    pub fn set(&self, value: f64) {
        self.series.set(value);
    }

    /// Adds `value`, which may be negative.
    pub fn add(&self, value: f64) {
        self.series.add(value);
    }
}

/// Counts values by size. [`MetricsRegistry::histogram`](crate::MetricsRegistry::histogram) returns it
/// and has an example. Clones share the counts.
#[derive(Clone, Debug)]
pub struct Histogram {
    pub(super) series: Arc<Series>,
}

impl Histogram {
    /// Counts a value. The unit of times is the second.
    pub fn observe(&self, value: f64) {
        self.series.observe(value);
    }

    pub(super) fn observe_time(&self, time: Duration) {
        self.observe(time.as_secs_f64());
    }
}

/// Creates the series of one controller, work queue, informer, client or elector, which have the same
/// labels. Their values begin at 0.
#[derive(Clone, Copy)]
pub(super) struct Labelled<'a> {
    map: &'a SeriesMap,
    labels: &'a [(&'a str, &'a str)],
    /// The number of informers that use the series: one or none.
    informers: usize,
}

impl<'a> Labelled<'a> {
    pub(super) fn new(map: &'a SeriesMap, labels: &'a [(&'a str, &'a str)]) -> Self {
        Self {
            map,
            labels,
            informers: 0,
        }
    }

    /// Creates series that another informer may share. They exist until the last informer ends.
    pub(super) fn of_informer(map: &'a SeriesMap, labels: &'a [(&'a str, &'a str)]) -> Self {
        Self {
            informers: 1,
            ..Self::new(map, labels)
        }
    }

    pub(super) fn counter(&self, name: &'static str, help: &'static str) -> Counter {
        let series = self.series(&family(name, help, Kind::Counter));
        Counter { series }
    }

    pub(super) fn gauge(&self, name: &'static str, help: &'static str) -> Gauge {
        let series = self.series(&family(name, help, Kind::Gauge));
        Gauge { series }
    }

    /// A gauge of the time left until a point in time, which is set in seconds since 1970.
    pub(super) fn countdown(&self, name: &'static str, help: &'static str) -> Gauge {
        let series = self.series(&family(name, help, Kind::Countdown));
        Gauge { series }
    }

    pub(super) fn histogram(
        &self,
        name: &'static str,
        help: &'static str,
        bounds: &'static [f64],
    ) -> Histogram {
        let series = self.series(&family(name, help, Kind::Histogram(bounds)));
        Histogram { series }
    }

    fn series(&self, family: &Family) -> Arc<Series> {
        self.map.get_for(family, self.labels, self.informers)
    }
}
