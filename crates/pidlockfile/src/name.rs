//! Names of lock files: one path component, so that no name leads out of its directory.

use std::fmt;

/// A file name: not empty, not `.` or `..`, without `/` and NUL, at most 255 bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(String);

impl Name {
    /// The longest name the common file systems take, in bytes.
    pub const LONGEST: usize = 255;

    /// Checks a file name.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Option<Self> {
        let name = name.into();
        let fits = (1..=Self::LONGEST).contains(&name.len());
        let plain = name != "." && name != ".." && !name.bytes().any(|b| b == b'/' || b == 0);
        (fits && plain).then_some(Self(name))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::plain("LCK..ttyS0", true)]
    #[case::dots_inside("..a", true)]
    #[case::empty("", false)]
    #[case::dot(".", false)]
    #[case::dot_dot("..", false)]
    #[case::slash("a/b", false)]
    #[case::nul("a\0b", false)]
    fn is_one_component(#[case] name: &str, #[case] good: bool) {
        assert_eq!(Name::new(name).is_some(), good);
        if let Some(checked) = Name::new(name) {
            assert_eq!((checked.as_str(), checked.to_string().as_str()), (name, name));
        }
    }

    #[rstest]
    #[case::at_the_limit(Name::LONGEST, true)]
    #[case::one_over(Name::LONGEST + 1, false)]
    fn is_bounded(#[case] length: usize, #[case] good: bool) {
        assert_eq!(Name::new("x".repeat(length)).is_some(), good);
    }
}
