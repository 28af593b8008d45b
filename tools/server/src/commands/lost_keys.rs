//! `FARCORE`: what Redis has no command for.

use super::command::Subcommand;
use super::{Call, Flow, Refusal};

/// What `FARCORE` does.
pub(super) const FARCORE: &[Subcommand] = &[Subcommand::new("forget-lost", 2, forget_lost)];

/// Makes lost keys absent; replies how many there may have been.
fn forget_lost(call: &mut Call<'_>) -> Result<Flow, Refusal> {
    Ok(call.task(|mut core, output, protocol| async move {
        let forgotten = core.forget_lost().await;
        output.finish(protocol, forgotten, |writer, keys| {
            writer.integer(i64::try_from(keys).unwrap_or(i64::MAX));
        });
        core
    }))
}
