//! Files `*.skip`: a test and the reason why it is left out on each line, `TEST | REASON`. Empty
//! lines and lines that begin with `#` are ignored.

use anyhow::{Result, bail};

use super::place::Place;

/// A test that is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Skip {
    pub(super) test: String,
    pub(super) reason: String,
}

/// Reads a file of `tools/xtask/redis`.
pub(super) fn read(place: &Place, name: &str) -> Result<Vec<Skip>> {
    parse(name, &place.read_driver(name)?)
}

fn parse(name: &str, text: &str) -> Result<Vec<Skip>> {
    let lines = (1..).zip(text.lines());
    let lines = lines.filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    lines
        .map(|(number, line)| match line.rsplit_once(" | ") {
            Some((test, reason)) if !test.trim().is_empty() && !reason.trim().is_empty() => {
                Ok(Skip {
                    test: test.trim().to_owned(),
                    reason: reason.trim().to_owned(),
                })
            }
            _ => bail!("{name}:{number}: write the test, ` | ` and the reason: {line}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skip_needs_a_reason() {
        let text = "# why\n\nHash fuzzing #1 | needs lists\n/a|b | c | no\n";
        let skips = parse("x.skip", text).unwrap();
        let pairs: Vec<_> = (skips.iter())
            .map(|skip| (skip.test.as_str(), skip.reason.as_str()))
            .collect();
        assert_eq!(
            pairs,
            [("Hash fuzzing #1", "needs lists"), ("/a|b | c", "no")]
        );
        for bad in ["a test", "a test | ", " | no test"] {
            let error = parse("x.skip", bad).unwrap_err().to_string();
            assert!(error.contains("x.skip:1"), "{error}");
        }
    }
}
