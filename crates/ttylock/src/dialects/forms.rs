//! The forms of lock-file names: for each form, the way from a device to the name, and back. Pure.

use std::fmt::Write;

use crate::device::Numbers;

/// The beginning of a lock file's name (FHS 3.0, section 5.9).
pub const BEGINNING: &str = "LCK..";

/// The characters that stand for a slash in names of lock files: minicom, pppd, gensio, Qt, Debian's mgetty; lockdev.
pub const SLASH_SIGNS: [char; 2] = [UNDERSCORE, COLON];
const UNDERSCORE: char = '_';
const COLON: char = ':';

/// One form of lock file names.
#[derive(Debug)]
pub(crate) struct NameForm {
    /// The beginning of every name of this form.
    pub(crate) beginning: &'static str,
    /// Adds the rest of the name, for one name of a device; `None` if this form has no name for it.
    write: fn(&Spelling<'_>, &mut String) -> Option<()>,
    /// The device that the rest of a name means; `None` if the name is not of this form.
    pub(crate) read: fn(&str) -> Option<NamedDevice<'_>>,
}

/// One of the names of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spelling<'d> {
    /// Below `/dev`.
    pub(crate) path: &'d str,
    /// The numbers of the file system that the node lies on, and of the device, where they are known.
    pub(crate) numbers: Option<(Numbers, Numbers)>,
}

/// A device as the name of a lock file gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NamedDevice<'n> {
    /// The last part of the device's name.
    Base(&'n str),
    /// The device's name, in which this sign stands for each slash. Which of these characters are slashes is unknown.
    Path(&'n str, char),
    /// The device's numbers.
    Numbers(Numbers),
}

/// `LCK..ttyS0`. Source: FHS 3.0, section 5.9.
pub(crate) static BASE: NameForm = NameForm { beginning: BEGINNING, write: base_of, read: base_in };

/// `LCK..pts_3`: minicom, pppd, gensio, Qt, Debian's mgetty.
pub(crate) static UNDERSCORES: NameForm = NameForm {
    beginning: BEGINNING,
    write: |device, name| path_of(device, UNDERSCORE, name),
    read: |rest| path_in(rest, UNDERSCORE),
};

/// `LCK..pts:3`: lockdev.
pub(crate) static COLONS: NameForm = NameForm {
    beginning: BEGINNING,
    write: |device, name| path_of(device, COLON, name),
    read: |rest| path_in(rest, COLON),
};

/// `LCK..0.ser1`: the number of the network's node before the name, 0 for one's own. Source: Taylor
/// UUCP on QNX.
pub(crate) static QNX_NODE: NameForm =
    NameForm { beginning: "LCK..0.", write: base_of, read: base_in };

/// `lk..ttyS0`. Source: RXTX, which refuses a port that has one.
pub(crate) static SMALL: NameForm = NameForm { beginning: "lk..", write: base_of, read: base_in };

/// `LK.ttyS0`. Source: RXTX, as before.
pub(crate) static SHORT: NameForm = NameForm { beginning: "LK.", write: base_of, read: base_in };

/// `LK.005.136.003`: major number of the file system, major and minor number of the device (SVR4).
pub(crate) static SVR4: NameForm = NameForm {
    beginning: "LK.",
    write: |device, name| {
        let (file_system, _) = device.numbers?;
        write!(name, "{:03}.", file_system.major).ok()?;
        numbers_of(device, name)
    },
    read: |rest| {
        let (file_system, numbers) = rest.split_once('.')?;
        number(file_system)?;
        numbers_in(numbers)
    },
};

/// `LCK.136.003`: gensio since 2.7.
pub(crate) static NUMBERS: NameForm =
    NameForm { beginning: "LCK.", write: numbers_of, read: numbers_in };

/// `LCK.C.136.003`: lockdev 1.0.3, for character devices.
pub(crate) static CHARACTER_NUMBERS: NameForm =
    NameForm { beginning: "LCK.C.", write: numbers_of, read: numbers_in };

fn base_of(device: &Spelling<'_>, name: &mut String) -> Option<()> {
    name.push_str(base(device.path));
    Some(())
}

fn base_in(rest: &str) -> Option<NamedDevice<'_>> {
    (!rest.is_empty()).then_some(NamedDevice::Base(rest))
}

fn path_of(device: &Spelling<'_>, sign: char, name: &mut String) -> Option<()> {
    for part in device.path.split_inclusive('/') {
        let before = part.strip_suffix('/');
        name.push_str(before.unwrap_or(part));
        name.extend(before.map(|_| sign));
    }
    Some(())
}

fn path_in(rest: &str, sign: char) -> Option<NamedDevice<'_>> {
    (!rest.is_empty()).then_some(NamedDevice::Path(rest, sign))
}

fn numbers_of(device: &Spelling<'_>, name: &mut String) -> Option<()> {
    let (_, device) = device.numbers?;
    write!(name, "{:03}.{:03}", device.major, device.minor).ok()
}

fn numbers_in(rest: &str) -> Option<NamedDevice<'static>> {
    let (major, minor) = rest.split_once('.')?;
    Some(NamedDevice::Numbers(Numbers { major: number(major)?, minor: number(minor)? }))
}

/// A number of at least three digits, as all forms have them.
fn number(text: &str) -> Option<u64> {
    let is_one = text.len() >= 3 && text.bytes().all(|byte| byte.is_ascii_digit());
    is_one.then(|| text.parse().ok())?
}

/// The last part of a path.
pub(crate) fn base(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, base)| base)
}

impl NameForm {
    /// The file's name in this form, for one name of a device, in the place of what `name` was. `None` if this form has no
    /// name for it.
    pub(crate) fn write<'n>(&self, device: &Spelling<'_>, name: &'n mut String) -> Option<&'n str> {
        name.clear();
        name.push_str(self.beginning);
        (self.write)(device, name)?;
        Some(name)
    }

    /// The device that a file's name means, if it is of this form.
    pub(crate) fn parse<'n>(&self, file: &'n str) -> Option<NamedDevice<'n>> {
        file.strip_prefix(self.beginning).and_then(self.read)
    }
}

impl NamedDevice<'_> {
    /// The device in this directory below `/dev` (`""`: `/dev` itself) that may be meant.
    pub(crate) fn device_in(self, directory: &str) -> Option<String> {
        let rest = match self {
            Self::Base(base) => base,
            Self::Path(path, _) if directory.is_empty() => path,
            Self::Path(path, sign) => {
                let signed = directory.replace('/', sign.encode_utf8(&mut [0; 4]));
                path.strip_prefix(&signed)?.strip_prefix(sign)?
            }
            Self::Numbers(_) => return None,
        };
        Some(if directory.is_empty() { rest.to_owned() } else { format!("{directory}/{rest}") })
    }

    /// The name that is most likely meant if no directory is known.
    pub(crate) fn likely_device(self) -> String {
        match self {
            Self::Path(name, sign) if self.has_slashes() => name.replace(sign, "/"),
            Self::Base(name) | Self::Path(name, _) => name.to_owned(),
            // sysfs has none of them, and they are in no list of serial devices.
            Self::Numbers(it) if it.is_pseudo_terminal() => format!("pts/{}", it.minor),
            Self::Numbers(Numbers { major, minor }) => format!("{major}:{minor}"),
        }
    }

    /// Whether it has signs that are most likely slashes: devices are called with underscores all the
    /// time, and seldom with other signs.
    pub(crate) fn has_slashes(self) -> bool {
        matches!(self, Self::Path(name, sign) if sign != '_' && name.contains(sign))
    }
}
