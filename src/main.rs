//! Starts `lfpd`; everything else is in the library.

/// In place of musl's, which maps and unmaps memory some thirty times in a session of one LOCK and its UNLOCK.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> std::process::ExitCode {
    lfpd::cli::run(std::env::args_os())
}
