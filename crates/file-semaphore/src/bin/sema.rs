//! `sema`: file-based semaphores for shell scripts. See sema(1).

use std::process::ExitCode;

fn main() -> ExitCode {
    file_semaphore::cli::sema()
}
