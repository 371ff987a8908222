//! Memory of the library's own, beside the program's heap: calls that may be made in signal handlers
//! (signal-safety(7)) come here even while the program is inside malloc(3) and holds its locks.
//!
//! A few pieces of one size. One word of bits says which are taken; it changes by compare and exchange, so nobody
//! ever waits. What is larger, or finds no piece, is asked from the kernel.

#![expect(unsafe_code, reason = "an allocator")]

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// The number of pieces: one bit for each.
const PIECES: usize = 64;

/// The size of a piece: enough for nearly everything that is asked for. A small value leaves the rest of its piece untouched.
const PIECE_BYTES: usize = 8192;

/// What every piece, and the kernel's pages anyway, begin at a multiple of.
const ALIGNMENT: usize = 16;

/// The kernel's smallest page, to which a mapping is aligned at least.
const PAGE_BYTES: usize = 4096;

/// The library's allocator. Pages that were never used cost nothing.
#[repr(C, align(16))]
pub(crate) struct Memory {
    pieces: UnsafeCell<[[MaybeUninit<u8>; PIECE_BYTES]; PIECES]>,
    taken: AtomicU64,
}

// SAFETY: a piece belongs to the thread that has set its bit, until it clears the bit.
unsafe impl Sync for Memory {}

impl Memory {
    pub(crate) const fn new() -> Self {
        let pieces = UnsafeCell::new([[MaybeUninit::uninit(); PIECE_BYTES]; PIECES]);
        Self { pieces, taken: AtomicU64::new(0) }
    }

    fn take(&self, layout: Layout) -> Option<*mut u8> {
        if layout.size() > PIECE_BYTES || layout.align() > ALIGNMENT {
            return None;
        }
        let mut taken = self.taken.load(Ordering::Relaxed);
        loop {
            let free = (!taken).trailing_zeros();
            let bit = 1_u64.checked_shl(free)?;
            let changed = taken | bit;
            match self.taken.compare_exchange(taken, changed, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => {
                    let offset = usize::try_from(free).ok()?.checked_mul(PIECE_BYTES)?;
                    return Some(self.pieces.get().cast::<u8>().wrapping_add(offset));
                }
                Err(now) => taken = now,
            }
        }
    }

    /// Whether it was one of these.
    fn free(&self, place: *mut u8) -> bool {
        let offset = place.addr().wrapping_sub(self.pieces.get().addr());
        let piece = offset / PIECE_BYTES;
        if piece < PIECES {
            self.taken.fetch_and(!(1 << piece), Ordering::Release);
        }
        piece < PIECES
    }
}

// SAFETY: the pieces do not overlap, have at least the size and alignment asked for, and stay where
// they are; nor do the kernel's mappings. Nothing here unwinds.
unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.take(layout).unwrap_or_else(|| mapped(layout))
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        if !self.free(place) {
            // SAFETY: what is no piece is a mapping of this length.
            let _ = unsafe { munmap(place.cast(), layout.size()) };
        }
    }
}

fn mapped(layout: Layout) -> *mut u8 {
    if layout.align() > PAGE_BYTES {
        return null_mut();
    }
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping, at a place where there is none.
    let found = unsafe { mmap_anonymous(null_mut(), layout.size(), rights, MapFlags::PRIVATE) };
    found.map_or(null_mut(), <*mut _>::cast)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::thread;

    use rstest::rstest;

    use super::*;

    fn layout(bytes: usize, alignment: usize) -> Layout {
        Layout::from_size_align(bytes, alignment).unwrap()
    }

    #[rstest]
    #[case::one(1, 1)]
    #[case::small(128, 16)]
    #[case::odd(129, 8)]
    #[case::a_piece(8192, 16)]
    #[case::larger(8193, 1)]
    #[case::aligned(32, 64)]
    #[case::a_page(4096, 4096)]
    fn allocations_have_the_requested_size_and_alignment(
        #[case] bytes: usize,
        #[case] alignment: usize,
    ) {
        static MEMORY: Memory = Memory::new();
        let memory = &MEMORY;
        let layout = layout(bytes, alignment);
        let mut places = Vec::new();
        // More than there are pieces.
        for round in 0..PIECES * 4 {
            // SAFETY: the size is not zero.
            let place = unsafe { memory.alloc(layout) };
            assert!(!place.is_null() && place.addr() % alignment == 0);
            // SAFETY: so much was asked for.
            unsafe { place.write_bytes(u8::try_from(round % 251).unwrap(), bytes) };
            places.push(place);
        }
        assert_eq!(places.iter().collect::<HashSet<_>>().len(), places.len());
        for (round, place) in places.into_iter().enumerate() {
            // SAFETY: written above, and given back once.
            unsafe {
                assert_eq!(usize::from(place.add(bytes - 1).read()), round % 251);
                memory.dealloc(place, layout);
            }
        }
    }

    #[test]
    fn more_than_a_page_of_alignment_is_not_to_be_had() {
        static MEMORY: Memory = Memory::new();
        // SAFETY: the size is not zero.
        assert!(unsafe { MEMORY.alloc(layout(1, PAGE_BYTES * 2)) }.is_null());
    }

    #[test]
    fn threads_share_it() {
        static MEMORY: Memory = Memory::new();
        let memory = &MEMORY;
        thread::scope(|scope| {
            for mark in 0..4_u8 {
                scope.spawn(move || {
                    for round in 0..10_000 {
                        let layout = layout(1 + round % 200, 1);
                        // SAFETY: used within its size, and given back once.
                        unsafe {
                            let place = memory.alloc(layout);
                            place.write_bytes(mark, layout.size());
                            assert_eq!(place.add(layout.size() - 1).read(), mark);
                            memory.dealloc(place, layout);
                        }
                    }
                });
            }
        });
        assert_eq!(memory.taken.load(Ordering::Relaxed), 0);
    }
}
