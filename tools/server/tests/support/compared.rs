//! Replies to random commands beside those of a Redis, where that is installed.

use super::redis::Redis;
use super::{Client, Random, Served};

/// Compares replies to random commands with those of Redis, which is left out if it is not
/// installed: `before` are the first commands, `draw` draws each other one. `FARCORE_COMMANDS` says
/// how many there are for each protocol.
#[track_caller]
pub(crate) fn compare(before: &[&str], mut draw: impl FnMut(&mut Random, usize) -> Vec<Vec<u8>>) {
    let Some(redis) = Redis::start() else {
        println!("no Redis 7.0.15 is installed");
        return;
    };
    let commands = std::env::var("FARCORE_COMMANDS").ok();
    let commands = commands.and_then(|text| text.parse().ok()).unwrap_or(3_000);
    let mut random = Random::new();
    for (cores, protocol) in [(1, "2"), (2, "3")] {
        let served = Served::roomy(cores);
        let mut here = served.client();
        let mut there = Client::connect(redis.address);
        let hello = format!("hello {protocol}");
        for line in ["flushall", &hello].iter().chain(before) {
            let words: Vec<_> = line.split(' ').collect();
            here.ask(&words);
            there.ask(&words);
        }
        let mut differing = Vec::new();
        for number in 0..commands {
            let words = draw(&mut random, number);
            let (ours, theirs) = (here.ask(&words), there.ask(&words));
            if ours.to_string() != theirs.to_string() {
                let shown: Vec<_> = words
                    .iter()
                    .map(|word| word.escape_ascii().to_string())
                    .collect();
                differing.push(format!("{shown:?}\n  here  {ours}\n  redis {theirs}"));
            }
        }
        let count = differing.len();
        differing.truncate(20);
        assert!(count == 0, "{count} differ:\n{}", differing.join("\n"));
    }
}

/// One of some words.
pub(crate) fn pick<'a>(random: &mut Random, words: &[&'a str]) -> &'a str {
    words[random.below(words.len())]
}

/// Words as the arguments of a command.
pub(crate) fn arguments(line: &str) -> Vec<Vec<u8>> {
    line.split(' ')
        .map(|word| word.as_bytes().to_vec())
        .collect()
}
