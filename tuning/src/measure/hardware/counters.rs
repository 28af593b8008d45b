//! Opens, reads and closes one thread's event counters.
//!
//! Owns the descriptors. The processor's events form one group if they fit into the hardware
//! counters at once; each of the kernel's events stands alone. Invariants: see the parent module.

use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use perf_event::events::{Hardware, Software};
use perf_event::{Builder, Counter, Group};

use crate::measure::hardware::refusal::{Missing, kernel_only, reason};
use crate::measure::hardware::snapshot::HardwareSnapshot;

const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";

/// The snapshot field that an event is counted into.
type Field = fn(&mut HardwareSnapshot) -> &mut Option<u64>;

/// A processor event to open.
struct Wanted {
    name: &'static str,
    event: Hardware,
    field: Field,
}

fn processor_events() -> [Wanted; 4] {
    [
        Wanted {
            name: "cycles",
            event: Hardware::CPU_CYCLES,
            field: |counts| &mut counts.cycles,
        },
        Wanted {
            name: "instructions",
            event: Hardware::INSTRUCTIONS,
            field: |counts| &mut counts.instructions,
        },
        Wanted {
            name: "branch misses",
            event: Hardware::BRANCH_MISSES,
            field: |counts| &mut counts.branch_misses,
        },
        Wanted {
            name: "last-level cache misses",
            event: Hardware::CACHE_MISSES,
            field: |counts| &mut counts.cache_misses,
        },
    ]
}

/// Whether an event also happens outside the kernel.
type Anywhere = bool;

const OF_THE_KERNEL: [(&str, Software, Anywhere, Field); 4] = [
    (
        "time on a processor",
        Software::TASK_CLOCK,
        true,
        |counts| &mut counts.on_processor_ns,
    ),
    ("page faults", Software::PAGE_FAULTS, true, |counts| {
        &mut counts.page_faults
    }),
    (
        "context switches",
        Software::CONTEXT_SWITCHES,
        false,
        |counts| &mut counts.context_switches,
    ),
    ("migrations", Software::CPU_MIGRATIONS, false, |counts| {
        &mut counts.migrations
    }),
];

/// Counters of the thread that opened them. Any thread may read them. Dropping them closes their
/// descriptors, at most nine.
///
/// The counted thread pays a little at each context switch and nothing in between.
pub struct HardwareCounters {
    opened: Mutex<Opened>,
    missing: String,
}

impl fmt::Debug for HardwareCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HardwareCounters")
            .field("missing", &self.missing)
            .finish_non_exhaustive()
    }
}

/// The open counters, behind a lock for the readers' sake. The counted thread takes it only to read
/// its own figures.
#[derive(Default)]
struct Opened {
    together: Option<(Group, Vec<(Field, Counter)>)>,
    alone: Vec<(Field, Counter)>,
}

/// Opens an event of this thread, with its kernel part if that is permitted. Returns whether the
/// kernel part is counted.
fn build(mut builder: Builder<'_>, mut group: Option<&mut Group>) -> io::Result<(Counter, bool)> {
    let mut open = |builder: &Builder<'_>| match &mut group {
        Some(group) => group.add(builder),
        None => builder.build(),
    };
    builder.observe_self().any_cpu().include_kernel();
    match open(&builder) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            Ok((open(builder.exclude_kernel(true))?, false))
        }
        outcome => Ok((outcome?, true)),
    }
}

impl Opened {
    /// Opens the processor's events as one group. Fails if they do not all fit or if one is
    /// refused.
    fn together(&mut self, wanted: &[Wanted]) -> io::Result<()> {
        let mut group = Group::new()?;
        let mut members = Vec::with_capacity(wanted.len());
        for one in wanted {
            let (counter, _) = build(Builder::new(one.event), Some(&mut group))?;
            members.push((one.field, counter));
        }
        group.enable()?;
        // The kernel schedules a group at once or never: a group too large for the remaining
        // hardware counters does not run.
        let ran = group.read()?.time_running();
        if ran.is_none_or(|ran| ran.is_zero()) {
            return Err(ErrorKind::ResourceBusy.into());
        }
        self.together = Some((group, members));
        Ok(())
    }

    /// Opens one event alone. Returns whether its kernel part is counted.
    fn alone(&mut self, builder: Builder<'_>, field: Field) -> io::Result<bool> {
        let (mut counter, in_kernel) = build(builder, None)?;
        counter.enable()?;
        self.alone.push((field, counter));
        Ok(in_kernel)
    }

    fn read(&mut self) -> HardwareSnapshot {
        let mut counts = HardwareSnapshot::default();
        if let Some((group, members)) = &mut self.together
            && let Ok(data) = group.read()
        {
            for (field, counter) in members {
                *field(&mut counts) = data
                    .get(counter)
                    .and_then(|one| scaled(one.value(), data.time_enabled(), data.time_running()));
            }
        }
        for (field, counter) in &mut self.alone {
            *field(&mut counts) = counter
                .read_full()
                .ok()
                .and_then(|one| scaled(one.count(), one.time_enabled(), one.time_running()));
        }
        counts
    }
}

/// Scales a count from the time in which the counter was scheduled to the whole time.
fn scaled(count: u64, enabled: Option<Duration>, running: Option<Duration>) -> Option<u64> {
    let (enabled, running) = (enabled?.as_nanos(), running?.as_nanos());
    if enabled == running {
        return Some(count);
    }
    let whole = u128::from(count)
        .checked_mul(enabled)?
        .checked_div(running)?;
    u64::try_from(whole).ok()
}

impl HardwareCounters {
    /// Opens and starts the events that this machine permits, for the calling thread. Never fails:
    /// a refused event is `None` in snapshots and explained by [`Self::missing`]. Costs about ten
    /// system calls.
    #[must_use]
    pub fn open_here() -> Self {
        Self::open(&processor_events())
    }

    fn open(wanted: &[Wanted]) -> Self {
        let paranoid = fs::read_to_string(PARANOID).ok();
        let paranoid = paranoid.as_deref().map(str::trim);
        let mut opened = Opened::default();
        let mut missing = Missing::default();
        if opened.together(wanted).is_err() {
            for one in wanted {
                if let Err(error) = opened.alone(Builder::new(one.event), one.field) {
                    missing.add(one.name, reason(&error, paranoid));
                }
            }
        }
        for (name, event, anywhere, field) in OF_THE_KERNEL {
            match opened.alone(Builder::new(event), field) {
                Ok(in_kernel) if in_kernel || anywhere => {}
                Ok(_) => {
                    // Without the kernel part the count would stay zero.
                    opened.alone.pop();
                    missing.add(name, kernel_only(paranoid));
                }
                Err(error) => missing.add(name, reason(&error, paranoid)),
            }
        }
        Self {
            opened: Mutex::new(opened),
            missing: missing.words(),
        }
    }

    /// The counts so far, readable from any thread. Costs one system call per lone event and one
    /// for the group.
    #[must_use]
    pub fn snapshot(&self) -> HardwareSnapshot {
        self.opened
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .read()
    }

    /// Which events are not counted, the reason and the remedy; empty if all are counted.
    #[must_use]
    pub fn missing(&self) -> &str {
        &self.missing
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::*;

    const TOUCHED_BYTES: usize = 64 << 20;

    fn touch() {
        let mut memory = vec![0_u8; TOUCHED_BYTES];
        for byte in memory.iter_mut().step_by(4096) {
            *byte = 1;
        }
        black_box(&memory);
    }

    #[test]
    fn page_faults_of_the_opening_thread_are_readable_from_another() {
        let (send, counters) = std::sync::mpsc::channel();
        let (go, may_go) = std::sync::mpsc::channel();
        let (done, is_done) = std::sync::mpsc::channel();
        let counted = std::thread::spawn(move || {
            send.send(std::sync::Arc::new(HardwareCounters::open_here()))
                .unwrap();
            may_go.recv().unwrap();
            touch();
            done.send(()).unwrap();
            // Stays alive while it is read.
            may_go.recv().unwrap_err();
        });
        let counters = counters.recv().unwrap();
        let before = counters.snapshot();
        touch();
        let others = counters.snapshot();
        go.send(()).unwrap();
        is_done.recv().unwrap();
        let after = counters.snapshot();
        drop(go);
        counted.join().unwrap();
        if let (Some(before), Some(others), Some(after)) =
            (before.page_faults, others.page_faults, after.page_faults)
        {
            // Fewer faults than small pages: a huge page faults once.
            assert!(
                after - others >= TOUCHED_BYTES as u64 >> 21,
                "{others} {after}"
            );
            assert!(
                others - before < 16,
                "another thread's page faults were counted"
            );
        } else {
            assert!(counters.missing().contains("page faults"), "{counters:?}");
        }
    }

    #[test]
    fn every_event_counts_or_has_a_reason() {
        let counters = HardwareCounters::open_here();
        touch();
        let counts = counters.snapshot();
        let missing = counters.missing();
        for (value, name) in [
            (counts.cycles, "cycles"),
            (counts.instructions, "instructions"),
            (counts.branch_misses, "branch misses"),
            (counts.cache_misses, "last-level cache misses"),
            (counts.on_processor_ns, "time on a processor"),
            (counts.page_faults, "page faults"),
            (counts.context_switches, "context switches"),
            (counts.migrations, "migrations"),
        ] {
            assert_eq!(value.is_none(), missing.contains(name), "{name}: {missing}");
        }
        assert!(counts.instructions.is_none_or(|count| count > 10_000));
        assert!(counts.on_processor_ns.is_none_or(|count| count > 10_000));
    }

    #[test]
    fn a_refused_event_has_a_reason_and_does_not_fail() {
        let unknown = [Wanted {
            name: "wonders",
            event: Hardware(4_711),
            field: |counts| &mut counts.cycles,
        }];
        let counters = HardwareCounters::open(&unknown);
        assert_eq!(counters.snapshot().cycles, None);
        assert!(counters.missing().contains("wonders: "), "{counters:?}");
        assert_eq!(
            counters.snapshot().page_faults.is_none(),
            counters.missing().contains("page faults")
        );
    }

    #[test]
    fn counts_are_scaled_to_the_whole_time() {
        let second = Some(Duration::from_secs(1));
        let quarter = Some(Duration::from_millis(250));
        assert_eq!(scaled(100, second, second), Some(100));
        assert_eq!(scaled(100, second, quarter), Some(400));
        assert_eq!(scaled(100, second, Some(Duration::ZERO)), None);
        assert_eq!(scaled(u64::MAX, second, quarter), None);
        assert_eq!(scaled(1, None, second), None);
    }
}
