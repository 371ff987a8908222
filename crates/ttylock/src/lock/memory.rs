//! What one record says of a lock, and how it is written down.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pidlockfile::{Identity, Name, Pid};

/// A record is written so late at most, however slow the machine is.
pub(super) const LATEST: Duration = Duration::from_secs(60);

/// The boot and pid namespace in which pids and start times mean something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Here {
    /// The kernel's name for this boot.
    pub boot: String,
    /// The inode number of our pid namespace.
    pub namespace: u64,
}

/// What is remembered of one lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Whose lock it is.
    pub pid: Pid,
    /// When that process started, in clock ticks since boot; `None` when there was no such
    /// process, so that none that comes later is the holder.
    pub start: Option<u64>,
    /// The user it ran as then; `None` when nobody told, or in a record of an older version.
    pub uid: Option<u32>,
    /// Where both mean something.
    pub here: Here,
    /// The lock file this is about, and when it was written, in nanoseconds: another lock with
    /// the same name and pid is not ours.
    pub file: Identity,
    /// See `file`.
    pub written: u128,
    /// The names of all lock files of this lock.
    pub names: Vec<Name>,
}

pub(super) fn nanoseconds(time: SystemTime) -> u128 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos())
}

impl Memory {
    /// Whether it is about a lock that was taken after the other's. One from far in the future was
    /// left when the clock was set back.
    pub(super) fn follows(&self, other: &Self) -> bool {
        let lead = self.written.checked_sub(other.written);
        lead.is_some_and(|lead| lead > 0 && lead < LATEST.as_nanos())
    }

    pub(super) fn to_text(&self) -> String {
        let Self { pid, start, uid, here, file, written, names } = self;
        let uid = uid.map(|uid| format!("uid={uid} ")).unwrap_or_default();
        let Identity { device, inode } = file;
        let start = start.map_or_else(|| "-".to_owned(), |ticks| ticks.to_string());
        let Here { boot, namespace } = here;
        let names: Vec<_> = names.iter().map(Name::as_str).collect();
        // No file name holds a slash.
        let names = names.join("/");
        format!(
            "{uid}pid={pid} start={start} boot={boot} pidns={namespace} \
             file={device}:{inode}:{written} names={names}"
        )
    }

    pub(super) fn from_text(text: &str) -> Option<Self> {
        let (uid, text) = match text.strip_prefix("uid=") {
            None => (None, text),
            Some(rest) => {
                let (uid, text) = rest.split_once(' ')?;
                (Some(uid.parse().ok()?), text)
            }
        };
        let mut words = text.splitn(6, ' ');
        let mut field = |key: &str| words.next()?.strip_prefix(key);
        let pid = Pid::parse(field("pid=")?.as_bytes()).ok()?;
        let start = match field("start=")? {
            "-" => None,
            ticks => Some(ticks.parse().ok()?),
        };
        let boot = field("boot=")?.to_owned();
        let namespace = field("pidns=")?.parse().ok()?;
        let mut file = field("file=")?.split(':');
        let (device, inode) = (file.next()?.parse().ok()?, file.next()?.parse().ok()?);
        let written = file.next()?.parse().ok()?;
        let file = Identity { device, inode };
        let names = field("names=")?.split('/').map(Name::new).collect::<Option<_>>()?;
        Some(Self { pid, start, uid, here: Here { boot, namespace }, file, written, names })
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn memory(written: u128) -> Memory {
        Memory {
            pid: Pid::this(),
            start: None,
            uid: None,
            here: Here { boot: "boot".to_owned(), namespace: 1 },
            file: Identity { device: 1, inode: 2 },
            written,
            names: Vec::new(),
        }
    }

    /// A record says so of a later lock only, and not when the clock was set back in between.
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
        assert_eq!(memory(taken + later).follows(&memory(taken)), follows);
        assert!(!memory(taken).follows(&memory(taken + later)));
    }
}
