//! What must hold for any bytes. Used by the fuzz target and by ordinary tests.

use file_semaphore::{LockInfo, ParseError};

/// A lock file's content: never a panic; what parses is written and read again unchanged, as one
/// line a word; what does not parse says why.
pub(crate) fn record(bytes: &[u8]) {
    let info = match LockInfo::parse(bytes) {
        Ok(info) => info,
        Err(ParseError::TooLong) => return assert!(bytes.len() > 65_536),
        Err(ParseError::NotUtf8) => return assert!(std::str::from_utf8(bytes).is_err()),
        Err(_) => return,
    };
    let text = info.to_text();
    assert!(text.len() <= 65_536, "longer than anybody reads");
    assert_eq!(LockInfo::parse(text.as_bytes()), Ok(info.clone()), "{text:?}");
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.iter().all(|line| line.contains('=') && !line.contains('\r')), "{text:?}");
    assert_eq!(lines.len(), text.matches('\n').count());
    if let Some(tag) = info.tag() {
        assert!(!tag.is_empty() && tag.chars().count() <= 10_000);
        assert!(!tag.chars().any(|c| c.is_ascii_control()));
    }
}
