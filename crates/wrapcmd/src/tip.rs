//! Tips for commands that the argument parser does not know, because other lock programs have other words for them.

use clap::error::{ContextKind, ContextValue};

/// Adds a tip to an error about an unknown command. Each pair of `elsewhere` has the word of other programs first, and
/// then the command of this `program`. Any other error stays as it is.
#[must_use]
pub fn with_tip(mut error: clap::Error, program: &str, elsewhere: &[(&str, &str)]) -> clap::Error {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else {
        return error;
    };
    if let Some((_, command)) = elsewhere.iter().find(|(theirs, _)| theirs == word) {
        let tip = format!("the command for this is '{program} {command}'");
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}
