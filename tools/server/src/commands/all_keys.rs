//! `KEYS`: all keys that match a pattern.
//!
//! The reply says first how many there are. So the names are gathered, as long as they are few, and
//! the reply is that of one pass. Beyond that they are only counted, and found again by a second
//! pass as the client takes them. Then a key that is added between the passes may be listed in the
//! place of another one, and one is listed again for each that is removed.

use farcore::{Core, Cursor};

use super::arguments::pattern;
use super::key_walk::{Names, Walk};
use super::{Call, Flow, Refusal};
use crate::databases::Database;
use crate::resp::{Protocol, Writer};
use crate::tasks::output::TaskOutput;
use crate::types::replies::error_text;

pub(super) fn keys(call: &mut Call<'_>) -> Result<Flow, Refusal> {
    let pattern = pattern(call.argument(1))?.to_vec();
    let database = call.database_among_several();
    Ok(call.task(move |mut core, output, protocol| async move {
        if let Err(error) = list(&mut core, (database, &pattern), &output, protocol).await {
            output.write(|bytes| Writer::new(bytes, protocol).error(&error_text(&error)));
        }
        core
    }))
}

/// Lists all keys; an error comes before anything is written.
async fn list(
    core: &mut Core,
    (database, pattern): (Option<Database>, &[u8]),
    output: &TaskOutput,
    protocol: Protocol,
) -> farcore::Result<()> {
    let mut names = Some(Names::new(output));
    let mut walk = Walk::new(Cursor::START, database, Some(pattern), None);
    let mut count = 0_usize;
    while let Some(page) = walk.step(core, usize::MAX).await?
        && !output.is_gone()
    {
        for name in walk.matching(&page) {
            count += 1;
            names = names.and_then(|mut names| names.add(name).then_some(names));
        }
    }
    output.write(|bytes| Writer::new(bytes, protocol).array(count));
    let write = |name: &[u8]| output.write(|bytes| Writer::new(bytes, protocol).bulk(name));
    let Some(names) = names else {
        list_again(core, (database, pattern), count, output, write).await;
        return Ok(());
    };
    for name in names.iter() {
        output.room(core).await;
        write(name);
    }
    Ok(())
}

/// Lists `count` keys by a second pass.
async fn list_again(
    core: &mut Core,
    (database, pattern): (Option<Database>, &[u8]),
    count: usize,
    output: &TaskOutput,
    write: impl Fn(&[u8]),
) {
    let mut walk = Walk::new(Cursor::START, database, Some(pattern), None);
    let (mut written, mut last) = (0, Vec::new());
    while written < count && !output.is_gone() {
        output.room(core).await;
        let page = match walk.step(core, usize::MAX).await {
            Ok(Some(page)) => page,
            Ok(None) => break,
            Err(error) => {
                tracing::warn!(%error, "a reply of KEYS cannot be finished");
                return output.break_off();
            }
        };
        for name in walk.matching(&page).take(count - written) {
            write(name);
            written += 1;
            last.clear();
            last.extend_from_slice(name);
        }
    }
    while written < count && !output.is_gone() {
        output.room(core).await;
        write(&last);
        written += 1;
    }
}
