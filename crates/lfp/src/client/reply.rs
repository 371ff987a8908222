//! Parses the bytes of a connection into replies of at most [`REPLY_LIMIT`] bytes, and the answer to STAT into holders and
//! waiters. Pure.
//!
//! Source: RFC 959, section 4.2: a reply of many lines begins with its code and a hyphen, and ends with the
//! line that begins with the same code and a blank. The lines of STAT are described in `lfpd::protocol::reply`.

use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use pidlockfile::{Pid, ascii};
use ttylock::{Holder, OutOfSight, Scheme, Standing, Survey};

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

/// A waiter for a device: as long as it waits, no other client's LOCK gets the device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiter {
    /// The real device, as a name below `/dev`.
    pub device: String,
    /// The process that is to hold it.
    pub pid: Pid,
    /// The user that asked, as a uid, where the service knows it.
    pub user: Option<u32>,
}

/// The holders and the waiters of a reply; `None` when a line cannot be understood. Unknown keys are ignored, and so are
/// holders of an unknown scheme.
pub(super) fn survey_and_waiters(reply: &Reply) -> Option<(Survey, Vec<Waiter>)> {
    let between = reply.lines.len().saturating_sub(2);
    let lines = reply.lines.iter().skip(1).take(between);
    let lines: Vec<Words> = lines.map(|line| Words::of(line)).collect::<Option<_>>()?;
    let holders = lines.iter().filter_map(holder).collect();
    let said = || reply.text().split(' ');
    let mut survey = Survey::new(holders, said().all(|word| word != "incomplete=yes"));
    let unseen = said().find_map(|word| word.strip_prefix("unseen="));
    survey.out_of_sight = unseen.map(OutOfSight::from_word).unwrap_or_default();
    Some((survey, lines.iter().filter_map(waiter).collect()))
}

fn waiter(words: &Words) -> Option<Waiter> {
    words.value("scheme").filter(|scheme| *scheme == "waiting")?;
    Some(Waiter {
        device: words.value("device")?.to_owned(),
        pid: Pid::parse(words.value("pid")?.as_bytes()).ok()?,
        user: words.value("uid").and_then(|uid| uid.parse().ok()),
    })
}

fn holder(words: &Words) -> Option<Holder> {
    let file = PathBuf::from(words.value("file").unwrap_or_default());
    let files = [Scheme::Uucp(file.clone()), Scheme::Svr4(file)];
    let schemes = files.into_iter().chain([Scheme::Flock, Scheme::Open, Scheme::Exclusive]);
    let word = words.value("scheme")?;
    let scheme = schemes.into_iter().find(|it| it.word() == word)?;
    let word = words.value("standing")?;
    let known = [Standing::Alive, Standing::Stale, Standing::Ignored];
    let standing = known.into_iter().find(|it| it.word() == word).unwrap_or(Standing::Unknown);
    let since = words.value("since").and_then(|seconds| seconds.parse().ok());
    let mut holder = Holder::new(words.value("device").unwrap_or_default(), scheme, standing);
    holder.pid = words.value("pid").and_then(|pid| Pid::parse(pid.as_bytes()).ok());
    holder.user = words.value("uid").and_then(|uid| uid.parse().ok());
    holder.command = words.value("command").map(str::to_owned);
    holder.since = since.and_then(|seconds| UNIX_EPOCH.checked_add(Duration::from_secs(seconds)));
    Some(holder)
}

/// The `key=value` words of a line.
struct Words(Vec<(String, String)>);

impl Words {
    /// `None` for a word without key, or a quote without end.
    fn of(line: &str) -> Option<Self> {
        let mut words = Vec::new();
        let mut rest = line.trim_start_matches(' ');
        while !rest.is_empty() {
            let (key, after) = rest.split_once('=')?;
            let (value, after) = match after.strip_prefix('"') {
                Some(quoted) => unquoted(quoted)?,
                None => {
                    let end = after.find(' ').unwrap_or(after.len());
                    let (value, after) = after.split_at_checked(end)?;
                    (value.to_owned(), after)
                }
            };
            words.push((key.to_owned(), value));
            rest = after.trim_start_matches(' ');
        }
        Some(Self(words))
    }

    fn value(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }
}

/// The text up to the closing quote, and what follows that.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.chars();
    loop {
        match characters.next()? {
            '"' => return Some((value, characters.as_str())),
            '\\' => value.push(characters.next()?),
            character => value.push(character),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;
    use lfpd::protocol::reply::{Report, Scope};

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

    fn reply(lines: &[&str]) -> Reply {
        let mut all = vec!["holders=1 shown=1".to_owned()];
        all.extend(lines.iter().map(ToString::to_string));
        all.push("End of status.".to_owned());
        Reply { code: 213, lines: all }
    }

    fn holders(reply: &Reply) -> Option<Vec<Holder>> {
        Some(survey_and_waiters(reply)?.0.holders)
    }

    fn full() -> Holder {
        let scheme = Scheme::Uucp(PathBuf::from("LCK..ttyUSB0"));
        let mut holder = Holder::new("ttyUSB0", scheme, Standing::Alive);
        holder.pid = Pid::new(1234);
        holder.user = Some(1000);
        holder.command = Some("minicom".to_owned());
        holder.since = Some(UNIX_EPOCH + Duration::from_secs(1_763_700_000));
        holder
    }

    #[test]
    fn reads_the_example() {
        let line = " device=\"ttyUSB0\" scheme=uucp standing=alive pid=1234 uid=1000 \
                    since=1763700000 file=\"LCK..ttyUSB0\" user=\"alice\" command=\"minicom\"";
        assert_eq!(holders(&reply(&[line])), Some(vec![full()]));
    }

    #[test]
    fn waiters_are_no_holders() {
        let lines = [
            " device=\"ttyS0\" scheme=open standing=alive pid=7",
            " device=\"ttyS0\" scheme=waiting standing=alive pid=8 uid=1000",
        ];
        let reply = reply(&lines);
        assert_eq!(holders(&reply).unwrap().len(), 1);
        let pid = Pid::new(8).unwrap();
        let expected = Waiter { device: "ttyS0".to_owned(), pid, user: Some(1000) };
        assert_eq!(survey_and_waiters(&reply).unwrap().1, [expected]);
    }

    #[rstest]
    #[case::nobody(&[], 0)]
    #[case::unknown_key(&[" scheme=open standing=alive new=\"a b\" pid=1"], 1)]
    #[case::unknown_scheme(&[" scheme=telepathy standing=alive", " scheme=open standing=alive"], 1)]
    #[case::odd_numbers(&[" scheme=open standing=alive pid=0 uid=-1 since=99999999999999999999"], 1)]
    fn unknown_keys_and_odd_values_are_ignored(#[case] lines: &[&str], #[case] found: usize) {
        assert_eq!(holders(&reply(lines)).map(|holders| holders.len()), Some(found));
    }

    #[rstest]
    #[case::no_key(" nonsense")]
    #[case::open_quote(" device=\"x")]
    #[case::open_escape(" device=\"x\\")]
    fn malformed_status_lines_are_refused(#[case] line: &str) {
        assert_eq!(holders(&reply(&[line])), None);
    }

    #[test]
    fn a_reply_of_one_line_has_no_holders() {
        assert_eq!(holders(&Reply { code: 211, lines: vec!["x".to_owned()] }), Some(vec![]));
    }

    proptest! {
        #[test]
        fn a_report_of_the_service_is_read_back(device in "[ -~]{1,40}", command in "[!-.0-~]{1,20}", pid in 1..=i32::MAX) {
            let pid = Pid::new(pid.into());
            let mut holder = full();
            holder.device = device;
            holder.command = Some(command);
            holder.pid = pid;
            let report = Report::new(Scope::Device, std::slice::from_ref(&holder), &[]);
            let lines: Vec<_> = report.lines.iter().map(|line| format!(" {line}")).collect();
            let lines: Vec<_> = lines.iter().map(String::as_str).collect();
            prop_assert_eq!(holders(&reply(&lines)), Some(vec![holder]));
        }

        #[test]
        fn any_line_is_parsed_without_a_panic(line in "[ -~]{0,80}") {
            let _ = holders(&reply(&[&line]));
        }
    }
}
