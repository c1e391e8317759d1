//! The screen of `--live`: everything that fits into the terminal, as one text to write.

/// Narrower columns than this are not worth shrinking.
const MIN_COLUMN: usize = 4;

/// What is shown beside the rows of the table.
pub(crate) struct View<'a, const COLUMNS: usize> {
    /// Always shown, one line each, most important first.
    pub(crate) header: &'a [String],
    /// Wrapped. It takes up to a quarter of the screen, or all that is left if there are no rows.
    pub(crate) status: &'a str,
    /// The last change, empty before the first.
    pub(crate) recent: &'a str,
    /// The titles of the columns.
    pub(crate) titles: [&'a str; COLUMNS],
}

/// Redraws a terminal of this size.
///
/// Each line overwrites the line before it and erases only what is left of that one, so nothing flickers. The text
/// leaves every mode of the terminal as it was, and the cursor behind the last line: a program that ends at any time
/// leaves a usable terminal. Control characters in the input are dropped.
pub(crate) fn draw<const COLUMNS: usize>(
    view: &View<'_, COLUMNS>,
    rows: impl ExactSizeIterator<Item = [String; COLUMNS]>,
    height: usize,
    width: usize,
) -> String {
    // Erasing "to the end of the line" from the last column would erase the last character.
    let width = width.saturating_sub(1);
    let mut lines: Vec<_> = view.header.iter().map(|line| fit(line, width)).collect();
    let room = if rows.len() == 0 {
        height.saturating_sub(lines.len())
    } else {
        height / 4
    };
    lines.extend(wrap(view.status, width, room.max(1)));
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
    // The terminal counts wide characters twice; it must cut such lines and not wrap them.
    format!(
        "\x1b[?7l\x1b[H{}\x1b[K\x1b[J\x1b[?7h",
        lines.join("\x1b[K\n")
    )
}

/// The table in so many lines: the titles, the rows that fit, and the number of rows that do not.
fn table<const COLUMNS: usize>(
    titles: [&str; COLUMNS],
    rows: impl ExactSizeIterator<Item = [String; COLUMNS]>,
    height: usize,
    width: usize,
) -> Vec<String> {
    let total = rows.len();
    let room = height.saturating_sub(1);
    let shown = if total > room {
        room.saturating_sub(1)
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

/// One line of at most this width.
fn fit(text: &str, width: usize) -> String {
    wrap(text, width, 1).remove(0)
}

/// At least one line, at most so many. An ellipsis ends the last one if there is more text.
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
