//! Commands of the server: what it is, and what it does.

use std::sync::Arc;

use super::arguments::at_most;
use super::{Call, Flow, Refusal, databases};
use crate::cores::message::Question;
use crate::figures::failures::Failures;
use crate::figures::information::{self, Gathering};
use crate::replication;
use crate::resp::Writer;

type Result = std::result::Result<Flow, Refusal>;

/// Sections that one `INFO` names, at most.
const SECTIONS_MAX: usize = 64;

pub(super) fn info(call: &mut Call<'_>) -> Result {
    at_most("sections of INFO", (call.count() - 1, SECTIONS_MAX))?;
    let sections: Vec<_> = (1..call.count())
        .map(|place| String::from_utf8_lossy(call.argument(place)).to_lowercase())
        .collect();
    let shared = Arc::clone(&call.serving.shared);
    Ok(call.task(move |mut core, output, protocol| async move {
        let keys = databases::counts_by_number(&mut core, &shared).await;
        let keys = keys.unwrap_or_default();
        let failures = shared.question_all(Question::Failures);
        let mut all = Failures::default();
        for failures in failures.wait(&core).await {
            all.merge(&failures);
        }
        let gathered = Gathering::of(&shared, keys, all);
        let text = information::text(&gathered, &sections);
        output.write(|bytes| Writer::new(bytes, protocol).verbatim(*b"txt", text.as_bytes()));
        core
    }))
}

pub(super) fn role(call: &mut Call<'_>) -> Result {
    let shared = Arc::clone(&call.serving.shared);
    Ok(call.reply(|writer| replication::information::write_role(&shared, writer)))
}

pub(super) fn time(call: &mut Call<'_>) -> Result {
    let now_us = farcore_tuning::system_ns() / 1000;
    Ok(call.reply(|writer| {
        writer.array(2);
        writer.bulk((now_us / 1_000_000).to_string().as_bytes());
        writer.bulk((now_us % 1_000_000).to_string().as_bytes());
    }))
}
