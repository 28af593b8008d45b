//! `MONITOR`.

use super::{Call, Flow, Refusal};

pub(super) fn monitor(call: &mut Call<'_>) -> Result<Flow, Refusal> {
    if !call.serving.shared.options.monitors {
        return Err(
            "ERR MONITOR is not enabled: it shows the data of all clients. Start the server with --monitor"
                .into(),
        );
    }
    call.serving.begin_monitor(call.number, call.connection);
    Ok(call.ok())
}
