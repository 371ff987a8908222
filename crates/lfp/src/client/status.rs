//! Parses the answer to STAT. Text in, holders out. The format is described in `lfpd::protocol::reply`.

use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use pidlockfile::Pid;

use super::Reply;
use ttylock::{Holder, OutOfSight, Scheme, Standing, Survey};

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
