//! `semats`: the semaphores of `sema` with the command line of the TypeScript tool. See semats(1). Pure.

use std::process::ExitCode;

fn main() -> ExitCode {
    file_semaphore::cli::semats()
}
