//! `REPLICAOF`: which server this one follows.

use std::sync::Arc;

use super::arguments::is_option;
use super::{Call, Flow, Refusal};
use crate::options::SourceAddress;
use crate::replication::link;
use crate::resp::Writer;

type Result = std::result::Result<Flow, Refusal>;

pub(super) fn replicaof(call: &mut Call<'_>) -> Result {
    let (host, port) = (call.argument(1), call.argument(2));
    if is_option(host, "no") && is_option(port, "one") {
        return Ok(promote(call));
    }
    let port = std::str::from_utf8(port).ok();
    let port = port
        .and_then(|port| port.parse().ok())
        .filter(|port| *port > 0);
    let port = port.ok_or("ERR Invalid master port")?;
    let host = std::str::from_utf8(host).map_err(|_| "ERR the host is not UTF-8")?;
    let address = SourceAddress {
        host: host.to_owned(),
        port,
    };
    match link::follow(&call.serving.shared, address) {
        Ok(true) => Ok(call.ok()),
        Ok(false) => Ok(call.reply(|writer| {
            writer.simple("OK Already connected to specified master");
        })),
        Err(error) => Err(Refusal(format!("ERR no thread for the link: {error}"))),
    }
}

/// Has the server follow none. It replies when nothing more of its source is applied.
fn promote(call: &mut Call<'_>) -> Flow {
    let shared = Arc::clone(&call.serving.shared);
    call.task(move |core, output, protocol| async move {
        if let Some(link) = shared.replication.cut() {
            link.ended.wait(&core).await;
            shared.replication.promote(&shared.saving.refusals);
            tracing::info!(source = %link.address, "the server follows its source no more");
        }
        output.write(|bytes| Writer::new(bytes, protocol).simple("OK"));
        core
    })
}
