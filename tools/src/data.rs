//! `farcore data`: the directories of `farcore serve --data`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use farcore::{DirectoryReport, FileReport, FileState};
use farcore_command::outputs::print;

use crate::progress::progress;
use crate::text::table;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Read all files of a directory that no server uses, and report what is damaged with its
    /// place. Nothing is changed.
    Check(CheckArguments),
}

#[derive(Debug, Args)]
pub(crate) struct CheckArguments {
    /// The directory of `farcore serve --data`, or a copy of one.
    directory: PathBuf,
}

impl Command {
    /// The words that name the command, for errors.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Check(_) => "data check",
        }
    }
}

/// Runs the command.
///
/// # Errors
/// The directory cannot be read, a server uses it, or a file is damaged.
pub(crate) fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Check(arguments) => check(arguments),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn check(arguments: &CheckArguments) -> Result<()> {
    let bar = progress(0);
    let report = DirectoryReport::read(&arguments.directory, None, |read, of| {
        if let Some(bar) = &bar {
            bar.set_length(of);
            bar.set_position(read);
        }
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    let report = report?;
    let columns = ["file", "state", "bytes", "entries"];
    print(table(&columns, 2, report.files.iter().map(row).collect()))?;
    if report.snapshot_unix_ms > 0 {
        let made = SystemTime::UNIX_EPOCH + Duration::from_millis(report.snapshot_unix_ms);
        let (made, keys) = (
            humantime::format_rfc3339_seconds(made),
            report.snapshot_keys,
        );
        print(format_args!("snapshot of {made}: {keys} keys"))?;
    }
    match report.damage() {
        Some(damage) => bail!("a server does not start on this directory: {damage}"),
        None if report.files.is_empty() => print("nothing is stored"),
        None => print("all that counts is whole"),
    }
}

fn row(file: &FileReport) -> Vec<String> {
    let name = file.path.file_name().unwrap_or(file.path.as_os_str());
    let state = match &file.state {
        FileState::Whole => "whole".to_owned(),
        FileState::Unfinished { cut: 0, .. } => "not finished".to_owned(),
        FileState::Unfinished { at, cut } => {
            format!("not finished: {cut} bytes from {at} on do not count")
        }
        FileState::Empty => "empty".to_owned(),
        FileState::Unused => "not used".to_owned(),
        _ => "damaged".to_owned(),
    };
    let name = name.display().to_string();
    vec![
        name,
        state,
        file.bytes.to_string(),
        file.entries.to_string(),
    ]
}
