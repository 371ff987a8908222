//! Memory of the library's own, beside the program's heap: calls that may be made in signal handlers
//! (signal-safety(7)) come here while the program is in malloc(3), or hold that one's locks.
//!
//! The kernel gives each value pages of its own. That takes a microsecond or two, and keeps no state that a signal
//! handler, another thread or the child of vfork(2) could find half changed. Calls that name no lock and no port need no
//! memory.

#![expect(unsafe_code, reason = "an allocator")]

use std::alloc::{GlobalAlloc, Layout};
use std::ptr::null_mut;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// The kernel's smallest page, to which a mapping is aligned at least.
const PAGE_BYTES: usize = 4096;

/// The library's allocator.
pub(crate) struct Memory;

// SAFETY: mappings do not overlap, have at least the size asked for, begin at a page, and stay where they are. Nothing
// here unwinds.
unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() > PAGE_BYTES {
            return null_mut();
        }
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at a place where there is none.
        let found = unsafe { mmap_anonymous(null_mut(), layout.size(), rights, MapFlags::PRIVATE) };
        found.map_or(null_mut(), <*mut _>::cast)
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: a mapping of this length.
        let _ = unsafe { munmap(place.cast(), layout.size()) };
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use rstest::rstest;

    use super::*;

    fn layout(bytes: usize, alignment: usize) -> Layout {
        Layout::from_size_align(bytes, alignment).unwrap()
    }

    #[rstest]
    #[case::one(1, 1)]
    #[case::odd(129, 8)]
    #[case::larger_than_a_page(8193, 1)]
    #[case::aligned(32, 64)]
    #[case::a_page(4096, 4096)]
    fn allocations_have_the_requested_size_and_alignment(
        #[case] bytes: usize,
        #[case] alignment: usize,
    ) {
        let layout = layout(bytes, alignment);
        let mut places = Vec::new();
        for round in 0..256 {
            // SAFETY: the size is not zero.
            let place = unsafe { Memory.alloc(layout) };
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
                Memory.dealloc(place, layout);
            }
        }
    }

    #[test]
    fn more_than_a_page_of_alignment_is_not_to_be_had() {
        // SAFETY: the size is not zero.
        assert!(unsafe { Memory.alloc(layout(1, PAGE_BYTES * 2)) }.is_null());
    }
}
