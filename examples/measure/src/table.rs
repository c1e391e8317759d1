//! The report as a table.

use std::fmt;

use super::report::{Latency, Report};

const KIB: f64 = 1024.0;
const MIB: f64 = KIB * KIB;

pub(crate) struct Table<'a>(pub(crate) &'a Report);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.0;
        let cache = report
            .resident_bytes
            .saturating_sub(report.resident_before_bytes) as f64;
        let objects = report.objects.max(1) as f64;
        writeln!(f, "{} as {}", report.resource, report.r#type)?;
        let mut row = |what: &str, figure: String| writeln!(f, "  {what:32} {figure}");
        row("objects", report.objects.to_string())?;
        if report.unreadable > 0 {
            row("  not decoded", report.unreadable.to_string())?;
        }
        let method = match report.lists {
            0 => "a watch".to_owned(),
            1 => "LIST".to_owned(),
            pages => format!("LIST in {pages} pages"),
        };
        row("  received by", method)?;
        row("time until synced", format!("{:.2} s", report.sync_seconds))?;
        let cpu = report.sync_cpu_seconds;
        row(
            "  CPU time",
            format!("{cpu:.2} s, {:.1} us per object", cpu / objects * 1e6),
        )?;
        row(
            "memory of the cache",
            format!(
                "{:.1} MiB, {:.2} KiB per object",
                cache / MIB,
                cache / objects / KIB
            ),
        )?;
        row("memory of the process", mib(report.resident_bytes))?;
        row("  peak", mib(report.peak_bytes))?;
        row("threads", report.threads.to_string())?;
        row(
            "events",
            format!("{} in {:.1} s", report.events, report.waited_seconds),
        )?;
        if report.events > 0 {
            let events = report.events as f64;
            if report.events_seconds > 0.0 {
                row(
                    "  per second",
                    format!("{:.0}", (events - 1.0) / report.events_seconds),
                )?;
            }
            row(
                "  CPU time",
                format!(
                    "{:.1} us per event",
                    report.events_cpu_seconds / events * 1e6
                ),
            )?;
            row(
                "  thread wake-ups",
                format!("{:.2} per event", report.wakeups as f64 / events),
            )?;
        }
        if let Some(Latency {
            samples,
            p50_us,
            p90_us,
            p99_us,
            max_us,
        }) = report.latency
        {
            row(
                "  latency",
                format!("p50 {p50_us} us of {samples} samples, p90 {p90_us} us,"),
            )?;
            row("", format!("p99 {p99_us} us, maximum {max_us} us"))?;
        }
        row(
            "memory of the process at the end",
            mib(report.resident_after_bytes),
        )?;
        row("  peak", mib(report.peak_after_bytes))?;
        writeln!(f)?;
        writeln!(
            f,
            "The peak memory of this process is {}. If every object changes between two lists, a relist keeps each\n\
             object twice until it is complete. For this, set a memory limit of at least {}, if handlers keep up.",
            mib(report.peak_after_bytes),
            mib(report.peak_after_bytes + cache as u64)
        )
    }
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / MIB)
}
