//! Names of lock files: one path component, so that no name leads out of its directory; and how all programs show names,
//! paths and text from outside to people. Pure.

use std::ffi::{OsStr, OsString};
use std::fmt::{self, Write};
use std::path::Path;

/// A file name, which need not be text: not empty, not `.` or `..`, without `/` and NUL, at most 255 bytes.
///
/// ```
/// use pidlockfile::Name;
///
/// assert!(Name::new("LCK..ttyS0").is_some());
/// assert!(Name::new("../LCK..ttyS0").is_none());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name {
    /// The name, or what stands for one that is no text.
    text: String,
    /// The name itself, if it is no text.
    bytes: Option<OsString>,
}

impl Name {
    /// The longest name the common file systems take, in bytes.
    pub const LONGEST: usize = 255;

    /// Checks a file name.
    #[must_use]
    pub fn new(name: impl Into<OsString>) -> Option<Self> {
        let checked = match name.into().into_string() {
            Ok(text) => Self { text, bytes: None },
            Err(bytes) => Self { text: shown(&bytes), bytes: Some(bytes) },
        };
        let bytes = checked.as_os_str().as_encoded_bytes();
        let fits = (1..=Self::LONGEST).contains(&bytes.len());
        let plain = bytes != b"." && bytes != b".." && !bytes.iter().any(|b| matches!(b, b'/' | 0));
        (fits && plain && is_usable(checked.as_str())).then_some(checked)
    }

    /// The name itself.
    #[must_use]
    pub fn as_os_str(&self) -> &OsStr {
        self.bytes.as_deref().unwrap_or(OsStr::new(&self.text))
    }

    /// The name as text. One that is none is escaped ([`shown`]): that leads to no file.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

#[cfg(not(windows))]
fn is_usable(_name: &str) -> bool {
    true
}

#[cfg(windows)]
use is_usable_on_windows as is_usable;

/// Whether Windows takes a name as it is and for a file: separators, streams (`:`) and patterns are none,
/// blanks and dots at the end are dropped, and some names mean devices whatever their extension.
#[cfg(any(windows, test))]
fn is_usable_on_windows(name: &str) -> bool {
    const DEVICES: [&str; 6] = ["CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"];
    let stem = name.split('.').next().unwrap_or_default().trim_end().to_ascii_uppercase();
    let numbered = |device| {
        stem.strip_prefix(device).is_some_and(|number| {
            let mut number = number.chars();
            matches!((number.next(), number.next()), (Some('0'..='9' | '¹' | '²' | '³'), None))
        })
    };
    let odd = |c: char| c.is_control() || r#"<>:"/\|?*"#.contains(c);
    !name.chars().any(odd)
        && !name.ends_with(['.', ' '])
        && !DEVICES.contains(&stem.as_str())
        && !numbered("COM")
        && !numbered("LPT")
}

impl AsRef<OsStr> for Name {
    fn as_ref(&self) -> &OsStr {
        self.as_os_str()
    }
}

impl AsRef<Path> for Name {
    fn as_ref(&self) -> &Path {
        Path::new(self.as_os_str())
    }
}

/// As [`Name::as_str`].
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

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

#[cfg(test)]
mod tests {
    #[cfg(unix)]
    use std::os::unix::ffi::OsStrExt;

    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::plain("LCK..ttyS0", true)]
    #[case::dots_inside("..a", true)]
    #[case::empty("", false)]
    #[case::dot(".", false)]
    #[case::dot_dot("..", false)]
    #[case::slash("a/b", false)]
    #[case::nul("a\0b", false)]
    fn a_name_is_one_component_of_a_path(#[case] name: &str, #[case] good: bool) {
        assert_eq!(Name::new(name).is_some(), good);
        if let Some(checked) = Name::new(name) {
            assert_eq!((checked.as_str(), checked.to_string().as_str()), (name, name));
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_name_may_be_invalid_utf_8() {
        use std::os::unix::ffi::OsStrExt;
        let name = Name::new(OsStr::from_bytes(b"caf\xe9")).unwrap();
        assert_eq!(name.as_os_str().as_bytes(), b"caf\xe9");
        assert_eq!((name.as_str(), name.to_string().as_str()), (r"caf\xe9", r"caf\xe9"));
        assert_ne!(Name::new(r"caf\xe9"), Some(name));
        assert_eq!(Name::new(OsStr::from_bytes(b"caf\xe9/x")), None);
    }

    #[rstest]
    #[case::plain("deploy.lock", true)]
    #[case::dots_inside("LCK..ttyS0", true)]
    #[case::of_a_slot("a.lock.12", true)]
    #[case::starts_like_a_device("CONSOLE.lock", true)]
    #[case::two_digits("COM10", true)]
    #[case::backslash("a\\b", false)]
    #[case::stream("a:b", false)]
    #[case::dot_at_the_end("a.", false)]
    #[case::blank_at_the_end("a ", false)]
    #[case::device("nul", false)]
    #[case::device_with_extension("Aux.lock", false)]
    #[case::serial_port("COM3.lock", false)]
    #[case::control("a\nb", false)]
    fn names_that_windows_refuses_are_refused(#[case] name: &str, #[case] good: bool) {
        assert_eq!(is_usable_on_windows(name), good);
    }

    #[rstest]
    #[case::at_the_limit(Name::LONGEST, true)]
    #[case::one_over(Name::LONGEST + 1, false)]
    fn the_length_of_a_name_is_bounded(#[case] length: usize, #[case] good: bool) {
        assert_eq!(Name::new("x".repeat(length)).is_some(), good);
    }

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
}
