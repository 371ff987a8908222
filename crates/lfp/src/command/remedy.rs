//! What would remove a stale lock that is in the way: a sentence for people.

use std::os::unix::fs::MetadataExt;

use super::row::user_name;
use ttylock::Holder;

/// Which user may remove the holder's lock file, and how. Empty for a holder without one.
pub(super) fn remedy(holder: &Holder) -> String {
    const STICKY: u32 = 0o1000;
    let Some(path) = holder.scheme.file() else { return String::new() };
    let owner = std::fs::symlink_metadata(path).map(|file| file.uid());
    let directory = path.parent().and_then(|parent| std::fs::metadata(parent).ok());
    match (owner, directory) {
        (Ok(owner), Some(directory)) if directory.mode() & STICKY != 0 => format!(
            "in this directory only the owner of a file may remove it: run `lfp clean` as {}, \
             or give the service CAP_FOWNER (see lfpd(8))",
            or_root(owner)
        ),
        (_, Some(directory)) => format!(
            "the directory belongs to {}: run `lfp clean` as {}, or start the service (see lfpd(8))",
            user(directory.uid()),
            or_root(directory.uid())
        ),
        (_, None) => "run `lfp clean` as root".to_owned(),
    }
}

/// The users who may do what the owner may.
fn or_root(owner: u32) -> String {
    if owner == 0 { "root".to_owned() } else { format!("{} or root", user(owner)) }
}

fn user(uid: u32) -> String {
    user_name(uid).unwrap_or_else(|| format!("uid {uid}"))
}
