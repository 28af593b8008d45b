//! The line of the header about a cluster.

use ratatui::text::{Line, Span};

use super::data_line::red;
use crate::watch::cluster::ClusterState;

/// The line; at most 80 columns.
pub(super) fn line(cluster: &ClusterState) -> Line<'static> {
    let ClusterState {
        map_version,
        servers,
        slots,
        held_slots,
        is_serving,
    } = *cluster;
    if map_version == 0 {
        return Line::from(vec![Span::from(" clus "), red("no map")]);
    }
    let held = match held_slots {
        0 => String::new(),
        held => format!(", {held} being moved"),
    };
    let text = format!(" clus map {map_version}: {slots} slots of {servers} servers{held}");
    let mut spans = vec![Span::from(text)];
    if !is_serving {
        spans.push(red(", NOT SERVED"));
    }
    Line::from(spans)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_line_fits_eighty_columns() {
        let cluster = ClusterState {
            map_version: 99_999_999,
            servers: 1000,
            slots: 16_384,
            held_slots: 16_384,
            is_serving: false,
        };
        let line = line(&cluster);
        assert!(line.width() <= 80, "{line}");
        assert!(line.to_string().contains("NOT SERVED"), "{line}");
    }
}
