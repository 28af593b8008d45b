//! Commands that save the data: `SAVE`, `BGSAVE`, `BGREWRITEAOF`, `LASTSAVE`, and the end of a
//! server, `SHUTDOWN`.

use std::sync::Arc;

use farcore::Core;

use super::arguments::is_option;
use super::{Call, Flow, Refusal, SYNTAX};
use crate::durability::{Kind, Saving};
use crate::resp::Writer;

type Result = std::result::Result<Flow, Refusal>;

const NO_DIRECTORY: &str = "ERR The server keeps its data in memory only: nothing can be saved";
const IN_PROGRESS: &str = "ERR Background save already in progress";
const REWRITE_IN_PROGRESS: &str = "ERR Background append only file rewriting already in progress";
const OTHER_IN_PROGRESS: &str = "ERR Another child process is active (AOF?): can't BGSAVE right now. Use BGSAVE SCHEDULE in order to schedule a BGSAVE whenever possible.";
const NOT_SHUT_DOWN: &str = "ERR Errors trying to SHUTDOWN. Check logs.";

fn saving(call: &Call<'_>) -> std::result::Result<Arc<Saving>, Refusal> {
    let saving = &call.serving.shared.saving;
    if saving.is_durable() {
        Ok(Arc::clone(saving))
    } else {
        Err(NO_DIRECTORY.into())
    }
}

/// Makes a snapshot; `None` if it is complete, else why it is not.
async fn made(saving: &Arc<Saving>, core: &Core) -> Option<String> {
    match saving.begin(Kind::Save) {
        Ok(answers) => match answers.wait(core).await.pop() {
            Some(Ok(())) => None,
            Some(Err(error)) => Some(format!("ERR {error}")),
            None => Some("ERR no thread can be started".to_owned()),
        },
        Err(_) => Some(IN_PROGRESS.to_owned()),
    }
}

pub(super) fn save(call: &mut Call<'_>) -> Result {
    let saving = saving(call)?;
    Ok(call.task(move |core, output, protocol| async move {
        let failed = made(&saving, &core).await;
        output.write(|bytes| {
            let mut writer = Writer::new(bytes, protocol);
            match failed {
                None => writer.simple("OK"),
                Some(text) => writer.error(&text),
            }
        });
        core
    }))
}

pub(super) fn bgsave(call: &mut Call<'_>) -> Result {
    let schedules = match call.count() {
        1 => false,
        2 if is_option(call.argument(1), "schedule") => true,
        _ => return Err(SYNTAX.into()),
    };
    let saving = saving(call)?;
    match saving.begin(Kind::Save) {
        Ok(_) => Ok(call.reply(|writer| writer.simple("Background saving started"))),
        Err(Kind::Save) => Err(IN_PROGRESS.into()),
        Err(Kind::Rewrite) if schedules => {
            saving.schedule(Kind::Save);
            Ok(call.reply(|writer| writer.simple("Background saving scheduled")))
        }
        Err(Kind::Rewrite) => Err(OTHER_IN_PROGRESS.into()),
    }
}

pub(super) fn bgrewriteaof(call: &mut Call<'_>) -> Result {
    let saving = saving(call)?;
    let text = match saving.begin(Kind::Rewrite) {
        Ok(_) => "Background append only file rewriting started",
        Err(Kind::Rewrite) => return Err(REWRITE_IN_PROGRESS.into()),
        Err(Kind::Save) => {
            saving.schedule(Kind::Rewrite);
            "Background append only file rewriting scheduled"
        }
    };
    Ok(call.reply(|writer| writer.simple(text)))
}

pub(super) fn lastsave(call: &mut Call<'_>) -> Result {
    let at_s = call.serving.shared.saving.last_save_s();
    Ok(call.reply(|writer| writer.integer(i64::try_from(at_s).unwrap_or(i64::MAX))))
}

pub(super) fn shutdown(call: &mut Call<'_>) -> Result {
    let is_known = |option| {
        ["nosave", "save", "now", "force", "abort"]
            .iter()
            .any(|known| is_option(option, known))
    };
    let has = |option| (1..call.count()).any(|place| is_option(call.argument(place), option));
    let is_valid = (1..call.count()).all(|place| is_known(call.argument(place)))
        && !(has("save") && has("nosave"))
        && !(has("abort") && call.count() > 2);
    if !is_valid {
        return Err(SYNTAX.into());
    }
    if has("abort") {
        return Err("ERR No shutdown in progress.".into());
    }
    let asked = match (has("save"), has("nosave")) {
        (true, _) => Some(true),
        (_, true) => Some(false),
        _ => None,
    };
    let (shared, forces) = (Arc::clone(&call.serving.shared), has("force"));
    if !shared.saving.needs_save(asked) || forces {
        shared.ask_to_stop(asked);
        call.connection.is_closing = true;
        return Ok(Flow::Done);
    }
    // While it could still be refused. What comes meanwhile is saved when nothing is served.
    Ok(call.task(move |core, output, protocol| async move {
        while shared.saving.current().is_some() {
            core.yield_now().await;
        }
        match made(&shared.saving, &core).await {
            None => {
                shared.ask_to_stop(asked);
                output.break_off();
            }
            Some(text) => {
                tracing::error!(text, "SHUTDOWN is refused: nothing was saved");
                output.write(|bytes| Writer::new(bytes, protocol).error(NOT_SHUT_DOWN));
            }
        }
        core
    }))
}
