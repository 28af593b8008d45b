//! Shared by the tests of the whole engine: small configurations, keys, and calls with a time
//! limit.

use std::future::Future;
use std::io::Write;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use farcore::{Config, EncryptionKey, EncryptionMode};

pub(crate) fn cores(count: usize) -> Vec<usize> {
    Config::default().cores.into_iter().take(count).collect()
}

/// Tiny limits: a few megabytes local, so that most data is far.
pub(crate) fn tiny() -> Config {
    Config {
        cores: cores(2),
        local_bytes: 16 << 20,
        far_bytes: 64 << 20,
        page_bytes: Some(64 << 10),
        keys_expected: 2_000,
        prefault: false,
        huge_pages: false,
        handles_max: 6,
        handle_lane_bytes: 16 << 10,
        lane_bytes: Some(16 << 10),
        ..Config::default()
    }
}

/// This configuration without encryption, and with each mode of it.
pub(crate) fn every_encryption(config: Config) -> [Config; 3] {
    let encrypted = |encryption_mode| Config {
        encryption: Some(EncryptionKey::Aes256([3; 32])),
        encryption_mode,
        ..config.clone()
    };
    [
        config.clone(),
        encrypted(EncryptionMode::SecrecyOnly),
        encrypted(EncryptionMode::Authenticated),
    ]
}

pub(crate) fn key(number: u64) -> Vec<u8> {
    format!("key-{number:08}").into_bytes()
}

pub(crate) fn value(number: u64, round: u64) -> Vec<u8> {
    let bytes = 40 + (number * 37 + round * 101) % 900;
    (0..bytes)
        .map(|at| (number * 31 + round * 7 + at) as u8)
        .collect()
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The answer to a call. If none comes, the process exits: whatever blocks it may also keep the
/// engine from closing.
pub(crate) fn answer_to<T>(call: impl Future<Output = T>) -> T {
    let start = std::time::Instant::now();
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut call = std::pin::pin!(call);
    loop {
        if let Poll::Ready(answer) = call.as_mut().poll(&mut Context::from_waker(&waker)) {
            return answer;
        }
        std::thread::park_timeout(std::time::Duration::from_millis(10));
        if start.elapsed().as_secs() >= 60 {
            let _ = std::io::stderr().write_all(b"a call was never answered\n");
            std::process::abort();
        }
    }
}

/// One core, so one shard.
pub(crate) fn one_core() -> Config {
    Config {
        cores: cores(1),
        ..tiny()
    }
}
