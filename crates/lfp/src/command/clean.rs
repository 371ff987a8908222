//! `lfp clean`: remove the locks of processes that are gone. Removes only the very file that was
//! judged stale, and says of each that it could not remove why, and what would help.

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use pidlockfile::{Directory, Found, Judged, Name, Pid, Removal};
use wrapcmd::Value;

use super::arguments::Route;
use super::broker::{Broker, places};
use super::outcome::{Failure, Kind, exit};
use super::output::{Output, printable};
use super::report::{self, Row};
use ttylock::device::name::DeviceName;
use ttylock::lock::Request;
use ttylock::lock::record::{self, READ_LIMIT};
use ttylock::lock::table::Table;
use ttylock::lock::who::{Holder, Standing};

/// The start of the temporary names of removal; no program's lock starts like this.
const TEMPORARY: &str = "lfpd";

/// A stale lock that is still there.
struct Left {
    row: Row,
    why: String,
    help: String,
}

pub(super) fn clean(route: &Route, output: &Output) -> Result<u8, Failure> {
    let before = stale();
    let refused: Vec<(Holder, String)> =
        before.iter().filter_map(|holder| Some((holder.clone(), remove(holder).err()?))).collect();
    if !refused.is_empty() {
        ask_service(&refused, route);
    }
    let after = stale();
    let is_left = |holder: &Holder| after.iter().any(|other| other.scheme == holder.scheme);
    let removed: Vec<Holder> = before.iter().filter(|holder| !is_left(holder)).cloned().collect();
    let left: Vec<Left> = refused
        .into_iter()
        .filter(|(holder, _)| is_left(holder))
        .filter_map(|(holder, why)| {
            let help = help(&holder);
            let row = report::rows(std::slice::from_ref(&holder)).pop()?;
            Some(Left { row, why: printable(&why), help })
        })
        .collect();
    tell(&report::rows(&removed), &left, output);
    if left.is_empty() { Ok(exit::DONE) } else { Err(Failure { device: None, kind: Kind::Left }) }
}

fn stale() -> Vec<Holder> {
    let mut holders = Table::new(places()).all_holders();
    holders.retain(|holder| holder.standing == Standing::Stale && holder.scheme.file().is_some());
    holders
}

/// Removes one lock file, unless it has changed since it was judged: then it is not ours to judge
/// again, and shows itself next time.
fn remove(holder: &Holder) -> Result<(), String> {
    let Some((directory, name)) = holder.scheme.file().and_then(split) else { return Ok(()) };
    let directory = Directory::open(directory).map_err(|error| error.to_string())?;
    match directory.read(&name, READ_LIMIT) {
        Ok(Found::File(judged)) if is_the_same(holder, &judged) => {
            match directory.release(&name, judged, TEMPORARY) {
                Ok(Removal::Removed | Removal::Changed) => Ok(()),
                Err(error) => Err(error.to_string()),
            }
        }
        Ok(Found::File(_) | Found::Nothing | Found::Obstacle(_)) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

fn split(path: &Path) -> Option<(&Path, Name)> {
    let name = path.file_name().and_then(OsStr::to_str)?;
    Some((path.parent()?, Name::new(name.to_owned())?))
}

/// Whether the file still says what made it stale.
fn is_the_same(holder: &Holder, judged: &Judged) -> bool {
    let pid = record::parse(judged.content()).ok().map(|record| record.pid);
    pid == holder.pid && Some(judged.modified()) == holder.since
}

/// The service may do what we may not. It removes what is stale by its own judgement; that we
/// name ourselves as the process makes sure that it releases nobody's lock for us.
fn ask_service(refused: &[(Holder, String)], route: &Route) {
    let mut broker = Broker::new(route);
    if matches!(broker, Broker::Files(_)) {
        return;
    }
    for (holder, _) in refused {
        let Ok(device) = DeviceName::parse(holder.device.as_bytes()) else { continue };
        if broker.unlock(&Request { device, pid: Pid::this() }).is_err() {
            return;
        }
    }
}

/// What would make the removal possible.
fn help(holder: &Holder) -> String {
    const STICKY: u32 = 0o1000;
    let Some(path) = holder.scheme.file() else { return String::new() };
    let owner = std::fs::symlink_metadata(path).map(|file| file.uid());
    let directory = path.parent().and_then(|parent| std::fs::metadata(parent).ok());
    let user = |uid: u32| {
        let known = users::get_user_by_uid(uid);
        known.map_or_else(|| format!("uid {uid}"), |user| printable(&user.name().to_string_lossy()))
    };
    match (owner, directory) {
        (Ok(owner), Some(directory)) if directory.mode() & STICKY != 0 => format!(
            "in this directory only the owner of a file may remove it: run `lfp clean` as {} or \
             root, or give the service CAP_FOWNER (see lfpd(8))",
            user(owner)
        ),
        (_, Some(directory)) => format!(
            "the directory belongs to {}: run `lfp clean` as its owner or root, or start the \
             service (see lfpd(8))",
            user(directory.uid())
        ),
        (_, None) => "run `lfp clean` as root".to_owned(),
    }
}

fn tell(removed: &[Row], left: &[Left], output: &Output) {
    output.answer(
        |_| {
            let removed = removed.iter().map(|row| format!("removed {}\n", row.file_and_pid()));
            let left = left.iter().map(|left| {
                format!("left {}: {}\n  {}\n", left.row.file_and_pid(), left.why, left.help)
            });
            removed.chain(left).collect()
        },
        || {
            Value::Object(vec![
                ("removed", Value::List(removed.iter().map(Row::to_json).collect())),
                ("left", Value::List(left.iter().map(Left::to_json).collect())),
            ])
        },
    );
}

impl Left {
    fn to_json(&self) -> Value {
        let mut members = self.row.members();
        members.push(("why", self.why.as_str().into()));
        members.push(("help", self.help.as_str().into()));
        Value::Object(members)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rstest::rstest;

    use super::*;
    use ttylock::lock::who::Scheme;

    /// What becomes of a lock file that has changed since it was judged stale.
    #[rstest]
    #[case::unchanged("   4000000\n", Some(4_000_000), Duration::ZERO, false)]
    #[case::another_holder("   4000001\n", Some(4_000_000), Duration::ZERO, true)]
    #[case::the_same_number_again("   4000000\n", Some(4_000_000), Duration::from_nanos(1), true)]
    #[case::nobody_then("   4000000\n", None, Duration::ZERO, true)]
    #[case::nobody_now("", Some(4_000_000), Duration::ZERO, true)]
    #[case::never_anybody("", None, Duration::ZERO, false)]
    fn only_the_judged_file_is_removed(
        #[case] content: &str,
        #[case] judged: Option<i64>,
        #[case] earlier: Duration,
        #[case] stays: bool,
    ) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("LCK..ttyS0");
        std::fs::write(&path, content).unwrap();
        let written = std::fs::metadata(&path).unwrap().modified().unwrap();
        let holder = Holder {
            device: "ttyS0".to_owned(),
            scheme: Scheme::Uucp(path.clone()),
            pid: judged.and_then(Pid::new),
            user: None,
            owner: None,
            command: None,
            since: Some(written - earlier),
            standing: Standing::Stale,
        };
        assert_eq!(remove(&holder), Ok(()));
        assert_eq!(path.exists(), stays);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), usize::from(stays));
    }
}
