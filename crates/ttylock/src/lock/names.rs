//! A device and the names of its lock files under every convention, and the way back: from a lock
//! file's name to its device. Names in, names out.

use pidlockfile::{Name, Pid};

use crate::device::node::{Node, Numbers, ResolvedDevice};
use crate::device::os::{Case, DialIn, NameForm, System};
use crate::limits::{NAME_BYTES_OF_A_LOCK, NAMES_OF_A_LOCK};

/// The lock file names of one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockNames {
    /// The names under which a lock is written, in the order in which they are taken: those of
    /// the real node first, so that two spellings of one device meet at the first file.
    pub written: Vec<Name>,
    /// Every other name under which some program may hold the device.
    pub searched: Vec<Name>,
}

/// The device name is too long for a lock file name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSuchForm;

/// Works out the names of the lock files of a device. Names longer than file names can be are left
/// out: nobody has a lock under such a name.
///
/// # Errors
/// [`NoSuchForm`] when the real node has no other.
pub fn lock_names(system: &System, resolved: &ResolvedDevice) -> Result<LockNames, NoSuchForm> {
    let mut lock_names = LockNames::default();
    for path in resolved.every_name() {
        for form in system.written {
            let Some(name) = written_name(system, *form, path, resolved) else { continue };
            lock_names.write(name);
        }
        if system.dial_in_too == DialIn::Both {
            for alias in aliases(system, path).take(1) {
                lock_names.write(format!("LCK..{alias}"));
            }
        }
        // The real node comes first. Two spellings of the device meet at a name of that one.
        if lock_names.written.is_empty() {
            return Err(NoSuchForm);
        }
    }
    for path in resolved.every_name() {
        search(&mut lock_names, system, path);
        for alias in aliases(system, path) {
            search_base(&mut lock_names, system, &alias);
        }
    }
    if let Some((file_system, device)) = numbers(resolved) {
        let (major, minor) = (device.major, device.minor);
        lock_names.seek(svr4(file_system, device));
        lock_names.seek(gensio(device));
        lock_names.seek(format!("LCK.C.{major:03}.{minor:03}"));
    }
    Ok(lock_names)
}

fn fhs(path: &str) -> String {
    format!("LCK..{}", base(path))
}

impl LockNames {
    /// Every name under which some program may hold the device.
    pub fn all(&self) -> impl Iterator<Item = &Name> {
        self.written.iter().chain(&self.searched)
    }

    /// The names come in the order of their weight: what does not fit is left out, and searched.
    fn write(&mut self, name: String) {
        let Some(name) = Name::new(name).filter(|name| !self.written.contains(name)) else {
            return;
        };
        let bytes: usize = self.written.iter().map(|name| name.as_str().len()).sum();
        let bytes = bytes.saturating_add(name.as_str().len());
        let fits = self.written.len() < NAMES_OF_A_LOCK && bytes <= NAME_BYTES_OF_A_LOCK;
        add(if fits { &mut self.written } else { &mut self.searched }, name);
    }

    /// A name under which the lock was written earlier, when more was known of the device.
    pub(super) fn write_too(&mut self, name: Name) {
        add(&mut self.written, name);
    }

    /// A name that cannot exist need not be looked for; one that is written is looked at anyway.
    fn seek(&mut self, name: String) {
        if let Some(name) = Name::new(name).filter(|name| !self.written.contains(name)) {
            add(&mut self.searched, name);
        }
    }
}

fn add(names: &mut Vec<Name>, name: Name) {
    if !names.contains(&name) {
        names.push(name);
    }
}

fn written_name(
    system: &System,
    form: NameForm,
    path: &str,
    resolved: &ResolvedDevice,
) -> Option<String> {
    let name = match (form, numbers(resolved)) {
        (NameForm::Svr4, Some((file_system, device))) => return Some(svr4(file_system, device)),
        (NameForm::Numbers, Some((_, device))) if resolved.is_known_by_number_only => {
            return Some(gensio(device));
        }
        (NameForm::Numbers, _) => return None,
        (NameForm::Svr4, None) | (NameForm::Base, _) => fhs(path),
        (NameForm::Underscore, _) => format!("LCK..{}", path.replace('/', "_")),
        (NameForm::Colon, _) => format!("LCK..{}", path.replace('/', ":")),
        (NameForm::QnxNode, _) => format!("LCK..0.{}", base(path)),
    };
    Some(match (system.case, name.strip_prefix("LCK..")) {
        (Case::Lower, Some(rest)) => format!("LCK..{}", rest.to_ascii_lowercase()),
        (Case::FlockGuards | Case::Lower, _) => name,
    })
}

/// Every name-based form of one spelling.
fn search(lock_names: &mut LockNames, system: &System, path: &str) {
    search_base(lock_names, system, base(path));
    if path.contains('/') {
        lock_names.seek(format!("LCK..{}", path.replace('/', "_")));
        lock_names.seek(format!("LCK..{}", path.replace('/', ":")));
    }
}

fn search_base(lock_names: &mut LockNames, system: &System, base: &str) {
    lock_names.seek(format!("LCK..{base}"));
    lock_names.seek(format!("lk..{base}"));
    lock_names.seek(format!("LK.{base}"));
    if system.case == Case::Lower {
        lock_names.seek(format!("LCK..{}", base.to_ascii_lowercase()));
        lock_names.seek(format!("LCK..{}", last_letter_lower(base)));
    }
}

/// The names in one directory below `/dev` (`""` for `/dev` itself) whose devices have a lock file in
/// common with a device of this name: the same last part or another name of that line, and `/`
/// against the signs that stand for it.
pub(crate) fn namesakes(system: &System, path: &str, directory: &str) -> Vec<String> {
    let own = base(path);
    let within = |name: String| match directory {
        "" => name,
        _ => format!("{directory}/{name}"),
    };
    let mut names = vec![within(own.to_owned())];
    names.extend(aliases(system, path).map(&within));
    for sign in ["_", ":"] {
        let beginning = directory.replace('/', sign) + sign;
        names.extend(own.strip_prefix(&beginning).map(|rest| within(rest.to_owned())));
        names.push(within(path.replace('/', sign)));
    }
    names
}

/// The other names of the same line, the dial-in name first.
fn aliases<'a>(system: &'a System, path: &'a str) -> impl Iterator<Item = String> + 'a {
    let base = base(path);
    let member = |prefix: &&str| base.starts_with(*prefix);
    let family = system.families.iter().find_map(|family| {
        // The longest beginning counts: `ttyd` before `tty`.
        let own =
            family.iter().filter(|prefix| member(prefix)).max_by_key(|prefix| prefix.len())?;
        Some((*family, base.strip_prefix(own)?, *own))
    });
    family.into_iter().flat_map(|(family, unit, own)| {
        family.iter().filter(move |prefix| **prefix != own).map(move |p| format!("{p}{unit}"))
    })
}

fn base(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, base)| base)
}

/// Xenix and Taylor UUCP on SCO: only the last letter, which marks modem control.
fn last_letter_lower(base: &str) -> String {
    match base.char_indices().next_back() {
        Some((at, last)) => format!("{}{}", &base[..at], last.to_ascii_lowercase()),
        None => String::new(),
    }
}

fn numbers(resolved: &ResolvedDevice) -> Option<(Numbers, Numbers)> {
    resolved.node.and_then(|node| Some((node.file_system, node.device?)))
}

fn gensio(device: Numbers) -> String {
    format!("LCK.{:03}.{:03}", device.major, device.minor)
}

fn svr4(file_system: Numbers, device: Numbers) -> String {
    format!("LK.{:03}.{:03}.{:03}", file_system.major, device.major, device.minor)
}

/// Which device a lock file is about, by its name alone; numbers are looked up among the devices.
pub(super) fn device_of(file: &str, devices: &[(String, Node)]) -> Option<String> {
    if let Some((major, minor)) = numbers_in(file) {
        let numbers = |node: &Node| node.device.map(|device| (device.major, device.minor));
        let known = devices.iter().find(|(_, node)| numbers(node) == Some((major, minor)));
        return Some(known.map_or_else(|| format!("{major}:{minor}"), |(name, _)| name.clone()));
    }
    let name = ["LCK..", "lk..", "LK."].iter().find_map(|prefix| file.strip_prefix(prefix))?;
    let never = ["", ".", "TM."].iter().any(|other| name == *other || name.starts_with("TM."));
    let own_pid_file = name.strip_prefix('.').is_some_and(|pid| Pid::parse(pid.as_bytes()).is_ok());
    (!never && !own_pid_file).then(|| name.replace(':', "/"))
}

/// `LK.005.136.003`, `LCK.136.003` and `LCK.C.136.003`: the device's numbers.
pub(super) fn numbers_in(file: &str) -> Option<(u64, u64)> {
    let number = |text: &str| {
        let digits = text.len() >= 3 && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse().ok())?
    };
    let words: Vec<&str> = file.split('.').collect();
    match words.as_slice() {
        ["LK", _, major, minor] | ["LCK", "C", major, minor] | ["LCK", major, minor] => {
            Some((number(major)?, number(minor)?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::device::os::by_name;

    fn resolved(names: &[&str], numbers: Option<(u64, u64, u64)>) -> ResolvedDevice {
        let node = numbers.map(|(file_system, major, minor)| Node {
            file_system: Numbers { major: file_system, minor: 0 },
            inode: 1,
            device: Some(Numbers { major, minor }),
        });
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        ResolvedDevice {
            names,
            links: Vec::new(),
            node,
            access: None,
            is_known_by_number_only: false,
            namesakes: Vec::new(),
        }
    }

    fn texts(names: &[Name]) -> Vec<&str> {
        names.iter().map(Name::as_str).collect()
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
    fn looks_at_every_form(#[case] name: &str) {
        let resolved = resolved(&["pts/3"], Some((5, 136, 3)));
        let lock_names = lock_names(by_name("linux").unwrap(), &resolved).unwrap();
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
        let lock_names =
            lock_names(by_name("linux").unwrap(), &resolved(names, Some((5, 4, 64)))).unwrap();
        assert_eq!(texts(&lock_names.written), written);
    }

    #[test]
    fn a_device_without_a_name_of_the_kernels_is_locked_by_number() {
        let mut resolved = resolved(&["ttyX"], Some((5, 4, 64)));
        resolved.is_known_by_number_only = true;
        let written = |os| lock_names(by_name(os).unwrap(), &resolved).unwrap().written;
        assert_eq!(texts(&written("linux")), ["LCK..ttyX", "LCK.004.064"]);
        assert_eq!(texts(&written("freebsd")), ["LCK..ttyX"]);
        resolved.node = None;
        assert_eq!(
            texts(&lock_names(by_name("linux").unwrap(), &resolved).unwrap().written),
            ["LCK..ttyX"]
        );
    }

    #[rstest]
    #[case::many(40, 5)]
    #[case::long(12, 240)]
    fn the_names_of_a_lock_are_bounded(#[case] links: usize, #[case] length: usize) {
        let mut resolved = resolved(&["asked-for", "ttyUSB0"], Some((5, 188, 0)));
        resolved.add_links((0..links).map(|link| format!("{link}{}", "x".repeat(length))));
        let LockNames { written, searched } =
            lock_names(by_name("linux").unwrap(), &resolved).unwrap();
        assert_eq!(texts(&written)[..2], ["LCK..ttyUSB0", "LCK..asked-for"]);
        assert!(written.len() <= NAMES_OF_A_LOCK, "{}", written.len());
        let bytes: usize = written.iter().map(|name| name.as_str().len()).sum();
        assert!(bytes <= NAME_BYTES_OF_A_LOCK, "{bytes}");
        assert!(written.iter().all(|name| !searched.contains(name)));
        let all =
            written.len() + searched.iter().filter(|n| n.as_str().starts_with("LCK..")).count();
        assert!(all >= links + 2, "what is not written is searched: {all}");
    }

    #[test]
    fn links_known_from_elsewhere_are_written_too() {
        let mut resolved = resolved(&["ttyUSB0"], None);
        resolved.add_links(["serial/by-id/usb-X".to_owned(), "ttyUSB0".to_owned()]);
        let lock_names = lock_names(by_name("linux").unwrap(), &resolved).unwrap();
        let written =
            ["LCK..ttyUSB0", "LCK..usb-X", "LCK..serial_by-id_usb-X", "LCK..serial:by-id:usb-X"];
        assert_eq!(texts(&lock_names.written), written);
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
    #[case::hp_ux_dial_in("hp-ux", "ttyd0p0", &["LCK..ttyd0p0", "LCK..tty0p0"])]
    #[case::hp_ux_dial_out("hp-ux", "cul0p0", &["LCK..cul0p0", "LCK..ttyd0p0"])]
    #[case::irix("irix", "ttyd1", &["LCK..ttyd1"])]
    #[case::sco("sco", "tty1A", &["LCK..tty1a"])]
    #[case::unixware("unixware", "tty00", &["LK.005.020.131"])]
    #[case::tru64("tru64", "tty00", &["LCK..tty00"])]
    #[case::qnx("qnx", "ser1", &["LCK..0.ser1"])]
    #[case::generic("generic", "ttyS0", &["LCK..ttyS0"])]
    fn each_system_writes(#[case] os: &str, #[case] device: &str, #[case] written: &[&str]) {
        let lock_names =
            lock_names(by_name(os).unwrap(), &resolved(&[device], Some((5, 20, 131)))).unwrap();
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
    #[case::hp_ux("hp-ux", "cua0p0", "LCK..culd0p0")]
    #[case::hp_ux_longest("hp-ux", "cuad0p0", "LCK..cul0p0")]
    #[case::sco_as_typed("sco", "tty1A", "LCK..tty1A")]
    #[case::sco_last_letter("sco", "TTY1A", "LCK..TTY1a")]
    fn pairs_and_spellings_are_searched(
        #[case] os: &str,
        #[case] device: &str,
        #[case] other: &str,
    ) {
        let lock_names = lock_names(by_name(os).unwrap(), &resolved(&[device], None)).unwrap();
        assert!(texts(&lock_names.searched).contains(&other), "{:?}", lock_names.searched);
    }

    #[test]
    fn numbers_give_way_to_the_name_where_the_node_is_gone() {
        let lock_names =
            lock_names(by_name("solaris").unwrap(), &resolved(&["term/a"], None)).unwrap();
        assert_eq!(texts(&lock_names.written), ["LCK..a"]);
    }

    /// What is never a lock is never looked at, whatever the device is called.
    #[rstest]
    #[case("TM.X")]
    #[case("ttyS0")]
    #[case("pts/3")]
    fn other_programs_temporary_files_are_not_locks(#[case] device: &str) {
        let lock_names =
            lock_names(by_name("linux").unwrap(), &resolved(&[device], Some((5, 4, 64)))).unwrap();
        for name in lock_names.written.iter().chain(&lock_names.searched) {
            let never = ["LTMP.", "TMP", "LCKTMP..", "TM.fax", "LOCKDEV", "lfpd."];
            assert!(!never.iter().any(|prefix| name.as_str().starts_with(prefix)), "{name}");
        }
    }

    #[rstest]
    #[case::at_the_limit(250, true)]
    #[case::one_over(251, false)]
    fn names_are_bounded(#[case] length: usize, #[case] fits: bool) {
        let name = "x".repeat(length);
        assert_eq!(lock_names(by_name("linux").unwrap(), &resolved(&[&name], None)).is_ok(), fits);
    }

    /// As a USB device may have one that tells a long serial number.
    #[test]
    fn a_link_too_long_for_lock_files_keeps_nobody_from_the_device() {
        let link = format!("serial/by-id/{}", "x".repeat(245));
        let mut resolved = resolved(&["ttyUSB0"], None);
        resolved.add_links([link, "y".repeat(251)]);
        let lock_names = lock_names(by_name("linux").unwrap(), &resolved).unwrap();
        let base = format!("LCK..{}", "x".repeat(245));
        assert_eq!(texts(&lock_names.written), ["LCK..ttyUSB0", base.as_str()]);
    }

    /// Its name would be left out, and a link's name is not one that all spellings have.
    #[test]
    fn a_device_too_long_for_lock_files_has_none_by_a_short_link() {
        let resolved = resolved(&["short", &"x".repeat(251)], None);
        assert_eq!(lock_names(by_name("linux").unwrap(), &resolved), Err(NoSuchForm));
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
    #[case::lockdev_pid_file("LCK...1234", None)]
    #[case::mgetty_temporary("LCK..TM.a1b2c3", None)]
    #[case::freebsd_temporary("LCKTMP..12", None)]
    #[case::kermit_temporary("LTMP.00012", None)]
    #[case::lockdev_semaphore("LOCKDEV", None)]
    #[case::ours("lfpd.12.0123456789abcdef.tmp", None)]
    #[case::nothing("LCK..", None)]
    fn names_tell_their_device(#[case] file: &str, #[case] device: Option<&str>) {
        let numbers = Some(Numbers { major: 4, minor: 64 });
        let file_system = Numbers { major: 0, minor: 5 };
        let node = Node { file_system, inode: 1, device: numbers };
        let devices = [("ttyS0".to_owned(), node)];
        assert_eq!(device_of(file, &devices).as_deref(), device);
    }

    /// The way back, for every convention: what is written or searched for a device is known for
    /// that device's, or for that of a name that says less.
    #[rstest]
    fn every_name_leads_back_to_its_device(
        #[values("ttyS0", "pts/3", "serial/by-id/usb-X")] device: &str,
    ) {
        let node = resolved(&[device], Some((5, 188, 7))).node.unwrap();
        let devices = [(device.to_owned(), node)];
        for system in crate::device::os::SYSTEMS {
            let mut resolved = resolved(&[device], Some((5, 188, 7)));
            resolved.is_known_by_number_only = true;
            let lock_names = lock_names(system, &resolved).unwrap();
            for name in lock_names.written {
                let back = device_of(name.as_str(), &devices).unwrap();
                // A base name, and one with other signs for `/`, say less than the device's.
                let said = [device.to_owned(), base(device).to_owned(), device.replace('/', "_")];
                let qnx = format!("0.{}", base(device));
                let known = said.iter().any(|said| back.eq_ignore_ascii_case(said))
                    || back == qnx
                    || aliases(system, device).any(|alias| alias == back);
                assert!(known, "{}: {name} leads to {back}", system.name);
            }
        }
    }
}
