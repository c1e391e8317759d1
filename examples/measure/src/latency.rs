//! The latency of events from the server to the handler, for objects that carry their send time.

use std::time::{SystemTime, UNIX_EPOCH};

use super::report::Latency;

/// The annotation with the send time of an object: nanoseconds since 1970, in decimal digits. The
/// time is unknown if the annotation is missing or contains only zeros.
pub(crate) const SENT_AT: &str = "example.com/sent-at";

/// The number of samples that are kept, always the latest. They take 4 MiB.
const KEPT: usize = 1 << 20;

/// The latency of each event in microseconds. The samples are sorted only at the end.
pub(crate) struct Samples {
    micros: Vec<u32>,
    seen: usize,
}

impl Samples {
    /// Reserves capacity for the expected samples. The memory becomes resident only when the
    /// samples arrive.
    pub(crate) fn with_capacity(expected: usize) -> Self {
        Self {
            micros: Vec::with_capacity(expected.min(KEPT)),
            seen: 0,
        }
    }

    /// Adds the latency of an event whose object was sent at `sent_at`. Ignores 0.
    pub(crate) fn add(&mut self, sent_at: u64) {
        if sent_at == 0 {
            return;
        }
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let micros = (now.as_nanos() as u64).saturating_sub(sent_at) / 1000;
        self.push(u32::try_from(micros).unwrap_or(u32::MAX));
    }

    fn push(&mut self, micros: u32) {
        match self.micros.get_mut(self.seen % KEPT) {
            Some(oldest) => *oldest = micros,
            None => self.micros.push(micros),
        }
        self.seen += 1;
    }

    /// Returns `None` without samples.
    pub(crate) fn summary(&mut self) -> Option<Latency> {
        self.micros.sort_unstable();
        let sorted = &self.micros;
        let last = sorted.last()?;
        Some(Latency {
            samples: sorted.len(),
            p50_us: percentile(sorted, 50),
            p90_us: percentile(sorted, 90),
            p99_us: percentile(sorted, 99),
            max_us: f64::from(*last),
        })
    }
}

/// Returns the smallest sample that at least `percent` % of the samples do not exceed.
fn percentile(sorted: &[u32], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100);
    f64::from(sorted[rank.max(1) - 1])
}

/// Parses a send time. Returns 0 if `annotation` is not a number.
pub(crate) fn parse(annotation: &str) -> u64 {
    annotation.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(samples: impl IntoIterator<Item = u32>) -> Option<(usize, [f64; 4])> {
        let mut all = Samples::with_capacity(0);
        samples.into_iter().for_each(|sample| all.push(sample));
        let Latency {
            samples,
            p50_us,
            p90_us,
            p99_us,
            max_us,
        } = all.summary()?;
        Some((samples, [p50_us, p90_us, p99_us, max_us]))
    }

    #[test]
    fn percentiles_are_the_nearest_rank_samples() {
        assert_eq!(summary([]), None);
        assert_eq!(summary([7]), Some((1, [7.0; 4])));
        assert_eq!(summary((1..=10).rev()), Some((10, [5.0, 9.0, 10.0, 10.0])));
        assert_eq!(
            summary(1..=1000),
            Some((1000, [500.0, 900.0, 990.0, 1000.0]))
        );
    }

    #[test]
    fn only_the_latest_samples_are_kept() {
        let (samples, [.., max]) =
            summary((0..10).map(|_| 1_000_000).chain((0..KEPT).map(|_| 1))).unwrap();
        assert_eq!((samples, max), (KEPT, 1.0));
    }

    #[test]
    fn objects_without_send_time_are_ignored() {
        let mut samples = Samples::with_capacity(1);
        for annotation in ["", "soon", "0", "00000000000000000000"] {
            samples.add(parse(annotation));
        }
        samples.add(u64::MAX);
        samples.add(parse("00000000000000000001"));
        let latency = samples.summary().unwrap();
        assert_eq!(
            (latency.samples, latency.p50_us, latency.max_us),
            (2, 0.0, f64::from(u32::MAX))
        );
    }
}
