//! The limits of the system for this process: io_uring, locked memory, descriptors, memory. Each
//! refusal becomes an error that names the limit and the remedy.
//!
//! The only state is a lock: executors are made one at a time.

use std::any::Any;
use std::sync::{Mutex, PoisonError};

use farcore_rdma::{RefusedCall, try_io_uring, try_resource_limits};
use farcore_tuning::{Processors, Root, Size, available_memory};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::error::{Error, Result};

/// Locked memory that glommio requires to be allowed, in bytes. glommio checks only the limit,
/// although the kernel does not apply it to a process with `CAP_IPC_LOCK`.
const LOCKED_BYTES_MIN: u64 = 512 << 10;
/// Descriptors of one executor: three rings, an event, and those that it opens briefly to make
/// them.
pub(crate) const EXECUTOR_DESCRIPTORS: usize = 6;
/// Descriptors of the connections to one memory node from one core.
pub(crate) const NODE_DESCRIPTORS: usize = 3;

/// Held while an executor is made: the limit on locked memory is the process's, and descriptors
/// that were found free must stay free until they are opened.
static MAKING: Mutex<()> = Mutex::new(());

/// The cores that this process may use. From a pinned thread, that is one.
pub(crate) fn available_cores() -> Vec<usize> {
    #[cfg(feature = "simulation")]
    if farcore_rdma::simulation::is_inside() {
        return (0..64).collect();
    }
    core_affinity::get_core_ids()
        .unwrap_or_default()
        .into_iter()
        .map(|core| core.id)
        .collect()
}

/// Why a thread could not be pinned to a core.
pub(crate) fn not_pinned(core: usize, error: &std::io::Error) -> Error {
    let available = available_cores();
    if !available.contains(&core) {
        return Error::Core { core, available };
    }
    let errno = Errno::from_io_error(error).unwrap_or(Errno::INVAL);
    refused("sched_setaffinity", errno)
}

/// Refuses a system that does not say which cores there are.
///
/// # Errors
/// [`Error::SystemCall`].
pub(crate) fn check_available_cores() -> Result<()> {
    let set = rustix::thread::sched_getaffinity(None);
    set.map(drop)
        .map_err(|errno| refused("sched_getaffinity", errno))
}

/// The number of processors that the process's first thread may use. Other threads may be pinned.
pub(crate) fn processors_of_process() -> usize {
    let process = rustix::process::getpid();
    let set = rustix::thread::sched_getaffinity(Some(process));
    set.map_or(1, |set| set.count() as usize)
}

/// The cores that this process may use, with their physical cores and the control group's quota.
pub(crate) fn processors() -> Processors {
    Processors::read(&Root::new("/"), available_cores())
}

/// Refuses early, with a clear error, where the kernel or a limit would refuse later. `descriptors`
/// is the number to be opened.
///
/// # Errors
/// [`Error::IoUring`], [`Error::Memory`], [`Error::Descriptors`], [`Error::SystemCall`].
pub(crate) fn check(descriptors: usize) -> Result<()> {
    let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    try_resource_limits()
        .map_err(|RefusedCall { call, errno }| refused(call, Errno::from_raw_os_error(errno)))?;
    check_descriptors(descriptors)?;
    try_io_uring().map_err(|RefusedCall { call, errno }| {
        let errno = Errno::from_raw_os_error(errno);
        named(errno, &format!("{call}: {errno}"))
    })?;
    allow_locked_memory().map(drop)
}

/// Calls `make`, which makes an executor, while enough locked memory is allowed for it.
///
/// # Errors
/// As [`check`]; [`Error::Threads`].
pub(crate) fn make_executor<T>(
    make: impl FnOnce() -> std::thread::Result<std::io::Result<T>>,
) -> Result<T> {
    let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    // glommio panics in some places if it finds no descriptor, and only once for all executors of
    // the process.
    check_descriptors(EXECUTOR_DESCRIPTORS)?;
    let _allowed = allow_locked_memory()?;
    match make() {
        Ok(Ok(executor)) => Ok(executor),
        Ok(Err(error)) => {
            let errno = error
                .raw_os_error()
                .map_or(Errno::INVAL, Errno::from_raw_os_error);
            Err(named(errno, &error.to_string()))
        }
        Err(panic) => {
            let reason = what_was_said(&*panic);
            check_descriptors(EXECUTOR_DESCRIPTORS)?;
            if reason.contains("spawn thread") {
                return Err(no_thread(reason));
            }
            Err(Error::IoUring {
                reason: reason.to_owned(),
            })
        }
    }
}

/// Calls `make` while the limit on locked memory is raised to what glommio requires. For closures
/// that make an executor on another thread and wait for it.
///
/// # Errors
/// As [`check`].
pub(crate) fn while_allowed<T>(make: impl FnOnce() -> T) -> Result<T> {
    let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    check_descriptors(EXECUTOR_DESCRIPTORS)?;
    let _allowed = allow_locked_memory()?;
    Ok(make())
}

/// The text of a panic.
pub(crate) fn what_was_said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a text")
}

/// A thread could not be started.
pub(crate) fn no_thread(reason: &str) -> Error {
    Error::Threads {
        reason: reason.to_owned(),
    }
}

fn named(errno: Errno, reason: &str) -> Error {
    if errno == Errno::MFILE || errno == Errno::NFILE {
        return no_descriptor(errno, EXECUTOR_DESCRIPTORS);
    }
    Error::IoUring {
        reason: reason.to_owned(),
    }
}

fn no_descriptor(errno: Errno, needed: usize) -> Error {
    if errno == Errno::PERM || errno == Errno::NOSYS {
        return refused("eventfd2", errno);
    }
    Error::Descriptors {
        reason: errno.to_string(),
        limit: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
        needed,
    }
}

/// A system call that a filter forbids, or that the kernel does not have.
fn refused(call: &'static str, errno: Errno) -> Error {
    Error::SystemCall {
        call,
        reason: errno.to_string(),
    }
}

/// Opens this many descriptors, and closes them.
fn check_descriptors(count: usize) -> Result<()> {
    let open = |_| {
        let flags = rustix::event::EventfdFlags::CLOEXEC;
        rustix::event::eventfd(0, flags)
    };
    let opened: std::result::Result<Vec<_>, _> = (0..count).map(open).collect();
    opened
        .map(drop)
        .map_err(|errno| no_descriptor(errno, count))
}

/// The memory that an engine is about to take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryNeed {
    pub(crate) local_bytes: u64,
    /// Embedded far memory that is touched when the engine opens.
    pub(crate) far_bytes: u64,
}

/// Refuses more memory than the machine or the control group has left: the kernel would kill the
/// process when it touches it.
///
/// # Errors
/// [`Error::Memory`].
pub(crate) fn check_memory(need: MemoryNeed, root: &Root) -> Result<()> {
    let MemoryNeed {
        local_bytes,
        far_bytes,
    } = need;
    let Some(available) = available_memory(root) else {
        return Ok(());
    };
    if local_bytes.saturating_add(far_bytes) <= available.bytes {
        return Ok(());
    }
    Err(Error::Memory {
        reason: format!(
            "{} of local memory and {} of embedded far memory are to be touched, and {} is available {}: lower `local_bytes` or `far_bytes`, or {}",
            Size(local_bytes),
            Size(far_bytes),
            Size(available.bytes),
            available.end.place(),
            available.end.remedy()
        ),
    })
}

/// Restores the limit on locked memory when dropped.
struct Restores(Rlimit);

impl Drop for Restores {
    fn drop(&mut self) {
        // Lowering is always allowed.
        let _ = setrlimit(Resource::Memlock, self.0);
    }
}

/// Raises the limit on locked memory to what glommio requires, if the process may.
fn allow_locked_memory() -> Result<Option<Restores>> {
    let limit = getrlimit(Resource::Memlock);
    let Some(current) = limit.current.filter(|&bytes| bytes < LOCKED_BYTES_MIN) else {
        return Ok(None);
    };
    let raised = Rlimit {
        current: Some(LOCKED_BYTES_MIN),
        maximum: limit.maximum.map(|bytes| bytes.max(LOCKED_BYTES_MIN)),
    };
    match setrlimit(Resource::Memlock, raised) {
        Ok(()) => Ok(Some(Restores(limit))),
        Err(_) => Err(Error::Memory {
            reason: format!(
                "RLIMIT_MEMLOCK is {current} bytes and each core's executor needs {LOCKED_BYTES_MIN}: raise it with `ulimit -l`"
            ),
        }),
    }
}
