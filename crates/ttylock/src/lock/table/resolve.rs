//! Finds the lock files of a device: its node, every other name of it, and their lock names.

use std::sync::Arc;

use pidlockfile::Name;

use super::state::State;
use crate::device::DeviceName;
use crate::device::absent;
use crate::device::node::{ResolveError, ResolvedDevice, follow};
use crate::device::other_names::{LinkDirectories, kernel_name, made_by_udev, udev_links};
use crate::layout::Layout;
use crate::lock::names::{LockNames, first_name, lock_names};
use crate::lock::{Stop, Weight};

/// A device and its lock files, as far as they are known without reading a lock directory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a service may have its own list")]
pub struct DeviceFiles {
    /// The real node, as a name below `/dev`: the same for all names of one device.
    pub real: String,
    /// The names of all lock files that may keep it busy.
    pub files: Vec<Name>,
}

pub(super) fn files_of(layout: &Layout, resolved: &ResolvedDevice) -> Option<DeviceFiles> {
    let LockNames { written, searched } = lock_names(layout.dialect, resolved)?;
    let files = written.into_iter().chain(searched).collect();
    Some(DeviceFiles { real: resolved.real().to_owned(), files })
}

/// The node of a device, and all its other names.
pub(super) fn resolve(state: &mut State, device: &DeviceName) -> Result<ResolvedDevice, Stop> {
    let mut resolved = find(state, device)?;
    if resolved.node.is_none() {
        let Layout { dialect, dev_dir, .. } = &state.layout;
        // A missing device may appear later, but not under a name that devices never have.
        if !absent::may_come(dev_dir, resolved.real()) {
            let device = resolved.real();
            let text = format!(
                "refused {device}: it does not exist, and neither the kernel nor udev gives such a name"
            );
            state.say(Weight::Notice, text);
            return Err(Stop::Denied);
        }
        resolved.namesakes = absent::namesakes(dialect, dev_dir, &resolved);
    }
    add_links(state, &mut resolved)?;
    Ok(resolved)
}

/// A device with the names of its lock files, without reading a lock directory. It is resolved unless the caller has done
/// so. The names follow from what it was resolved to, so those of the last device are not worked out again.
pub(super) fn with_lock_names(
    state: &mut State,
    device: &DeviceName,
    resolved: Option<ResolvedDevice>,
) -> Result<(ResolvedDevice, Arc<LockNames>), Stop> {
    let resolved = resolved.map_or_else(|| resolve(state, device), Ok)?;
    let last = state.last_names.as_ref().filter(|(known, _)| *known == resolved);
    if let Some((_, lock_names)) = last {
        return Ok((resolved, Arc::clone(lock_names)));
    }
    let lock_names = Arc::new(lock_names_of(state, &resolved, device)?);
    state.last_names = Some((resolved.clone(), Arc::clone(&lock_names)));
    Ok((resolved, lock_names))
}

/// Follows a name to its node. Other names of the device are not known yet.
pub(super) fn find(state: &mut State, device: &DeviceName) -> Result<ResolvedDevice, Stop> {
    follow(&state.layout.dev_dir, device).map_err(|error| {
        let reason = match error {
            ResolveError::Outside => "leads out of the device directory",
            ResolveError::Loop => "is a loop of links",
            ResolveError::Unreachable => "cannot be looked at",
            ResolveError::TooLong => "is a link to a longer name than any device has",
        };
        state.say(Weight::Notice, format!("refused {}: it {reason}", device.as_str()));
        Stop::Denied
    })
}

pub(super) fn lock_names_of(
    state: &mut State,
    resolved: &ResolvedDevice,
    asked: &DeviceName,
) -> Result<LockNames, Stop> {
    lock_names(state.layout.dialect, resolved).ok_or_else(|| too_long(state, asked))
}

/// The first name under which a LOCK of the device is written.
pub(super) fn first_name_of(
    state: &mut State,
    resolved: &ResolvedDevice,
    asked: &DeviceName,
) -> Result<Name, Stop> {
    first_name(state.layout.dialect, resolved).ok_or_else(|| too_long(state, asked))
}

fn too_long(state: &mut State, asked: &DeviceName) -> Stop {
    let device = asked.as_str();
    state.say(Weight::Notice, format!("refused {device}: too long for a lock file name"));
    Stop::Denied
}

/// Adds the links to the node, because a program locks by the name it was given, which may be any link. If the
/// links cannot be read now, there is no lock: it would not keep out programs that use them.
pub(super) fn add_links(state: &mut State, resolved: &mut ResolvedDevice) -> Result<(), Stop> {
    try_to_add_links(&mut state.links, &state.layout, resolved).map_err(|error| {
        let text = format!("other names of {} cannot be read: {error}", resolved.real());
        state.say(Weight::Warning, text);
        Stop::Denied
    })
}

fn try_to_add_links(
    read: &mut LinkDirectories,
    layout: &Layout,
    resolved: &mut ResolvedDevice,
) -> std::io::Result<()> {
    let dev_dir = &layout.dev_dir;
    if resolved.node.is_some() {
        let links = read.links(dev_dir, "")?.to(dev_dir, resolved);
        resolved.add_links(links);
    }
    let Some(device) = resolved.node.and_then(|node| node.device) else { return Ok(()) };
    resolved.kernel_name = kernel_name(device)?;
    let links = match udev_links(&layout.udev_dir, device)? {
        Some(links) => links,
        None => made_by_udev(read, dev_dir, resolved)?,
    };
    resolved.add_links(links);
    Ok(())
}
