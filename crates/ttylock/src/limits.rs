//! Every limit of the locks in one place; each is tested at, below and above.
//!
//! The longest device name is [`crate::device::name::NAME_BYTES`].

/// Pieces of work that are put off at one time; what is more, clients wait for. Each may be an
/// open file, so this is far less than a daemon's own descriptors.
pub const PUT_OFF: usize = 16;

/// Lock files that a daemon keeps open.
pub const KEPT_FILES: usize = 256;

/// Of these, those of names without a device: anybody can invent names.
pub const KEPT_WITHOUT_DEVICE: usize = KEPT_FILES / 2;

/// Lock files that a daemon removes when their holders end.
pub const WATCHED_LOCKS: usize = 1024;

/// With so many lock files in the lock directory, no name without a device is locked any more.
pub const LOCKS_FOR_INVENTED: usize = 1024;
