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
            row("that could not be decoded", report.unreadable.to_string())?;
        }
        let way = match report.lists {
            0 => "a watch".to_owned(),
            1 => "LIST".to_owned(),
            pages => format!("LIST in {pages} pages"),
        };
        row("that came by", way)?;
        row("until synced", format!("{:.2} s", report.sync_seconds))?;
        let cpu = report.sync_cpu_seconds;
        row(
            "  of a processor",
            format!("{cpu:.2} s, {:.1} us an object", cpu / objects * 1e6),
        )?;
        row(
            "memory for it",
            format!(
                "{:.1} MiB, {:.2} KiB an object",
                cache / MIB,
                cache / objects / KIB
            ),
        )?;
        row("memory of the process", mib(report.resident_bytes))?;
        row("  at most", mib(report.peak_bytes))?;
        row("threads", report.threads.to_string())?;
        row(
            "events",
            format!("{} in {:.1} s", report.events, report.waited_seconds),
        )?;
        if report.events > 0 {
            let events = report.events as f64;
            if report.events_seconds > 0.0 {
                row(
                    "  a second",
                    format!("{:.0}", (events - 1.0) / report.events_seconds),
                )?;
            }
            row(
                "  of a processor",
                format!(
                    "{:.1} us an event",
                    report.events_cpu_seconds / events * 1e6
                ),
            )?;
            row(
                "  wake-ups of threads",
                format!("{:.2} an event", report.wakeups as f64 / events),
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
                format!("{p50_us} us for half of {samples}, {p90_us} us for 90 %,"),
            )?;
            row("", format!("{p99_us} us for 99 %, {max_us} us at most"))?;
        }
        row(
            "memory of the process at the end",
            mib(report.resident_after_bytes),
        )?;
        row("  at most", mib(report.peak_after_bytes))?;
        writeln!(f)?;
        writeln!(
            f,
            "This process took {}. A relist in which every object has changed holds each of them twice until the\n\
             list is complete: a memory limit that outlasts it is {} or more, as long as handlers keep up.",
            mib(report.peak_after_bytes),
            mib(report.peak_after_bytes + cache as u64)
        )
    }
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / MIB)
}
