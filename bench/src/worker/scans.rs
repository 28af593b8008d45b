//! The transactions of YCSB's workload E: scans, one at a time on each core, with inserts among
//! them.
//!
//! A scan begins at a place drawn from all, and reads records in the order of the index. The places
//! are the cursors between the pages of a scan of all keys, made before the phase is timed.
//!
//! I1: every record that a scan returns is verified: its key is one of the run's, and its value is
//!     intact. That a scan returns all records of its stretch is not verified here.

use farcore::{Cursor, Entry, ScanOptions};

use super::{CHUNK, Part, Run, SLICE, Worker, slice, thread_cpu_ns};
use crate::load::{Load, ScanRequest, Transactions};
use crate::phase::Phase;
use crate::plan::{Scenario, Workload};
use crate::record::Scratch;
use crate::stats::RequestTag;
use crate::store::Session;

/// Records between two places.
const STRIDE: usize = 64;
/// The kind of a scan's request; those of the load are below.
const SCAN: u8 = u8::MAX;

/// The places where scans begin; only the first record's if the engine has no scans.
pub(super) async fn places<S: Session>(session: &mut S) -> Vec<Cursor> {
    let mut places = vec![Cursor::START];
    let options = ScanOptions {
        values: false,
        entries: STRIDE,
    };
    let mut next = Some(Cursor::START);
    while let Some(from) = next {
        next = match session.scan(from, options).await {
            Ok(page) => page.next(),
            Err(_) => None,
        };
        places.extend(next);
    }
    places
}

impl Worker {
    /// Whether a phase sends scans.
    pub(super) fn scans_in(&self, phase: Phase) -> bool {
        let workload = match self.plan.scenario {
            Scenario::Ycsb { workload, .. } => Some(workload),
            _ => None,
        };
        phase == Phase::Transactions && workload == Some(Workload::E)
    }

    /// Drives the transactions.
    pub(super) async fn scan<S: Session>(
        &self,
        load: Transactions,
        places: &[Cursor],
        session: &mut S,
    ) -> Part {
        let mut run = self.begin(load);
        let mut scratch = Scratch::default();
        let steps = run.load.steps();
        let (start_ns, start_cpu_ns) = (self.clock.now_ns(), thread_cpu_ns());
        let mut step = 0;
        while step < steps && (!step.is_multiple_of(CHUNK) || self.gate.goes_on()) {
            match run.load.next_scan(places.len()) {
                Some(request) => scan_once(&mut run, request, places, session).await,
                None => slice(session, &mut run, &mut scratch, step..step + 1),
            }
            session.poll(&mut |token, answer| run.judge(token, &answer));
            step += 1;
            if step.is_multiple_of(SLICE) || step == steps {
                self.report(step);
                session.rest().await;
            }
        }
        self.drain(&mut run, &mut scratch, session).await;
        let cpu_ns = thread_cpu_ns() - start_cpu_ns;
        self.part(&mut run.stats, start_ns, cpu_ns, step)
    }
}

async fn scan_once<S: Session>(
    run: &mut Run<'_, Transactions>,
    request: ScanRequest,
    places: &[Cursor],
    session: &mut S,
) {
    let tag = RequestTag {
        subject: request.place as u64,
        kind: SCAN,
    };
    let name = |tag: RequestTag| format!("the scan from place {}", tag.subject);
    let options = ScanOptions {
        values: true,
        entries: request.entries,
    };
    let token = run.stats.issue(tag);
    let page = match session.scan(places[request.place], options).await {
        Ok(page) => page,
        Err(error) => {
            run.stats.fail(token, &error, name);
            return;
        }
    };
    let tag = run.stats.arrive(token);
    let is_sound = |entry: Entry<'_>| run.load.is_record(&entry);
    let (count, sound) = page.entries().fold((0, true), |(count, sound), entry| {
        (count + 1, sound && is_sound(entry))
    });
    run.stats.note_scanned(count);
    if !sound || page.unreadable() > 0 {
        run.stats.wrong_scan(|| name(tag));
    }
}
