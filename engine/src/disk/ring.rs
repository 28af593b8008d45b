//! A file that is read and written past the page cache, over an `io_uring` of its own.
//!
//! An executor looks at its rings only when no task is ready, or after milliseconds. A core that
//! always has something to do polls this ring's memory instead: it sees a completion at its next
//! turn, without a system call.
//!
//! - I1: the kernel touches a buffer only while its slot holds it.
//!
//! Source: `io_uring(7)`, open(2) about `O_DIRECT`.

#![allow(unsafe_code)] // passes addresses of buffers to the kernel

use std::fs::{File, OpenOptions};
use std::io;
use std::mem;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use io_uring::{IoUring, opcode, types};

use super::{Disk, DiskBuffer, DiskCompletion, DiskError, DiskRefused, DiskRequest, DiskWork};

/// A request under way.
#[derive(Debug)]
struct Slot {
    token: u64,
    buffer: Option<DiskBuffer>,
    bytes: usize,
}

/// A file of the system.
pub struct RingDisk {
    ring: IoUring,
    file: File,
    capacity: u64,
    /// By number, which the kernel gives back with a completion.
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    /// Requests that the kernel has not seen.
    unseen: usize,
    /// Completed without the kernel.
    done: Vec<DiskCompletion>,
}

impl std::fmt::Debug for RingDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RingDisk")
            .field("file", &self.file)
            .field("under_way", &(self.slots.len() - self.free.len()))
            .finish_non_exhaustive()
    }
}

impl RingDisk {
    /// Opens a file, or makes it, that takes this many bytes at most and this many requests at
    /// once. Where the file system knows no direct access, it goes through the page cache.
    ///
    /// # Errors
    /// The file cannot be opened, or the kernel refuses `io_uring`.
    pub fn open(path: &Path, capacity: u64, depth: u16) -> io::Result<Self> {
        let depth = u32::from(depth.max(1)).next_power_of_two();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let direct = options.clone().custom_flags(libc::O_DIRECT).open(path);
        let file = match direct {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => options.open(path)?,
            opened => opened?,
        };
        Ok(Self {
            ring: IoUring::builder().dontfork().build(depth)?,
            file,
            capacity,
            slots: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
            unseen: 0,
            done: Vec::with_capacity(depth as usize),
        })
    }

    /// Passes on what has completed.
    fn reap(&mut self, each: &mut dyn FnMut(DiskCompletion)) -> usize {
        let mut count = 0;
        for entry in self.ring.completion() {
            let number = usize::try_from(entry.user_data()).unwrap_or(usize::MAX);
            let slot = self.slots.get_mut(number).and_then(Option::take);
            let Some(slot) = slot else { continue };
            self.free.push(u32::try_from(number).unwrap_or(u32::MAX));
            each(DiskCompletion {
                token: slot.token,
                result: result_of(entry.result(), slot.bytes),
                buffer: slot.buffer,
            });
            count += 1;
        }
        count
    }
}

/// What a completion of the kernel says of a request for this many bytes.
fn result_of(result: i32, wanted: usize) -> Result<(), DiskError> {
    match usize::try_from(result) {
        Ok(bytes) if bytes >= wanted => Ok(()),
        Ok(bytes) => Err(DiskError::Short { bytes }),
        Err(_) => Err(match -result {
            libc::ENOSPC | libc::EDQUOT | libc::EFBIG => DiskError::Full,
            errno => DiskError::Io { errno },
        }),
    }
}

impl Disk for RingDisk {
    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn room(&self) -> usize {
        self.free.len().saturating_sub(self.done.len())
    }

    fn submit(&mut self, mut request: DiskRequest) -> Result<(), DiskRefused> {
        if let Err(error) = request.work.check() {
            return Err(DiskRefused::Wrong(request, error));
        }
        if self.room() == 0 {
            return Err(DiskRefused::Busy(request));
        }
        let token = request.token;
        let file = types::Fd(self.file.as_raw_fd());
        let length = |buffer: &DiskBuffer| u32::try_from(buffer.bytes().len()).unwrap_or(u32::MAX);
        let (entry, bytes) = match &mut request.work {
            DiskWork::Write { at, buffer } => {
                let bytes = length(buffer);
                if at.saturating_add(bytes.into()) > self.capacity {
                    self.done.push(DiskCompletion {
                        token,
                        result: Err(DiskError::Full),
                        buffer: request.work.into_buffer(),
                    });
                    return Ok(());
                }
                let write = opcode::Write::new(file, buffer.bytes().as_ptr(), bytes);
                (write.offset(*at).build(), bytes)
            }
            DiskWork::Read { at, buffer } => {
                let bytes = length(buffer);
                let read = opcode::Read::new(file, buffer.bytes_mut().as_mut_ptr(), bytes);
                (read.offset(*at).build(), bytes)
            }
            DiskWork::Sync => {
                let sync = opcode::Fsync::new(file).flags(types::FsyncFlags::DATASYNC);
                (sync.build(), 0)
            }
        };
        let Some(number) = self.free.pop() else {
            return Err(DiskRefused::Busy(request));
        };
        let entry = entry.user_data(number.into());
        // SAFETY: the slot keeps the buffer until the kernel has completed the request (I1).
        let pushed = unsafe { self.ring.submission().push(&entry) };
        if pushed.is_err() {
            self.free.push(number);
            return Err(DiskRefused::Busy(request));
        }
        self.slots[number as usize] = Some(Slot {
            token,
            buffer: request.work.into_buffer(),
            bytes: bytes as usize,
        });
        self.unseen += 1;
        Ok(())
    }

    fn poll(&mut self, each: &mut dyn FnMut(DiskCompletion)) -> usize {
        if self.unseen > 0 {
            // What it did not take it takes at the next poll.
            let seen = self.ring.submit().unwrap_or(0);
            self.unseen -= seen.min(self.unseen);
        }
        let refused = self.done.len();
        self.done.drain(..).for_each(&mut *each);
        refused + self.reap(each)
    }
}

impl Drop for RingDisk {
    #[allow(clippy::mem_forget, reason = "the kernel may still write into them")]
    fn drop(&mut self) {
        while self.free.len() < self.slots.len() {
            match self.ring.submit_and_wait(1) {
                Ok(_) => drop(self.reap(&mut |_| {})),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    mem::forget(mem::take(&mut self.slots));
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_the_kernel_are_typed() {
        assert_eq!(result_of(4096, 4096), Ok(()));
        assert_eq!(result_of(0, 0), Ok(()));
        assert_eq!(result_of(512, 4096), Err(DiskError::Short { bytes: 512 }));
        assert_eq!(result_of(-libc::ENOSPC, 4096), Err(DiskError::Full));
        let io = DiskError::Io { errno: libc::EIO };
        assert_eq!(result_of(-libc::EIO, 4096), Err(io));
    }
}
