//! What one service has seen and the next need not look for again: directories without locks, and
//! the links of `/dev`. Text in, values out, and back.
//!
//! Each is believed only of the very directory, unchanged since; so whatever is lost or out of
//! date costs a look and nothing else.

use std::fmt::Write as _;

use super::places::Absence;
use crate::device::links::Known;
use crate::stamp::Stamp;

/// The longest text, in bytes: the kernel makes no longer symbolic links.
pub const TEXT_BYTES: usize = 4095;

/// As many directories as are believed.
const DIRECTORIES: usize = 64;

/// What was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Directories that held no lock file.
    pub lockless: Vec<Stamp>,
    /// Directories that were missing.
    pub absent: Vec<Absence>,
    /// The links of the device directory.
    pub links: Option<Known>,
}

impl Seen {
    /// Whether there is anything in it that is not in the other.
    #[must_use]
    pub fn says_more_than(&self, other: &Self) -> bool {
        self.lockless.iter().any(|stamp| !other.lockless.contains(stamp))
            || self.absent.iter().any(|absence| !other.absent.contains(absence))
            || (self.links.is_some() && self.links != other.links)
    }

    /// The text that stands for it; `None` where it does not fit.
    #[must_use]
    pub fn to_text(&self) -> Option<String> {
        let mut text = String::new();
        for stamp in self.lockless.iter().take(DIRECTORIES) {
            writeln!(text, "lockless {stamp}").ok()?;
        }
        for Absence { ancestor, stamp, paths } in self.absent.iter().take(DIRECTORIES) {
            write!(text, "absent {stamp}\t{}", word(ancestor)?).ok()?;
            for path in paths {
                write!(text, "\t{}", word(path)?).ok()?;
            }
            text.push('\n');
        }
        if let Some(known) = &self.links {
            writeln!(text, "dev {}", known.stamp).ok()?;
            for (name, target) in &known.links {
                writeln!(text, "link {}\t{}", word(name)?, word(target)?).ok()?;
            }
        }
        (text.len() <= TEXT_BYTES).then_some(text)
    }

    /// Reads what [`Seen::to_text`] writes; of anything else, nothing is believed.
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        Self::parse(text).unwrap_or_default()
    }

    fn parse(text: &str) -> Option<Self> {
        let mut seen = Self::default();
        for line in text.lines() {
            let (kind, rest) = line.split_once(' ')?;
            match kind {
                "lockless" if seen.lockless.len() < DIRECTORIES => {
                    seen.lockless.push(Stamp::parse(rest)?);
                }
                "absent" if seen.absent.len() < DIRECTORIES => {
                    let mut words = rest.split('\t');
                    let stamp = Stamp::parse(words.next()?)?;
                    let ancestor = words.next()?.to_owned();
                    let paths = words.map(str::to_owned).collect();
                    seen.absent.push(Absence { ancestor, stamp, paths });
                }
                "dev" if seen.links.is_none() => {
                    seen.links = Some(Known { stamp: Stamp::parse(rest)?, links: Vec::new() });
                }
                "link" => {
                    let (name, target) = rest.split_once('\t')?;
                    seen.links.as_mut()?.links.push((name.to_owned(), target.to_owned()));
                }
                _ => return None,
            }
        }
        Some(seen)
    }
}

/// What can stand in a line without ending it.
fn word(text: &str) -> Option<&str> {
    (!text.contains(char::is_control)).then_some(text)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn stamp(number: u32) -> Stamp {
        Stamp::parse(&format!("1:2:3:{number}")).unwrap()
    }

    fn absence(paths: &[&str]) -> Absence {
        let paths = paths.iter().map(|path| (*path).to_owned()).collect();
        Absence { ancestor: "/etc".into(), stamp: stamp(5), paths }
    }

    fn known(links: &[(&str, &str)]) -> Option<Known> {
        let links = links.iter().map(|(name, target)| ((*name).into(), (*target).into()));
        Some(Known { stamp: stamp(9), links: links.collect() })
    }

    #[rstest]
    #[case::nothing(Seen::default())]
    #[case::directories(Seen { lockless: vec![stamp(1), stamp(2)], ..Seen::default() })]
    #[case::absences(Seen { absent: vec![absence(&["/usr/spool/x y", "/usr/spool"]), absence(&[])], ..Seen::default() })]
    #[case::no_links(Seen { links: known(&[]), ..Seen::default() })]
    #[case::links(Seen {
        lockless: vec![stamp(1)],
        absent: vec![absence(&["/etc/locks"])],
        links: known(&[("fd", "/proc/self/fd"), ("my modem", "ttyS0"), ("empty", "")]),
    })]
    fn it_survives_being_written(#[case] seen: Seen) {
        assert_eq!(Seen::from_text(&seen.to_text().unwrap()), seen);
    }

    #[rstest]
    #[case::unknown_word("lockless 1:2:3:4\nlocked 1:2:3:4\n")]
    #[case::no_stamp("lockless\n")]
    #[case::no_ancestor("absent 1:2:3:4\n")]
    #[case::bad_stamp("lockless 1:2:3\n")]
    #[case::link_before_directory("link a\tb\ndev 1:2:3:4\n")]
    #[case::link_without_target("dev 1:2:3:4\nlink a\n")]
    #[case::two_device_directories("dev 1:2:3:4\ndev 1:2:3:5\n")]
    fn of_other_text_nothing_is_believed(#[case] text: &str) {
        assert_eq!(Seen::from_text(text), Seen::default());
    }

    #[rstest]
    #[case::newline("a\nlockless 1:2:3:4", "b")]
    #[case::tab("a\tb", "c")]
    #[case::newline_in_target("a", "b\ndev 1:2:3:4")]
    fn a_name_cannot_say_more_than_its_line(#[case] name: &str, #[case] target: &str) {
        assert_eq!(Seen { links: known(&[(name, target)]), ..Seen::default() }.to_text(), None);
    }

    #[rstest]
    #[case::at_the_limit(TEXT_BYTES, true)]
    #[case::one_over(TEXT_BYTES + 1, false)]
    fn what_fits_in_no_link_is_not_written(#[case] length: usize, #[case] fits: bool) {
        let empty = Seen { links: known(&[("a", "")]), ..Seen::default() };
        let target = "x".repeat(length - empty.to_text().unwrap().len());
        let seen = Seen { links: known(&[("a", &target)]), ..Seen::default() };
        assert_eq!(seen.to_text().is_some(), fits);
    }
}
