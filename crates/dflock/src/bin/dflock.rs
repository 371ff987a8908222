//! The client program; everything is in the library.

fn main() -> std::process::ExitCode {
    dflock::program::main()
}
