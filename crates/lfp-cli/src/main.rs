//! Starts `lfp`; everything else is in the library of that name.

fn main() -> std::process::ExitCode {
    lfp::command::main(std::env::args_os())
}
