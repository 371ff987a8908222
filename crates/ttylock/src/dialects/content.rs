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
#[non_exhaustive]
pub struct Content {
    first: Pid,
    other: Option<Pid>,
    /// What follows the pid: program and user by old minicom, the program by Qt, gammu and gnokii.
    /// Printable ASCII; other bytes become `?`.
    pub note: String,
}

/// The file names no process: empty, cut short, or no form that any program writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "it has one meaning")]
pub struct Unreadable;

impl Content {
    /// Reads a lock file, in every way in which a program may read it: as text by `sscanf("%d")`, and as an integer if
    /// it is as long as one and is not all text.
    ///
    /// # Errors
    /// [`Unreadable`] when there is no pid of 1 or more in it.
    pub fn parse(bytes: &[u8]) -> Result<Self, Unreadable> {
        match (integer(bytes), text(bytes)) {
            (Some(first), read) => {
                let other = read.map(|(pid, _)| pid).filter(|pid| *pid != first);
                Ok(Self { first, other, note: String::new() })
            }
            (None, Some((first, rest))) => Ok(Self { first, other: None, note: note(rest) }),
            (None, None) => Err(Unreadable),
        }
    }

    /// Each process that a program may take for the holder, the likeliest first: one or two.
    pub fn pids(&self) -> impl Iterator<Item = Pid> + use<> {
        std::iter::once(self.first).chain(self.other)
    }

    /// The process that holds the lock: the first one that lives, because the lock is busy for the programs that read
    /// it so. If none lives, the likeliest.
    pub fn holder(&self, lives: impl Fn(Pid) -> bool) -> Pid {
        let other = self.other.filter(|other| !lives(self.first) && lives(*other));
        other.unwrap_or(self.first)
    }
}

/// No process has a larger number, so a larger integer is none. Source: `PID_MAX_LIMIT` in the kernel's
/// include/linux/threads.h.
const LARGEST: i64 = if cfg!(target_os = "linux") { 1 << 22 } else { i32::MAX as i64 };

/// The pid as an integer in the machine's byte order: a short, an int, or a long.
fn integer(content: &[u8]) -> Option<Pid> {
    if content.iter().all(|byte| byte.is_ascii_graphic() || is_space(*byte)) {
        return None;
    }
    let number = match *content {
        [a, b] => i64::from(i16::from_ne_bytes([a, b])),
        [a, b, c, d] => i64::from(i32::from_ne_bytes([a, b, c, d])),
        [a, b, c, d, e, f, g, h] => i64::from_ne_bytes([a, b, c, d, e, f, g, h]),
        _ => return None,
    };
    Pid::new(number).filter(|_| number <= LARGEST)
}

/// The pid as `sscanf("%d")` reads it, and what follows: white space, a sign, and decimal digits. minicom, cu, C-Kermit,
/// pppd and gammu read it so, and any byte ends the digits.
fn text(content: &[u8]) -> Option<(Pid, &[u8])> {
    let start = content.iter().position(|byte| !is_space(*byte))?;
    let text = content.get(start..)?;
    // A negative number names no process.
    let text = text.strip_prefix(b"+").unwrap_or(text);
    let digits = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at_checked(digits)?;
    Pid::parse(digits).ok().map(|pid| (pid, rest))
}

/// White space as `isspace(3)` has it.
fn is_space(byte: u8) -> bool {
    byte == b' ' || (b'\t'..=b'\r').contains(&byte)
}

fn note(rest: &[u8]) -> String {
    let end = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
    let words = rest.get(..end).unwrap_or_default().iter().map(|byte| match byte {
        byte if is_space(*byte) => ' ',
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
    #[case::dos(b"4567\r\n", 4567, "")]
    #[case::four_bytes_of_dos(b"12\r\n", 12, "")]
    #[case::two_bytes_of_old_mac(b"7\r", 7, "")]
    #[case::newline_first(b"\n4567\n", 4567, "")]
    #[case::all_white_space_first(b"\t\n\x0b\x0c\r 4567", 4567, "")]
    #[case::sign(b"+4567\n", 4567, "")]
    #[case::a_sign_and_zeros(b" +0000004567\n", 4567, "")]
    #[case::host(b"4567:box\n", 4567, ":box")]
    #[case::eight_bytes_with_a_host(b"4567:ab\n", 4567, ":ab")]
    #[case::comma(b"4567,x\n", 4567, ",x")]
    #[case::words(b"4567 minicom root\n", 4567, "minicom root")]
    #[case::glued(b"1230x\n", 1230, "x")]
    #[case::seven_digits_and_nul(b"1234567\0", 1_234_567, "")]
    #[case::eight_digits(b"12345678", 12_345_678, "")]
    #[case::four_digits_in_eight_bytes(b"4567\0\0\0\0", 4567, "")]
    #[case::four_bytes_with_a_letter(b"123x", 123, "x")]
    #[case::four_bytes_with_a_byte_of_latin_1(b"123\xe9", 123, "?")]
    #[case::above_any_pid(b"4194305\n", 4_194_305, "")]
    fn reads_text(#[case] content: &[u8], #[case] pid: i32, #[case] note: &str) {
        let read = Content::parse(content).unwrap();
        let pids: Vec<_> = read.pids().map(Pid::as_raw).collect();
        assert_eq!((pids, read.note.as_str()), (vec![pid], note));
    }

    #[rstest]
    #[case::int(&1230_i32.to_ne_bytes(), &[1230])]
    #[case::long(&1230_i64.to_ne_bytes(), &[1230])]
    #[case::short(&1230_i16.to_ne_bytes(), &[1230])]
    #[case::the_largest_int(&4_194_304_i32.to_ne_bytes(), &[4_194_304])]
    #[case::the_largest_long(&4_194_304_i64.to_ne_bytes(), &[4_194_304])]
    // Programs that read text, as pppd and cu, read "1".
    #[case::int_that_starts_like_a_digit(&0x31_i32.to_le_bytes(), &[0x31, 1])]
    #[case::long_that_starts_like_a_digit(&0x31_i64.to_le_bytes(), &[0x31, 1])]
    #[case::short_that_is_a_digit_and_nul(b"5\0", &[0x35, 5])]
    #[case::three_digits_and_nul(b"123\0", &[0x33_32_31, 123])]
    #[case::digits_in_eight_bytes(b"12\0\0\0\0\0\0", &[0x32_31, 12])]
    #[cfg(target_endian = "little")]
    fn reads_binary(#[case] content: &[u8], #[case] pids: &[i32]) {
        let read = Content::parse(content).unwrap();
        assert_eq!(read.pids().map(Pid::as_raw).collect::<Vec<_>>(), pids);
        assert_eq!(read.note, "");
    }

    /// "123" and NUL, which is an int, too. The likeliest is the holder, unless only the other one lives.
    #[rstest]
    #[case::neither_lives(&[], 0x33_32_31)]
    #[case::the_text_lives(&[123], 123)]
    #[case::the_int_lives(&[0x33_32_31], 0x33_32_31)]
    #[case::both_live(&[123, 0x33_32_31], 0x33_32_31)]
    #[cfg(target_endian = "little")]
    fn a_reading_that_names_a_living_process_counts(#[case] living: &[i32], #[case] holder: i32) {
        let read = Content::parse(b"123\0").unwrap();
        assert_eq!(read.holder(|pid| living.contains(&pid.as_raw())).as_raw(), holder);
    }

    #[rstest]
    #[case::empty(b"")]
    #[case::blank(b"          \n")]
    #[case::words(b"hello world\n")]
    #[case::pid_zero(b"         0\n")]
    #[case::negative(b"        -1\n")]
    #[case::too_large(b"99999999999\n")]
    #[case::two_signs(b"++1230\n")]
    #[case::both_signs(b"+-1230\n")]
    #[case::a_sign_alone(b"+\n")]
    #[case::a_letter_first(b"x1230\n")]
    #[case::nul_first(b"\0\x31230\n")]
    #[case::four_letters(b"abcd")]
    #[case::int_above_any_pid(&4_194_305_i32.to_ne_bytes())]
    #[case::wraps_to_a_pid(b"4294971863\n")]
    #[case::one_byte(b"\x07")]
    #[case::three_bytes(b"\x01\0\0")]
    #[case::int_zero(&0_i32.to_ne_bytes())]
    #[case::int_negative(&(-5_i32).to_ne_bytes())]
    #[case::long_too_large(&i64::MAX.to_ne_bytes())]
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
                prop_assert!(Content::parse(&form.write(pid)).unwrap().pids().eq([pid]));
            }
        }

        #[test]
        fn binary_pids_are_read(number in 1..=4_194_304_i32) {
            let pid = Pid::new(number.into()).unwrap();
            let read = Content::parse(&ContentForm::Binary.write(pid)).unwrap();
            prop_assert_eq!(read.pids().next(), Some(pid));
        }

        #[test]
        fn a_note_from_any_file_is_printable(content in proptest::collection::vec(any::<u8>(), 0..=READ_LIMIT)) {
            if let Ok(read) = Content::parse(&content) {
                prop_assert!(read.note.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' '));
            }
        }
    }
}
