//! A file on a disk, as a core drives it: requests are submitted, and their completions polled.
//!
//! The files of a store are written through it, so that a simulation can tear, lose and reorder
//! what is written. Only the feature `disk` shows it to other crates.
//!
//! ```text
//! submit(token, work, buffer) -> .. in any order .. -> poll: (token, result, buffer)
//! ```
//!
//! A disk owns the buffer of a request from its submission to its completion, and gives it back.
//! So no request allocates, and no buffer is touched by two.
//!
//! - I1: each request that was accepted completes once, and those of one disk in any order.
//! - I2: a write survives a crash once a [`DiskWork::Sync`] that was submitted after the write's
//!   completion has completed. Until then any part of it may survive, or none.

mod buffer;
mod ring;

pub use self::buffer::DiskBuffer;
pub use self::ring::RingDisk;

/// Lengths and addresses of buffers, and places in a file, are multiples of this, in bytes.
pub const DISK_BLOCK_BYTES: usize = 4096;

/// What a request does.
#[derive(Debug)]
pub enum DiskWork {
    /// Writes all of a buffer at a place in the file.
    Write {
        /// The place, in bytes.
        at: u64,
        /// What is written.
        buffer: DiskBuffer,
    },
    /// Reads as many bytes as a buffer has from a place in the file.
    Read {
        /// The place, in bytes.
        at: u64,
        /// Where they come to lie.
        buffer: DiskBuffer,
    },
    /// Makes what was written before survive: see I2.
    Sync,
}

/// A request.
#[derive(Debug)]
pub struct DiskRequest {
    /// What its completion is known by. The caller chooses it.
    pub token: u64,
    /// What it does.
    pub work: DiskWork,
}

/// Why a request has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiskError {
    /// The disk, or the part of it that the file may take, is full.
    #[error("the disk is full: make room, or choose another directory")]
    Full,
    /// The file ends before what was to be read, or less was written.
    #[error("{bytes} bytes were read or written, fewer than requested")]
    Short {
        /// The bytes before.
        bytes: usize,
    },
    /// A place in the file is no multiple of [`DISK_BLOCK_BYTES`].
    #[error("the place {at} in the file is no multiple of {DISK_BLOCK_BYTES} bytes")]
    Misaligned {
        /// The place.
        at: u64,
    },
    /// The device or the system has failed.
    #[error("the disk has failed ({})", std::io::Error::from_raw_os_error(*errno))]
    Io {
        /// The number of the system's error.
        errno: i32,
    },
}

/// A request that was not accepted.
#[derive(Debug)]
pub enum DiskRefused {
    /// As many requests as the disk takes are under way: poll first.
    Busy(DiskRequest),
    /// It can never be performed.
    Wrong(DiskRequest, DiskError),
}

/// What became of a request.
#[derive(Debug)]
pub struct DiskCompletion {
    /// The request's.
    pub token: u64,
    /// Whether it was performed.
    pub result: Result<(), DiskError>,
    /// The request's buffer, if it had one.
    pub buffer: Option<DiskBuffer>,
}

/// A file on a disk. Cost: no lock and no allocation a request.
pub trait Disk: std::fmt::Debug {
    /// Bytes that the file may have.
    fn capacity(&self) -> u64;

    /// Requests that can be submitted now.
    fn room(&self) -> usize;

    /// Submits a request.
    ///
    /// # Errors
    /// It was not accepted, and is given back.
    fn submit(&mut self, request: DiskRequest) -> Result<(), DiskRefused>;

    /// Has requests performed, and passes on what has completed since the last poll; returns how
    /// many did.
    fn poll(&mut self, each: &mut dyn FnMut(DiskCompletion)) -> usize;
}

impl<D: Disk + ?Sized> Disk for Box<D> {
    fn capacity(&self) -> u64 {
        (**self).capacity()
    }

    fn room(&self) -> usize {
        (**self).room()
    }

    fn submit(&mut self, request: DiskRequest) -> Result<(), DiskRefused> {
        (**self).submit(request)
    }

    fn poll(&mut self, each: &mut dyn FnMut(DiskCompletion)) -> usize {
        (**self).poll(each)
    }
}

impl DiskWork {
    /// The place in the file, and the bytes, if it has them.
    #[must_use]
    pub fn range(&self) -> Option<(u64, usize)> {
        match self {
            Self::Write { at, buffer } | Self::Read { at, buffer } => {
                Some((*at, buffer.bytes().len()))
            }
            Self::Sync => None,
        }
    }

    /// Checks what every disk refuses.
    ///
    /// # Errors
    /// [`DiskError::Misaligned`].
    pub fn check(&self) -> Result<(), DiskError> {
        match self.range() {
            Some((at, _)) if !at.is_multiple_of(DISK_BLOCK_BYTES as u64) => {
                Err(DiskError::Misaligned { at })
            }
            _ => Ok(()),
        }
    }

    /// The buffer.
    #[must_use]
    pub fn into_buffer(self) -> Option<DiskBuffer> {
        match self {
            Self::Write { buffer, .. } | Self::Read { buffer, .. } => Some(buffer),
            Self::Sync => None,
        }
    }
}
