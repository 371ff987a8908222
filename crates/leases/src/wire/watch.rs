//! The reply to `watch`: one line of words, and a tag by which the client later names the state that it saw last.
//! Pure.

use crate::{Label, Sight};
use std::io::Write as _;

/// A number for the state, without its time: equal on every server that sees the same state.
#[must_use]
pub fn tag_of(sight: Option<&Sight>) -> u64 {
    let Some(sight) = sight else { return Tag::FIRST.0 };
    let tag = Tag::FIRST.with(&sight.fence.to_be_bytes()).with(&sight.holders.to_be_bytes());
    let Some(label) = &sight.label else { return tag.with(b"\n").0 };
    tag.with(label.name.as_bytes()).with(b"\n").with(label.value.as_bytes()).0
}

/// FNV-1a.
#[derive(Clone, Copy)]
struct Tag(u64);

impl Tag {
    const FIRST: Self = Self(0xcbf2_9ce4_8422_2325);

    fn with(self, bytes: &[u8]) -> Self {
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        Self(bytes.iter().fold(self.0, step))
    }
}

/// Appends the reply: `free TAG`, or `held TAG FENCE MILLISECONDS HOLDERS NAME VALUE`.
pub fn push_sight(out: &mut Vec<u8>, sight: Option<&Sight>) {
    let word = if sight.is_some() { "held" } else { "free" };
    // Writing to a Vec cannot fail.
    let _ = write!(out, "{word} {:016x}", tag_of(sight));
    if let Some(Sight { holders, fence, since_micros, label }) = sight {
        let _ = write!(out, " {fence} {} {holders}", since_micros / 1000);
        let Label { name, value } = label.as_deref().cloned().unwrap_or_default();
        push_word(out, &name);
        push_word(out, &value);
    }
    out.push(b'\n');
}

/// One word of text: bytes other than those of plain addresses and names as `%` and two hexadecimal
/// digits, and nothing as `-`.
fn push_word(out: &mut Vec<u8>, text: &str) {
    out.push(b' ');
    if text.is_empty() {
        out.push(b'-');
    }
    for byte in text.bytes() {
        let is_sign = text != "-" && b"-._~:/@[],=+()".contains(&byte);
        if byte.is_ascii_alphanumeric() || is_sign {
            out.push(byte);
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use std::sync::Arc;

    fn sight(fence: u64, holders: u32, label: Option<(&str, &str)>) -> Sight {
        let label =
            label.map(|(name, value)| Arc::new(Label { name: name.into(), value: value.into() }));
        Sight { holders, fence, since_micros: 1_999_999, label }
    }

    #[rstest]
    #[case(None, "free cbf29ce484222325\n")]
    #[case(Some(sight(7, 1, None)), "held TAG 7 1999 1 - -\n")]
    #[case(Some(sight(7, 2, Some(("", "10.0.0.1:80")))), "held TAG 7 1999 2 - 10.0.0.1:80\n")]
    #[case(Some(sight(7, 1, Some(("al@db[1] x y", "-")))), "held TAG 7 1999 1 al@db[1]%20x%20y %2D\n")]
    #[case(Some(sight(7, 1, Some(("\u{e9}%", "[::1]:8")))), "held TAG 7 1999 1 %C3%A9%25 [::1]:8\n")]
    fn the_reply_to_watch_is_one_line_of_words(#[case] sight: Option<Sight>, #[case] want: &str) {
        let mut out = Vec::new();
        push_sight(&mut out, sight.as_ref());
        let want = want.replace("TAG", &format!("{:016x}", tag_of(sight.as_ref())));
        assert_eq!(String::from_utf8(out).unwrap(), want);
    }

    /// Each of these states has a different tag, and the time does not change a tag.
    #[test]
    fn different_states_have_different_tags() {
        let sights = [
            None,
            Some(sight(1, 1, None)),
            Some(sight(2, 1, None)),
            Some(sight(1, 2, None)),
            Some(sight(1, 1, Some(("a", "")))),
            Some(sight(1, 1, Some(("", "a")))),
            Some(sight(1, 1, Some(("a", "b")))),
        ];
        for (place, one) in sights.iter().enumerate() {
            for (other_place, other) in sights.iter().enumerate() {
                let equal = tag_of(one.as_ref()) == tag_of(other.as_ref());
                assert_eq!(equal, place == other_place);
            }
        }
        let later = Sight { since_micros: 9, ..sight(1, 1, None) };
        assert_eq!(tag_of(Some(&later)), tag_of(sights[1].as_ref()));
    }

    #[rstest]
    #[case(b"cbf29ce484222325", Some(0xcbf2_9ce4_8422_2325))]
    #[case(b"cbf29ce48422232", None)]
    #[case(b"+bf29ce484222325", None)]
    #[case(b"0", None)]
    fn tags_are_read(#[case] text: &[u8], #[case] want: Option<u64>) {
        assert_eq!(crate::read_hex(text), want);
    }
}
