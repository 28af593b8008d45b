//! Memory that a server has not touched yet: until it has, its writes wait for the system, and the
//! thread that touches takes processor time.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

/// How long a server may take to touch its memory.
const LIMIT: Duration = Duration::from_secs(60);
/// Interval of looks.
const PAUSE: Duration = Duration::from_millis(20);

/// Waits until a server has touched its memory, as `INFO memory` says, which `info` reads. One that
/// says nothing of it, as Redis, touches none before it is needed.
pub(super) fn await_touched(mut info: impl FnMut() -> Result<String>) -> Result<()> {
    let start = Instant::now();
    loop {
        let text = info()?;
        let figure = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        let touched = figure("memory_touched:");
        if figure("memory_to_touch:") == touched {
            return Ok(());
        }
        ensure!(
            start.elapsed() < LIMIT,
            "the server has touched {} bytes of its memory in {LIMIT:?}",
            touched.unwrap_or("no")
        );
        thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_waited_until_all_is_touched() {
        let mut looks = 0;
        let info = || {
            looks += 1;
            Ok(format!("memory_touched:{looks}\r\nmemory_to_touch:3\r\n"))
        };
        await_touched(info).unwrap();
        assert_eq!(looks, 3);
        await_touched(|| Ok("used_memory:7\r\n".to_owned())).unwrap();
    }
}
