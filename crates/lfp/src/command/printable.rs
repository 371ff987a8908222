//! Makes foreign text safe to print on a terminal. Pure.

use pidlockfile::ascii;

/// Text that can do nothing to a terminal: what is neither a letter, a digit nor printable ASCII
/// shows as `?`.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_alphanumeric() { c } else { ascii(c) }).collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::printable;

    #[rstest]
    #[case::plain("picocom -b 9600", "picocom -b 9600")]
    #[case::letters("José 部", "José 部")]
    #[case::escape("\x1b[2Jx", "?[2Jx")]
    #[case::one_byte_escape("\u{9b}2J", "?2J")]
    #[case::line_ends("a\r\nb\tc\0", "a??b?c?")]
    #[case::right_to_left("a\u{202e}b\u{2066}c", "a?b?c")]
    #[case::invisible("a\u{200b}b\u{feff}", "a?b?")]
    fn characters_that_control_a_terminal_are_replaced(#[case] text: &str, #[case] shown: &str) {
        assert_eq!(printable(text), shown);
    }
}
