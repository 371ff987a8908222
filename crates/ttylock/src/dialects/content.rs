//! The contents of lock files: reads and writes pids in every known dialect. Pure.

use pidlockfile::ascii;
use pidlockfile::process::Pid;

/// The most bytes of a lock file that are read. The longest form, Qt's, has its pid first.
pub const READ_LIMIT: usize = 64;

/// How the programs of one dialect write a pid into a lock file. All are read by [`Content::parse`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContentForm {
    /// The pid in ten decimal digits, blanks in front, and a newline (HDB UUCP, FHS).
    Decimal,
    /// The pid as a four-byte integer in the machine's byte order (V2 UUCP).
    Binary,
    /// Pid and node number, both as in `Decimal`, with a blank between (QNX).
    DecimalAndNode,
    /// The pid in ten decimal digits, zeros in front, and NUL (apcupsd).
    ZeroPadded,
    /// The pid and a newline. Other lines with facts about the process may follow (Qt).
    Line,
}

/// The content of a lock file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// The process that holds the lock.
    pub pid: Pid,
    /// What follows the pid: program and user by old minicom, the program by Qt, gammu and gnokii.
    /// Printable ASCII; other bytes become `?`.
    pub note: String,
}

/// The file names no process: empty, cut short, or no form that any program writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreadable;

impl Content {
    /// Reads a lock file.
    ///
    /// # Errors
    /// [`Unreadable`] when there is no pid of 1 or more in it.
    pub fn parse(bytes: &[u8]) -> Result<Self, Unreadable> {
        let number = match *bytes {
            [a, b] if !is_text(bytes, is_plain) => i64::from(i16::from_ne_bytes([a, b])),
            [a, b, c, d] if !is_text(bytes, is_number) => {
                i64::from(i32::from_ne_bytes([a, b, c, d]))
            }
            [a, b, c, d, e, f, g, h] if !is_text(bytes, is_plain) => {
                i64::from_ne_bytes([a, b, c, d, e, f, g, h])
            }
            _ => return parse_text(bytes),
        };
        Pid::new(number).map(|pid| Self { pid, note: String::new() }).ok_or(Unreadable)
    }
}

/// Four bytes are a number in text only when they are nothing else: kermit, minicom and gensio
/// take any other four for an integer.
fn is_number(byte: u8) -> bool {
    byte.is_ascii_digit() || is_blank(byte) || byte == b'\n'
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_graphic() || is_blank(byte) || byte == b'\n'
}

fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

fn is_text(content: &[u8], allowed: fn(u8) -> bool) -> bool {
    content.iter().copied().all(allowed)
}

/// Leading blanks, decimal digits, then a blank, a newline, NUL or the end.
fn parse_text(content: &[u8]) -> Result<Content, Unreadable> {
    let start = content.iter().position(|byte| !is_blank(*byte)).ok_or(Unreadable)?;
    let text = content.get(start..).unwrap_or_default();
    let digits = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(digits);
    let ends = rest.first().is_none_or(|byte| is_blank(*byte) || matches!(byte, b'\n' | 0));
    let pid = Pid::parse(digits).map_err(|_| Unreadable)?;
    if ends { Ok(Content { pid, note: note(rest) }) } else { Err(Unreadable) }
}

fn note(rest: &[u8]) -> String {
    let end = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
    let words = rest.get(..end).unwrap_or_default().iter().map(|byte| match byte {
        b'\n' | b'\t' => ' ',
        byte => ascii(char::from(*byte)),
    });
    words.collect::<String>().trim().to_owned()
}

impl ContentForm {
    /// The content of a lock file for this pid.
    pub(crate) fn write(self, pid: Pid) -> Vec<u8> {
        match self {
            Self::Decimal => format!("{pid:>10}\n").into_bytes(),
            Self::Binary => pid.as_raw().to_ne_bytes().to_vec(),
            Self::DecimalAndNode => format!("{pid:>10} {node:>10}\n", node = 0).into_bytes(),
            Self::ZeroPadded => format!("{:010}\0", pid.as_raw()).into_bytes(),
            Self::Line => format!("{pid}\n").into_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::fhs(b"      1230\n", 1230, "")]
    #[case::fsstnd_zeros(b"0000001230\n", 1230, "")]
    #[case::apcupsd(b"0000001230\0", 1230, "")]
    #[case::old_minicom(b"      1230 minicom root\n", 1230, "minicom root")]
    #[case::gammu(b"      1230 gammu\n", 1230, "gammu")]
    #[case::busybox(b"1230\n", 1230, "")]
    #[case::busybox_short(b"  30\n", 30, "")]
    #[case::socat_without_newline(b"1230", 1230, "")]
    #[case::socat_long(b"32768", 32768, "")]
    #[case::four_bytes_of_text(b"123\n", 123, "")]
    #[case::four_bytes_padded(b"  12", 12, "")]
    #[case::qt(b"1230\nminicom\nhost\nid\nboot\n", 1230, "minicom host id boot")]
    #[case::qnx(b"      1230          0\n", 1230, "0")]
    #[case::two_digits(b"7\n", 7, "")]
    #[case::tab(b"\t1230\tx", 1230, "x")]
    #[case::hostile_note(b"1230 \x1b[2J\xff\n", 1230, "?[2J?")]
    fn reads_text(#[case] content: &[u8], #[case] pid: i32, #[case] note: &str) {
        let read = Content::parse(content).unwrap();
        assert_eq!((read.pid.as_raw(), read.note.as_str()), (pid, note));
    }

    #[rstest]
    #[case::int(&1230_i32.to_ne_bytes(), 1230)]
    #[case::int_that_starts_like_a_digit(&0x31_i32.to_ne_bytes(), 0x31)]
    #[case::int_of_letters(b"abcd", i32::from_ne_bytes(*b"abcd"))]
    #[case::long(&1230_i64.to_ne_bytes(), 1230)]
    #[case::long_that_starts_like_a_digit(&0x31_i64.to_ne_bytes(), 0x31)]
    #[case::short(&1230_i16.to_ne_bytes(), 1230)]
    fn reads_binary(#[case] content: &[u8], #[case] pid: i32) {
        assert_eq!(
            Content::parse(content),
            Ok(Content { pid: Pid::new(pid.into()).unwrap(), note: String::new() })
        );
    }

    #[rstest]
    #[case::empty(b"")]
    #[case::blank(b"          \n")]
    #[case::words(b"hello world\n")]
    #[case::pid_zero(b"         0\n")]
    #[case::negative(b"        -1\n")]
    #[case::too_large(b"99999999999\n")]
    #[case::glued(b"1230x\n")]
    #[case::one_byte(b"\x07")]
    #[case::three_bytes(b"\x01\0\0")]
    #[case::int_zero(&0_i32.to_ne_bytes())]
    #[case::int_negative(&(-5_i32).to_ne_bytes())]
    #[case::long_too_large(&i64::MAX.to_ne_bytes())]
    #[case::newline_first(b"\n1230\n")]
    fn unreadable_contents_are_refused(#[case] content: &[u8]) {
        assert_eq!(Content::parse(content), Err(Unreadable));
    }

    #[test]
    fn the_fhs_form_is_eleven_bytes() {
        assert_eq!(ContentForm::Decimal.write(Pid::new(1230).unwrap()), b"      1230\n");
        assert_eq!(ContentForm::Decimal.write(Pid::new(i32::MAX.into()).unwrap()), b"2147483647\n");
    }

    proptest! {
        #[test]
        fn written_content_is_read_back(number in 1..=i32::MAX) {
            let pid = Pid::new(number.into()).unwrap();
            for form in [ContentForm::Decimal, ContentForm::DecimalAndNode, ContentForm::ZeroPadded] {
                prop_assert_eq!(Content::parse(&form.write(pid)).unwrap().pid, pid);
            }
        }

        // A binary form whose four bytes are all digits, blanks or newlines is text by the rule
        // of every reader; such pids are far above any the kernel gives out.
        #[test]
        fn binary_pids_are_read(number in 1..=4_194_304_i32) {
            let pid = Pid::new(number.into()).unwrap();
            prop_assert_eq!(Content::parse(&ContentForm::Binary.write(pid)).unwrap().pid, pid);
        }

        #[test]
        fn a_note_from_any_file_is_printable(content in proptest::collection::vec(any::<u8>(), 0..=READ_LIMIT)) {
            if let Ok(read) = Content::parse(&content) {
                prop_assert!(read.note.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' '));
            }
        }
    }
}
