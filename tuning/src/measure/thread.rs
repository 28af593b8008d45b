//! What the kernel says of one thread of this process, read from `/proc/self/task`.
//!
//! Source: proc_pid_stat(5), the kernel's scheduler/sched-stats.rst.

use std::time::Duration;

use super::root::Root;

/// What a thread does at the moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ThreadState {
    /// It runs, or could run and waits for a processor.
    Runnable,
    /// It sleeps in a system call.
    Sleeping,
    /// It sleeps and no signal wakes it: for the memory or the disk.
    Uninterruptible,
    /// It is stopped, or has ended.
    Other,
}

/// A thread's state, and what it has had since it began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ThreadSnapshot {
    /// What it does at the moment.
    pub state: ThreadState,
    /// How long it ran.
    pub running: Duration,
    /// How long it waited for a processor; a wait that has not ended is not in it.
    pub waiting: Duration,
    /// Page faults, of either kind.
    pub faults: u64,
}

impl ThreadSnapshot {
    /// Reads the figures of a thread of this process by its number; `None` if the kernel does not
    /// report them, or the thread has ended. Cost: reads two files.
    #[must_use]
    pub fn read(root: &Root, thread: i32) -> Option<Self> {
        let folder = format!("/proc/self/task/{thread}");
        let times = root.read(&format!("{folder}/schedstat"))?;
        let mut times = times.split_whitespace().map(str::parse::<u64>);
        let (running_ns, waiting_ns) = (times.next()?.ok()?, times.next()?.ok()?);
        let stat = root.read(&format!("{folder}/stat"))?;
        // The name, in parentheses, may hold anything.
        let (_, fields) = stat.rsplit_once(')')?;
        let mut fields = fields.split_whitespace();
        let state = match fields.next()? {
            "R" => ThreadState::Runnable,
            "S" => ThreadState::Sleeping,
            "D" => ThreadState::Uninterruptible,
            _ => ThreadState::Other,
        };
        // The state is field 3. Faults without a read from disk are field 10, those with one 12.
        let few: u64 = fields.nth(6)?.parse().ok()?;
        let many: u64 = fields.nth(1)?.parse().ok()?;
        Some(Self {
            state,
            running: Duration::from_nanos(running_ns),
            waiting: Duration::from_nanos(waiting_ns),
            faults: few.saturating_add(many),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_thread_s_figures_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let task = folder.path().join("proc/self/task/7");
        fs::create_dir_all(&task).unwrap();
        let root = Root::new(folder.path());
        assert_eq!(ThreadSnapshot::read(&root, 7), None);
        fs::write(task.join("schedstat"), "5000 700 3\n").unwrap();
        let stat = "7 (a) D 9) D 1 2 3 4 5 6 100 8 20 10 11 12\n";
        fs::write(task.join("stat"), stat).unwrap();
        let expected = ThreadSnapshot {
            state: ThreadState::Uninterruptible,
            running: Duration::from_nanos(5000),
            waiting: Duration::from_nanos(700),
            faults: 120,
        };
        assert_eq!(ThreadSnapshot::read(&root, 7), Some(expected));
        fs::write(task.join("stat"), "7 (a").unwrap();
        assert_eq!(ThreadSnapshot::read(&root, 7), None);
    }

    #[test]
    fn this_thread_runs() {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        if let Some(seen) = ThreadSnapshot::read(&Root::new("/"), thread) {
            assert_eq!(seen.state, ThreadState::Runnable);
        }
    }
}
