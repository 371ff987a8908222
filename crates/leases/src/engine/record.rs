//! What a record of holds says, as values. Pure.

use super::sharing::Claim;
use super::terms::{Token, Ttl};
use std::sync::Arc;

/// The label of a connection. A hold keeps the label that its connection had at the grant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Label {
    /// A name for people; empty if there is none.
    pub name: Arc<str>,
    /// A value for programs, such as the address of the holder; empty if there is none.
    pub value: Arc<str>,
}

impl Label {
    /// Both texts.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, value: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), value: value.into() }
    }

    /// As text: the name, a line end and the value. Neither has a line end.
    #[must_use]
    pub fn write(&self) -> String {
        format!("{}\n{}", self.name, self.value)
    }

    /// Reads the text of [`Label::write`]; `None` for text without a line end.
    #[must_use]
    pub fn read(text: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(text);
        let (name, value) = text.split_once('\n')?;
        Some(Self { name: name.into(), value: value.into() })
    }
}

/// A hold in the record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a journal writes every field")]
pub struct Kept {
    /// The key.
    pub key: Arc<[u8]>,
    /// What is held of the key.
    pub claim: Claim,
    /// The token of the hold.
    pub token: Token,
    /// The length of the lease in the last request.
    pub ttl: Ttl,
    /// The time that was left of the lease when this was recorded.
    pub left_micros: u64,
    /// The label of its holder.
    pub label: Option<Label>,
    /// Which slot of a semaphore it has; `None` for a lock, and in records of versions that knew no slots.
    pub slot: Option<u32>,
}

/// A change of one hold.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a journal records every change")]
pub enum Record {
    /// It began: its token is announced to a client.
    Granted(Kept),
    /// Its lease was renewed, or the time that is left is recorded.
    Extended(Kept),
    /// It was released, or its lease ended.
    Ended(Token),
}

impl Record {
    /// The token of the hold.
    #[must_use]
    pub const fn token(&self) -> Token {
        match self {
            Self::Granted(kept) | Self::Extended(kept) => kept.token,
            Self::Ended(token) => *token,
        }
    }
}

/// When the lease of a hold that is recorded begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a server knows both")]
pub enum LeaseStart {
    /// With the grant or the renewal.
    Grant,
    /// When that is recorded, as [`Engine::start_lease`](super::Engine::start_lease) reports. Until then the hold does
    /// not end by itself.
    Record,
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("name", "value")]
    #[case("", "value")]
    #[case("a b", "")]
    fn a_written_label_is_read_back(#[case] name: &str, #[case] value: &str) {
        let label = Label { name: name.into(), value: value.into() };
        assert_eq!(Label::read(label.write().as_bytes()), Some(label));
    }

    #[test]
    fn text_without_a_line_end_is_no_label() {
        assert_eq!(Label::read(b"name"), None);
    }
}
