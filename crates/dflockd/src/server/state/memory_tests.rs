//! A disk in memory, for the tests of what is written and of what is read again. It fails where it is told to.

use super::codec::BootId;
use super::ledger::Disk;
use super::load::{FileBytes, Loaded, load};
use super::promises::Synced;
use std::cell::RefCell;
use std::io;
use std::rc::Rc;

/// Two files of holds, and the index.
pub(super) type Files = [Vec<u8>; 3];
pub(super) const INDEX: usize = 2;

/// The fault at a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Nothing.
    None,
    /// Half of it is written, and the process ends.
    Death(usize),
    /// Half of it is written, and the system reports an error; the next write works.
    Error(usize),
}

/// A copy is the same disk.
#[derive(Clone)]
pub(super) struct Memory(pub(super) Rc<RefCell<Content>>);

pub(super) struct Content {
    /// The content that the kernel has.
    pub(super) now: Files,
    /// The content on the disk.
    pub(super) durable: Files,
    fault: Fault,
    pub(super) writes: usize,
    /// The bytes that the disk has for each file.
    pub(super) size: u64,
    /// All writes from now on, if they are wanted.
    pub(super) log: Option<Vec<Write>>,
}

/// One write.
pub(super) struct Write {
    pub(super) file: usize,
    pub(super) at: usize,
    pub(super) bytes: Vec<u8>,
}

impl Memory {
    pub(super) fn new(files: Files, fault: Fault, size: u64) -> Self {
        let (now, durable) = (files.clone(), files);
        Self(Rc::new(RefCell::new(Content { now, durable, fault, writes: 0, size, log: None })))
    }

    /// What a start under this boot finds.
    pub(super) fn load(&self, boot: BootId, boot_micros: u64) -> Loaded {
        loaded(&self.0.borrow().now, boot, boot_micros)
    }

    pub(super) fn is_dead(&self) -> bool {
        self.0.borrow().is_dead()
    }
}

pub(super) fn loaded([first, second, index]: &Files, boot: BootId, boot_micros: u64) -> Loaded {
    load(FileBytes { index, holds: [first, second] }, &boot, boot_micros)
}

impl Content {
    fn is_dead(&self) -> bool {
        matches!(self.fault, Fault::Death(at) if self.writes > at)
    }

    /// Whether the next write is struck.
    fn next_write(&mut self) -> io::Result<bool> {
        let (place, is_dead) = (self.writes, self.is_dead());
        self.writes += 1;
        if is_dead {
            return Err(io::Error::other("dead"));
        }
        Ok(matches!(self.fault, Fault::Death(n) | Fault::Error(n) if n == place))
    }

    fn write(&mut self, file: usize, at: usize, bytes: &[u8]) -> io::Result<()> {
        let is_struck = self.next_write()?;
        let count = if is_struck { bytes.len() / 2 } else { bytes.len() };
        let content = &mut self.now[file];
        assert!(at + bytes.len() <= content.len(), "beyond what is reserved");
        content[at..at + count].copy_from_slice(&bytes[..count]);
        if let Some(log) = &mut self.log {
            log.push(Write { file, at, bytes: bytes.to_vec() });
        }
        if is_struck { Err(io::Error::other("struck")) } else { Ok(()) }
    }
}

impl Disk for Memory {
    fn write(&mut self, slot: usize, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.borrow_mut().write(slot, usize::try_from(at).unwrap(), bytes)
    }

    fn reserve(&mut self, slot: usize, bytes: u64) -> io::Result<()> {
        let content = &mut *self.0.borrow_mut();
        if content.is_dead() || bytes > content.size {
            return Err(io::Error::from_raw_os_error(nix::libc::ENOSPC));
        }
        let file = &mut content.now[slot];
        file.resize(usize::try_from(bytes).unwrap().max(file.len()), 0);
        Ok(())
    }

    fn sync(&mut self, slot: usize) -> io::Result<()> {
        let content = &mut *self.0.borrow_mut();
        if content.is_dead() {
            return Err(io::Error::other("dead"));
        }
        content.durable[slot].clone_from(&content.now[slot]);
        Ok(())
    }

    fn write_index(&mut self, at: usize, bytes: &[u8], synced: Synced) -> io::Result<()> {
        {
            let content = &mut *self.0.borrow_mut();
            let length = content.now[INDEX].len();
            content.now[INDEX].resize(length.max(at + bytes.len()), 0);
            content.write(INDEX, at, bytes)?;
        }
        if synced == Synced::Yes { self.sync(INDEX) } else { Ok(()) }
    }
}
