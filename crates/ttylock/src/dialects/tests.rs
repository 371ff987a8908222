//! Tests of every row of the table of dialects, with all code that uses the table.

use std::fs;
use std::path::Path;
use std::time::Duration;

use pidlockfile::{Name, Pid};

use super::*;
use crate::device::DeviceName;
use crate::device::node::{Node, follow};
use crate::device::{Numbers, ResolvedDevice};
use crate::lock::names::{begins_as_a_lock, device_of, is_lock_file, lock_names};
use crate::lock::{Outcome, Request};
use crate::test_processes::{Sleeper, no_process};
use crate::{Layout, Table};
use content::Content;
use forms::{Spelling, base};

const LONG: Duration = Duration::from_secs(30);

const DEVICES: [&str; 3] = ["ttyS0", "pts/3", "serial/by-id/usb-X"];

const NODE: Node = Node {
    file_system: Numbers { major: 5, minor: 0 },
    inode: 1,
    device: Some(Numbers { major: 188, minor: 7 }),
};

fn resolved(device: &str) -> ResolvedDevice {
    ResolvedDevice {
        names: vec![device.to_owned()],
        links: Vec::new(),
        node: Some(NODE),
        access: None,
        kernel_name: None,
        namesakes: Vec::new(),
    }
}

/// A row's name for a lock of the device, in one of its forms.
fn name_in(form: &NameForm, device: &str) -> Option<String> {
    let numbers = NODE.device.map(|device| (NODE.file_system, device));
    let spelling = Spelling { path: device, numbers };
    form.write(&spelling, &mut String::new()).map(str::to_owned)
}

/// Where a lock of this dialect is met: on every system, or on its own.
fn systems_of(row: &Dialect) -> impl Iterator<Item = &'static Dialect> {
    let (at_home, name) = (row.of == Of::SystemAtHome, row.name);
    Dialect::systems().filter(move |system| !at_home || system.name == name)
}

/// The missing parts of a row, in words.
fn lacks(row: &Dialect) -> Vec<String> {
    let mut lacks = Vec::new();
    let mut want = |is_there: bool, what: String| {
        if !is_there {
            lacks.push(format!("{:?}: {what}", row.name));
        }
    };
    want(!row.name.is_empty(), "a name".to_owned());
    want(!row.source.is_empty(), "the source of its facts".to_owned());
    want(!row.directories.is_empty(), "the directories of its locks".to_owned());
    for directory in row.directories {
        let is_known = Dialect::known_directories().contains(&PathBuf::from(directory));
        want(directory.starts_with('/'), format!("the whole path of {directory}"));
        want(is_known, format!("a place in the table, so that {directory} is searched"));
    }
    want(!row.forms.is_empty(), "the forms of its names".to_owned());
    for number in [1, 30, 4711, 4_194_304] {
        let pid = Pid::new(number).unwrap();
        let read = Content::parse(&row.content.write(pid)).ok();
        want(
            read.is_some_and(|content| content.pids().next() == Some(pid)),
            format!("a way to read pid {pid} in {:?}", row.content),
        );
    }
    for device in DEVICES {
        for form in row.all_forms() {
            let Some(file) = name_in(form, device) else {
                want(false, format!("a name in {form:?} for {device}"));
                continue;
            };
            let file = file.as_str();
            let named = form.parse(file);
            let back = match named {
                Some(forms::NamedDevice::Base(name)) => name == base(device),
                Some(named @ forms::NamedDevice::Path(..)) => {
                    let directory = device.rsplit_once('/').map_or("", |(directory, _)| directory);
                    named.device_in(directory).as_deref() == Some(device)
                }
                Some(forms::NamedDevice::Numbers(numbers)) => Some(numbers) == NODE.device,
                None => false,
            };
            want(back, format!("the way back from {file} to {device}: it tells {named:?}"));
            want(is_lock_file(file), format!("{file} in the listing of a directory"));
            let devices = [(device.to_owned(), NODE)];
            for system in systems_of(row) {
                let all = lock_names(system, &resolved(device)).unwrap();
                let begins = |name: &Name| begins_as_a_lock(name.as_str().as_bytes());
                want(all.all().all(begins), format!("{file} in a listing that was kept"));
                let looked_for = all.all().any(|name| name.as_str() == file);
                let on = system.name;
                want(looked_for, format!("a look for {file} on {on} before a lock is taken"));
                let known = device_of(system, file, &devices);
                want(known.is_some(), format!("the device of {file} where {on} lists its locks"));
            }
        }
    }
    if row.of != Of::Program {
        let written = lock_names(row, &resolved("ttyS0")).unwrap().written;
        for name in written {
            let is_its_own = row.all_forms().any(|form| form.parse(name.as_str()).is_some());
            want(is_its_own, format!("a form that {name} has, which it writes"));
        }
        let found = Dialect::by_name(row.name).map(Dialect::name);
        want(found == Some(row.name), "a place in the table for --os".to_owned());
    }
    lacks
}

#[test]
fn every_row_can_be_written_searched_for_listed_and_read_back() {
    let lacking: Vec<String> = DIALECTS.iter().flat_map(lacks).collect();
    assert!(lacking.is_empty(), "the table of dialects lacks\n  {}", lacking.join("\n  "));
}

#[test]
fn every_row_has_its_own_name() {
    let mut names: Vec<_> = DIALECTS.iter().map(|dialect| dialect.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), DIALECTS.len());
}

#[test]
fn directories_that_have_more_than_locks_are_told_apart() {
    let found: Vec<_> = Dialect::lock_directories().collect();
    assert!(found.contains(&"/var/lock") && found.contains(&"/etc/locks"), "{found:?}");
    assert!(!found.contains(&"/tmp") && !found.contains(&"/var/lock/uucp"), "{found:?}");
}

/// The systems of lfpd(8), and what each writes; only QNX has locks that are met nowhere else.
#[test]
fn each_system_writes_the_content_of_its_programs() {
    let decimal = "linux freebsd dragonfly netbsd openbsd macos solaris illumos aix irix unixware";
    let written = |row: &Dialect| (row.name, row.content, row.of == Of::SystemAtHome);
    let expected = (decimal.split(' ').map(|name| (name, ContentForm::Decimal, false)))
        .chain([("tru64", ContentForm::Binary, false), ("qnx", ContentForm::DecimalAndNode, true)])
        .chain([("generic", ContentForm::Decimal, false)]);
    assert!(Dialect::systems().map(written).eq(expected));
}

/// A machine whose one device is the null device, which every machine has with its numbers.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for dir in ["lock", "other", "state"] {
            fs::create_dir(root.path().join(dir)).unwrap();
        }
        Self(root)
    }

    fn table(&self, system: &'static Dialect) -> Table {
        let path = |below| self.0.path().join(below);
        Table::new(Layout {
            dialect: system,
            dev_dir: PathBuf::from("/dev"),
            lock_dir: path("lock"),
            search_dirs: vec![path("other")],
            state_dir: path("state"),
            udev_dir: path("udev"),
        })
    }

    /// The name of a lock of the null device in this form.
    fn name(form: &NameForm) -> String {
        let device = DeviceName::parse(b"null").unwrap();
        let node = follow(Path::new("/dev"), &device).unwrap().node.unwrap();
        let numbers = node.device.map(|device| (node.file_system, device));
        let spelling = Spelling { path: "null", numbers };
        form.write(&spelling, &mut String::new()).unwrap().to_owned()
    }
}

/// The locks of one system, or of programs that are looked for there, that say the same.
struct Group {
    system: &'static Dialect,
    content: ContentForm,
    forms: Vec<&'static NameForm>,
}

/// All locks of the table. Many rows have the same.
fn groups() -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for row in DIALECTS {
        let (system, content) = (systems_of(row).next().unwrap(), row.content);
        for form in row.all_forms() {
            let mut same = groups.iter_mut().filter(|group| group.content == content);
            if same.any(|group| group.forms.iter().any(|known| std::ptr::eq(*known, form))) {
                continue;
            }
            let is_its =
                |group: &&mut Group| std::ptr::eq(group.system, system) && group.content == content;
            match groups.iter_mut().find(is_its) {
                Some(group) => group.forms.push(form),
                None => groups.push(Group { system, content, forms: vec![form] }),
            }
        }
    }
    groups
}

/// The same on disk: a lock of each dialect, in each form, keeps others out and is shown while its holder lives, and is
/// listed and cleared away afterwards: in its own directory, and where others look. All processes of the machine are
/// searched for what is shown and listed, so it is asked for once for all locks of a group.
#[test]
fn a_lock_of_every_dialect_is_met_shown_listed_and_cleared_away() {
    let (holder, dead) = (Sleeper::new(), no_process());
    let device = DeviceName::parse(b"null").unwrap();
    let request = Request { device: device.clone(), pid: Pid::this() };
    for Group { system, content, forms } in groups() {
        let machine = Machine::new();
        let mut table = machine.table(system);
        let places = ["lock", "other"].map(|directory| machine.0.path().join(directory));
        let files: Vec<PathBuf> = (places.iter())
            .flat_map(|place| forms.iter().map(|form| place.join(Machine::name(form))))
            .collect();
        let write = |file: &PathBuf, pid| fs::write(file, content.write(pid)).unwrap();
        for file in &files {
            write(file, holder.pid());
            assert_eq!(table.lock(&request).outcome(), Outcome::Busy, "{}", file.display());
            fs::remove_file(file).unwrap();
            write(file, dead);
            assert_eq!(table.lock(&request).outcome(), Outcome::Done, "{}", file.display());
            assert_eq!(table.unlock(&request).outcome(), Outcome::Done, "{}", file.display());
            assert!(!file.exists(), "{}", file.display());
        }
        files.iter().for_each(|file| write(file, holder.pid()));
        let shown = table.holders(Some(&device), LONG).holders;
        files.iter().for_each(|file| write(file, dead));
        let listed = table.holders(None, LONG).holders;
        for file in &files {
            let is_its = |it: &&crate::Holder| it.scheme.file() == Some(file);
            assert!(shown.iter().any(|it| is_its(&it)), "{}", file.display());
            let stale = listed.iter().find(is_its).unwrap();
            assert_eq!(table.remove_stale(stale), Ok(()), "{}", file.display());
            assert!(!file.exists(), "{}", file.display());
        }
    }
}
