//! Sets of processors in the kernel's notation: `0-3,8`.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// Largest processor number that is accepted.
const PROCESSOR_MAX: u32 = 65_535;

/// A set of processors.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CpuList(
    /// Their numbers.
    pub BTreeSet<u32>,
);

impl FromStr for CpuList {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let number = |text: &str| {
            let number = text.trim().parse::<u32>().map_err(|_| ())?;
            (number <= PROCESSOR_MAX).then_some(number).ok_or(())
        };
        let mut set = BTreeSet::new();
        for part in text.split(',').filter(|part| !part.trim().is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            set.extend(number(first)?..=number(last)?);
        }
        Ok(Self(set))
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.iter().copied().peekable();
        let mut between = "";
        while let Some(first) = rest.next() {
            let mut last = first;
            while let Some(next) = rest.next_if_eq(&(last + 1)) {
                last = next;
            }
            write!(f, "{between}{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
            between = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_is_a_list_or_refused() {
        farcore_fuzz::Target::new("processors")
            .seed("0-3,8")
            .seed("65535, 7")
            .words(&["-", ",", "65536", "4294967296"])
            .longest(60)
            .rounds(500)
            // A range has up to 65,536 numbers.
            .memory(4 << 20, 64)
            .run(|bytes| {
                let Ok(text) = str::from_utf8(bytes) else {
                    return;
                };
                if let Ok(list) = text.parse::<CpuList>() {
                    assert_eq!(list.to_string().parse(), Ok(list));
                }
            });
    }

    #[test]
    fn lists_are_parsed_and_formatted() {
        for text in ["", "0", "0-3", "0-3,8,10-11", "65535"] {
            let list: CpuList = text.parse().unwrap();
            assert_eq!(list.to_string(), text);
        }
        for text in ["a", "1-", "0-4294967295", "70000", "-1"] {
            assert_eq!(text.parse::<CpuList>(), Err(()), "{text}");
        }
        assert_eq!("3-1".parse::<CpuList>(), Ok(CpuList::default()));
    }
}
