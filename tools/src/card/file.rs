//! Writes a sheet as CSV (RFC 4180) or Parquet.

use std::path::PathBuf;

use anyhow::Result;
#[cfg(not(feature = "parquet"))]
use anyhow::bail;
use clap::Args;
use farcore_command::outputs::{OutputFile, check_extension};

use super::columns::Sheet;

/// Flags of files.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct FileFlags {
    /// Write the figures into this CSV file
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write the figures into this Parquet file; needs a build with the feature `parquet`
    #[arg(long, value_name = "FILE")]
    parquet: Option<PathBuf>,
    /// Draw the figures into this SVG file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// The files, tried before the work.
#[derive(Debug)]
pub(super) struct Files {
    csv: Option<OutputFile>,
    parquet: Option<OutputFile>,
    plot: Option<OutputFile>,
}

impl FileFlags {
    /// Tries the files.
    ///
    /// # Errors
    /// One cannot be written, or has the name of another format.
    pub(super) fn open(&self) -> Result<Files> {
        check_extension("--parquet", self.parquet.as_deref(), "parquet")?;
        check_extension("--plot", self.plot.as_deref(), "svg")?;
        #[cfg(not(feature = "parquet"))]
        if self.parquet.is_some() {
            bail!(
                "--parquet needs a build with the feature `parquet`: add --features parquet, or use --csv"
            );
        }
        Ok(Files {
            csv: OutputFile::open_if("--csv", self.csv.as_deref())?,
            parquet: OutputFile::open_if("--parquet", self.parquet.as_deref())?,
            plot: OutputFile::open_if("--plot", self.plot.as_deref())?,
        })
    }
}

impl Files {
    /// Writes what was named.
    ///
    /// # Errors
    /// A file cannot be written, or the plot cannot be drawn.
    pub(super) fn write(self, sheet: &Sheet, plot: impl FnOnce() -> Result<String>) -> Result<()> {
        if let Some(file) = self.csv {
            file.write(csv(sheet))?;
        }
        if let Some(file) = self.parquet {
            #[cfg(feature = "parquet")]
            file.write(super::parquet::bytes(sheet)?)?;
            // Such a build has refused the flag.
            #[cfg(not(feature = "parquet"))]
            drop(file);
        }
        if let Some(file) = self.plot {
            file.write(plot()?)?;
        }
        Ok(())
    }
}

/// A cell in quotes if it needs them.
fn cell(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

/// The sheet as CSV, with a heading.
fn csv(sheet: &Sheet) -> String {
    let texts = sheet.texts.iter().map(|(name, _)| cell(name));
    let figures = sheet.figures.iter().map(|(name, _)| cell(name));
    let mut lines = vec![texts.chain(figures).collect::<Vec<_>>().join(",")];
    for row in 0..sheet.rows() {
        let texts = sheet.texts.iter().map(|(_, values)| cell(&values[row]));
        let figures = sheet
            .figures
            .iter()
            .map(|(_, values)| values[row].to_string());
        lines.push(texts.chain(figures).collect::<Vec<_>>().join(","));
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_as_needed() {
        let sheet = Sheet {
            texts: vec![(
                "name, of it".to_owned(),
                vec!["a".to_owned(), "b \"c\"".to_owned()],
            )],
            figures: vec![("x".to_owned(), vec![1.0, 0.25])],
        };
        assert_eq!(
            csv(&sheet),
            "\"name, of it\",x\na,1\n\"b \"\"c\"\"\",0.25\n"
        );
    }
}
