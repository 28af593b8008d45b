//! The traces on which counts of misses are compared with libCacheSim.

use farcore_card::workload::{Pattern, Population, Workload, WorkloadSettings};

/// Accesses of a trace.
pub(crate) const ACCESSES: usize = 300_000;
/// Objects of a trace.
const OBJECTS: u32 = 20_000;

/// The name of each trace and its pattern.
pub(crate) const TRACES: [(&str, Pattern); 3] = [
    ("zipf", Pattern::Zipf { exponent: 1.0 }),
    (
        "shifting",
        Pattern::Shifting {
            exponent: 1.0,
            period: 50_000,
        },
    ),
    (
        "scan",
        Pattern::Scan {
            exponent: 1.0,
            period: 30_000,
            length: 8_000,
        },
    ),
];

/// The stream of a trace: messages that use one queue pair each.
pub(crate) fn workload(pattern: Pattern) -> Workload {
    let settings = WorkloadSettings {
        pattern,
        population: population(),
        relaxed_share: 0.0,
        strict_share: 0.0,
        foreign_share: 0.0,
        seed: 20_231_023,
    };
    Workload::drawn(&settings).expect("the settings are valid")
}

/// The objects of the traces.
pub(crate) fn population() -> Population {
    Population {
        queue_pairs: OBJECTS,
        regions: 0,
        completion_queues: 0,
        domains: 1,
    }
}
