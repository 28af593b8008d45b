//! A list of cores as people write it: `0,2`, `0-3` or `0-3,8`.

use std::str::FromStr;

/// Most cores that a range may name; more are a slip of the keyboard.
const CORES_MAX: usize = 4096;

/// The cores, in the order of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreList(pub Vec<usize>);

impl FromStr for CoreList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a list of cores: write e.g. 0,1 or 0-3,8");
        let number = |text: &str| text.trim().parse::<usize>().map_err(|_| wrong());
        let mut cores = Vec::new();
        for part in text.split(',') {
            let (first, last) = match part.split_once('-') {
                Some((first, last)) => (number(first)?, number(last)?),
                None => (number(part)?, number(part)?),
            };
            if first > last {
                return Err(format!("{part} counts down: write {last}-{first}"));
            }
            if last >= CORES_MAX {
                return Err(format!(
                    "core {last} is beyond the last possible, {}",
                    CORES_MAX - 1
                ));
            }
            cores.extend(first..=last);
        }
        Ok(Self(cores))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_is_a_list_or_refused() {
        farcore_fuzz::Target::new("cores")
            .seed("0-3,8")
            .words(&["-", ",", "4095", "18446744073709551616"])
            .longest(60)
            // A range has up to 4096 cores.
            .memory(64 << 10, 8 << 12)
            .run(|bytes| {
                let Ok(text) = str::from_utf8(bytes) else {
                    return;
                };
                if let Ok(CoreList(cores)) = text.parse() {
                    assert!(!cores.is_empty() && cores.iter().all(|&core| core < CORES_MAX));
                }
            });
    }

    #[test]
    fn ranges_and_numbers_mix() {
        let cores = |text: &str| text.parse::<CoreList>().map(|list| list.0);
        assert_eq!(cores("0-3,8"), Ok(vec![0, 1, 2, 3, 8]));
        assert_eq!(cores("1"), Ok(vec![1]));
        assert_eq!(cores("2, 0"), Ok(vec![2, 0]));
        assert_eq!(cores("5-5"), Ok(vec![5]));
        for text in ["", "0,", "a", "0-", "-1", "0-1-2", "0..3"] {
            assert!(
                cores(text).unwrap_err().contains("write e.g. 0,1 or 0-3,8"),
                "{text}"
            );
        }
        assert_eq!(cores("3-1"), Err("3-1 counts down: write 1-3".into()));
        assert!(
            cores("0-99999")
                .unwrap_err()
                .contains("beyond the last possible, 4095")
        );
    }
}
