//! The names of a device's lock files in every dialect, and the way back from a lock file's name to its
//! device, by the table of dialects. Pure.

use std::borrow::Cow;

use pidlockfile::Name;

use crate::device::{Node, Numbers, ResolvedDevice};
use crate::dialects::Dialect;
use crate::dialects::forms::{self, NameForm, NamedDevice, Spelling, base};
use crate::limits::{NAME_BYTES_OF_A_LOCK, NAMES_OF_A_LOCK};

/// The lock file names of one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LockNames {
    /// The names under which a lock is written, in the order in which they are taken: those of
    /// the real node first, so that two spellings of one device meet at the first file.
    pub written: Vec<Name>,
    /// Every other name under which a program may hold the device.
    pub searched: Vec<Name>,
}

/// Works out the names of the lock files of a device. Names longer than file names can be are left out: no program
/// has a lock under such a name. `None` if the real node has only such names.
pub(crate) fn lock_names(dialect: &Dialect, resolved: &ResolvedDevice) -> Option<LockNames> {
    let mut lock_names = written_names(dialect, resolved)?;
    let mut name = String::new();
    // Forms by number give the same for every name.
    let mut numbers = numbers(resolved);
    for path in resolved.every_name() {
        for path in std::iter::once(Cow::Borrowed(path)).chain(aliases(dialect, path)) {
            let spelling = Spelling { path: &path, numbers: numbers.take() };
            for form in dialect.forms_met() {
                if let Some(name) = form.write(&spelling, &mut name) {
                    lock_names.seek(name);
                }
            }
        }
    }
    Some(lock_names)
}

/// The forms that are written, of each name of a device.
fn forms_written(
    dialect: &Dialect,
    resolved: &ResolvedDevice,
) -> impl Iterator<Item = &'static NameForm> + Clone {
    let by_number = if resolved.kernel_name.is_none() { dialect.by_number } else { &[] };
    dialect.forms.iter().chain(by_number).copied()
}

/// The first name that is written, at which all spellings of the device meet.
pub(crate) fn first_name(dialect: &Dialect, resolved: &ResolvedDevice) -> Option<Name> {
    let spelling = Spelling { path: resolved.real(), numbers: numbers(resolved) };
    let mut forms = forms_written(dialect, resolved).chain([&forms::BASE]);
    forms.find_map(|form| Name::new(form.write(&spelling, &mut String::new())?))
}

/// Those of them that are written, and what does not fit there.
pub(crate) fn written_names(dialect: &Dialect, resolved: &ResolvedDevice) -> Option<LockNames> {
    let mut lock_names = LockNames::default();
    let forms = forms_written(dialect, resolved);
    let mut name = String::new();
    for path in resolved.every_name() {
        let spelling = Spelling { path, numbers: numbers(resolved) };
        let mut has_one = false;
        for form in forms.clone() {
            if let Some(name) = form.write(&spelling, &mut name) {
                has_one = true;
                lock_names.write(name);
            }
        }
        if let (false, Some(name)) = (has_one, forms::BASE.write(&spelling, &mut name)) {
            lock_names.write(name);
        }
        // The real node comes first. Two spellings of the device meet at one of its names.
        if lock_names.written.is_empty() {
            return None;
        }
    }
    Some(lock_names)
}

/// The numbers of the node's file system and of the device.
fn numbers(resolved: &ResolvedDevice) -> Option<(Numbers, Numbers)> {
    resolved.node.and_then(|node| Some((node.file_system, node.device?)))
}

impl LockNames {
    /// All names under which a program may hold the device.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Name> + Clone {
        self.written.iter().chain(&self.searched)
    }

    /// The names come in the order of their importance: those that do not fit are not written, but searched.
    fn write(&mut self, name: &str) {
        if is_among(&self.written, name) {
            return;
        }
        let bytes: usize = self.written.iter().map(|name| name.as_str().len()).sum();
        let bytes = bytes.saturating_add(name.len());
        let fits = self.written.len() < NAMES_OF_A_LOCK && bytes <= NAME_BYTES_OF_A_LOCK;
        add(if fits { &mut self.written } else { &mut self.searched }, name);
    }

    /// A name under which the lock was written earlier, when more was known of the device.
    pub(super) fn write_too(&mut self, name: &Name) {
        add(&mut self.written, name.as_str());
    }

    /// A name that cannot exist is not searched; one that is written is examined anyway.
    fn seek(&mut self, name: &str) {
        if !is_among(&self.written, name) {
            add(&mut self.searched, name);
        }
    }
}

fn is_among(names: &[Name], name: &str) -> bool {
    names.iter().any(|known| known.as_str() == name)
}

/// Adds a name that is not there yet, unless it cannot exist.
fn add(names: &mut Vec<Name>, name: &str) {
    if !is_among(names, name) {
        names.extend(Name::new(name));
    }
}

/// The devices that these lock files may be about: their own, and every other that shares one of them.
pub(crate) fn named_by<'n>(dialect: &Dialect, lock_names: &'n LockNames) -> Vec<NamedDevice<'n>> {
    let mut all = Vec::new();
    let forms = dialect.forms_met();
    for file in lock_names.all() {
        for (_, named) in readings(forms.clone(), file.as_str()) {
            if !all.contains(&named) {
                all.push(named);
            }
        }
    }
    all
}

/// The other names of the same line.
fn aliases<'a>(dialect: &'a Dialect, path: &'a str) -> impl Iterator<Item = Cow<'a, str>> {
    let base = base(path);
    let member = |prefix: &&str| base.starts_with(*prefix);
    let family = dialect.families.iter().find_map(|family| {
        // The longest beginning counts: `ttyd` before `tty`.
        let own =
            family.iter().filter(|prefix| member(prefix)).max_by_key(|prefix| prefix.len())?;
        Some((*family, base.strip_prefix(own)?, *own))
    });
    family.into_iter().flat_map(|(family, unit, own)| {
        let others = family.iter().filter(move |prefix| **prefix != own);
        others.map(move |prefix| Cow::Owned([*prefix, unit].concat()))
    })
}

/// The meaning of a file's name in each form, with the form.
fn readings<'n>(
    forms: impl Iterator<Item = &'static NameForm>,
    file: &'n str,
) -> impl Iterator<Item = (&'static NameForm, NamedDevice<'n>)> {
    let is_lock = !is_temporary(file.as_bytes());
    forms.filter(move |_| is_lock).filter_map(move |form| Some((form, form.parse(file)?)))
}

/// Whether a file of another program is called like a lock and is none: those in which mgetty (`LCK..TM.a1b2c3`) and
/// lockdev (`LCK...1234`) prepare locks, and those with which Qt removes locks.
#[must_use]
pub fn is_temporary(file: &[u8]) -> bool {
    file.starts_with(b"LCK..TM.")
        || file.strip_prefix(b"LCK...").is_some_and(|pid| pid.iter().all(u8::is_ascii_digit))
        || file.ends_with(b".rmlock")
}

/// Whether a file of this name is a lock of any dialect.
#[must_use]
pub(crate) fn is_lock_file(file: &str) -> bool {
    readings(Dialect::forms_anywhere(), file).next().is_some()
}

/// Whether a file's name has the beginning of a form. The names of all lock files of a device do.
pub(crate) fn begins_as_a_lock(file: &[u8]) -> bool {
    Dialect::forms_anywhere().any(|form| file.starts_with(form.beginning.as_bytes()))
}

/// Whether a lock file of this name is about a device by its numbers.
pub(super) fn is_by_number(file: &str) -> bool {
    let mut readings = readings(Dialect::forms_anywhere(), file);
    readings.any(|(_, named)| matches!(named, NamedDevice::Numbers(_)))
}

/// The device that a lock file is about, by its name alone; numbers are looked up among the devices. If several forms
/// match, the most specific counts: numbers, an existing device, slashes, then the longest beginning.
pub(crate) fn device_of(
    dialect: &Dialect,
    file: &str,
    devices: &[(String, Node)],
) -> Option<String> {
    let existing = |named: NamedDevice<'_>| match named {
        NamedDevice::Numbers(numbers) => by_numbers(numbers, devices),
        NamedDevice::Base(_) | NamedDevice::Path(..) => {
            let is_meant = |name: &str| named.device_in("").as_deref() == Some(name);
            devices.iter().map(|(name, _)| name.as_str()).find(|name| is_meant(name))
        }
    };
    let weight = |(form, named): &(&NameForm, NamedDevice<'_>)| {
        let is_number = matches!(named, NamedDevice::Numbers(_));
        (is_number, existing(*named).is_some(), named.has_slashes(), form.beginning.len())
    };
    let (_, most) = readings(dialect.forms_met(), file).max_by_key(weight)?;
    Some(existing(most).map_or_else(|| most.likely_device(), str::to_owned))
}

fn by_numbers(numbers: Numbers, devices: &[(String, Node)]) -> Option<&str> {
    let device = devices.iter().find(|(_, node)| node.device == Some(numbers));
    device.map(|(name, _)| name.as_str())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn resolved(names: &[&str], numbers: Option<(u64, u64, u64)>) -> ResolvedDevice {
        let node = numbers.map(|(file_system, major, minor)| Node {
            file_system: Numbers { major: file_system, minor: 0 },
            inode: 1,
            device: Some(Numbers { major, minor }),
        });
        ResolvedDevice {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            links: Vec::new(),
            node,
            access: None,
            kernel_name: names.last().map(|name| (*name).to_owned()),
            namesakes: Vec::new(),
        }
    }

    fn texts(names: &[Name]) -> Vec<&str> {
        names.iter().map(Name::as_str).collect()
    }

    fn on(os: &str, resolved: &ResolvedDevice) -> LockNames {
        let dialect = Dialect::by_name(os).unwrap();
        let lock_names = lock_names(dialect, resolved).unwrap();
        assert_eq!(first_name(dialect, resolved).as_ref(), lock_names.written.first());
        lock_names
    }

    /// The table of names in the contract: /dev/pts/3, number 136:3.
    #[rstest]
    #[case::fhs("LCK..3")]
    #[case::underscore("LCK..pts_3")]
    #[case::colon("LCK..pts:3")]
    #[case::lk_dots("lk..3")]
    #[case::lk("LK.3")]
    #[case::svr4("LK.005.136.003")]
    #[case::gensio("LCK.136.003")]
    #[case::lockdev_103("LCK.C.136.003")]
    fn every_form_of_name_is_searched_once(#[case] name: &str) {
        let resolved = resolved(&["pts/3"], Some((5, 136, 3)));
        let lock_names = on("linux", &resolved);
        let all = [texts(&lock_names.written), texts(&lock_names.searched)].concat();
        assert_eq!(all.iter().filter(|found| **found == name).count(), 1, "{all:?}");
    }

    #[rstest]
    #[case::plain(&["ttyS0"], &["LCK..ttyS0"])]
    #[case::below(&["pts/3"], &["LCK..3", "LCK..pts_3", "LCK..pts:3"])]
    #[case::link(&["modem", "ttyS0"], &["LCK..ttyS0", "LCK..modem"])]
    #[case::by_id(
        &["serial/by-id/usb-X", "ttyUSB0"],
        &["LCK..ttyUSB0", "LCK..usb-X", "LCK..serial_by-id_usb-X", "LCK..serial:by-id:usb-X"]
    )]
    #[case::deep(&["usb/tts/0"], &["LCK..0", "LCK..usb_tts_0", "LCK..usb:tts:0"])]
    fn linux_writes(#[case] names: &[&str], #[case] written: &[&str]) {
        let lock_names = on("linux", &resolved(names, Some((5, 4, 64))));
        assert_eq!(texts(&lock_names.written), written);
    }

    #[test]
    fn a_device_without_a_name_of_the_kernels_is_locked_by_number() {
        let mut resolved = resolved(&["ttyX"], Some((5, 4, 64)));
        resolved.kernel_name = None;
        let written = |os| on(os, &resolved).written;
        assert_eq!(texts(&written("linux")), ["LCK..ttyX", "LCK.004.064"]);
        assert_eq!(texts(&written("generic")), ["LCK..ttyX", "LCK.004.064"]);
        assert_eq!(texts(&written("freebsd")), ["LCK..ttyX"]);
        resolved.node = None;
        assert_eq!(texts(&on("linux", &resolved).written), ["LCK..ttyX"]);
    }

    #[rstest]
    #[case::many(40, 5)]
    #[case::long(12, 240)]
    fn the_names_of_a_lock_are_bounded(#[case] links: usize, #[case] length: usize) {
        let mut resolved = resolved(&["asked-for", "ttyUSB0"], Some((5, 188, 0)));
        resolved.add_links((0..links).map(|link| format!("{link}{}", "x".repeat(length))));
        let LockNames { written, searched } = on("linux", &resolved);
        assert_eq!(texts(&written)[..2], ["LCK..ttyUSB0", "LCK..asked-for"]);
        assert!(written.len() <= NAMES_OF_A_LOCK, "{}", written.len());
        let bytes: usize = written.iter().map(|name| name.as_str().len()).sum();
        assert!(bytes <= NAME_BYTES_OF_A_LOCK, "{bytes}");
        assert!(written.iter().all(|name| !searched.contains(name)));
        let all =
            written.len() + searched.iter().filter(|n| n.as_str().starts_with("LCK..")).count();
        assert!(all >= links + 2, "what is not written is searched: {all}");
    }

    /// By this name, two nodes of one device have one lock, however many links lead to one of them.
    #[rstest]
    #[case::links_elsewhere(0, 40)]
    #[case::links_on_the_way(40, 0)]
    fn the_kernels_name_is_written_whatever_others_there_are(
        #[case] way: usize,
        #[case] links: usize,
    ) {
        let way: Vec<String> = (0..way).map(|number| format!("way{number}")).collect();
        let names: Vec<&str> = way.iter().map(String::as_str).chain(["second-node"]).collect();
        let mut resolved = resolved(&names, Some((5, 188, 0)));
        resolved.add_links((0..links).map(|number| format!("link{number}")));
        resolved.kernel_name = Some("bus/ttyUSB0".to_owned());
        let LockNames { written, .. } = on("linux", &resolved);
        let expected = ["LCK..second-node", "LCK..ttyUSB0", "LCK..bus_ttyUSB0", "LCK..bus:ttyUSB0"];
        assert_eq!(texts(&written)[..4], expected);
        resolved.kernel_name = None;
        let LockNames { written, .. } = on("linux", &resolved);
        assert_eq!(texts(&written)[..2], ["LCK..second-node", "LCK.188.000"]);
    }

    #[rstest]
    #[case::linux("linux", "ttyS0", &["LCK..ttyS0"])]
    #[case::freebsd("freebsd", "cuau0", &["LCK..cuau0"])]
    #[case::netbsd("netbsd", "tty00", &["LCK..tty00"])]
    #[case::openbsd("openbsd", "cua00", &["LCK..cua00"])]
    #[case::macos("macos", "cu.usbserial-1", &["LCK..cu.usbserial-1"])]
    #[case::solaris("solaris", "term/a", &["LK.005.020.131"])]
    #[case::illumos("illumos", "term/a", &["LK.005.020.131"])]
    #[case::aix("aix", "tty0", &["LCK..tty0"])]
    #[case::irix("irix", "ttyd1", &["LCK..ttyd1"])]
    #[case::unixware("unixware", "tty00", &["LK.005.020.131"])]
    #[case::tru64("tru64", "tty00", &["LCK..tty00"])]
    #[case::qnx("qnx", "ser1", &["LCK..0.ser1"])]
    #[case::generic("generic", "ttyS0", &["LCK..ttyS0"])]
    fn each_system_writes(#[case] os: &str, #[case] device: &str, #[case] written: &[&str]) {
        let lock_names = on(os, &resolved(&[device], Some((5, 20, 131))));
        assert_eq!(texts(&lock_names.written), written);
    }

    #[rstest]
    #[case::linux("linux", "ttyS0", "LCK..cua0")]
    #[case::linux_back("linux", "cua0", "LCK..ttyS0")]
    #[case::freebsd("freebsd", "ttyu0", "LCK..cuau0")]
    #[case::freebsd_usb("freebsd", "cuaU3", "LCK..ttyU3")]
    #[case::dragonfly("dragonfly", "ttyd0", "LCK..cuaa0")]
    #[case::macos("macos", "tty.usb", "LCK..cu.usb")]
    #[case::openbsd("openbsd", "tty00", "LCK..cua00")]
    #[case::netbsd("netbsd", "tty00", "LCK..dty00")]
    #[case::irix("irix", "ttyd1", "LCK..ttym1")]
    #[case::irix_flow_control("irix", "ttyd1", "LCK..ttyf1")]
    fn pairs_and_spellings_are_searched(
        #[case] os: &str,
        #[case] device: &str,
        #[case] other: &str,
    ) {
        let lock_names = on(os, &resolved(&[device], None));
        assert!(texts(&lock_names.searched).contains(&other), "{:?}", lock_names.searched);
    }

    #[test]
    fn numbers_give_way_to_the_name_where_the_node_is_gone() {
        let lock_names = on("solaris", &resolved(&["term/a"], None));
        assert_eq!(texts(&lock_names.written), ["LCK..a"]);
    }

    /// Files that are never locks are never examined, whatever the name of the device is.
    #[rstest]
    #[case("TM.X")]
    #[case("ttyS0")]
    #[case("pts/3")]
    fn other_programs_temporary_files_are_not_locks(#[case] device: &str) {
        let lock_names = on("linux", &resolved(&[device], Some((5, 4, 64))));
        for name in lock_names.written.iter().chain(&lock_names.searched) {
            let never = ["LTMP.", "TMP", "LCKTMP..", "TM.fax", "LOCKDEV", "lfpd."];
            assert!(!never.iter().any(|prefix| name.as_str().starts_with(prefix)), "{name}");
        }
    }

    /// USB devices may have such links, with a long serial number.
    #[test]
    fn a_link_too_long_for_lock_files_keeps_nobody_from_the_device() {
        let link = format!("serial/by-id/{}", "x".repeat(245));
        let mut resolved = resolved(&["ttyUSB0"], None);
        resolved.add_links([link, "y".repeat(251)]);
        let lock_names = on("linux", &resolved);
        let base = format!("LCK..{}", "x".repeat(245));
        assert_eq!(texts(&lock_names.written), ["LCK..ttyUSB0", base.as_str()]);
    }

    /// The node's name would be left out, and not all spellings of the device have the name of a link.
    #[test]
    fn a_device_too_long_for_lock_files_has_none_by_a_short_link() {
        let resolved = resolved(&["short", &"x".repeat(251)], None);
        let dialect = Dialect::by_name("linux").unwrap();
        assert_eq!(lock_names(dialect, &resolved), None);
        assert_eq!(first_name(dialect, &resolved), None);
    }

    #[rstest]
    #[case::fhs("LCK..ttyS0", Some("ttyS0"))]
    #[case::underscore("LCK..pts_3", Some("pts_3"))]
    #[case::colon("LCK..pts:3", Some("pts/3"))]
    #[case::lk("LK.ttyS0", Some("ttyS0"))]
    #[case::lk_dots("lk..ttyS0", Some("ttyS0"))]
    #[case::svr4("LK.005.004.064", Some("ttyS0"))]
    #[case::gensio("LCK.004.064", Some("ttyS0"))]
    #[case::lockdev("LCK.C.004.064", Some("ttyS0"))]
    #[case::unknown_number("LCK.188.000", Some("188:0"))]
    #[case::number_of_two_digits("LCK.04.64", None)]
    #[case::pseudo_terminal("LCK.136.003", Some("pts/3"))]
    #[case::pseudo_terminal_on_its_file_system("LK.024.136.300", Some("pts/300"))]
    #[case::no_node_of_qnx("LCK..0.ttyS0", Some("0.ttyS0"))]
    #[case::qt_removing("LCK..ttyS0.rmlock", None)]
    #[case::lockdev_pid_file("LCK...1234", None)]
    #[case::mgetty_temporary("LCK..TM.a1b2c3", None)]
    #[case::freebsd_temporary("LCKTMP..12", None)]
    #[case::kermit_temporary("LTMP.00012", None)]
    #[case::other_temporary("TMP0000012", None)]
    #[case::fax("TM.fax12", None)]
    #[case::lockdev_semaphore("LOCKDEV", None)]
    #[case::ours("lfpd.12.0123456789abcdef.tmp", None)]
    #[case::nothing("LCK..", None)]
    fn names_tell_their_device(#[case] file: &str, #[case] device: Option<&str>) {
        let numbers = Some(Numbers { major: 4, minor: 64 });
        let file_system = Numbers { major: 0, minor: 5 };
        let node = Node { file_system, inode: 1, device: numbers };
        let devices = [("ttyS0".to_owned(), node)];
        let linux = Dialect::by_name("linux").unwrap();
        assert_eq!(device_of(linux, file, &devices).as_deref(), device);
        assert_eq!(is_lock_file(file), device.is_some());
    }

    #[rstest]
    #[case::fhs("LCK..ttyS0", false)]
    #[case::lk("LK.ttyS0", false)]
    #[case::svr4("LK.005.004.064", true)]
    #[case::gensio("LCK.004.064", true)]
    #[case::lockdev("LCK.C.004.064", true)]
    fn a_name_is_by_number_or_not(#[case] file: &str, #[case] expected: bool) {
        assert_eq!(is_by_number(file), expected);
    }
}
