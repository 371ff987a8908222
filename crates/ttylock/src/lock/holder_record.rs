//! One record about the holder of a lock: its fields, and how it is written and read.

use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pidlockfile::process::{ClockShift, Here, ProcessIdentity, Start};
use pidlockfile::{Identity, Name, Pid};

/// A record is written within this time after the lock, however slow the machine is.
pub(super) const LATEST: Duration = Duration::from_secs(60);

/// The facts that are remembered of one lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HolderRecord {
    /// The holder, with the boot and pid namespace in which its number means something.
    pub holder: ProcessIdentity,
    /// The user it ran as then; `None` if that was not known, or in a record of an older version.
    pub uid: Option<u32>,
    /// The lock file of the record, and when it was written, in nanoseconds: a later lock with the same name and pid
    /// is another lock.
    pub file: Identity,
    /// See `file`.
    pub written: u128,
    /// The names of all lock files of this lock.
    pub names: Vec<Name>,
}

pub(super) fn nanoseconds(time: SystemTime) -> u128 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos())
}

impl HolderRecord {
    /// Whether its lock was taken after the other's. A record from far in the future was left from before the clock
    /// was set back.
    pub(super) fn follows(&self, other: &Self) -> bool {
        let lead = self.written.checked_sub(other.written);
        lead.is_some_and(|lead| lead > 0 && lead < LATEST.as_nanos())
    }

    /// `None` if the boot or the pid namespace of the number is unknown.
    pub(super) fn to_text(&self) -> Option<String> {
        let Self { holder, uid, file, written, names } = self;
        let ProcessIdentity { pid, start, here } = holder;
        let (boot, namespace) = (here.boot.as_ref()?, here.namespace?);
        let uid = uid.map(|uid| format!("uid={uid} ")).unwrap_or_default();
        let shift = match here.shift.nanoseconds {
            0 => String::new(),
            nanoseconds => format!("shift={nanoseconds} "),
        };
        let Identity { device, inode } = file;
        let start = match start {
            Start::Nobody => "-".to_owned(),
            Start::Untold => "?".to_owned(),
            Start::At(ticks) => ticks.to_string(),
        };
        let names: Vec<_> = names.iter().map(Name::as_str).collect();
        // No file name holds a slash.
        let names = names.join("/");
        Some(format!(
            "{uid}{shift}pid={pid} start={start} boot={boot} pidns={namespace} \
             file={device}:{inode}:{written} names={names}"
        ))
    }

    pub(super) fn from_text(text: &str) -> Option<Self> {
        let (uid, text) = optional(text, "uid=")?;
        let (shift, text) = optional(text, "shift=")?;
        let mut words = text.splitn(6, ' ');
        let mut field = |key: &str| words.next()?.strip_prefix(key);
        let pid = Pid::parse(field("pid=")?.as_bytes()).ok()?;
        let start = match field("start=")? {
            "-" => Start::Nobody,
            "?" => Start::Untold,
            ticks => Start::At(ticks.parse().ok()?),
        };
        let boot = Some(field("boot=")?.to_owned());
        let namespace = Some(field("pidns=")?.parse().ok()?);
        let mut file = field("file=")?.split(':');
        let (device, inode) = (file.next()?.parse().ok()?, file.next()?.parse().ok()?);
        let written = file.next()?.parse().ok()?;
        let file = Identity { device, inode };
        let names = field("names=")?.split('/').map(Name::new).collect::<Option<_>>()?;
        let shift = ClockShift { nanoseconds: shift.unwrap_or(0) };
        let here = Arc::new(Here { boot, namespace, shift });
        let holder = ProcessIdentity { pid, start, here };
        Some(Self { holder, uid, file, written, names })
    }
}

/// An optional word at the start of the text; `None` if it cannot be read.
fn optional<'t, N: FromStr>(text: &'t str, key: &str) -> Option<(Option<N>, &'t str)> {
    let Some(rest) = text.strip_prefix(key) else { return Some((None, text)) };
    let (word, text) = rest.split_once(' ')?;
    Some((Some(word.parse().ok()?), text))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn record(written: u128) -> HolderRecord {
        HolderRecord {
            holder: ProcessIdentity::bare(Pid::this()),
            uid: None,
            file: Identity { device: 1, inode: 2 },
            written,
            names: Vec::new(),
        }
    }

    /// A record follows another only if its lock is later, and the clock was not set back in between.
    #[rstest]
    #[case::the_same(0, false)]
    #[case::just_after(1, true)]
    #[case::as_late_as_a_record_is_written(LATEST.as_nanos() - 1, true)]
    #[case::later_than_any_record(LATEST.as_nanos(), false)]
    #[case::far_in_the_future(2 * LATEST.as_nanos(), false)]
    fn a_lock_follows_those_that_were_taken_shortly_before(
        #[case] later: u128,
        #[case] follows: bool,
    ) {
        let taken = nanoseconds(UNIX_EPOCH + Duration::from_secs(1_763_700_000));
        assert_eq!(taken, 1_763_700_000_000_000_000);
        assert_eq!(record(taken + later).follows(&record(taken)), follows);
        assert!(!record(taken).follows(&record(taken + later)));
    }
}
