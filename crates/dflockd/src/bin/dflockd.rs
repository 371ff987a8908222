//! The lease lock server.

fn main() -> std::process::ExitCode {
    dflockd::daemon::main()
}
