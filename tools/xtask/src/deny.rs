//! `cargo xtask deny`: holds dependencies to `deny.toml` by cargo-deny. A test holds licences and
//! sources to the same file without it.

use std::process::Command;

use anyhow::{Result, bail};

/// Runs cargo-deny; `has_advisories` says whether the database of advisories can be fetched.
pub(crate) fn perform(has_advisories: bool) -> Result<()> {
    let version = Command::new("cargo-deny").arg("--version").output();
    if !version.is_ok_and(|output| output.status.success()) {
        bail!("cargo-deny is missing: cargo install cargo-deny --locked");
    }
    let mut command = Command::new("cargo-deny");
    command.args(["--all-features", "check", "licenses", "bans", "sources"]);
    if has_advisories {
        command.arg("advisories");
    }
    super::run(&mut command)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    use serde::Deserialize;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    /// The part of `deny.toml` that these tests read.
    #[derive(Debug, Deserialize)]
    struct Rules {
        licenses: Licenses,
        sources: Sources,
    }

    #[derive(Debug, Deserialize)]
    struct Licenses {
        allow: Vec<String>,
        exceptions: Vec<Exception>,
    }

    #[derive(Debug, Deserialize)]
    struct Exception {
        #[serde(rename = "crate")]
        name: String,
        allow: Vec<String>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    struct Sources {
        allow_registry: Vec<String>,
    }

    fn rules() -> Rules {
        toml::from_str(&fs::read_to_string(root().join("deny.toml")).unwrap()).unwrap()
    }

    impl Licenses {
        fn allows(&self, package: &str, license: &str) -> bool {
            // A licence or a later one of its kind.
            let license = license.trim_end_matches('+');
            let excepted = self.exceptions.iter().filter(|one| one.name == package);
            let mut all = excepted.flat_map(|one| &one.allow).chain(&self.allow);
            all.any(|known| known == license)
        }

        /// True if an expression of licences can be met: `AND` binds more than `OR`.
        fn meets(&self, package: &str, expression: &str) -> bool {
            let spaced = expression.replace('/', " OR ");
            let spaced = spaced.replace('(', " ( ").replace(')', " ) ");
            let words: Vec<_> = spaced.split_whitespace().collect();
            let mut rest = &words[..];
            let met = self.any_of(package, &mut rest);
            assert!(rest.is_empty(), "{package}: {expression}");
            met
        }

        fn any_of(&self, package: &str, words: &mut &[&str]) -> bool {
            let mut met = self.all_of(package, words);
            while let ["OR", rest @ ..] = *words {
                *words = rest;
                met |= self.all_of(package, words);
            }
            met
        }

        fn all_of(&self, package: &str, words: &mut &[&str]) -> bool {
            let mut met = self.one_of(package, words);
            while let ["AND", rest @ ..] = *words {
                *words = rest;
                met &= self.one_of(package, words);
            }
            met
        }

        fn one_of(&self, package: &str, words: &mut &[&str]) -> bool {
            match *words {
                ["(", rest @ ..] => {
                    *words = rest;
                    let met = self.any_of(package, words);
                    assert_eq!(words.split_off_first(), Some(&")"), "{package}");
                    met
                }
                [license, "WITH", exception, rest @ ..] => {
                    *words = rest;
                    self.allows(package, &format!("{license} WITH {exception}"))
                }
                [license, rest @ ..] => {
                    *words = rest;
                    self.allows(package, license)
                }
                [] => panic!("{package}: the expression ends early"),
            }
        }
    }

    #[test]
    fn expressions_of_licences_are_met_as_they_say() {
        let rules = rules().licenses;
        let meets = |expression| rules.meets("any", expression);
        assert!(meets("MIT") && meets("GPL-3.0 OR MIT") && meets("MIT/GPL-3.0"));
        assert!(meets("(GPL-3.0 OR MIT) AND ISC") && meets("Apache-2.0 WITH LLVM-exception"));
        assert!(!meets("GPL-3.0") && !meets("MIT AND GPL-3.0") && !meets("MPL-2.0"));
        assert!(rules.meets("bitmaps", "MPL-2.0"));
    }

    /// Packages as `cargo metadata` says: those of all features, or where no network is, of those
    /// that are built.
    fn packages() -> Vec<serde_json::Value> {
        let run = |features: &[&str]| {
            let mut command = Command::new(env!("CARGO"));
            command.args(["metadata", "--locked", "--format-version", "1"]);
            command.args(["--filter-platform", "x86_64-unknown-linux-gnu"]);
            command.args(features).current_dir(root()).output().unwrap()
        };
        let mut output = run(&["--all-features"]);
        if !output.status.success() {
            output = run(&["--offline"]);
        }
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let mut metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let packages = metadata["packages"].take();
        serde_json::from_value(packages).unwrap()
    }

    #[test]
    fn every_dependency_has_a_licence_and_a_source_that_are_allowed() {
        let rules = rules();
        let mut refused = Vec::new();
        let mut seen = 0;
        for package in packages() {
            let name = package["name"].as_str().unwrap();
            // Those of this workspace have none.
            let Some(source) = package["source"].as_str() else {
                continue;
            };
            seen += 1;
            let registries = rules.sources.allow_registry.iter();
            if !{ registries }.any(|known| source == format!("registry+{known}")) {
                refused.push(format!("{name}: {source}"));
            }
            match package["license"].as_str() {
                Some(license) if rules.licenses.meets(name, license) => {}
                // cargo-deny reads its text.
                None if NO_FIELD.contains(&name) => {}
                license => refused.push(format!("{name}: {license:?}")),
            }
        }
        assert!(seen > 200, "{seen}");
        assert!(refused.is_empty(), "not in deny.toml: {refused:#?}");
    }

    /// Packages that name no licence and have the text of one that is allowed.
    const NO_FIELD: [&str; 1] = ["rdma-sys"];
}
