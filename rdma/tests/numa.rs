//! Regions lie on the NUMA node that was chosen. Needs two nodes, which the lab's guest has.

#![allow(unsafe_code)] // queries the kernel for where a page lies

use farcore_rdma::{Lock, Region, RegionOptions};

const PAGE_BYTES: usize = 4096;

/// The node that a page lies on.
fn node_of(page: *const u8) -> i32 {
    let (mut page, mut node) = (page.cast::<libc::c_void>().cast_mut(), -1);
    // SAFETY: reads the status of one page and moves none; both places outlive the call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            0,
            1_usize,
            &raw mut page,
            std::ptr::null::<i32>(),
            &raw mut node,
            0,
        )
    };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    node
}

#[test]
#[ignore = "needs two NUMA nodes: cargo xtask lab test"]
fn a_region_lies_on_the_node_that_was_chosen() {
    for (huge_pages, node) in [(false, 1), (false, 0), (true, 1)] {
        let options = RegionOptions {
            bytes: 8 << 20,
            huge_pages,
            lock: Lock::Off,
            prefault: true,
        };
        let region = Region::map_on(&options, Some(node)).unwrap();
        for page in (0..region.len()).step_by(64 * PAGE_BYTES) {
            let place = region.as_ptr().as_ptr().wrapping_add(page);
            assert_eq!(node_of(place), node as i32, "page {}", page / PAGE_BYTES);
        }
    }
}
