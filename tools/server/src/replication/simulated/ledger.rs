//! What each key has held at the server that leads, in its order, so that what another server holds
//! is a state that there was.

use std::collections::BTreeMap;

use super::service::shown;
use super::store::State;
use crate::databases::shown_key;

/// The states of a key.
#[derive(Debug)]
struct Line {
    states: Vec<State>,
    /// By replica: a client was answered when it had this one.
    promised: BTreeMap<usize, usize>,
}

impl Default for Line {
    fn default() -> Self {
        Self {
            states: vec![None],
            promised: BTreeMap::new(),
        }
    }
}

/// The states of all keys.
#[derive(Debug, Default)]
pub(super) struct Ledger(BTreeMap<Vec<u8>, Line>);

impl Ledger {
    /// Notes what a key holds now; returns the place of that state.
    pub(super) fn note(&mut self, key: &[u8], state: State) -> usize {
        let line = self.0.entry(key.to_vec()).or_default();
        if line.states.last() != Some(&state) {
            line.states.push(state);
        }
        line.states.len() - 1
    }

    /// True if a key that holds a state has had all up to a place.
    pub(super) fn has(&self, key: &[u8], place: usize, state: &State) -> bool {
        let Some(line) = self.0.get(key) else {
            return true;
        };
        let found = line.states.iter().rposition(|known| known == state);
        found.is_some_and(|found| found >= place.min(line.states.len() - 1))
    }

    /// Notes that a client was answered that a state is safe, and a replica has it.
    pub(super) fn promise(&mut self, (key, place): (&[u8], usize), replica: usize) {
        if let Some(line) = self.0.get_mut(key) {
            let promised = line.promised.entry(replica).or_default();
            *promised = (*promised).max(place.min(line.states.len() - 1));
        }
    }

    /// A replica has lost its data.
    pub(super) fn forget(&mut self, replica: usize) {
        for line in self.0.values_mut() {
            line.promised.remove(&replica);
        }
    }

    /// A state of a key, for a message.
    pub(super) fn shown(&self, key: &[u8], place: usize) -> String {
        let state = self.0.get(key).and_then(|line| line.states.get(place));
        let state = state.map_or_else(|| "gone".to_owned(), shown);
        let key = String::from_utf8_lossy(shown_key(key)).into_owned();
        format!("key {key} was {state}")
    }

    /// The place of the last state of a key.
    pub(super) fn last(&self, key: &[u8]) -> usize {
        self.0.get(key).map_or(0, |line| line.states.len() - 1)
    }

    /// All keys.
    pub(super) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.0.keys().map(Vec::as_slice)
    }

    /// # Errors
    /// A key has never held this.
    pub(super) fn check(&self, key: &[u8], state: &State) -> Result<(), String> {
        let line = self.0.get(key);
        match line {
            Some(line) if !line.states.contains(state) => Err(unknown(key, line, state)),
            _ => Ok(()),
        }
    }

    /// A replica leads now, which has these states: what came behind them is gone.
    ///
    /// # Errors
    /// It had some of that, and a client was answered.
    pub(super) fn promote(
        &mut self,
        replica: usize,
        state_of: impl Fn(&[u8]) -> State,
    ) -> Result<(), String> {
        for (key, line) in &mut self.0 {
            let state = state_of(key);
            let place = line.states.iter().rposition(|known| *known == state);
            let Some(place) = place else {
                return Err(unknown(key, line, &state));
            };
            let promised = line.promised.get(&replica).copied().unwrap_or(0);
            if place < promised {
                return Err(format!(
                    "key {} holds {} where a replica is promoted that has had {}, and a client \
                     was answered that this is safe",
                    String::from_utf8_lossy(key),
                    shown(&state),
                    shown(&line.states[promised])
                ));
            }
            line.states.truncate(place + 1);
            line.promised.clear();
        }
        Ok(())
    }
}

fn unknown(key: &[u8], line: &Line, state: &State) -> String {
    let known: Vec<_> = line.states.iter().rev().take(6).map(shown).collect();
    format!(
        "key {} holds {}, and has never held that; lately it held {}",
        String::from_utf8_lossy(key),
        shown(state),
        known.join(", before that ")
    )
}
