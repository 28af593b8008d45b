//! `farcore completions` and `farcore man`: completions of shells and manual pages, made from the
//! flags themselves, so that they never lag behind.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Command};
use clap_complete::Shell;
use farcore_command::outputs::print;

const NAME: &str = "farcore";

/// Flags of `completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArguments {
    /// The shell
    shell: Shell,
}

/// Flags of `man`.
#[derive(Debug, Args)]
pub(crate) struct ManArguments {
    /// Folder of the pages, e.g. ~/.local/share/man/man1; it is made if it does not exist
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// Prints the completions of a shell.
///
/// # Errors
/// standard output cannot be written.
pub(crate) fn completions(arguments: &CompletionsArguments, command: &Command) -> Result<ExitCode> {
    // Shells would offer hidden commands, too.
    let shown = command.get_subcommands().filter(|one| !one.is_hide_set());
    let mut command = Command::new(NAME)
        .version(env!("CARGO_PKG_VERSION"))
        .args(command.get_arguments().cloned())
        .subcommands(shown.cloned());
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, NAME, &mut script);
    print(String::from_utf8_lossy(&script).trim_end())?;
    Ok(ExitCode::SUCCESS)
}

/// Writes a manual page for each command.
///
/// # Errors
/// The folder cannot be written.
pub(crate) fn write_pages(arguments: &ManArguments, command: Command) -> Result<ExitCode> {
    let folder = &arguments.out;
    fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(command, folder))
        .with_context(|| format!("--out {} cannot be written", folder.display()))?;
    Ok(ExitCode::SUCCESS)
}
