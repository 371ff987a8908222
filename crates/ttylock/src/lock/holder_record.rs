//! One record about the holder of a lock: its fields, and how it is written and read.

use std::str::FromStr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use pidlockfile::process::{ClockShift, Here, ProcessIdentity, Start};
use pidlockfile::{Identity, Name, Pid};

/// The facts that are remembered of one lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HolderRecord {
    /// The holder, with the boot and pid namespace in which its number means something.
    pub holder: ProcessIdentity,
    /// The user it ran as then; `None` if that was not known.
    pub uid: Option<u32>,
    /// The lock file of the record, and when it was written, in nanoseconds: a later lock with the same name and pid
    /// is another lock.
    pub file: Identity,
    /// See `file`.
    pub written: u128,
    /// The lock directory, because services with other ones may keep their records here, too.
    pub directory: Identity,
    /// The names of all lock files of this lock.
    pub names: Vec<Name>,
}

pub(super) fn nanoseconds(time: SystemTime) -> u128 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos())
}

/// The name of a lock file's record if a record of another lock directory has the first one. No lock file has such a name.
pub(super) fn beside(name: &Name, file: Identity) -> Option<Name> {
    Name::new(format!("{}.{}.{}", file.device, file.inode, name.as_str()))
}

impl HolderRecord {
    /// The lock of the record that has this name.
    pub(super) fn lock_of<'n>(&'n self, entry: &'n Name) -> &'n Name {
        let is_it = |name: &&Name| beside(name, self.file).as_ref() == Some(entry);
        self.names.iter().find(is_it).unwrap_or(entry)
    }

    /// `None` if the boot or the pid namespace of the number is unknown.
    pub(super) fn to_text(&self) -> Option<String> {
        let Self { holder, uid, file, written, directory, names } = self;
        let ProcessIdentity { pid, start, here } = holder;
        let (boot, namespace) = (here.boot.as_ref()?, here.namespace?);
        let uid = uid.map(|uid| format!("uid={uid} ")).unwrap_or_default();
        let shift = match here.shift.nanoseconds {
            0 => String::new(),
            nanoseconds => format!("shift={nanoseconds} "),
        };
        let Identity { device, inode } = file;
        let Identity { device: of_locks, inode: locks } = directory;
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
             file={device}:{inode}:{written}:{of_locks}:{locks} names={names}"
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
        let (of_locks, locks) = (file.next()?.parse().ok()?, file.next()?.parse().ok()?);
        let file = Identity { device, inode };
        let directory = Identity { device: of_locks, inode: locks };
        let names = field("names=")?.split('/').map(Name::new).collect::<Option<_>>()?;
        let shift = ClockShift { nanoseconds: shift.unwrap_or(0) };
        let here = Arc::new(Here { boot, namespace, shift });
        let holder = ProcessIdentity { pid, start, here };
        Some(Self { holder, uid, file, written, directory, names })
    }
}

/// An optional word at the start of the text; `None` if it cannot be read.
fn optional<'t, N: FromStr>(text: &'t str, key: &str) -> Option<(Option<N>, &'t str)> {
    let Some(rest) = text.strip_prefix(key) else { return Some((None, text)) };
    let (word, text) = rest.split_once(' ')?;
    Some((Some(word.parse().ok()?), text))
}
