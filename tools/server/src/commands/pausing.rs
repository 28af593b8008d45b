//! `CLIENT PAUSE` and `CLIENT UNPAUSE`, and which commands wait meanwhile.

use std::sync::Arc;
use std::time::{Duration, Instant};

use farcore::Core;

use super::arguments::{integer, is_option};
use super::command::Command;
use super::{Call, Flow, Refusal};
use crate::cores::answers::CoreAnswers;
use crate::cores::drain::DrainOf;
use crate::cores::message::Message;
use crate::cores::shared::Shared;
use crate::resp::Writer;

/// How long commands that have begun before a pause may take, or there is none.
const DRAINED_IN: Duration = Duration::from_secs(5);

type Result = std::result::Result<Flow, Refusal>;

/// Commands that do not write, but that Redis may send to replicas.
pub(crate) const REPLICATED: &[&str] = &["pfcount", "publish", "spublish"];

/// Pauses clients. It replies when no command writes any more: what replicas have then is all.
pub(super) fn pause(call: &mut Call<'_>) -> Result {
    let is_of_all = match call.count() {
        3 => true,
        4 if is_option(call.argument(3), "write") => false,
        4 if is_option(call.argument(3), "all") => true,
        4 => return Err("ERR CLIENT PAUSE mode must be WRITE or ALL".into()),
        _ => return Err(super::subcommand::too_many(call)),
    };
    let time = integer(call.argument(2))
        .map_err(|_| Refusal::from("ERR timeout is not an integer or out of range"))?;
    let time = u64::try_from(time).map_err(|_| Refusal::from("ERR timeout is negative"))?;
    let now_ms = farcore_tuning::system_ms();
    let end_ms = now_ms.checked_add(time);
    let end_ms = end_ms.filter(|end_ms| i64::try_from(*end_ms).is_ok());
    let end_ms = end_ms.ok_or("ERR timeout is out of range")?;
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let shared = Arc::clone(&call.serving.shared);
    let before = shared.pause.begin(end_ms, is_of_all, now_ms);
    if call.connection.is_executing() {
        // The transaction itself has begun, and may write.
        return Ok(call.ok());
    }
    Ok(call.task(move |core, output, protocol| async move {
        let is_drained = drain(&core, &shared).await;
        if !is_drained {
            shared.pause.restore(before);
            shared.wake_all();
        }
        output.write(|bytes| {
            let mut writer = Writer::new(bytes, protocol);
            match is_drained {
                true => writer.simple("OK"),
                false => writer.error(&format!(
                    "ERR a command that writes has begun before, and has not ended in {} s: try \
                     again, or find its client by CLIENT LIST and end it by CLIENT KILL",
                    DRAINED_IN.as_secs()
                )),
            }
        });
        core
    }))
}

/// Waits until commands that write have ended, if they have begun before the pause. False if some
/// take too long.
async fn drain(core: &Core, shared: &Shared) -> bool {
    let until = Instant::now() + DRAINED_IN;
    let mut drained = CoreAnswers::new();
    for one in &shared.cores {
        one.send(Message::Drain(DrainOf::Writes, drained.expect()));
    }
    let mut cores = 0;
    while cores < shared.cores.len() {
        match drained.take_one() {
            Some(Some(())) => cores += 1,
            // The pause has ended meanwhile, or the server ends.
            Some(None) => return shared.pause.is_on(),
            None if Instant::now() > until => return false,
            None => core.yield_now().await,
        }
    }
    true
}

pub(super) fn unpause(call: &mut Call<'_>) -> Result {
    call.serving.shared.pause.end();
    call.serving.shared.wake_all();
    Ok(call.ok())
}

/// True if a pause of commands that write is of this one, too.
pub(super) fn is_of_writes(call: &Call<'_>, command: &Command) -> bool {
    match command.name {
        "exec" => call
            .connection
            .queue()
            .is_some_and(|queue| queue.is_of_writes && !queue.is_aborted),
        "eval" => !says_no_writes(call.argument(1)),
        "evalsha" => {
            let sha = String::from_utf8_lossy(call.argument(1)).to_ascii_lowercase();
            let script = call.serving.scripts.find(&sha);
            !script.is_some_and(|script| script.is_read_only)
        }
        name => command.writes || REPLICATED.contains(&name),
    }
}

/// True if the first line of a script says that it does not write.
fn says_no_writes(script: &[u8]) -> bool {
    let line = script.split(|byte| *byte == b'\n').next();
    let line = line.filter(|line| line.starts_with(b"#!"));
    let text = line.map(String::from_utf8_lossy).unwrap_or_default();
    let mut words = text.split_ascii_whitespace();
    let flags = words.find_map(|word| word.strip_prefix("flags="));
    flags.is_some_and(|flags| flags.split(',').any(|flag| flag == "no-writes"))
}

/// True if a command waits for the end of a pause, or of what its connection had begun before one.
#[cold]
pub(super) fn waits(call: &mut Call<'_>, command: &Command) -> bool {
    let connection = &mut *call.connection;
    let has_begun = connection.sent_parts.is_some() || connection.stored_keys.has_begun();
    if has_begun || connection.is_inner() || connection.is_executing() {
        return false;
    }
    if connection.in_cluster.is_draining {
        if connection.has_begun() {
            return true;
        }
        connection.in_cluster.is_draining = false;
    }
    let (writes, now_ms) = (is_of_writes(call, command), farcore_tuning::system_ms());
    if !call.serving.shared.pause.holds(writes, now_ms) {
        return false;
    }
    call.serving.pause(call.number, call.connection);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_of_a_script_says_whether_it_writes() {
        assert!(says_no_writes(b"#!lua flags=no-writes\nreturn 1"));
        assert!(says_no_writes(b"#!lua flags=allow-oom,no-writes"));
        for script in ["#!lua\nreturn 1 -- flags=no-writes", "flags=no-writes", ""] {
            assert!(!says_no_writes(script.as_bytes()));
        }
    }
}
