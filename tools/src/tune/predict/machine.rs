//! The description of the machine to predict: `cores=64,nodes=8,link=200Gb`.
//!
//! Figures that are not named have defaults. Every figure has a range, so the model gets no zero,
//! infinity or NaN.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// Most cores and most memory nodes.
pub(crate) const COUNT_MAX: u32 = 4096;
/// Most queue pairs and most regions of a host.
const OBJECTS_MAX: u32 = 1 << 16;
/// The slowest and the fastest link, in bits a second.
const LINK_BITS_RANGE: (f64, f64) = (1e6, 1e14);
const RATE_RANGE: (f64, f64) = (1e3, 1e12);
const MEMORY_RANGE: (f64, f64) = (1e8, 1e15);
const LATENCY_RANGE: (f64, f64) = (0.0, 1.0);

/// A machine in the figures of the model. Figures that are not given are those of
/// [`Machine::default`].
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(crate) struct Machine {
    /// Cores of the engine.
    pub(crate) cores: u32,
    /// Memory nodes.
    pub(crate) nodes: u32,
    /// The link of the compute host, in bits a second.
    pub(crate) link_bits_s: f64,
    /// The link of each memory node, in bits a second.
    pub(crate) node_link_bits_s: f64,
    /// Work requests a second of the host's adapter.
    pub(crate) messages_s: f64,
    /// Work requests a second of each memory node's adapter.
    pub(crate) node_messages_s: f64,
    /// Round trip to a memory node without queueing, in seconds.
    pub(crate) far_latency_s: f64,
    /// Memory bandwidth of the host, in bytes a second.
    pub(crate) memory_bytes_s: f64,
    /// Requests in flight on each core; `None` for those of the calibrating run.
    pub(crate) window: Option<u32>,
    /// Queue pairs of the host; `None` for so few that the adapter holds them all.
    pub(crate) queue_pairs: Option<u32>,
    /// Regions of the host; `None` as for queue pairs.
    pub(crate) regions: Option<u32>,
}

impl Default for Machine {
    /// A host of today's data centres: 100 Gb/s, ConnectX-5-class message rates, 2 us, eight DDR4
    /// channels.
    fn default() -> Self {
        Self {
            cores: 16,
            nodes: 1,
            link_bits_s: 100e9,
            node_link_bits_s: 100e9,
            messages_s: 100e6,
            node_messages_s: 75e6,
            far_latency_s: 2e-6,
            memory_bytes_s: 150e9,
            window: None,
            queue_pairs: None,
            regions: None,
        }
    }
}

/// A number with a unit, converted to the base unit.
fn quantity(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let split = text
        .find(|c: char| c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: f64 = number.trim().parse().ok()?;
    let unit = unit.trim().trim_end_matches("/s");
    let factor = units.iter().find(|(name, _)| *name == unit)?.1;
    let value = number * factor;
    value.is_finite().then_some(value)
}

const BITS: [(&str, f64); 6] = [
    ("Mb", 1e6),
    ("Gb", 1e9),
    ("Tb", 1e12),
    ("Mbit", 1e6),
    ("Gbit", 1e9),
    ("Tbit", 1e12),
];
const RATES: [(&str, f64); 4] = [("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9)];
const BYTES: [(&str, f64); 4] = [
    ("MB", 1e6),
    ("GB", 1e9),
    ("TB", 1e12),
    ("GiB", 1.073_741_824e9),
];
const TIMES: [(&str, f64); 3] = [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3)];

fn within(
    (name, value): (&str, &str),
    units: &[(&str, f64)],
    (least, most): (f64, f64),
    example: &str,
) -> Result<f64, String> {
    quantity(value, units)
        .filter(|value| (least..=most).contains(value))
        .ok_or_else(|| {
            format!("{name}={value}: write e.g. {name}={example}, from {least:e} to {most:e} in base units")
        })
}

fn count(pair: (&str, &str)) -> Result<u32, String> {
    up_to(COUNT_MAX, pair)
}

fn up_to(max: u32, (name, value): (&str, &str)) -> Result<u32, String> {
    value
        .parse()
        .ok()
        .filter(|count| (1..=max).contains(count))
        .ok_or_else(|| format!("{name}={value}: it must be a number from 1 to {max}"))
}

impl FromStr for Machine {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut machine = Self::default();
        let mut node_link = None;
        for part in text.split(',').filter(|part| !part.trim().is_empty()) {
            let (name, value) = part
                .split_once('=')
                .ok_or_else(|| format!("`{part}` is not NAME=VALUE: write e.g. cores=64"))?;
            let pair = (name.trim(), value.trim());
            match pair.0 {
                "cores" => machine.cores = count(pair)?,
                "nodes" => machine.nodes = count(pair)?,
                "window" => machine.window = Some(count(pair)?),
                "queue-pairs" => machine.queue_pairs = Some(up_to(OBJECTS_MAX, pair)?),
                "regions" => machine.regions = Some(up_to(OBJECTS_MAX, pair)?),
                "link" => machine.link_bits_s = within(pair, &BITS, LINK_BITS_RANGE, "200Gb")?,
                "node-link" => node_link = Some(within(pair, &BITS, LINK_BITS_RANGE, "100Gb")?),
                "messages" => machine.messages_s = within(pair, &RATES, RATE_RANGE, "150M")?,
                "node-messages" => {
                    machine.node_messages_s = within(pair, &RATES, RATE_RANGE, "75M")?;
                }
                "latency" => machine.far_latency_s = within(pair, &TIMES, LATENCY_RANGE, "2us")?,
                "memory" => machine.memory_bytes_s = within(pair, &BYTES, MEMORY_RANGE, "150GB")?,
                other => {
                    return Err(format!(
                        "`{other}` is unknown: write cores, nodes, link, node-link, messages, node-messages, \
                         latency, memory, window, queue-pairs or regions"
                    ));
                }
            }
        }
        // Nodes mostly have the same links as their clients.
        machine.node_link_bits_s = node_link.unwrap_or(machine.link_bits_s);
        Ok(machine)
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} cores, {} memory nodes, link {} Gb/s ({} Gb/s each node), {} M messages/s ({} M each node), far latency {} us, \
             memory {} GB/s",
            self.cores,
            self.nodes,
            self.link_bits_s / 1e9,
            self.node_link_bits_s / 1e9,
            self.messages_s / 1e6,
            self.node_messages_s / 1e6,
            self.far_latency_s * 1e6,
            self.memory_bytes_s / 1e9,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_parsed() {
        let machine: Machine = "cores=64,nodes=8,link=200Gb".parse().unwrap();
        assert_eq!((machine.cores, machine.nodes), (64, 8));
        assert_eq!(
            (machine.link_bits_s, machine.node_link_bits_s),
            (200e9, 200e9)
        );
        let machine: Machine =
            "node-link=25Gbit/s, link=1Tb,latency=900ns,messages=150M,memory=1TB,window=32"
                .parse()
                .unwrap();
        assert_eq!(
            (machine.node_link_bits_s, machine.link_bits_s),
            (25e9, 1e12)
        );
        assert!((machine.far_latency_s - 9e-7).abs() < 1e-15);
        assert_eq!((machine.messages_s, machine.memory_bytes_s), (150e6, 1e12));
        assert_eq!(machine.window, Some(32));
    }

    #[test]
    fn errors_show_a_valid_value() {
        for (text, message) in [
            ("cores", "write e.g. cores=64"),
            ("cores=0", "from 1 to 4096"),
            ("queue-pairs=0", "from 1 to 65536"),
            ("regions=70000", "from 1 to 65536"),
            ("cores=99999999999", "from 1 to 4096"),
            ("link=200", "link=200Gb"),
            ("link=NaNGb", "link=200Gb"),
            ("link=1e300Tb", "link=200Gb"),
            ("link=-5Gb", "link=200Gb"),
            ("disks=4", "`disks` is unknown"),
        ] {
            let error = text.parse::<Machine>().unwrap_err();
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
