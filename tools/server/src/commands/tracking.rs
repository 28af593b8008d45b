//! Commands about the tracking of keys for caches of clients, which the server does not do.

use super::arguments::is_option;
use super::{Call, Flow, Refusal, SYNTAX};

type Result = std::result::Result<Flow, Refusal>;

pub(super) fn tracking(call: &mut Call<'_>) -> Result {
    let state = call.argument(2);
    if is_option(state, "off") {
        return Ok(call.ok());
    }
    if is_option(state, "on") {
        return Err("ERR CLIENT TRACKING ON is not supported: the server tracks no keys".into());
    }
    Err(SYNTAX.into())
}

pub(super) fn caching(_: &mut Call<'_>) -> Result {
    Err("ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled".into())
}

pub(super) fn redirection(call: &mut Call<'_>) -> Result {
    Ok(call.reply(|writer| writer.integer(-1)))
}

pub(super) fn information(call: &mut Call<'_>) -> Result {
    Ok(call.reply(|writer| {
        writer.map(3);
        writer.bulk(b"flags");
        writer.set(1);
        writer.bulk(b"off");
        writer.bulk(b"redirect");
        writer.integer(-1);
        writer.bulk(b"prefixes");
        writer.array(0);
    }))
}
