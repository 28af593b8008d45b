//! The files that take the figures of a command: `--json` and `--plot`.
//!
//! I1: a file that cannot be written hides neither the other files nor the table: its error is
//!     returned, and reported at the end.

use std::path::{Path, PathBuf};

use farcore_command::outputs::{OutputFile, check_folder};
use serde::Serialize;

use crate::plot;
use crate::report::RunReport;

/// The files, tried before anything runs.
#[derive(Debug)]
pub struct FigureFiles<'a> {
    json: Option<OutputFile>,
    plot: Option<&'a Path>,
}

impl<'a> FigureFiles<'a> {
    /// Tries the files of `--json` and `--plot`.
    ///
    /// # Errors
    /// One cannot be written; the error names the flag.
    pub fn open(json: Option<&Path>, plot: Option<&'a Path>) -> anyhow::Result<Self> {
        if let Some(folder) = plot {
            check_folder("--plot", folder)?;
        }
        Ok(Self {
            json: OutputFile::open_if("--json", json)?,
            plot,
        })
    }

    /// Writes the report as JSON and the plots of `runs`. Returns the plots, and an error for each
    /// flag whose file could not be written.
    pub fn write(
        self,
        report: &impl Serialize,
        runs: &[RunReport],
    ) -> (Vec<PathBuf>, Vec<anyhow::Error>) {
        let written = self.json.map_or(Ok(()), |file| file.write_json(report));
        let mut errors: Vec<_> = written.err().into_iter().collect();
        let plots = match self.plot {
            Some(folder) if !runs.is_empty() => plot::write(folder, runs),
            _ => Ok(Vec::new()),
        };
        let plots = plots.unwrap_or_else(|error| {
            errors.push(error.context("--plot"));
            Vec::new()
        });
        (plots, errors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::PhaseReport;
    use farcore_command::words::describe;

    #[test]
    fn a_file_that_cannot_be_written_hides_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let full = Path::new("/dev/full");
        let files = FigureFiles::open(Some(full), Some(folder.path())).unwrap();
        let run = RunReport {
            phases: vec![PhaseReport::default()],
            ..RunReport::default()
        };
        let (plots, errors) = files.write(&run, std::slice::from_ref(&run));
        assert!(plots.len() == 2 && plots.iter().all(|plot| plot.exists()));
        let errors: Vec<String> = errors.iter().map(|error| format!("{error:#}")).collect();
        assert_eq!(errors.len(), 1);
        // A folder cannot be replaced by a plot.
        let file = folder.path().join("latency.svg");
        std::fs::remove_file(&file).unwrap();
        std::fs::create_dir(&file).unwrap();
        let files = FigureFiles::open(None, Some(folder.path())).unwrap();
        let (_, unwritten) = files.write(&run, std::slice::from_ref(&run));
        let text = describe(&unwritten[0]);
        let start = format!(
            "--plot: {} cannot be written: Is a directory",
            file.display()
        );
        assert!(text.starts_with(&start), "{text}");
        assert!(
            errors[0].starts_with("--json /dev/full cannot be written: "),
            "{errors:?}"
        );
    }
}
