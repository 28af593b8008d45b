//! What a report says of replication.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use farcore_tuning::{LinkReport, ReplicasReport, ReplicationReport};

use super::replicas::port::ONLINE;
use super::state::{Link, Phase, Replication};

fn figure(figure: &AtomicU64) -> u64 {
    // ORDERING: relaxed; it is a figure.
    figure.load(Ordering::Relaxed)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Replication {
    /// What is known of it now.
    pub(crate) fn report(&self) -> ReplicationReport {
        let link = self
            .state()
            .link
            .as_ref()
            .map(|link| self.link_report(link));
        let backlog = self.replicas.backlog();
        let backlog_bytes = backlog.end() - backlog.start();
        drop(backlog);
        ReplicationReport {
            offset_bytes: self.offset(),
            backlog_bytes,
            replicas: self.replicas_report(),
            link,
        }
    }

    fn replicas_report(&self) -> ReplicasReport {
        let lines = self.replicas.lines();
        let online = || lines.iter().filter(|line| line.state == ONLINE);
        let silent = online().map(|line| line.heard.elapsed()).max();
        let figures = &self.replicas.figures;
        ReplicasReport {
            connected: lines.len() as u64,
            online: online().count() as u64,
            behind_bytes: online().map(|line| line.behind).max().unwrap_or(0),
            silent_ns: silent.map_or(0, nanoseconds),
            full_syncs: figure(&figures.full_syncs),
            partial_syncs: figure(&figures.partial_syncs),
            refused_partial_syncs: figure(&figures.partial_refused),
            dropped: figure(&figures.dropped),
        }
    }

    fn link_report(&self, link: &Link) -> LinkReport {
        let figures = &self.figures;
        let is_up = link.phase == Phase::Connected;
        let heard_ms = figure(&figures.heard_ms);
        let silent_ms = farcore_tuning::system_ms().saturating_sub(heard_ms);
        LinkReport {
            is_up,
            is_syncing: link.phase == Phase::Sync,
            behind_bytes: figure(&figures.read).saturating_sub(figure(&figures.applied)),
            silent_ns: match heard_ms {
                0 => 0,
                _ => silent_ms.saturating_mul(1_000_000),
            },
            down_ns: match is_up {
                true => 0,
                false => nanoseconds(link.down_since.elapsed()),
            },
            loaded_bytes: figure(&figures.loaded_bytes),
            total_bytes: figure(&figures.total_bytes),
            full_syncs: figure(&figures.full_syncs),
            partial_syncs: figure(&figures.partial_syncs),
            failed_commands: figure(&figures.failed),
            error: link.error.clone().unwrap_or_default(),
        }
    }
}
