//! Formats text in aligned columns. Pure.

use std::fmt::Write;

/// One cell: its text, and the sequence that begins its style on a terminal. The text must be printable: control
/// characters would break the columns.
pub(super) type Cell = (String, &'static str);

pub(super) const PLAIN: &str = "";
pub(super) const HEADING: &str = "\x1b[1m";
pub(super) const WARNING: &str = "\x1b[33m";
const END: &str = "\x1b[0m";

/// Lines of cells with two blanks between columns, each with the text below it; the last column is not filled up.
pub(super) fn aligned<const COLUMNS: usize>(lines: &[([Cell; COLUMNS], String)]) -> String {
    let length = |(text, _): &Cell| text.chars().count();
    let mut widths = [0; COLUMNS];
    for (line, _) in lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = length(cell).max(*width);
        }
    }
    let mut all = String::new();
    for (line, below) in lines {
        let mut missing = 0;
        for (cell, width) in line.iter().zip(widths) {
            let (text, style) = cell;
            let end = if style.is_empty() { "" } else { END };
            let _ = write!(all, "{:missing$}{style}{text}{end}", "");
            missing = width.saturating_sub(length(cell)).saturating_add(2);
        }
        all.extend(["\n", below]);
    }
    all
}

/// The same text without styles.
pub(super) fn plain(text: &str) -> String {
    [HEADING, WARNING, END].iter().fold(text.to_owned(), |text, style| text.replace(style, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Styles do not count as width.
    #[test]
    fn columns_are_aligned() {
        let head = ["A", "LONG", "C"].map(|text| (text.to_owned(), HEADING));
        let line = [("wider", PLAIN), ("é", WARNING), ("z z", PLAIN)];
        let line = line.map(|(text, style)| (text.to_owned(), style));
        let text = aligned(&[(head, String::new()), (line, "  below\n".to_owned())]);
        let head = "\x1b[1mA\x1b[0m      \x1b[1mLONG\x1b[0m  \x1b[1mC\x1b[0m\n";
        assert_eq!(text, format!("{head}wider  \x1b[33mé\x1b[0m     z z\n  below\n"));
        assert_eq!(plain(&text), "A      LONG  C\nwider  é     z z\n  below\n");
    }
}
