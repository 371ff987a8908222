//! `semats`: the semaphores of `sema` behind another command line. See semats(1). Pure.

use std::process::ExitCode;

fn main() -> ExitCode {
    file_semaphore::cli::semats()
}
