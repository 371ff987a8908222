//! Starts `lfpd`; everything else is in the library.

fn main() -> std::process::ExitCode {
    lfpd::cli::run(std::env::args_os())
}
