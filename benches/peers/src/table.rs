//! Medians of the runs, and their ratios to kube-rs in the same configuration.

use crate::case::Case;
use crate::measure::report::Report;

type Reports = [(Case, Vec<Report>)];
type Figure = fn(&Report) -> f64;

fn sync_cpu(report: &Report) -> f64 {
    report.sync_cpu_seconds
}

pub(crate) fn kilobytes_an_object(report: &Report) -> f64 {
    let grown = report
        .resident_bytes
        .saturating_sub(report.resident_before_bytes);
    grown as f64 / 1e3 / report.objects.max(1) as f64
}

pub(crate) fn event_cpu(report: &Report) -> f64 {
    report.events_cpu_seconds * 1e6 / report.events.max(1) as f64
}

fn wakeups(report: &Report) -> f64 {
    report.wakeups as f64 / report.events.max(1) as f64
}

/// Prints the first list and the events as a Markdown table.
pub(crate) fn print_all(all: &Reports) {
    println!(
        "\n| | sync CPU s | ratio | sync s | first object ms | kB a Pod | ratio | peak / steady | CPU us an event | ratio | \
         events a second | wake-ups an event |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    );
    for (case, reports) in all {
        let row = Row {
            all,
            case: *case,
            reports,
        };
        println!(
            "| {case} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            row.of_list(sync_cpu, 2),
            row.of_list_ratio(sync_cpu),
            row.of_list(|report| report.sync_seconds, 2),
            row.of_list(|report| report.first_object_seconds * 1e3, 0),
            row.of_list(kilobytes_an_object, 1),
            row.of_list_ratio(kilobytes_an_object),
            row.of_list(
                |report| report.peak_bytes as f64 / report.resident_bytes.max(1) as f64,
                2
            ),
            row.median(event_cpu, 1),
            row.ratio(event_cpu),
            row.of_list(|report| report.events as f64 / report.events_seconds, 0),
            row.median(wakeups, 2),
        );
    }
}

/// Prints only the events.
pub(crate) fn print_events(title: &str, all: &Reports) {
    println!(
        "\n| {title} | CPU us an event | ratio | wake-ups an event | p50 us | p99 us |\n|---|--:|--:|--:|--:|--:|"
    );
    for (case, reports) in all {
        let row = Row {
            all,
            case: *case,
            reports,
        };
        let latency = |figure: Figure| {
            let has_latency = reports.iter().all(|report| report.latency.is_some());
            if has_latency {
                row.median(figure, 0)
            } else {
                String::new()
            }
        };
        println!(
            "| {case} | {} | {} | {} | {} | {} |",
            row.median(event_cpu, 1),
            row.ratio(event_cpu),
            row.median(wakeups, 2),
            latency(|report| report.latency.map_or(0.0, |latency| latency.p50_us)),
            latency(|report| report.latency.map_or(0.0, |latency| latency.p99_us)),
        );
    }
}

struct Row<'a> {
    all: &'a Reports,
    case: Case,
    reports: &'a [Report],
}

impl Row<'_> {
    fn median(&self, figure: Figure, decimals: usize) -> String {
        format!("{:.decimals$}", median(self.reports, figure))
    }

    fn ratio(&self, figure: Figure) -> String {
        let reference = self.case.reference();
        match self.all.iter().find(|(case, _)| *case == reference) {
            Some((_, reports)) => {
                format!(
                    "{:.2}",
                    median(self.reports, figure) / median(reports, figure)
                )
            }
            None => String::new(),
        }
    }

    /// The bare loop does not list, so its cell is empty.
    fn of_list(&self, figure: Figure, decimals: usize) -> String {
        match self.case.is_bare() {
            true => String::new(),
            false => self.median(figure, decimals),
        }
    }

    fn of_list_ratio(&self, figure: Figure) -> String {
        match self.case.is_bare() {
            true => String::new(),
            false => self.ratio(figure),
        }
    }
}

pub(crate) fn median(reports: &[Report], figure: Figure) -> f64 {
    let mut figures: Vec<f64> = reports.iter().map(figure).collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
