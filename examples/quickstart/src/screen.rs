//! The screen of `--live`: lays out everything that fits into the terminal as one string.

/// The width at which columns stop shrinking.
const MIN_COLUMN: usize = 4;

/// The parts of the screen around the table rows.
pub(crate) struct View<'a, const COLUMNS: usize> {
    /// The header lines, most important first. They are always displayed.
    pub(crate) header: &'a [String],
    /// The status, wrapped to at most a quarter of the screen. Without rows it can take the rest of
    /// the screen.
    pub(crate) status: &'a str,
    /// The last change. Empty before the first change.
    pub(crate) recent: &'a str,
    /// The titles of the columns.
    pub(crate) titles: [&'a str; COLUMNS],
}

/// Returns the text that redraws a terminal of the given size.
///
/// Each line overwrites the old line and erases only its remainder, so nothing flickers. The text
/// restores every terminal mode and leaves the cursor after the last line. The terminal therefore
/// stays usable if the program ends at any time. Control characters in the input are dropped.
pub(crate) fn draw<const COLUMNS: usize>(
    view: &View<'_, COLUMNS>,
    rows: impl ExactSizeIterator<Item = [String; COLUMNS]>,
    height: usize,
    width: usize,
) -> String {
    // Leave the last column empty: "erase to the end of the line" there would erase the last
    // character.
    let width = width.saturating_sub(1);
    let mut lines: Vec<_> = view.header.iter().map(|line| fit(line, width)).collect();
    let available = if rows.len() == 0 {
        height.saturating_sub(lines.len())
    } else {
        height / 4
    };
    lines.extend(wrap(view.status, width, available.max(1)));
    if !view.recent.is_empty() && lines.len() + 4 <= height {
        lines.push(fit(view.recent, width));
    }
    lines.extend(table(
        view.titles,
        rows,
        height.saturating_sub(lines.len()),
        width,
    ));
    lines.truncate(height);
    // A wide character takes two columns, so a line can still be longer than the screen. Auto-wrap
    // is off while drawing, so the terminal cuts the line.
    format!(
        "\x1b[?7l\x1b[H{}\x1b[K\x1b[J\x1b[?7h",
        lines.join("\x1b[K\n")
    )
}

/// Lays out the table in at most `height` lines: the titles, the rows that fit, and the number of
/// omitted rows.
fn table<const COLUMNS: usize>(
    titles: [&str; COLUMNS],
    rows: impl ExactSizeIterator<Item = [String; COLUMNS]>,
    height: usize,
    width: usize,
) -> Vec<String> {
    let total = rows.len();
    let available = height.saturating_sub(1);
    let shown = if total > available {
        available.saturating_sub(1)
    } else {
        total
    };
    let mut cells = vec![titles.map(str::to_owned)];
    cells.extend(rows.take(shown));

    let mut widths = [0; COLUMNS];
    for row in &cells {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    while widths.iter().sum::<usize>() + 2 * COLUMNS.saturating_sub(1) > width {
        match widths.iter_mut().max() {
            Some(widest) if *widest > MIN_COLUMN => *widest -= 1,
            _ => break,
        }
    }

    let line = |row: &[String; COLUMNS]| {
        let padded = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{:<width$}", fit(cell, width)));
        fit(padded.collect::<Vec<_>>().join("  ").trim_end(), width)
    };
    let mut lines: Vec<_> = cells.iter().map(line).collect();
    if total > shown {
        lines.push(fit(&format!("… and {} more", total - shown), width));
        if shown == 0 {
            lines.remove(0);
        }
    }
    lines
}

/// Cuts `text` to one line of at most `width` characters.
fn fit(text: &str, width: usize) -> String {
    wrap(text, width, 1).remove(0)
}

/// Wraps `text` into at least one and at most `height` lines. The last line ends with an ellipsis
/// if text is left over.
fn wrap(text: &str, width: usize, height: usize) -> Vec<String> {
    let text: Vec<_> = text
        .chars()
        .filter(|character| !character.is_control())
        .collect();
    let mut lines: Vec<String> = text
        .chunks(width.max(1))
        .map(|line| line.iter().collect())
        .collect();
    if lines.len() > height {
        lines.truncate(height);
        if let Some(last) = lines.last_mut() {
            last.pop();
            last.push('…');
        }
    }
    if lines.is_empty() {
        vec![String::new()]
    } else {
        lines
    }
}
