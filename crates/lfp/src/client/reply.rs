//! Parses the bytes of a connection into replies of at most [`REPLY_LIMIT`] bytes. Pure.
//!
//! Source: RFC 959, section 4.2: a reply of many lines begins with its code and a hyphen, and ends with the
//! line that begins with the same code and a blank.

use pidlockfile::ascii;

/// The longest line of a reply, in bytes with its end. The service keeps below 512.
pub(super) const LINE_LIMIT: usize = 4096;

/// The longest reply, in bytes: far more than the holders of every device of a machine.
pub const REPLY_LIMIT: usize = 1 << 20;

/// What a service answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    /// The three digits.
    pub(super) code: u16,
    /// The text of each line, without codes on the first and last: printable ASCII, other bytes
    /// as `?`.
    pub(super) lines: Vec<String>,
}

/// No reply begins like this, or none is as long as this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

impl Reply {
    /// The first line's text.
    pub(super) fn text(&self) -> &str {
        self.lines.first().map_or("", String::as_str)
    }
}

/// Takes the first reply from the bytes, if it is there as a whole.
pub(super) fn take(bytes: &mut Vec<u8>) -> Result<Option<Reply>, Malformed> {
    let mut length: usize = 0;
    let mut reply: Option<Reply> = None;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        length = length.saturating_add(line.len());
        if line.len() > LINE_LIMIT || length > REPLY_LIMIT {
            return Err(Malformed);
        }
        let Some(line) = line.strip_suffix(b"\n") else { break };
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let (open, text, is_last) = match (&mut reply, head(line)) {
            (None, None) => return Err(Malformed),
            (None, Some((code, is_last, text))) => {
                (reply.insert(Reply { code, lines: Vec::new() }), text, is_last)
            }
            (Some(open), Some((code, true, text))) if code == open.code => (open, text, true),
            (Some(open), _) => (open, line, false),
        };
        open.lines.push(clean(text));
        if is_last {
            bytes.drain(..length);
            return Ok(reply);
        }
    }
    Ok(None)
}

/// Three digits and a blank or the end of the line, which show the last line, or a hyphen.
fn head(line: &[u8]) -> Option<(u16, bool, &[u8])> {
    let (digits, rest) = line.split_at_checked(3)?;
    // The standard library's parser takes a leading plus.
    let digits = std::str::from_utf8(digits).ok().filter(|_| digits.iter().all(u8::is_ascii_digit));
    let code = digits?.parse().ok()?;
    match rest.split_first() {
        None => Some((code, true, rest)),
        Some((b' ', text)) => Some((code, true, text)),
        Some((b'-', text)) => Some((code, false, text)),
        Some(_) => None,
    }
}

fn clean(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| ascii(char::from(*byte))).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn replies(bytes: &[u8]) -> Result<Vec<(u16, Vec<String>)>, Malformed> {
        let mut bytes = bytes.to_vec();
        let mut all = Vec::new();
        while let Some(reply) = take(&mut bytes)? {
            all.push((reply.code, reply.lines));
        }
        Ok(all)
    }

    /// Replies as `CODE|LINE|LINE`.
    #[rstest]
    #[case::one(b"200 Command okay.\r\n", &["200|Command okay."])]
    #[case::bare_newline(b"200 x\n", &["200|x"])]
    #[case::no_text(b"200\r\n", &["200|"])]
    #[case::two(b"220 a\r\n450 : File busy\r\n", &["220|a", "450|: File busy"])]
    #[case::many(b"213-Status\r\n a=1\r\n213 End\r\n", &["213|Status| a=1|End"])]
    #[case::code_inside(b"213-a\r\n450 x\r\n213-y\r\n213 z\r\n", &["213|a|450 x|213-y|z"])]
    #[case::hostile(b"500 \x1b[2J\xff\t\r\n", &["500|?[2J??"])]
    #[case::unfinished(b"200 Command", &[])]
    #[case::unfinished_many(b"213-a\r\n b\r\n", &[])]
    #[case::nothing(b"", &[])]
    fn replies_are_parsed(#[case] bytes: &[u8], #[case] expected: &[&str]) {
        let shown = |(code, lines): (u16, Vec<String>)| format!("{code}|{}", lines.join("|"));
        let found: Vec<_> = replies(bytes).unwrap().into_iter().map(shown).collect();
        assert_eq!(found, expected);
    }

    #[rstest]
    #[case::empty_line(b"\r\n")]
    #[case::words(b"HTTP/1.1 400 Bad Request\r\n")]
    #[case::two_digits(b"20 x\r\n")]
    #[case::four_digits(b"2000 x\r\n")]
    #[case::glued(b"200x\r\n")]
    #[case::sign(b"+20 x\r\n")]
    fn malformed_replies_are_refused(#[case] bytes: &[u8]) {
        assert_eq!(replies(bytes), Err(Malformed));
    }

    #[rstest]
    #[case::at_the_limit(LINE_LIMIT, true)]
    #[case::one_over(LINE_LIMIT + 1, false)]
    fn lines_are_bounded(#[case] length: usize, #[case] fits: bool) {
        let mut line = b"200 ".to_vec();
        line.resize(length - 1, b'x');
        line.push(b'\n');
        assert_eq!(replies(&line).is_ok(), fits);
    }

    #[test]
    fn a_line_without_end_is_bounded() {
        assert_eq!(take(&mut vec![b'2'; LINE_LIMIT + 1]), Err(Malformed));
    }

    #[test]
    fn a_reply_without_end_is_bounded() {
        let mut bytes = b"213-\n".to_vec();
        let lines = REPLY_LIMIT / 1024;
        let mut line = vec![b'x'; 1023];
        line.push(b'\n');
        for _ in 0..lines {
            bytes.extend_from_slice(&line);
        }
        assert_eq!(take(&mut bytes), Err(Malformed));
    }

    #[test]
    fn replies_cut_anywhere_are_assembled_alike() {
        let bytes = b"220 a\r\n213-b\r\n c\r\n213 d\r\n";
        for cut in 0..=bytes.len() {
            let mut read = Vec::new();
            let mut codes = Vec::new();
            for part in [&bytes[..cut], &bytes[cut..]] {
                read.extend_from_slice(part);
                while let Some(reply) = take(&mut read).unwrap() {
                    codes.push((reply.code, reply.lines.len()));
                }
            }
            assert_eq!(codes, [(220, 1), (213, 3)]);
        }
    }

    fn byte() -> impl Strategy<Value = u8> {
        prop_oneof![proptest::sample::select(&b"0123456789- \r\n"[..]), any::<u8>()]
    }

    proptest! {
        #[test]
        fn any_bytes_give_clean_replies_or_an_error(bytes in proptest::collection::vec(byte(), 0..200)) {
            let mut read = Vec::new();
            for piece in bytes.chunks(7) {
                read.extend_from_slice(piece);
                while let Ok(Some(reply)) = take(&mut read) {
                    prop_assert!(reply.code < 1000 && !reply.lines.is_empty());
                    let mut shown = reply.lines.iter().flat_map(|line| line.bytes());
                    prop_assert!(shown.all(|byte| (b' '..=b'~').contains(&byte)));
                }
            }
        }
    }
}
