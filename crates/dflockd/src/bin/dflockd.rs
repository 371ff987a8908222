//! Starts `dflockd`, the lock server; everything else is in the library.

fn main() -> std::process::ExitCode {
    dflockd::daemon::main()
}
