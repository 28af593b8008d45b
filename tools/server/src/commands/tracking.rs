//! `CLIENT TRACKING` and its relatives: what clients cache, and which commands are noted for it.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use farcore::Core;

use super::arguments::{integer, is_option};
use super::command::Command;
use super::{Call, Flow, Refusal, SYNTAX};
use crate::cores::message::Question;
use crate::cores::removal_watch;
use crate::events::tracking::{Redirecting, Redirection, Tracker, overlap, shown_redirection};
use crate::resp::Writer;

type Result = std::result::Result<Flow, Refusal>;

/// Prefixes of a client, at most, and bytes of one.
const PREFIXES_MAX: usize = 128;
const PREFIX_BYTES_MAX: usize = 1 << 10;
/// Commands that read by what they call, if they do.
const SCRIPTS: &[&str] = &["eval_ro", "evalsha_ro", "fcall_ro"];

/// The options of `CLIENT TRACKING`.
#[derive(Default)]
struct Wanted<'a> {
    tracker: Tracker,
    redirect: u64,
    prefixes: Vec<&'a [u8]>,
}

fn wanted<'a>(call: &Call<'a>) -> std::result::Result<Wanted<'a>, Refusal> {
    let mut wanted = Wanted::default();
    let mut place = 3;
    while place < call.count() {
        let option = call.argument(place);
        let has_more = place + 1 < call.count();
        if is_option(option, "redirect") && has_more {
            place += 1;
            if wanted.redirect != 0 {
                return Err("ERR A client can only redirect to a single other client".into());
            }
            let client = integer(call.argument(place))?;
            wanted.redirect = u64::try_from(client)
                .ok()
                .filter(|client| *client > 0)
                .ok_or(NO_TARGET)?;
        } else if is_option(option, "bcast") {
            wanted.tracker.is_broadcast = true;
        } else if is_option(option, "optin") {
            wanted.tracker.opts_in = true;
        } else if is_option(option, "optout") {
            wanted.tracker.opts_out = true;
        } else if is_option(option, "noloop") {
            wanted.tracker.skips_own = true;
        } else if is_option(option, "prefix") && has_more {
            place += 1;
            wanted.prefixes.push(call.argument(place));
        } else {
            return Err(SYNTAX.into());
        }
        place += 1;
    }
    Ok(wanted)
}

const NO_TARGET: &str = "ERR The client ID you want redirect to does not exist";

/// Why a client may not track so.
fn check(present: Option<&Tracker>, wanted: &Wanted<'_>) -> std::result::Result<(), Refusal> {
    let Wanted {
        tracker, prefixes, ..
    } = wanted;
    if !tracker.is_broadcast && !prefixes.is_empty() {
        return Err("ERR PREFIX option requires BCAST mode to be enabled".into());
    }
    if present.is_some_and(|present| present.is_broadcast != tracker.is_broadcast) {
        return Err("ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it with a different mode.".into());
    }
    if tracker.is_broadcast && (tracker.opts_in || tracker.opts_out) {
        return Err("ERR OPTIN and OPTOUT are not compatible with BCAST".into());
    }
    if tracker.opts_in && tracker.opts_out {
        return Err("ERR You can't specify both OPTIN mode and OPTOUT mode".into());
    }
    let switches = |present: &Tracker| {
        tracker.opts_in && present.opts_out || tracker.opts_out && present.opts_in
    };
    if present.is_some_and(switches) {
        return Err("ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it with a different mode.".into());
    }
    if tracker.is_broadcast {
        let known = present
            .map(|present| present.prefixes.clone())
            .unwrap_or_default();
        if let Some(text) = overlap(&known, prefixes) {
            return Err(Refusal(text));
        }
        let count = known.len() + prefixes.len();
        if count > PREFIXES_MAX || prefixes.iter().any(|one| one.len() > PREFIX_BYTES_MAX) {
            return Err(Refusal(format!(
                "ERR a client has at most {PREFIXES_MAX} prefixes, of at most {PREFIX_BYTES_MAX} bytes"
            )));
        }
    }
    Ok(())
}

pub(super) fn tracking(call: &mut Call<'_>) -> Result {
    // What was sent before it is not concerned.
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let mut wanted = wanted(call)?;
    let state = call.argument(2);
    if is_option(state, "off") {
        let (number, connection) = (call.number, &mut *call.connection);
        call.serving.end_tracking(number, connection);
        return Ok(call.ok());
    }
    if !is_option(state, "on") {
        return Err(SYNTAX.into());
    }
    check(call.connection.tracker.as_deref(), &wanted)?;
    if wanted.tracker.is_broadcast && wanted.prefixes.is_empty() {
        wanted.prefixes.push(b"");
    }
    let Wanted {
        tracker,
        redirect,
        prefixes,
    } = wanted;
    let prefixes = prefixes.into_iter().map(Arc::from).collect();
    let (number, connection) = (call.number, &mut *call.connection);
    // The core receives changes from here on.
    call.serving.begin_tracking(number);
    let found = Rc::new(Cell::new(None));
    if redirect == 0 {
        call.serving.track(number, connection, (tracker, prefixes));
    } else {
        connection.redirecting = Some(Box::new(Redirecting {
            tracker,
            prefixes,
            found: Rc::clone(&found),
        }));
    }
    let shared = Arc::clone(&call.serving.shared);
    removal_watch::track(&shared);
    Ok(call.task(move |core: Core, output, protocol| async move {
        // Once each core has answered, its changes are seen.
        let cores = shared.question_all(|answers| Question::FindTarget(redirect, answers));
        let core_of_target = cores.wait(&core).await.into_iter().flatten().next();
        found.set(core_of_target.map(|core| Redirection {
            client: redirect,
            core,
        }));
        output.write(|bytes| {
            let mut writer = Writer::new(bytes, protocol);
            if redirect > 0 && core_of_target.is_none() {
                writer.error(NO_TARGET);
            } else {
                writer.simple("OK");
            }
        });
        core
    }))
}

pub(super) fn caching(call: &mut Call<'_>) -> Result {
    let state = call.argument(2);
    let Some(tracker) = &mut call.connection.tracker else {
        return Err("ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled".into());
    };
    if is_option(state, "yes") {
        if !tracker.opts_in {
            return Err(
                "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode."
                    .into(),
            );
        }
    } else if is_option(state, "no") {
        if !tracker.opts_out {
            return Err(
                "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode."
                    .into(),
            );
        }
    } else {
        return Err(SYNTAX.into());
    }
    tracker.is_caching_said = true;
    Ok(call.ok())
}

pub(super) fn redirection(call: &mut Call<'_>) -> Result {
    let client = shown_redirection(call.connection.tracker.as_deref());
    Ok(call.reply(|writer| writer.integer(client)))
}

pub(super) fn information(call: &mut Call<'_>) -> Result {
    let tracker = call.connection.tracker.as_deref();
    let client = shown_redirection(tracker);
    let mut flags = vec![if tracker.is_some() { "on" } else { "off" }];
    let mut prefixes = Vec::new();
    if let Some(tracker) = tracker {
        for (is_set, flag) in [
            (tracker.is_broadcast, "bcast"),
            (tracker.opts_in, "optin"),
            (tracker.opts_in && tracker.is_caching_said, "caching-yes"),
            (tracker.opts_out, "optout"),
            (tracker.opts_out && tracker.is_caching_said, "caching-no"),
            (tracker.skips_own, "noloop"),
            (tracker.is_broken, "broken_redirect"),
        ] {
            if is_set {
                flags.push(flag);
            }
        }
        prefixes.extend(tracker.prefixes.iter().cloned());
    }
    Ok(call.reply(|writer| {
        writer.map(3);
        writer.bulk(b"flags");
        writer.set(flags.len());
        for flag in flags {
            writer.bulk(flag.as_bytes());
        }
        writer.bulk(b"redirect");
        writer.integer(client);
        writer.bulk(b"prefixes");
        writer.array(prefixes.len());
        for prefix in &prefixes {
            writer.bulk(prefix);
        }
    }))
}

/// Notes the keys of a command of a client that caches keys, before it runs.
#[cold]
pub(super) fn note(call: &mut Call<'_>, command: &Command) {
    let is_called = call.connection.script.is_some();
    let is_executing = call.connection.is_executing();
    let is_queueing = call.connection.is_queueing();
    let Some(tracker) = &mut call.connection.tracker else {
        return;
    };
    if !is_executing && tracker.is_caching_spent {
        (tracker.is_caching_said, tracker.is_caching_spent) = (false, false);
    }
    let reads = command.reads && !SCRIPTS.contains(&command.name);
    if is_queueing || !reads || !tracker.notes() {
        return;
    }
    if is_called {
        let keys = std::mem::take(&mut tracker.script_keys);
        for key in &keys {
            call.serving
                .note_read((call.number, &*call.connection), key);
        }
        if let Some(tracker) = &mut call.connection.tracker {
            tracker.script_keys = keys;
        }
        return;
    }
    let places = command.keys_in(call.count(), |place| call.argument(place));
    for place in places.iter() {
        crate::steps::count(1);
        let key = call.argument(place);
        call.serving
            .note_read((call.number, &*call.connection), key);
    }
}

/// Notes that a command of a client that caches keys has run.
#[cold]
pub(super) fn note_run(call: &mut Call<'_>, command: &Command) {
    let is_inside = call.connection.is_queueing() || call.connection.script.is_some();
    let goes_on = is_inside || call.connection.is_executing() && command.name != "exec";
    if let Some(tracker) = &mut call.connection.tracker
        && command.name != "client"
        && !goes_on
    {
        tracker.is_caching_spent = true;
    }
}
