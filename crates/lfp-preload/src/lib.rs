//! `liblfp_preload.so`: unmodified programs lock serial ports through the service.
//!
//! Loaded with `LD_PRELOAD` (`lfp run --shim`), it stands before the C library's calls that open,
//! name and close files. *Files mode*, always: programs that make lock files, but may not write
//! the lock directory, get and release their locks through the service. *Ports mode* (`LFP_PORTS`:
//! 1 or must): programs that make none take the lock of a serial port by opening it.
//!
//! In files mode the real call comes first. What succeeds is not touched, except that a lock of the
//! program's own is hidden from it, and a dead process's is removed first. In ports mode the lock comes
//! first. Where there is no service, the program sees the real result, except with `LFP_PORTS=must`.
//!
//! This is no guard: static programs and those that make system calls themselves pass by it, and
//! users can unset it. The service's checks are the authority.
//!
//! `calls` faces C: pointers in, results and errno out, no decisions. `files` and `ports` decide,
//! in safe Rust. They make system calls directly (rustix), so that they meet neither our own
//! calls again nor the program's errno. Any of this may happen in a signal handler: nothing here takes a
//! lock that another may hold, and `memory` is not the program's heap.

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")
)))]
compile_error!("the calling convention of variadic functions was checked for these systems only");

pub mod calls;
mod files;
mod locks;
mod memory;
pub mod path;
mod ports;
mod private;
mod real;
mod service;
mod settings;

/// Tests and fuzzers have the usual one: nobody interrupts them.
#[cfg(not(any(test, fuzzing)))]
#[global_allocator]
static MEMORY: memory::Memory = memory::Memory::new();
