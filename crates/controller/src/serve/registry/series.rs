//! Time series, and the text format of Prometheus.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::log;
use k8s_informer::__private::catch;
use parking_lot::Mutex;

/// A metric's name, type and help text. Its series differ in their labels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    /// A gauge of the time left until a point in time.
    Countdown,
    /// The upper bounds of the buckets, without the last one, which is infinite.
    Histogram(&'static [f64]),
}

pub(super) const fn counter(name: &'static str, help: &'static str) -> Family {
    family(name, help, Kind::Counter)
}

pub(super) const fn gauge(name: &'static str, help: &'static str) -> Family {
    family(name, help, Kind::Gauge)
}

pub(super) const fn histogram(
    name: &'static str,
    help: &'static str,
    bounds: &'static [f64],
) -> Family {
    family(name, help, Kind::Histogram(bounds))
}

pub(super) const fn family(name: &'static str, help: &'static str, kind: Kind) -> Family {
    Family { name, help, kind }
}

/// The series of all families.
#[derive(Default)]
pub(super) struct SeriesMap {
    /// An innermost lock.
    all: Mutex<All>,
    /// Functions that return further text. An innermost lock, under which none of them runs.
    pub(super) texts: Mutex<Vec<Arc<Text>>>,
}

/// Sorted by the name of the family, then by the labels.
type All = BTreeMap<(&'static str, String), Arc<Series>>;

type Text = dyn Fn() -> String + Send + Sync;

impl SeriesMap {
    /// Returns the series with these labels. Creates it if it does not exist.
    pub(super) fn get(&self, family: &Family, labels: &[(&str, &str)]) -> Arc<Series> {
        self.get_for(family, labels, 0)
    }

    /// Returns the series with these labels, unless the name has another type.
    pub(super) fn get_if_same_kind(
        &self,
        family: &Family,
        labels: &[(&str, &str)],
    ) -> Option<Arc<Series>> {
        let labels = formatted(labels);
        let mut all = self.all.lock();
        let same_name = all.range((family.name, String::new())..).next();
        let same_name = same_name.filter(|((name, _), _)| *name == family.name);
        if same_name.is_some_and(|(_, other)| other.family.kind != family.kind) {
            return None;
        }
        Some(Self::get_or_create(&mut all, family, labels))
    }

    /// Returns the series with these labels, which so many more informers use.
    pub(super) fn get_for(
        &self,
        family: &Family,
        labels: &[(&str, &str)],
        informers: usize,
    ) -> Arc<Series> {
        let labels = formatted(labels);
        let mut all = self.all.lock();
        let series = Self::get_or_create(&mut all, family, labels);
        series.informers.fetch_add(informers, Relaxed);
        series
    }

    fn get_or_create(all: &mut All, family: &Family, labels: String) -> Arc<Series> {
        let series = all.entry((family.name, labels.clone()));
        let series = series.or_insert_with(|| Arc::new(Series::new(family, labels)));
        Arc::clone(series)
    }

    /// Removes the series of an informer that has ended, unless another informer uses them.
    pub(super) fn end_informer(&self, ended: [&Arc<Series>; 3]) {
        let mut all = self.all.lock();
        for series in ended {
            if series.informers.fetch_sub(1, Relaxed) == 1 {
                all.remove(&(series.family.name, series.labels.clone()));
            }
        }
    }

    pub(super) fn render(&self, now: SystemTime) -> String {
        let all: Vec<Arc<Series>> = self.all.lock().values().cloned().collect();
        let (mut text, mut family) = (String::new(), "");
        for series in all {
            if family != series.family.name {
                family = series.family.name;
                series.write_head(&mut text);
            }
            series.write_samples(&mut text, now);
        }
        let texts = self.texts.lock().clone();
        for more in texts {
            match catch(|| more()) {
                Ok(more) => {
                    text += &more;
                    // The last line of the text format must end, too.
                    if !text.is_empty() && !text.ends_with('\n') {
                        text.push('\n');
                    }
                }
                Err(panic) => log::error!("a function that returns metrics {panic}"),
            }
        }
        text
    }
}

/// One series: a family and values for its labels.
#[derive(Debug)]
pub(super) struct Series {
    family: Family,
    labels: String,
    /// The number of informers that use the series. Changed under the lock of the map.
    informers: AtomicUsize,
    /// The total of a counter. Otherwise the bits of an `f64`: the level of a gauge, the end of a
    /// countdown in seconds since 1970, or the sum of a histogram.
    value: AtomicU64,
    /// The number of observations in each bucket of a histogram, without those of smaller buckets.
    counts: Box<[AtomicU64]>,
}

impl Series {
    fn new(family: &Family, labels: String) -> Self {
        let (value, buckets) = match family.kind {
            Kind::Counter => (0, 0),
            Kind::Gauge => (0_f64.to_bits(), 0),
            Kind::Countdown => (f64::INFINITY.to_bits(), 0),
            Kind::Histogram(bounds) => (0_f64.to_bits(), bounds.len() + 1),
        };
        Self {
            family: *family,
            labels,
            informers: AtomicUsize::new(0),
            value: AtomicU64::new(value),
            counts: (0..buckets).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Adds to a counter.
    pub(super) fn increment_by(&self, count: u64) {
        self.value.fetch_add(count, Relaxed);
    }

    /// Sets the level of a gauge, or the end of a countdown.
    pub(super) fn set(&self, value: f64) {
        self.value.store(value.to_bits(), Relaxed);
    }

    /// Adds to the level of a gauge, or to the sum of a histogram.
    pub(super) fn add(&self, value: f64) {
        let add = |sum| Some((f64::from_bits(sum) + value).to_bits());
        let _ = self.value.fetch_update(Relaxed, Relaxed, add);
    }

    /// Adds an observation to a histogram.
    pub(super) fn observe(&self, value: f64) {
        let Kind::Histogram(bounds) = self.family.kind else {
            return;
        };
        // NaN is above all bounds, as in Go.
        let bucket = bounds.partition_point(|bound| value.is_nan() || *bound < value);
        if let Some(count) = self.counts.get(bucket) {
            count.fetch_add(1, Relaxed);
        }
        self.add(value);
    }

    // Writing to a string does not fail.

    fn write_head(&self, text: &mut String) {
        let Family { name, help, kind } = self.family;
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge | Kind::Countdown => "gauge",
            Kind::Histogram(_) => "histogram",
        };
        let help = help.replace('\\', r"\\").replace('\n', r"\n");
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn write_samples(&self, text: &mut String, now: SystemTime) {
        let value = self.value.load(Relaxed);
        match self.family.kind {
            Kind::Counter => self.write_line(text, "", "", value),
            Kind::Gauge => self.write_line(text, "", "", number(f64::from_bits(value))),
            Kind::Countdown => {
                let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
                let left = f64::from_bits(value) - now.as_secs_f64();
                self.write_line(text, "", "", number(left));
            }
            Kind::Histogram(bounds) => {
                let bounds = bounds.iter().copied().chain([f64::INFINITY]);
                let mut count = 0;
                for (bound, in_bucket) in bounds.zip(&self.counts) {
                    count += in_bucket.load(Relaxed);
                    let le = formatted(&[("le", &number(bound))]);
                    self.write_line(text, "_bucket", &le, count);
                }
                self.write_line(text, "_sum", "", number(f64::from_bits(value)));
                self.write_line(text, "_count", "", count);
            }
        }
    }

    fn write_line(&self, text: &mut String, suffix: &str, label: &str, value: impl Display) {
        let (name, labels) = (self.family.name, &self.labels);
        let _ = match (labels.is_empty(), label.is_empty()) {
            (true, true) => writeln!(text, "{name}{suffix} {value}"),
            (false, false) => writeln!(text, "{name}{suffix}{{{labels},{label}}} {value}"),
            _ => writeln!(text, "{name}{suffix}{{{labels}{label}}} {value}"),
        };
    }
}

/// Returns the labels in the text format, with their values escaped.
fn formatted(labels: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (name, value) in labels {
        let comma = if text.is_empty() { "" } else { "," };
        text += &format!("{comma}{name}=\"");
        for character in value.chars() {
            match character {
                '\\' => text += r"\\",
                '"' => text += "\\\"",
                '\n' => text += r"\n",
                other => text.push(other),
            }
        }
        text.push('"');
    }
    text
}

/// Returns a number in the text format, which writes infinity as Go does.
fn number(value: f64) -> String {
    match value.is_infinite() {
        true => format!("{}Inf", if value > 0.0 { '+' } else { '-' }),
        false => value.to_string(),
    }
}
