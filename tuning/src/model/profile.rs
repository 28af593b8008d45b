//! A profile: settings tuned for a workload, as a small TOML file.
//!
//! A missing setting keeps its default, so the empty file is the default profile. A leading comment
//! names the file's origin; it is for people and is not parsed. The engine's `Config` checks the
//! values' limits.

use std::fmt;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Limit on a profile's file, in bytes. A real one is a few lines.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// Settings of an engine and its clients. `None` leaves a setting at its default.
///
/// The meaning and limits of a setting are documented at the engine's `Config`, which checks them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Requests that a client keeps in flight on each core. The engine ignores it: the client that
    /// submits requests applies it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u32>,
    /// Requests whose cache misses are overlapped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<u32>,
    /// A page of the log, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_bytes: Option<u32>,
    /// The most page frames that the read cache may take, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_percent: Option<u8>,
    /// Chunks read ahead by all walks of a shard together; 0 turns read-ahead off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_ahead_chunks: Option<u32>,
    /// One direction of a lane between two cores, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane_bytes: Option<u32>,
    /// How long an idle core spins before it sleeps, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spin_ns: Option<u32>,
}

/// Prints the settings in one line, or `default settings`.
impl fmt::Display for Profile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = self.settings();
        let line = settings.trim_end().replace('\n', ", ");
        formatter.write_str(if line.is_empty() {
            "default settings"
        } else {
            &line
        })
    }
}

/// Why a profile cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// The file cannot be read.
    #[error("cannot read the profile {}: {reason}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// The system's reason.
        reason: String,
    },
    /// The file is too long to be a profile.
    #[error("the profile {} is longer than {FILE_BYTES_MAX} bytes: name a file written by `farcore tune`", .0.display())]
    Long(
        /// The file.
        PathBuf,
    ),
    /// The text is not a valid profile.
    #[error("the profile is invalid: {0}")]
    Text(
        /// The line and what is wrong there.
        String,
    ),
}

impl Profile {
    /// Reads a profile's text.
    ///
    /// # Errors
    /// [`ProfileError::Text`] shows the line of a setting that is unknown or has a wrong value.
    pub fn parse(text: &str) -> Result<Self, ProfileError> {
        toml::from_str(text).map_err(|error| {
            // The error's own text has several lines.
            let start = error.span().map_or(0, |span| span.start);
            let before = text.get(..start).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            let reason = error.message().replace('\n', ", ");
            let found = text.lines().nth(line - 1).unwrap_or_default().trim();
            ProfileError::Text(format!("line {line}, `{found}`: {reason}"))
        })
    }

    /// Reads a profile's file.
    ///
    /// # Errors
    /// A [`ProfileError`] that names the file or the line.
    pub fn read(file: &Path) -> Result<Self, ProfileError> {
        let unreadable = |error: std::io::Error| ProfileError::File {
            file: file.to_owned(),
            reason: error.to_string(),
        };
        let mut text = String::new();
        let reading = fs::File::open(file).map(|open| open.take(FILE_BYTES_MAX + 1));
        reading
            .and_then(|mut bytes| bytes.read_to_string(&mut text))
            .map_err(unreadable)?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(ProfileError::Long(file.to_owned()));
        }
        Self::parse(&text)
    }

    /// The profile as TOML text, with `comment`, of any number of lines, above it.
    #[must_use]
    pub fn to_toml(&self, comment: &str) -> String {
        let comment = comment.lines().map(|line| {
            let line: String = line.chars().filter(|char| !char.is_control()).collect();
            format!("# {line}").trim_end().to_owned() + "\n"
        });
        comment.chain(["\n".to_owned(), self.settings()]).collect()
    }

    fn settings(&self) -> String {
        toml::to_string(self).unwrap_or_else(|_| unreachable!("plain numbers"))
    }

    /// True if every setting keeps its default.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(
            window in any::<Option<u32>>(),
            batch in any::<Option<u32>>(),
            page_bytes in any::<Option<u32>>(),
            cache_percent in any::<Option<u8>>(),
            read_ahead_chunks in any::<Option<u32>>(),
            lane_bytes in any::<Option<u32>>(),
            spin_ns in any::<Option<u32>>(),
            comment in ".*",
        ) {
            let profile = Profile {
                window,
                batch,
                page_bytes,
                cache_percent,
                read_ahead_chunks,
                lane_bytes,
                spin_ns,
            };
            let text = profile.to_toml(&comment);
            prop_assert_eq!(Profile::parse(&text), Ok(profile), "{}", text);
        }
    }

    #[test]
    fn any_text_is_a_profile_or_refused() {
        farcore_fuzz::Target::new("profile")
            .seed("# Found on one machine.\n\nwindow = 128\nbatch = 16\n")
            .seed("page_bytes = 65536\ncache_percent = 20\nread_ahead_chunks = 4\n")
            .seed("lane_bytes = 1\nspin_ns = 0\n")
            .words(&[
                "window", "batch", " = ", "\n", "[", "{", "\"", "-1", "1e9", "0x",
            ])
            .memory(1 << 20, 512)
            .run(|bytes| {
                let Ok(text) = str::from_utf8(bytes) else {
                    return;
                };
                if let Ok(profile) = Profile::parse(text) {
                    assert_eq!(Profile::parse(&profile.to_toml("")), Ok(profile));
                }
            });
    }

    #[test]
    fn the_file_has_one_line_per_setting() {
        let profile = Profile {
            window: Some(128),
            batch: Some(16),
            ..Profile::default()
        };
        let text = profile.to_toml("Found on one machine.\n\nBetter by 1.04.");
        let expected =
            "# Found on one machine.\n#\n# Better by 1.04.\n\nwindow = 128\nbatch = 16\n";
        assert_eq!(text, expected);
        assert_eq!(profile.to_string(), "window = 128, batch = 16");
        assert_eq!(Profile::default().to_string(), "default settings");
        assert_eq!(
            Profile::parse("# nothing was better\n"),
            Ok(Profile::default())
        );
    }

    #[test]
    fn invalid_text_is_refused_with_its_line() {
        for (text, line, what) in [
            (
                "window = 8\nwindows = 9\n",
                "line 2",
                "unknown field `windows`",
            ),
            ("\n\nbatch = \"many\"\n", "line 3", "expected u32"),
            ("spin_ns = -1\n", "line 1", "-1"),
            ("cache_percent = 256\n", "line 1", "256"),
            ("batch = 1\nbatch = 2\n", "line 2", "duplicate key"),
            ("[window]\n", "line 1", "expected u32"),
            ("window 8\n", "line 1", "expected"),
        ] {
            let error = Profile::parse(text).expect_err(text).to_string();
            assert!(error.contains(line) && error.contains(what), "{error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }

    #[test]
    fn unreadable_files_are_named() {
        let folder = std::env::temp_dir().join(format!("farcore-profile-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (long, gone) = (folder.join("long"), folder.join("gone"));
        fs::write(&long, vec![b'#'; 1 << 17]).unwrap();
        for (file, what) in [(&long, "longer than 65536 bytes"), (&gone, "No such file")] {
            let error = Profile::read(file).expect_err(what).to_string();
            let name = file.to_str().unwrap();
            assert!(error.contains(what) && error.contains(name), "{error}");
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
