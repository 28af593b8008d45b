//! The puts of a script by key. A replay needs them only after an error: a key whose write failed
//! may hold any value that was put before.

use super::script::{Kind, Script, Step};

/// The places of all puts, by key, then by place. 8 bytes for each put.
#[derive(Debug)]
pub(super) struct Puts(Box<[u64]>);

impl Puts {
    /// Those of a script. Cost: reads the whole script and sorts its puts.
    pub(super) fn of(script: &Script) -> Self {
        let is_put = |&place: &u64| script.step(place).kind == Kind::Put;
        let mut places: Box<[u64]> = (0..script.len()).filter(is_put).collect();
        // Stable: the puts of a key stay in order.
        places.sort_by_key(|&place| script.key_number(place));
        Self(places)
    }

    /// The puts of a request's key before that request, the latest first.
    pub(super) fn before<'a>(
        &'a self,
        script: &'a Script,
        request: u64,
    ) -> impl Iterator<Item = Step<'a>> {
        let key = script.key_number(request);
        let order = |place: u64| (script.key_number(place), place);
        let end = self
            .0
            .partition_point(|&place| order(place) < (key, request));
        let before = self.0[..end].iter().rev();
        let before = before.take_while(move |&&place| script.key_number(place) == key);
        before.map(|&place| script.step(place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_puts_of_a_key_are_found_the_latest_first() {
        let mut script = Script::default();
        script.push_key(b"a", 7);
        script.push_key(b"b", 8);
        for (key, kind, version) in [
            (0, Kind::Put, 1),
            (1, Kind::Put, 1),
            (0, Kind::Hit, 1),
            (0, Kind::Put, 2),
            (1, Kind::Delete, 0),
            (0, Kind::Hit, 2),
            (1, Kind::Miss, 0),
            (0, Kind::Put, 3),
        ] {
            script.push(key, kind, version, 10);
        }
        let puts = Puts::of(&script);
        let versions = |request| -> Vec<u32> {
            let before = puts.before(&script, request);
            before.map(|step| step.version).collect()
        };
        assert!(versions(0).is_empty());
        assert_eq!(versions(2), [1]);
        assert_eq!(versions(5), [2, 1]);
        assert_eq!(versions(6), [1]);
        assert_eq!(versions(7), [2, 1]);
    }
}
