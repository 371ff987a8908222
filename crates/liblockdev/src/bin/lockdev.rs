//! Starts `lockdev`: see [`lockdev::program`].

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(lockdev::program::main(std::env::args_os().skip(1)))
}
