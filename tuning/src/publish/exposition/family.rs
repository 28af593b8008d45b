//! Groups an engine's figures into metric families.
//!
//! A figure listed in [`CORE_GROUPS`] or [`NODE_GROUPS`] is a series of that group's family, with
//! labels; every other figure is a family of its own. Owns the names, help texts and labels.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;

use crate::measure::{Metric, MetricKind};

pub(super) type Labels = &'static [(&'static str, &'static str)];

/// Figures of one family, distinguished by labels.
pub(super) struct Group {
    pub(super) name: &'static str,
    help: &'static str,
    pub(super) members: &'static [(&'static str, Labels)],
}

pub(super) const CORE_GROUPS: &[Group] = &[
    Group {
        name: "operations",
        help: "Operations answered.",
        members: &[
            ("gets", &[("kind", "get")]),
            ("puts", &[("kind", "put")]),
            ("deletes", &[("kind", "delete")]),
            ("swaps", &[("kind", "swap")]),
            ("changes", &[("kind", "change")]),
            ("inspections", &[("kind", "inspect")]),
            ("transactions", &[("kind", "transaction")]),
        ],
    },
    Group {
        name: "operation_outcomes",
        help: "Operations that found no such key or another version, or failed.",
        members: &[
            ("gets_absent", &[("kind", "get"), ("outcome", "absent")]),
            (
                "deletes_absent",
                &[("kind", "delete"), ("outcome", "absent")],
            ),
            (
                "swaps_mismatched",
                &[("kind", "swap"), ("outcome", "mismatched")],
            ),
            ("gets_failed", &[("kind", "get"), ("outcome", "failed")]),
            ("puts_failed", &[("kind", "put"), ("outcome", "failed")]),
            (
                "deletes_failed",
                &[("kind", "delete"), ("outcome", "failed")],
            ),
            ("swaps_failed", &[("kind", "swap"), ("outcome", "failed")]),
            (
                "changes_mismatched",
                &[("kind", "change"), ("outcome", "mismatched")],
            ),
            (
                "changes_failed",
                &[("kind", "change"), ("outcome", "failed")],
            ),
            (
                "transactions_conflicted",
                &[("kind", "transaction"), ("outcome", "mismatched")],
            ),
            (
                "transactions_failed",
                &[("kind", "transaction"), ("outcome", "failed")],
            ),
        ],
    },
    Group {
        name: "hits",
        help: "Gets answered, by the place of the record.",
        members: &[
            ("local_hits", &[("place", "local")]),
            ("cache_hits", &[("place", "cache")]),
            ("far_hits", &[("place", "far")]),
        ],
    },
    Group {
        name: "requests",
        help: "Requests of a core to its own shard and to others, and requests received over its lanes.",
        members: &[
            ("requests_own", &[("way", "own")]),
            ("requests_sent", &[("way", "sent")]),
            ("requests_received", &[("way", "received")]),
        ],
    },
    Group {
        name: "far_requests",
        help: "READs and WRITEs posted.",
        members: &[
            ("far_reads", &[("operation", "read")]),
            ("far_writes", &[("operation", "write")]),
        ],
    },
    Group {
        name: "far_transferred_bytes",
        help: "Bytes that READs and WRITEs moved.",
        members: &[
            ("far_read_bytes", &[("operation", "read")]),
            ("far_write_bytes", &[("operation", "write")]),
        ],
    },
    Group {
        name: "pages",
        help: "Pages that were sealed, flushed, evicted and compacted.",
        members: &[
            ("pages_sealed", &[("event", "sealed")]),
            ("pages_flushed", &[("event", "flushed")]),
            ("pages_evicted", &[("event", "evicted")]),
            ("compaction_pages", &[("event", "compacted")]),
        ],
    },
    Group {
        name: "core_seconds",
        help: "Time of a core by what it did.",
        members: &[
            ("busy_ns", &[("state", "busy")]),
            ("spinning_ns", &[("state", "spinning")]),
            ("parked_ns", &[("state", "parked")]),
            ("lent_ns", &[("state", "lent")]),
        ],
    },
    Group {
        name: "frames",
        help: "Frames by what they hold.",
        members: &[
            ("frames_free", &[("state", "free")]),
            ("frames_open", &[("state", "open")]),
            ("frames_sealed", &[("state", "sealed")]),
            ("frames_clean", &[("state", "clean")]),
            ("frames_cache", &[("state", "cache")]),
            ("frames_index", &[("state", "index")]),
        ],
    },
    Group {
        name: "frame_capacity",
        help: "All frames.",
        members: &[("frames_total", &[])],
    },
    Group {
        name: "far_bytes",
        help: "Bytes of records in far memory.",
        members: &[
            ("far_live_bytes", &[("state", "live")]),
            ("far_dead_bytes", &[("state", "dead")]),
        ],
    },
];

pub(super) const NODE_GROUPS: &[Group] = &[
    Group {
        name: "requests",
        help: "READs and WRITEs posted to a memory node.",
        members: &[
            ("reads", &[("operation", "read")]),
            ("writes", &[("operation", "write")]),
        ],
    },
    Group {
        name: "transferred_bytes",
        help: "Bytes that READs and WRITEs of a memory node moved.",
        members: &[
            ("read_bytes", &[("operation", "read")]),
            ("write_bytes", &[("operation", "write")]),
        ],
    },
];

/// The values of one core or one node.
pub(super) struct Source {
    pub(super) label: (&'static str, String),
    pub(super) values: Vec<u64>,
}

pub(super) struct Family {
    name: String,
    help: &'static str,
    kind: MetricKind,
    /// Whether the values are nanoseconds.
    timed: bool,
    /// Each series: the index of its value and its labels.
    series: Vec<(usize, Labels)>,
}

/// The families of the groups, then one for each remaining figure under its own name.
pub(super) fn families(
    metrics: &'static [Metric],
    groups: &'static [Group],
    prefix: &str,
) -> Vec<Family> {
    let mut left: Vec<bool> = vec![true; metrics.len()];
    let mut families = Vec::new();
    for group in groups {
        let mut series = Vec::new();
        for &(name, labels) in group.members {
            let Some(place) = metrics.iter().position(|figure| figure.name == name) else {
                continue;
            };
            left[place] = false;
            series.push((place, labels));
        }
        let Some(&(first, _)) = series.first() else {
            continue;
        };
        families.push(Family {
            name: format!("{prefix}{}", group.name),
            help: group.help,
            kind: metrics[first].kind,
            timed: metrics[first].name.ends_with("_ns"),
            series,
        });
    }
    for (place, figure) in metrics.iter().enumerate().filter(|&(place, _)| left[place]) {
        let name = match figure.name.strip_suffix("_ns") {
            Some(name) => format!("{prefix}{name}_seconds"),
            None => format!("{prefix}{}", figure.name),
        };
        families.push(Family {
            name,
            help: figure.help,
            kind: figure.kind,
            timed: figure.name.ends_with("_ns"),
            series: vec![(place, &[])],
        });
    }
    families
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

pub(super) fn counter(mut encoder: MetricEncoder<'_>, value: u64, timed: bool) -> fmt::Result {
    let none: Option<&Exemplar<NoLabelSet, f64>> = None;
    if timed {
        encoder.encode_counter(&seconds(value), none)
    } else {
        encoder.encode_counter(&value, none)
    }
}

pub(super) fn gauge(mut encoder: MetricEncoder<'_>, value: u64, timed: bool) -> fmt::Result {
    if timed {
        encoder.encode_gauge(&seconds(value))
    } else {
        encoder.encode_gauge(&i64::try_from(value).unwrap_or(i64::MAX))
    }
}

/// A figure of the whole process: name, meaning, value, and whether that is in nanoseconds, which
/// are published as seconds.
pub(super) type Figure = (&'static str, &'static str, u64, bool);

pub(super) fn gauges(encoder: &mut DescriptorEncoder<'_>, all: &[Figure]) -> fmt::Result {
    for &(name, help, value, timed) in all {
        let family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        gauge(family, value, timed)?;
    }
    Ok(())
}

pub(super) fn counters(encoder: &mut DescriptorEncoder<'_>, all: &[Figure]) -> fmt::Result {
    for &(name, help, value, timed) in all {
        let family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        counter(family, value, timed)?;
    }
    Ok(())
}

impl Family {
    pub(super) fn encode(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        sources: &[Source],
    ) -> fmt::Result {
        let kind = match self.kind {
            MetricKind::Counter => MetricType::Counter,
            MetricKind::Gauge => MetricType::Gauge,
        };
        let mut family = encoder.encode_descriptor(&self.name, self.help, None, kind)?;
        for source in sources {
            for &(place, labels) in &self.series {
                let mut all = vec![(source.label.0, source.label.1.as_str())];
                all.extend(labels);
                let (series, value) = (family.encode_family(&all)?, source.values[place]);
                match self.kind {
                    MetricKind::Counter => counter(series, value, self.timed)?,
                    MetricKind::Gauge => gauge(series, value, self.timed)?,
                }
            }
        }
        Ok(())
    }
}
