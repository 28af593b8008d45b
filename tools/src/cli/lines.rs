//! Commands from standard input, one a line.
//!
//! - I1: a line is read whole, within a limit, before it is carried out.
//! - I2: results of earlier lines are written before an error is.
//! - I3: a signal that ends a measurement early ends the script after it.

use std::io::{BufRead, Read};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, ensure};
use farcore_command::outputs::complain;

use super::interrupt;
use super::operations::Session;
use super::words::{Said, said};
use crate::text::line as one_line;

/// Bytes of the longest line, without its end.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// The next line without its end; `None` at the end.
fn next(source: &mut impl BufRead) -> Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    source
        .by_ref()
        .take(LINE_BYTES_MAX + 1)
        .read_until(b'\n', &mut line)
        .context("standard input")?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    ensure!(
        line.len() as u64 <= LINE_BYTES_MAX,
        "it has more than {LINE_BYTES_MAX} bytes; use put KEY --file FILE"
    );
    Ok(Some(line))
}

/// Carries out a line. False at the end of the commands.
pub(super) fn carry_out(session: &mut Session, line: &[u8]) -> Result<bool> {
    match said(line)? {
        Said::Nothing => {}
        Said::Quit => return Ok(false),
        Said::Help(text) => session.output.line(&text)?,
        Said::Command(line) => {
            let json = session.output.json;
            session.output.json |= line.json;
            let ended = session.carry_out(&line.command);
            session.output.json = json;
            // An absent key, or a condition that does not hold, is a result.
            ended?;
        }
    }
    Ok(true)
}

/// Carries out all lines. Ends with the first error, or goes on and fails at the end.
///
/// # Errors
/// A line failed; the error names it.
pub(super) fn run(
    session: &mut Session,
    mut source: impl BufRead,
    keeps_going: bool,
) -> Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    let mut number = 0_u64;
    loop {
        number += 1;
        // What follows a line that is too long is not known.
        let line = next(&mut source).map_err(|error| failed(number, &error));
        let line = match line {
            Ok(Some(line)) => line,
            Ok(None) => break,
            Err(error) => {
                session.output.flush()?;
                return Err(error);
            }
        };
        let outcome = carry_out(session, &line);
        session.output.flush()?;
        if let Some(status) = interrupt::status() {
            if let Err(error) = outcome {
                complain(format_args!("farcore cli: {}", failed(number, &error)));
            }
            return Ok(ExitCode::from(status));
        }
        match outcome {
            Ok(true) if session.output.is_closed() => break,
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => {
                let error = failed(number, &error);
                if !keeps_going {
                    return Err(error);
                }
                complain(format_args!("farcore cli: {error}"));
                code = ExitCode::FAILURE;
            }
        }
    }
    Ok(code)
}

fn failed(number: u64, error: &anyhow::Error) -> anyhow::Error {
    anyhow!("line {number}: {}", one_line(error))
}

#[cfg(test)]
mod tests {
    use std::io::{self, BufReader};

    use super::*;

    fn lines(source: impl Read) -> Vec<Result<Vec<u8>>> {
        let mut source = BufReader::new(source);
        let mut lines = Vec::new();
        while let Some(line) = next(&mut source).transpose() {
            let failed = line.is_err();
            lines.push(line);
            if failed {
                break;
            }
        }
        lines
    }

    #[test]
    fn lines_end_at_line_feeds_and_have_a_limit() {
        let some = lines(&b"a\n\nb \xff\nc"[..]);
        let some: Vec<_> = some.into_iter().map(|line| line.expect("a line")).collect();
        assert_eq!(some, [&b"a"[..], b"", b"b \xff", b"c"]);
        let longest = io::repeat(b'x').take(LINE_BYTES_MAX);
        let found = lines(longest.chain(&b"\ny"[..]));
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(Result::is_ok));
        // Endless input ends.
        let found = lines(io::repeat(b'x'));
        assert_eq!(found.len(), 1);
        let error = found[0].as_ref().unwrap_err().to_string();
        assert!(
            error.contains("1048576") && error.contains("--file"),
            "{error}"
        );
    }
}
