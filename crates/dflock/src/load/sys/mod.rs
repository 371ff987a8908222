//! What a load run asks of the operating system: which connections are ready, and how much CPU time the
//! thread has used.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod unix;

#[cfg(target_os = "linux")]
pub(super) use linux::{Watch, cpu_usage};
#[cfg(not(target_os = "linux"))]
pub(super) use unix::{Watch, cpu_usage};

/// A connection, by its place among all, that has something to do.
#[derive(Clone, Copy)]
pub(super) struct Ready {
    pub(super) place: usize,
    /// There are bytes, or there never will be any again.
    pub(super) readable: bool,
    pub(super) writable: bool,
}

/// The longest sleep, so that the end of the run is never far overslept.
const TICK_MS: u16 = 50;
