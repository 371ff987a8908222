//! Starts `dflock`; everything else is in the library.

fn main() -> std::process::ExitCode {
    dflock::program::main()
}
