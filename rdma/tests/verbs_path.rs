//! The cost of a request over an RDMA device besides the device's own: no allocation, and no system
//! call but the doorbell's, which is one on Soft-RoCE.
//!
//! Needs an RDMA device and strace; the lab has both.

#![cfg(feature = "verbs")]
#![allow(unsafe_code, reason = "counts allocations")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use farcore_rdma::verbs::{Access, VerbsEndpoint};
use farcore_rdma::{
    Completion, Endpoint, FabricOptions, LocalSlice, Lock, Region, RegionOptions, RemoteSlice,
    Status, VerbsOptions, Work, WorkId, WorkRequest,
};

const ROLE: &str = "FARCORE_PATH_ROLE";
const READS: u64 = 100_000;
const BATCH: u64 = 32;
const BYTES: u32 = 64;
/// A system call made nowhere else; it marks the begin and the end of the measurement.
const MARK: &str = "getpgid";

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: forwards everything to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: by the caller's contract.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: by the caller's contract.
        unsafe { System.dealloc(place, layout) }
    }
    unsafe fn realloc(&self, place: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: by the caller's contract.
        unsafe { System.realloc(place, layout, bytes) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn mark() {
    // SAFETY: reads this process's group.
    unsafe { libc::getpgid(0) };
}

fn region() -> Arc<Region> {
    let options = RegionOptions {
        bytes: 1 << 20,
        huge_pages: false,
        lock: Lock::Off,
        prefault: true,
    };
    Arc::new(Region::map(&options).expect("memory"))
}

/// Reads in batches with one doorbell each. Returns the number of doorbells.
fn read_all(endpoint: &mut VerbsEndpoint, reads: u64, read: impl Fn(u64) -> Work) -> u64 {
    let mut seen = [Completion::NONE; 32];
    let (mut done, mut doorbells) = (0, 0);
    while done < reads {
        let batch = BATCH.min(reads - done);
        for number in 0..batch {
            let request = WorkRequest {
                id: WorkId(number),
                work: read(number),
                signalled: true,
            };
            endpoint.post(0, request).expect("room");
        }
        endpoint.ring_doorbell(0, 0);
        doorbells += 1;
        let mut completed = 0;
        while completed < batch {
            let count = endpoint.poll(0, &mut seen);
            for completion in &seen[..count] {
                assert_eq!(completion.status, Status::Success);
                completed += 1;
            }
        }
        done += batch;
    }
    doorbells
}

/// The traced process.
#[test]
fn role_reader() {
    if std::env::var(ROLE).is_err() {
        return;
    }
    let options = FabricOptions {
        verbs: VerbsOptions::default(),
        queues: 2,
        depth: 64,
        limit_ns: u64::MAX,
    };
    let mut endpoint =
        VerbsEndpoint::open(&options, Access::Remote).expect("an RDMA device: run this in the lab");
    endpoint.connect_loopback(0, 1).expect("connected");
    let local_key = endpoint.register(region()).expect("registered");
    let far = endpoint.register(region()).expect("registered");
    let key = endpoint.remote_key(far).expect("registered");
    let read = |number: u64| Work::Read {
        local: LocalSlice {
            key: local_key,
            offset: number * u64::from(BYTES),
            bytes: BYTES,
        },
        remote: RemoteSlice {
            key,
            offset: number * 4096,
        },
    };
    // The device's library allocates at its first use, if at all.
    read_all(&mut endpoint, 10 * BATCH, read);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    mark();
    let doorbells = read_all(&mut endpoint, READS, read);
    mark();
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    println!("\n@path {doorbells} {allocations}");
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask lab test"]
fn a_request_costs_no_allocation_and_no_system_call_of_its_own() {
    let log = std::env::temp_dir().join(format!("farcore-path-{}", std::process::id()));
    let output = Command::new("strace")
        .args(["-f", "-qq", "-o"])
        .arg(&log)
        .arg(std::env::current_exe().expect("this test"))
        .args([
            "--exact",
            "role_reader",
            "--nocapture",
            "--test-threads",
            "1",
        ])
        .env(ROLE, "reader")
        .output()
        .expect("strace: `cargo xtask lab setup` installs it");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metrics = said.lines().find_map(|line| line.strip_prefix("@path "));
    let mut metrics = metrics
        .expect("figures")
        .split(' ')
        .map(|one| one.parse::<u64>().expect("a number"));
    let (doorbells, allocations) = (
        metrics.next().expect("doorbells"),
        metrics.next().expect("allocations"),
    );
    assert_eq!(doorbells, READS.div_ceil(BATCH));

    let trace = std::fs::read_to_string(&log).expect("strace's log");
    std::fs::remove_file(&log).expect("strace's log");
    let lines: Vec<&str> = trace.lines().collect();
    let marks: Vec<usize> = (0..lines.len())
        .filter(|&at| lines[at].contains(MARK))
        .collect();
    assert_eq!(marks.len(), 2, "the marks");
    let thread = |line: &str| line.split_whitespace().next().map(str::to_owned);
    let reader = thread(lines[marks[0]]);
    let calls: Vec<&str> = lines[marks[0] + 1..marks[1]]
        .iter()
        .copied()
        .filter(|line| thread(line) == reader)
        .collect();
    println!(
        "{READS} READs: {doorbells} doorbells, {} system calls, {allocations} allocations",
        calls.len()
    );
    assert_eq!(allocations, 0);
    let count = calls.len() as u64;
    assert!(
        count <= doorbells + doorbells / 100,
        "{count} system calls: {:?}",
        &calls[..calls.len().min(20)]
    );
}
