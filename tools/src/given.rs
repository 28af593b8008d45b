//! The flags that the user typed, to refuse those that would have no effect.
//!
//! A default is not typed, so parsed flags alone do not tell the two apart.

use anyhow::{Result, bail};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command};

/// The typed flags of a command.
#[derive(Clone, Debug, Default)]
pub(crate) struct Given(Vec<String>);

/// The identifiers of the flags of a group.
pub(crate) fn ids<A: Args>() -> Vec<String> {
    let command = A::augment_args(Command::new("group"));
    let ids = command.get_arguments().map(|one| one.get_id().to_string());
    ids.collect()
}

impl Given {
    /// The flags typed for the innermost command.
    pub(crate) fn of(mut matches: &ArgMatches) -> Self {
        while let Some((_, inner)) = matches.subcommand() {
            matches = inner;
        }
        let typed = |id: &&str| matches.value_source(id) == Some(ValueSource::CommandLine);
        let ids = matches.ids().map(clap::Id::as_str).filter(typed);
        Self(ids.map(str::to_owned).collect())
    }

    /// These flags, by identifier or as they are typed.
    #[cfg(feature = "card")]
    pub(crate) fn these(names: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let ids = names
            .into_iter()
            .map(|name| name.as_ref().replace('-', "_"));
        Self(ids.collect())
    }

    /// Refuses typed flags that have no effect `why`, e.g. "without --predict".
    ///
    /// # Errors
    /// One of the flags was typed.
    pub(crate) fn refuse(&self, flags: &[impl AsRef<str>], why: &str) -> Result<()> {
        let is_typed = |id: &&str| self.0.iter().any(|typed| typed == id);
        let found = flags.iter().map(AsRef::as_ref).find(is_typed);
        if let Some(id) = found {
            bail!("--{} has no effect {why}: omit it", id.replace('_', "-"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser, Subcommand};

    use super::*;

    #[derive(Debug, Parser)]
    struct Outer {
        #[arg(long, global = true)]
        shared: bool,
        #[command(subcommand)]
        inner: Inner,
    }

    #[derive(Debug, Subcommand)]
    enum Inner {
        Run(Flags),
    }

    #[derive(Debug, clap::Args)]
    struct Flags {
        #[arg(long, default_value_t = 7)]
        key_count: u32,
        #[arg(long)]
        other: bool,
    }

    fn given(line: &str) -> Given {
        let words = line.split_whitespace();
        Given::of(&Outer::command().get_matches_from(words))
    }

    #[test]
    fn only_typed_flags_are_refused() {
        assert_eq!(ids::<Flags>(), ["key_count", "other"]);
        let refused = |line: &str| given(line).refuse(&ids::<Flags>(), "here");
        assert!(refused("x run").is_ok());
        assert!(refused("x run --shared").is_ok());
        // A typed default is typed.
        let error = refused("x run --key-count 7").unwrap_err().to_string();
        assert_eq!(error, "--key-count has no effect here: omit it");
        assert!(refused("x run --other").is_err());
        assert!(given("x run --shared").refuse(&["shared"], "here").is_err());
        assert!(given("x --shared run").refuse(&["shared"], "here").is_err());
    }
}
