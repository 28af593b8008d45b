//! The line of the header about replication.

use ratatui::text::{Line, Span};

use super::data_line::{age, red};
use super::draw::size;
use crate::watch::replication::{LinkRates, ReplicationRates};

/// A server or replica that has been silent for longer is shown with that, in seconds: both speak
/// at least each 10.
const SILENT_SECONDS: f64 = 15.0;

fn silence(seconds: Option<f64>) -> String {
    let long = seconds.filter(|seconds| *seconds > SILENT_SECONDS);
    long.map_or_else(String::new, |seconds| format!(", silent {}", age(seconds)))
}

/// The link to the source.
fn link(link: &LinkRates) -> Vec<Span<'static>> {
    if link.is_syncing {
        let loaded = size(link.loaded_bytes);
        return vec![Span::from(match link.to_load_bytes {
            Some(all) => {
                let percent = link.loaded_bytes.min(all) as f64 * 100.0 / all as f64;
                format!("follows, loads {percent:.0}%: {loaded} of {}", size(all))
            }
            None => format!("follows, loads {loaded}"),
        })];
    }
    if let Some(seconds) = link.down_seconds {
        let down = red(format!("link DOWN {}", age(seconds)));
        return vec![Span::from("follows, "), down];
    }
    let state = match link.failed_commands {
        0 => Span::from(silence(link.silent_seconds)),
        _ => red(", DIFFERS"),
    };
    let text = format!("follows, {} to apply", size(link.behind_bytes));
    vec![Span::from(text), state]
}

fn replicas(replication: &ReplicationRates) -> String {
    let ReplicationRates {
        replicas,
        replicas_online,
        ..
    } = *replication;
    let mut text = format!("{replicas} replica{}", if replicas == 1 { "" } else { "s" });
    if replicas_online < replicas {
        text.push_str(&format!(", {} loading", replicas - replicas_online));
    }
    if replicas_online > 0 {
        let behind = size(replication.replicas_behind_bytes);
        text.push_str(&format!(", {behind} behind"));
        // One that follows has no room for it.
        if replication.link.is_none() {
            text.push_str(&silence(replication.replicas_silent_seconds));
        }
    }
    text
}

/// The line; at most 80 columns.
pub(super) fn line(replication: &ReplicationRates) -> Line<'static> {
    let mut spans = vec![Span::from(" repl ")];
    let follows = replication.link.as_ref();
    spans.extend(follows.map(link).into_iter().flatten());
    if replication.replicas > 0 || follows.is_none() {
        let between = if follows.is_some() { "  " } else { "" };
        spans.push(Span::from(format!("{between}{}", replicas(replication))));
    }
    Line::from(spans)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_line_fits_eighty_columns() {
        let mut replication = ReplicationRates {
            replicas: 99,
            replicas_online: 98,
            replicas_behind_bytes: 1023 << 20,
            replicas_silent_seconds: Some(119.0),
            link: Some(LinkRates {
                is_up: true,
                behind_bytes: 1023 << 20,
                silent_seconds: Some(119.0),
                ..LinkRates::default()
            }),
            ..ReplicationRates::default()
        };
        let fits = |replication: &ReplicationRates| {
            let line = line(replication);
            assert!(line.width() <= 80, "{line}");
        };
        fits(&replication);
        let link = replication.link.as_mut().unwrap();
        (link.is_up, link.is_syncing) = (false, true);
        (link.loaded_bytes, link.to_load_bytes) = (1023 << 30, Some(1023 << 30));
        fits(&replication);
        let link = replication.link.as_mut().unwrap();
        (link.is_syncing, link.down_seconds) = (false, Some(99.0 * 86_400.0));
        fits(&replication);
    }
}
