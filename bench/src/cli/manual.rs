//! `completions` and `man`: what shells and `man` know of the command line.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use farcore_command::outputs::{check_folder, print};

use super::Cli;

/// The name of the program.
const PROGRAM: &str = "farcore-bench";

/// Flags of `completions`.
#[derive(Clone, Copy, Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    pub shell: Shell,
}

/// Flags of `man`.
#[derive(Clone, Debug, Args)]
pub struct ManArgs {
    /// Folder for the pages, one a command; created if it is not there
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}

impl CompletionsArgs {
    /// Prints the completions of a shell on standard output.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn print(self) -> anyhow::Result<()> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), PROGRAM, &mut script);
        print(String::from_utf8_lossy(&script).trim_end())
    }
}

impl ManArgs {
    /// Creates the folder.
    ///
    /// # Errors
    /// No file can be written there.
    pub fn check(&self) -> anyhow::Result<()> {
        check_folder("--out", &self.out)
    }

    /// Writes the manual pages and names them on standard output.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn write(&self) -> anyhow::Result<()> {
        let mut command = Cli::command();
        command.build();
        let hidden = |command: &clap::Command| command.is_hide_set();
        let pages = command.get_subcommands().filter(|one| !hidden(one));
        let pages = pages.filter(|one| one.get_name() != "help").cloned();
        let pages: Vec<clap::Command> = std::iter::once(command.clone()).chain(pages).collect();
        for page in pages {
            let name = page.get_display_name().unwrap_or(PROGRAM).to_owned();
            let mut text = Vec::new();
            clap_mangen::Man::new(page).render(&mut text)?;
            let file = self.out.join(format!("{name}.1"));
            fs::write(&file, text)
                .with_context(|| format!("--out {} cannot be written", file.display()))?;
            print(file.display())?;
        }
        Ok(())
    }
}
