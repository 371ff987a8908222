//! The client program; everything is in the library.

fn main() -> std::process::ExitCode {
    dflockd::client::program::main()
}
