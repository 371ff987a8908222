//! Formats text in aligned columns. Pure.

use std::fmt::Write;

/// How a cell is shown on a terminal with colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Style {
    #[default]
    Plain,
    Heading,
    Warning,
}

/// Whether styles are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Colour {
    Always,
    Never,
}

/// One cell. Its text must be printable: control characters would break the columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) style: Style,
}

impl Cell {
    pub(super) fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), style: Style::Plain }
    }

    pub(super) fn styled(text: impl Into<String>, style: Style) -> Self {
        Self { text: text.into(), style }
    }

    fn width(&self) -> usize {
        self.text.chars().count()
    }
}

/// Lines of cells with two blanks between columns, each with the text below it; the last column is not filled up.
pub(super) fn aligned<const COLUMNS: usize>(
    lines: &[([Cell; COLUMNS], String)],
    colour: Colour,
) -> String {
    let mut widths = [0; COLUMNS];
    for (line, _) in lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = cell.width().max(*width);
        }
    }
    let mut text = String::new();
    for (line, below) in lines {
        for (column, (cell, width)) in line.iter().zip(widths).enumerate() {
            show(&mut text, cell, colour);
            let missing = width.saturating_sub(cell.width()).saturating_add(2);
            if column.saturating_add(1) < COLUMNS {
                let _ = write!(text, "{:missing$}", "");
            }
        }
        text.push('\n');
        text.push_str(below);
    }
    text
}

fn show(text: &mut String, cell: &Cell, colour: Colour) {
    let begin = match (colour, cell.style) {
        (Colour::Never, _) | (Colour::Always, Style::Plain) => return text.push_str(&cell.text),
        (Colour::Always, Style::Heading) => "\x1b[1m",
        (Colour::Always, Style::Warning) => "\x1b[33m",
    };
    text.extend([begin, &cell.text, "\x1b[0m"]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines() -> [([Cell; 3], String); 2] {
        let head = ["A", "LONG", "C"].map(|text| Cell::styled(text, Style::Heading));
        let line = [Cell::plain("wider"), Cell::styled("é", Style::Warning), Cell::plain("z z")];
        [(head, String::new()), (line, "  below\n".to_owned())]
    }

    #[test]
    fn columns_are_aligned() {
        assert_eq!(aligned(&lines(), Colour::Never), "A      LONG  C\nwider  é     z z\n  below\n");
    }

    #[test]
    fn colours_do_not_count_as_width() {
        let text = aligned(&lines(), Colour::Always);
        assert!(text.contains("\x1b[1mA\x1b[0m      \x1b[1mLONG\x1b[0m  "), "{text:?}");
        assert!(text.contains("wider  \x1b[33mé\x1b[0m     z z\n"), "{text:?}");
    }
}
