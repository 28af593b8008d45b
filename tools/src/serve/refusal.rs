//! Errors at the start in words of the flags: engine and server name fields of their options, which
//! a user of the command has never typed.

use std::path::Path;

use anyhow::{Error, Result, anyhow, ensure};
use farcore::Size;
use farcore_command::words::in_flags;
use farcore_server::StartError;
use farcore_tuning::{Root, available_memory};

use super::Arguments;
use super::sizes::Sizes;
use crate::listen::cannot_listen;

/// Fields without a flag, and settings of the server; longer texts first.
const WORDS: [(&str, &str); 3] = [
    (" (`nodes_min`, `nodes_wait_ns`)", ""),
    ("small_bytes is", "--small-bytes is"),
    ("connections_max is", "--native-clients is"),
];

/// A text in words of the flags.
fn plain(text: &str) -> String {
    let text = WORDS.iter().fold(text.to_owned(), |text, (theirs, ours)| {
        text.replace(theirs, ours)
    });
    in_flags(&text)
}

/// Memory that clients may take beside the engine's, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientMemory {
    pub(super) redis: u64,
    /// `None` if native clients are not served.
    pub(super) native: Option<u64>,
}

/// Checks that the memory that an engine is to touch, and that its clients may take, is there.
///
/// # Errors
/// It is not.
pub(super) fn check_memory(sizes: Sizes, is_remote: bool, clients: ClientMemory) -> Result<()> {
    let Some(available) = available_memory(&Root::new("/")) else {
        return Ok(());
    };
    let far_bytes = if is_remote { 0 } else { sizes.far_bytes };
    let (place, remedy) = (available.end.place(), available.end.remedy());
    let mut flags = format!("--local {}", Size(sizes.local_bytes));
    if !is_remote {
        flags += &format!(", --far {}", Size(far_bytes));
    }
    let mut needed = sizes.local_bytes.saturating_add(far_bytes);
    // Clients are only named where the engine alone would fit.
    if needed <= available.bytes {
        let native = clients.native.unwrap_or(0);
        needed = needed.saturating_add(clients.redis).saturating_add(native);
        flags += &format!(", --client-memory {}", Size(clients.redis));
        if let Some(native) = clients.native {
            flags += &format!(", --native-memory {}", Size(native));
        }
    }
    ensure!(
        needed <= available.bytes,
        "{flags}: only {} is available {place}: lower them, or {remedy}",
        Size(available.bytes)
    );
    Ok(())
}

/// Why the data directory was not loaded.
pub(super) fn of_load(error: &farcore::Error, dir: &Path) -> Error {
    let dir = dir.display();
    match error {
        farcore::Error::FarFull { .. } | farcore::Error::IndexFull { .. } => {
            anyhow!("--data {dir}: it holds more than fits: raise --far and --local ({error})")
        }
        error => anyhow!("--data {dir}: {}", plain(&error.to_string())),
    }
}

/// The engine's error. `default_far` is the far memory that it takes because no flag says how much.
pub(super) fn of_engine(error: &farcore::Error, default_far: Option<u64>) -> Error {
    match (error, default_far) {
        (
            farcore::Error::Config {
                field: "far_bytes",
                limit,
                ..
            },
            Some(far_bytes),
        ) => anyhow!(
            "--far is {} unless it is given: {}",
            Size(far_bytes),
            plain(limit).replace("lower it to", "give --far")
        ),
        (error, _) => of_engine_as_given(error),
    }
}

/// The engine's error about sizes that flags say.
fn of_engine_as_given(error: &farcore::Error) -> Error {
    match error {
        farcore::Error::LocalMemory {
            local_bytes,
            least,
            cores,
            far_bytes,
            ..
        } => anyhow!(
            "--local {} is too small: {:#} is needed for {cores} {} and --far {}; raise it, or lower --far or the number of --cores",
            Size(*local_bytes),
            Size(*least),
            if *cores == 1 { "core" } else { "cores" },
            Size(*far_bytes)
        ),
        farcore::Error::Unavailable { node, reason } => unavailable(node, reason),
        other => anyhow!(plain(&other.to_string())),
    }
}

/// Why a memory node cannot be used.
fn unavailable(node: &str, reason: &str) -> Error {
    // The flag names the node already.
    let reason = plain(reason).replace(&format!("{node}: "), "");
    if reason.contains("wrong token") {
        return anyhow!("--fabric {node} rejected the token: --token-file differs from the node's");
    }
    if reason.contains("requires a token") {
        return anyhow!("--fabric {node} requires a token: give --token-file the node's file");
    }
    if reason.contains("has no token") {
        return anyhow!(
            "--fabric {node} has no token: omit --token-file, or start the node with it"
        );
    }
    anyhow!(
        "--fabric {node}: {reason}; start it with `farcore memnode`. A node answers when it has \
         registered its memory and prints `ready:`, after about 2 s a GiB: --wait-for-nodes says how \
         long the server waits"
    )
}

/// The server's error.
pub(super) fn of_server(error: &StartError, arguments: &Arguments) -> Error {
    match error {
        StartError::Listen { address, error } => {
            let flag = match arguments.tls == Some(*address) {
                true => "--tls",
                false => "--resp",
            };
            cannot_listen(flag, address, error)
        }
        StartError::ListenNative { address, error } => cannot_listen("--native", address, error),
        StartError::Tls(text) => {
            let is_in = |file: &Option<std::path::PathBuf>| {
                let name = file.as_ref().map(|file| file.display().to_string());
                name.is_some_and(|name| text.starts_with(&format!("{name}: ")))
            };
            let flag = match () {
                () if is_in(&arguments.tls_cert) => "--tls-cert ",
                () if is_in(&arguments.tls_key) => "--tls-key ",
                () if is_in(&arguments.tls_ca) => "--tls-ca ",
                () => "--tls: ",
            };
            anyhow!("{flag}{text}")
        }
        StartError::SourceTls(text) => {
            anyhow!("{}{text}", arguments.replica.flag_of_file(text))
        }
        other => anyhow!(plain(&other.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(error: &farcore::Error) -> String {
        of_engine(error, None).to_string()
    }

    #[test]
    fn a_default_that_the_nodes_do_not_have_names_the_flag_and_a_value() {
        let error = farcore::Error::Config {
            field: "far_bytes",
            value: "2 GiB for each core".to_owned(),
            limit: "the memory nodes lend 512 MiB in all, to all their clients, and 301 MiB of it was free: lower it to 300 MiB, 150 MiB for each of 2 cores, or add a node".to_owned(),
        };
        assert_eq!(
            of_engine(&error, Some(4 << 30)).to_string(),
            "--far is 4 GiB unless it is given: the memory nodes lend 512 MiB in all, to all their clients, and 301 MiB of it was free: give --far 300 MiB, 150 MiB for each of 2 cores, or add a node"
        );
        assert!(said(&error).starts_with("--far is 2 GiB for each core: the memory nodes lend"));
    }

    #[test]
    fn errors_of_the_engine_name_flags() {
        let small = farcore::Error::LocalMemory {
            local_bytes: 1 << 20,
            least: 1434 << 20,
            cores: 2,
            keys_expected: 1_000_000,
            far_bytes: 32 << 20,
        };
        assert_eq!(
            said(&small),
            "--local 1 MiB is too small: 1434 MiB is needed for 2 cores and --far 32 MiB; raise it, or lower --far or the number of --cores"
        );
        let core = farcore::Error::Core {
            core: 9,
            available: vec![0, 1],
        };
        assert!(said(&core).starts_with("--cores names core 9: this process may use [0, 1]"));
        let node = |reason: &str| farcore::Error::Unavailable {
            node: "tcp://a:1".into(),
            reason: reason.to_owned().into(),
        };
        for (reason, part) in [
            (
                "tcp://a:1: the node requires a token: give",
                "give --token-file",
            ),
            (
                "tcp://a:1: the node has no token and this",
                "omit --token-file",
            ),
        ] {
            let said = said(&node(reason));
            assert!(
                said.starts_with("--fabric tcp://a:1 ") && said.contains(part),
                "{said}"
            );
        }
        assert_eq!(
            said(&node(
                "0 of 1 memory nodes answered and 1 must (`nodes_min`, `nodes_wait_ns`): why"
            )),
            "--fabric tcp://a:1: 0 of 1 memory nodes answered and 1 must: why; start it with `farcore memnode`. A node answers when it has registered its memory and prints `ready:`, after about 2 s a GiB: --wait-for-nodes says how long the server waits"
        );
        assert_eq!(
            said(&node("wrong token")),
            "--fabric tcp://a:1 rejected the token: --token-file differs from the node's"
        );
    }

    #[test]
    fn memory_that_is_not_there_is_refused_in_flags() {
        let huge = Sizes {
            local_bytes: 1 << 60,
            far_bytes: 1 << 30,
        };
        let none = ClientMemory {
            redis: 0,
            native: None,
        };
        let refused = |sizes, is_remote, clients| {
            let error = check_memory(sizes, is_remote, clients).unwrap_err();
            error.to_string()
        };
        let error = refused(huge, false, none);
        assert!(
            error.starts_with("--local 1 EiB, --far 1 GiB: only "),
            "{error}"
        );
        let error = refused(huge, true, none);
        assert!(error.starts_with("--local 1 EiB: only "), "{error}");
        let small = Sizes {
            local_bytes: 1 << 20,
            far_bytes: 1 << 20,
        };
        check_memory(small, false, none).unwrap();
        let of_redis = ClientMemory {
            redis: 1 << 60,
            native: None,
        };
        let error = refused(small, false, of_redis);
        assert!(
            error.starts_with("--local 1 MiB, --far 1 MiB, --client-memory 1 EiB: only "),
            "{error}"
        );
        let of_native = ClientMemory {
            redis: 1 << 20,
            native: Some(1 << 60),
        };
        let error = refused(small, true, of_native);
        assert!(
            error.starts_with("--local 1 MiB, --client-memory 1 MiB, --native-memory 1 EiB: only "),
            "{error}"
        );
    }
}
