//! Starts `lfp`; everything else is in the library.

fn main() -> std::process::ExitCode {
    lfp::command::main(std::env::args_os())
}
