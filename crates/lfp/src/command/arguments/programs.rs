//! The command lines of `run`, `shim` and `adopt`, which start programs.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use nix::sys::signal::Signal;
use ttylock::DeviceName;
use wrapcmd::usage::seconds;

use super::BusyCode;
use crate::command::spelling::device;
use crate::command::values::{program, signal};

#[derive(Args, Debug)]
pub(in crate::command) struct Run {
    /// /dev/NAME or NAME
    #[arg(value_name = "DEVICE", value_parser = device)]
    pub(in crate::command) device: DeviceName,

    /// Hold this device as well: all of them, or none
    #[arg(short, long = "also", value_name = "DEVICE", value_parser = device)]
    pub(in crate::command) also: Vec<DeviceName>,

    /// Wait for the device, for this many seconds [default: do not wait]
    #[arg(short, long, value_name = "SECS", value_parser = seconds)]
    pub(in crate::command) timeout: Option<Duration>,

    /// Send the command this signal when another process waits for the device
    #[arg(long, value_name = "SIGNAL", value_parser = signal, conflicts_with = "no_fork")]
    pub(in crate::command) yield_on: Option<Signal>,

    /// While the command has the device open, have the kernel refuse it to all other programs (TIOCEXCL)
    #[arg(long, conflicts_with = "no_fork")]
    pub(in crate::command) exclusive: bool,

    /// Become the command instead of waiting for its end, so that the process number stays
    #[arg(long)]
    pub(in crate::command) no_fork: bool,

    /// Turn the command's lock files into locks of the service, so that it gets the port
    /// [default: where liblfp_preload.so is installed and can be loaded into COMMAND]
    #[arg(long, conflicts_with = "no_shim")]
    pub(in crate::command) shim: bool,

    /// Do not use liblfp_preload.so, even if it is installed
    #[arg(long)]
    pub(in crate::command) no_shim: bool,

    /// With --shim, let programs that make no lock files lock every serial port they open
    #[arg(long, requires = "shim")]
    pub(in crate::command) ports: bool,

    #[command(flatten)]
    pub(super) busy: BusyCode,

    /// What to run, with its arguments
    #[arg(
        value_name = "COMMAND",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(in crate::command) command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(in crate::command) struct ShimOnly {
    /// Let programs that make no lock files lock every serial port they open
    #[arg(long)]
    pub(in crate::command) ports: bool,

    /// Treat this device as a serial port too
    #[arg(long, value_name = "DEVICE", value_parser = device, requires = "ports")]
    pub(in crate::command) also: Vec<DeviceName>,

    /// Have the kernel refuse these ports to all other programs while they are open (TIOCEXCL)
    #[arg(long, requires = "ports")]
    pub(in crate::command) exclusive: bool,

    /// Wait in line for a busy port, for this many seconds [default: do not wait]
    #[arg(long, value_name = "SECS", value_parser = seconds, requires = "ports")]
    pub(in crate::command) wait: Option<Duration>,

    /// If the library cannot be loaded into COMMAND, run COMMAND without it
    #[arg(long)]
    pub(in crate::command) or_plain: bool,

    /// What to run, with its arguments
    #[arg(
        value_name = "COMMAND",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(in crate::command) command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(in crate::command) struct Adopt {
    /// The name of a program in PATH
    #[arg(value_name = "PROGRAM", value_parser = program)]
    pub(in crate::command) program: String,

    /// Let it lock every serial port it opens (default)
    #[arg(long)]
    ports: bool,

    /// Turn its lock files into locks of the service, but lock no ports that it only opens
    #[arg(long, conflicts_with = "ports")]
    pub(in crate::command) files: bool,

    /// Remove the script again: the program starts as before
    #[arg(long, conflicts_with_all = ["ports", "files"])]
    pub(in crate::command) undo: bool,
}
