//! Commands of what the server does not have: modules, functions, debugging.

use super::arguments::{integer, is_option};
use super::command::Subcommand;
use super::subcommand::too_many;
use super::{Call, Flow, Refusal};

type Result = std::result::Result<Flow, Refusal>;

/// What `MODULE` does.
pub(super) const MODULE: &[Subcommand] = &[Subcommand::new("list", 2, empty_list)];

/// What `FUNCTION` does.
pub(super) const FUNCTION: &[Subcommand] = &[
    Subcommand::new("flush", -2, flush),
    Subcommand::new("list", -2, list),
    Subcommand::new("stats", 2, stats),
];

fn empty_list(call: &mut Call<'_>) -> Result {
    Ok(call.reply(|writer| writer.array(0)))
}

fn flush(call: &mut Call<'_>) -> Result {
    let is_mode = |mode| is_option(mode, "async") || is_option(mode, "sync");
    if call.count() > 3 {
        return Err(too_many(call));
    }
    if call.count() == 3 && !is_mode(call.argument(2)) {
        return Err("ERR FUNCTION FLUSH only supports SYNC|ASYNC option".into());
    }
    Ok(call.ok())
}

fn list(call: &mut Call<'_>) -> Result {
    let (mut has_pattern, mut has_code) = (false, false);
    let mut place = 2;
    while place < call.count() {
        let option = call.argument(place);
        if is_option(option, "withcode") && !has_code {
            has_code = true;
        } else if is_option(option, "libraryname") && !has_pattern {
            if place + 1 == call.count() {
                return Err("ERR library name argument was not given".into());
            }
            has_pattern = true;
            place += 1;
        } else {
            let option = String::from_utf8_lossy(option);
            return Err(Refusal(format!("ERR Unknown argument {option}")));
        }
        place += 1;
    }
    empty_list(call)
}

fn stats(call: &mut Call<'_>) -> Result {
    Ok(call.reply(|writer| {
        writer.map(2);
        writer.bulk(b"running_script");
        writer.null();
        writer.bulk(b"engines");
        writer.map(0);
    }))
}

pub(super) fn debug(_: &mut Call<'_>) -> Result {
    Err("ERR DEBUG command not allowed. The server has no commands for debugging.".into())
}

pub(super) fn lolwut(call: &mut Call<'_>) -> Result {
    if call.count() > 2 && is_option(call.argument(1), "version") {
        integer(call.argument(2))?;
    }
    let text = concat!("Farcore ver. ", env!("CARGO_PKG_VERSION"), "\n");
    Ok(call.reply(|writer| writer.verbatim(*b"txt", text.as_bytes())))
}
