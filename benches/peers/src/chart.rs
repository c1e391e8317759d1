//! Bar charts as SVG, readable on light and dark backgrounds.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::case::{Case, Program};
use crate::measure::report::Report;
use crate::table::{event_cpu, kilobytes_an_object, median};

const WIDTH: u32 = 760;
const ROW: i32 = 30;
/// The space above the first bar, for the title.
const TOP: i32 = 44;
/// The space left of the bars, for the names.
const LEFT: i32 = 250;
/// The space right of the longest bar, for its figure.
const RIGHT: i32 = 80;

/// Halfway between black and white.
const TEXT: RGBColor = RGBColor(125, 133, 144);
const OURS: RGBColor = RGBColor(47, 129, 247);
const KUBE_RS: RGBColor = RGBColor(145, 152, 161);

/// Writes `cpu.svg` and `memory.svg` into a folder.
pub(crate) fn write(folder: &Path, all: &[(Case, Vec<Report>)]) -> Result<(), Box<dyn Error>> {
    let bars = |figure: fn(&Report) -> f64| -> Vec<(Case, f64)> {
        all.iter()
            .map(|(case, reports)| (*case, median(reports, figure)))
            .collect()
    };
    draw(
        &folder.join("cpu.svg"),
        "CPU per event, microseconds (watch-list, without managedFields)",
        &bars(event_cpu),
    )?;
    draw(
        &folder.join("memory.svg"),
        "Memory per Pod of 6 kB, kB (watch-list, without managedFields)",
        &bars(kilobytes_an_object),
    )
}

fn draw(path: &Path, title: &str, bars: &[(Case, f64)]) -> Result<(), Box<dyn Error>> {
    let height = TOP + ROW * i32::try_from(bars.len())? + 8;
    let area = SVGBackend::new(path, (WIDTH, height.try_into()?)).into_drawing_area();
    let text = |size: i32| ("sans-serif", size).into_font().color(&TEXT);
    area.draw(&Text::new(title, (8, 12), text(18)))?;
    let largest = bars.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    let scale = f64::from(WIDTH as i32 - LEFT - RIGHT) / largest;
    let right = text(15).pos(Pos::new(HPos::Right, VPos::Center));
    let left = text(15).pos(Pos::new(HPos::Left, VPos::Center));
    for (row, (case, value)) in (0..).zip(bars) {
        let (top, end) = (TOP + ROW * row, LEFT + (value * scale) as i32);
        let (middle, bottom) = (top + ROW / 2 - 3, top + ROW - 6);
        let color = match case.program {
            Program::Ours => OURS,
            _ => KUBE_RS,
        };
        area.draw(&Rectangle::new(
            [(LEFT, top), (end.max(LEFT + 1), bottom)],
            color.filled(),
        ))?;
        area.draw(&Text::new(
            case.short_name(),
            (LEFT - 10, middle),
            right.clone(),
        ))?;
        area.draw(&Text::new(
            format!("{value:.1}"),
            (end + 8, middle),
            left.clone(),
        ))?;
    }
    Ok(area.present()?)
}
