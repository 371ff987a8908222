//! What all programs show to people in one form: names and paths, as one line of text from which the bytes can be had
//! again, and lengths of time. Pure.

use std::ffi::OsStr;
use std::fmt::Write;
use std::time::Duration;

const DAY_SECS: u64 = 86_400;

/// A name or path as text. What is no text or moves a terminal is escaped as `$'...'` of the shells and
/// `printf %b` of bash read it: `\xff`, `\n`; a backslash is `\\`. Everything else stays as it is. On Windows a backslash stays one.
#[must_use]
pub fn shown(name: impl AsRef<OsStr>) -> String {
    let mut text = String::new();
    for part in name.as_ref().as_encoded_bytes().utf8_chunks() {
        part.valid().chars().for_each(|c| put(&mut text, c));
        escape(&mut text, part.invalid());
    }
    text
}

fn put(text: &mut String, c: char) {
    match c {
        '\n' => text.push_str("\\n"),
        '\r' => text.push_str("\\r"),
        '\t' => text.push_str("\\t"),
        '\\' if cfg!(not(windows)) => text.push_str("\\\\"),
        c if c.is_control() => escape(text, c.encode_utf8(&mut [0; 4]).as_bytes()),
        c => text.push(c),
    }
}

fn escape(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        let _ = write!(text, "\\x{byte:02x}");
    }
}

/// A character of text from outside, for a line of printable ASCII: all others show as `?`.
#[must_use]
pub fn ascii(character: char) -> char {
    if character == ' ' || character.is_ascii_graphic() { character } else { '?' }
}

/// A length of time in its two largest units: `5s`, `3m20s`, `2h05m`, `4d07h`.
#[must_use]
pub fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / DAY_SECS);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{:02}s", seconds % 60),
        (0, _, _) => format!("{hours}h{:02}m", minutes % 60),
        (_, _, _) => format!("{days}d{:02}h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    #[cfg(unix)]
    use std::os::unix::ffi::OsStrExt;

    use rstest::rstest;

    use super::*;

    #[cfg(unix)]
    #[rstest]
    #[case::text("a b.é部🦀".as_bytes(), "a b.é部🦀")]
    #[case::empty(b"", "")]
    #[case::latin_1(b"caf\xe9", r"caf\xe9")]
    #[case::cut_in_the_middle(b"a\xf0\x9f\xa6z", r"a\xf0\x9f\xa6z")]
    #[case::control(b"\n\r\t\0\x1b[m\x7f", r"\n\r\t\x00\x1b[m\x7f")]
    #[case::second_range("\u{9b}".as_bytes(), r"\xc2\x9b")]
    #[case::what_looks_escaped(br"\xe9", r"\\xe9")]
    fn a_shown_name_is_one_line_and_reversible(#[case] bytes: &[u8], #[case] text: &str) {
        assert_eq!(shown(OsStr::from_bytes(bytes)), text);
    }

    #[test]
    fn text_from_outside_is_printable_ascii() {
        let line: String = "a ~\t\u{7f}\u{1b}é\n".chars().map(ascii).collect();
        assert_eq!(line, "a ~?????");
    }

    #[rstest]
    #[case(0, "0s")]
    #[case(59, "59s")]
    #[case(60, "1m00s")]
    #[case(3599, "59m59s")]
    #[case(3600, "1h00m")]
    #[case(86_399, "23h59m")]
    #[case(86_400, "1d00h")]
    #[case(9_000_000, "104d04h")]
    fn ages_are_written_in_two_units(#[case] seconds: u64, #[case] text: &str) {
        assert_eq!(span(Duration::from_secs(seconds)), text);
    }
}
