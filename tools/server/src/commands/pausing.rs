//! `CLIENT PAUSE` and `CLIENT UNPAUSE`, and which commands wait meanwhile.

use super::arguments::{integer, is_option};
use super::command::Command;
use super::{Call, Flow, Refusal};

type Result = std::result::Result<Flow, Refusal>;

/// Commands that do not write, but that Redis may send to replicas.
pub(super) const REPLICATED: &[&str] = &["pfcount", "publish", "spublish"];

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
    call.serving.shared.pause.begin(end_ms, is_of_all, now_ms);
    Ok(call.ok())
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

/// True if a command waits for the end of a pause.
#[cold]
pub(super) fn holds(call: &mut Call<'_>, command: &Command) -> bool {
    if call.connection.is_inner()
        || call.connection.is_executing()
        || call.connection.sent_parts.is_some()
    {
        return false;
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
