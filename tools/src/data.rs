//! `farcore data`: the directories of `farcore serve --data`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use farcore::{DirectoryReport, FileReport, FileState, Salvage};
use farcore_command::outputs::print;

use crate::progress::progress;
use crate::text::table;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Read all files of a directory that no server uses, and report what is damaged with its
    /// place. Nothing is changed.
    Check(CheckArguments),
    /// Make a damaged directory one that a server starts on, with all that came before the damage,
    /// and report what is lost. What is changed or left out is set aside in a folder of its own.
    Repair(CheckArguments),
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
            Self::Repair(_) => "data repair",
        }
    }
}

/// Runs the command.
///
/// # Errors
/// The directory cannot be read, a server uses it, or a file is damaged; when it is repaired: it
/// cannot be.
pub(crate) fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Check(arguments) => check(arguments),
        Command::Repair(arguments) => repair(arguments),
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
        let (made, keys) = (time(report.snapshot_unix_ms), report.snapshot_keys);
        print(format_args!("snapshot of {made}: {keys} keys"))?;
    }
    match report.damage() {
        Some(damage) => bail!("a server does not start on this directory: {damage}"),
        None if report.files.is_empty() => print("nothing is stored"),
        None => print("all that counts is whole"),
    }
}

fn time(unix_ms: u64) -> impl std::fmt::Display {
    let time = SystemTime::UNIX_EPOCH + Duration::from_millis(unix_ms);
    humantime::format_rfc3339_seconds(time)
}

fn repair(arguments: &CheckArguments) -> Result<()> {
    let salvage = Salvage::run(&arguments.directory, None)?;
    for damage in &salvage.damage {
        print(format_args!("{damage}"))?;
    }
    let Some(folder) = &salvage.set_aside else {
        return print("nothing is damaged");
    };
    let begins = match salvage.snapshot_unix_ms {
        0 => "the first change".to_owned(),
        at_ms => format!("the snapshot of {}", time(at_ms)),
    };
    let (keys, bytes) = (salvage.lost_keys, salvage.unreadable_bytes);
    print(format_args!(
        "a server starts on the directory now, with all from {begins} to the damage"
    ))?;
    print(format_args!(
        "lost are the last changes of {keys} keys, and what was in missing files and in {bytes} bytes \
         that cannot be read"
    ))?;
    print(format_args!(
        "files as they were, and the keys: {}",
        folder.display()
    ))
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
