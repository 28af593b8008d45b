//! The table: a row for each length and way. It is printed, and read again to be drawn.

use std::error::Error;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// How a value travels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// A put in a message.
    PutSend,
    /// A put in an upload slot: WRITE with immediate.
    PutWrite,
    /// A get whose answer is a message.
    GetSend,
    /// A get of a lent value.
    GetRead,
    /// A get into a landing buffer, which the server WRITEs.
    GetWrite,
    /// Bare work requests.
    Send,
    Read,
    Write,
}

impl Way {
    pub(crate) const ALL: [Self; 8] = [
        Self::PutSend,
        Self::PutWrite,
        Self::GetSend,
        Self::GetRead,
        Self::GetWrite,
        Self::Send,
        Self::Read,
        Self::Write,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::PutSend => "put by SEND",
            Self::PutWrite => "put by WRITE",
            Self::GetSend => "get by SEND",
            Self::GetRead => "get by READ",
            Self::GetWrite => "get by WRITE",
            Self::Send => "SEND",
            Self::Read => "READ",
            Self::Write => "WRITE",
        }
    }
}

/// What was measured.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Row {
    pub(crate) fabric: String,
    pub(crate) bytes: usize,
    pub(crate) way: Way,
    /// One at a time, in microseconds.
    pub(crate) median: f64,
    pub(crate) late: f64,
    /// Several at a time: operations a second.
    pub(crate) rate: f64,
}

impl Row {
    /// From the times of single operations, and the rate of several at a time.
    pub(crate) fn new(
        fabric: &str,
        (bytes, way): (usize, Way),
        times: &mut [Duration],
        rate: f64,
    ) -> Self {
        times.sort_unstable();
        let micros = |percent: usize| {
            let place = times.len() * percent / 100;
            times
                .get(place)
                .map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
        };
        Self {
            fabric: fabric.to_owned(),
            bytes,
            way,
            median: micros(50),
            late: micros(99),
            rate,
        }
    }

    /// Bytes a second, in MiB.
    pub(crate) fn mebibytes(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "lengths are small")]
        let bytes = self.bytes as f64;
        self.rate * bytes / f64::from(1 << 20)
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "| {} | {} | {} | {:.2} | {:.2} | {:.0} | {:.1} |",
            self.fabric,
            self.way.name(),
            self.bytes,
            self.median,
            self.late,
            self.rate,
            self.mebibytes(),
        )
    }
}

impl FromStr for Row {
    type Err = Box<dyn Error>;

    fn from_str(line: &str) -> Result<Self, Self::Err> {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let &["", fabric, way, bytes, median, late, rate, _, ""] = &cells[..] else {
            return Err(format!("no row: {line}").into());
        };
        let way = Way::ALL.into_iter().find(|one| one.name() == way);
        Ok(Self {
            fabric: fabric.to_owned(),
            bytes: bytes.parse()?,
            way: way.ok_or_else(|| format!("no way: {line}"))?,
            median: median.parse()?,
            late: late.parse()?,
            rate: rate.parse()?,
        })
    }
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Prints a row for each way and length: medians over the rounds.
pub(crate) fn print(rows: &[Row]) {
    println!("| fabric | way | bytes | median, us | p99, us | operations/s | MiB/s |");
    println!("|---|---|--:|--:|--:|--:|--:|");
    for way in Way::ALL {
        let mut lengths: Vec<usize> = of(rows, way).map(|row| row.bytes).collect();
        lengths.sort_unstable();
        lengths.dedup();
        for bytes in lengths {
            let same = || of(rows, way).filter(|row| row.bytes == bytes);
            let Some(first) = same().next() else {
                continue;
            };
            let row = Row {
                median: median(same().map(|row| row.median)),
                late: median(same().map(|row| row.late)),
                rate: median(same().map(|row| row.rate)),
                ..first.clone()
            };
            println!("{row}");
        }
    }
}

fn of(rows: &[Row], way: Way) -> impl Iterator<Item = &Row> {
    rows.iter().filter(move |row| row.way == way)
}
