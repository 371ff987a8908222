//! `lfp clean`: removes the locks of processes that are gone. Removes only the very file that was judged
//! stale. For each file that it cannot remove, it prints why, and what would help.

use pidlockfile::Pid;
use wrapcmd::{Form, Value};

use super::outcome::{Failure, Output, exit};
use super::row::printable;
use super::row::{self, Row};
use crate::client::broker::{Broker, COMMAND_SEARCH, Route};
use ttylock::{
    DeviceName, Holder, Layout, Request, Standing, Survey, Table, follow,
    limits::LOCKS_FOR_INVENTED as LOCKS_LISTED,
};

/// A stale lock that is still there.
struct Left {
    row: Row,
    why: String,
}

/// How often the search is repeated if there was more than one search shows.
const ROUNDS: usize = 100;

/// The result of `lfp clean`: what was removed, and what was not.
#[derive(Default)]
struct CleanReport {
    removed: Vec<Holder>,
    left: Vec<Left>,
    /// The service's records of locks that are gone.
    records: usize,
    /// Not all lock files were examined.
    cut_off: bool,
}

pub(super) fn clean(route: &Route, output: &Output) -> Result<u8, Failure> {
    let mut report = CleanReport::default();
    for _ in 0..ROUNDS {
        if !round(&mut report, route) {
            break;
        }
    }
    report.records = Table::new(Layout::native()).clean_records();
    let failure = (!report.left.is_empty() || report.cut_off).then(Failure::left);
    report.print(output, failure.as_ref());
    match failure {
        None => Ok(exit::DONE),
        // It is in the one value that was printed.
        Some(_) if output.form() == Form::Json => Ok(exit::NOT_PERMITTED),
        Some(failure) => Err(failure),
    }
}

/// Examines all locks once. Whether another round may remove more.
fn round(report: &mut CleanReport, route: &Route) -> bool {
    let (stale, cut_off) = stale();
    let before = report.removed.len();
    let mut table = Table::new(Layout::native());
    let mut refused = Vec::new();
    for holder in stale {
        match table.remove_stale(&holder) {
            Ok(()) => report.removed.push(holder),
            Err(why) => refused.push((holder, why)),
        }
    }
    ask_service(&refused, route);
    (report.left, report.cut_off) = (Vec::new(), cut_off);
    for (holder, why) in refused {
        if table.remove_stale(&holder).is_ok() {
            report.removed.push(holder);
        } else if let Some(row) = row::rows(std::slice::from_ref(&holder)).pop() {
            report.left.push(Left { row, why: printable(&why) });
        }
    }
    cut_off && report.removed.len() > before
}

/// The stale lock files, and whether there may be more: in a directory with more files than are looked at, or because
/// the search was cut short.
fn stale() -> (Vec<Holder>, bool) {
    let Survey { mut holders, is_complete, .. } =
        Table::new(Layout::native()).all_lock_files(COMMAND_SEARCH);
    let directories: Vec<_> =
        holders.iter().filter_map(|holder| holder.scheme.file()?.parent()).collect();
    // One directory after the other was listed.
    let mut listed = directories.chunk_by(|a, b| a == b);
    let cut_off = !is_complete || listed.any(|files| files.len() >= LOCKS_LISTED);
    let is_stale = |it: &Holder| it.standing == Standing::Stale && it.scheme.file().is_some();
    holders.retain(|holder| is_stale(holder) && (holder.pid.is_some() || is_there(&holder.device)));
    (holders, cut_off)
}

/// Whether there is a device of this name. A file without a number that is called as no device is no lock of a port, but
/// something else of another program, such as `LCK..librtas`.
fn is_there(device: &str) -> bool {
    let device = DeviceName::parse(device.as_bytes()).ok();
    let resolved = device.and_then(|device| follow(&Layout::native().dev_dir, &device).ok());
    resolved.is_some_and(|resolved| resolved.is_device())
}

/// The service may do what we may not. It removes what is stale by its own judgement; that we
/// name ourselves as the process makes sure that it releases no other process's lock.
fn ask_service(refused: &[(Holder, String)], route: &Route) {
    let mut broker = Broker::new(route);
    if broker.is_direct() {
        return;
    }
    for (holder, _) in refused {
        let Ok(device) = DeviceName::parse(holder.device.as_bytes()) else { continue };
        if broker.unlock(&Request { device, pid: Pid::this() }).is_err() {
            return;
        }
    }
}

impl CleanReport {
    fn print(&self, output: &Output, failure: Option<&Failure>) {
        let removed = row::rows(&self.removed);
        output.answer(
            || {
                let removed = removed.iter().map(|row| format!("removed {}\n", row.file_and_pid()));
                let records = match self.records {
                    0 => None,
                    count => Some(format!("removed {count} records of locks that are gone\n")),
                };
                removed.chain(self.left.iter().map(Left::to_text)).chain(records).collect()
            },
            || {
                let count = u64::try_from(self.records).unwrap_or(u64::MAX);
                let mut members = vec![
                    ("removed", Value::List(removed.iter().map(Row::to_json).collect())),
                    ("left", Value::List(self.left.iter().map(Left::to_json).collect())),
                    ("records", Value::Number(count)),
                    ("cut_off", Value::Bool(self.cut_off)),
                ];
                if let Some(failure) = failure {
                    members.push(("outcome", failure.word.into()));
                    members.extend(failure.members());
                }
                Value::Object(members)
            },
        );
        if self.cut_off {
            output.remark(&format!(
                "there are more than {LOCKS_LISTED} lock files in one directory, or the search was cut short after \
                 two seconds: not all were looked at"
            ));
        }
    }
}

impl Left {
    fn to_text(&self) -> String {
        let (file, help) = (self.row.file_and_pid(), self.row.remedy());
        format!("left {file}: {}\n  {help}\n", self.why)
    }

    fn to_json(&self) -> Value {
        let mut members = self.row.members();
        members.push(("why", self.why.as_str().into()));
        members.push(("help", self.row.remedy().as_str().into()));
        Value::Object(members)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use std::time::{Duration, SystemTime};

    use super::*;
    use ttylock::Scheme;

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
        // Young ones without a number are being written.
        let written = SystemTime::now() - Duration::from_secs(60);
        std::fs::File::open(&path).unwrap().set_modified(written).unwrap();
        let written = std::fs::metadata(&path).unwrap().modified().unwrap();
        let mut holder = Holder::new("ttyS0", Scheme::Uucp(path.clone()), Standing::Stale);
        holder.pid = judged.and_then(Pid::new);
        holder.since = Some(written - earlier);
        let nowhere = directory.path().join("nowhere");
        let mut layout = Layout::native();
        layout.lock_dir = directory.path().to_owned();
        layout.search_dirs = Vec::new();
        layout.dev_dir.clone_from(&nowhere);
        layout.state_dir.clone_from(&nowhere);
        layout.udev_dir = nowhere;
        let mut table = Table::new(layout);
        assert_eq!(table.remove_stale(&holder), Ok(()));
        assert_eq!(path.exists(), stays);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), usize::from(stays));
    }
}
