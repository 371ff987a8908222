//! Starts `lfp`; everything else is in the library.

fn main() -> std::process::ExitCode {
    lfpd::lfp::main(std::env::args_os())
}
