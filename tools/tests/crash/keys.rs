//! What the keys of one client may hold, from what it was answered, and what that client may read.
//!
//! A client has its keys for itself, so each of its answers can be judged alone. Time is the age of
//! far memory: even while its node serves, odd from just before a kill of the node until the server
//! has healed.

use std::collections::BTreeMap;

/// A value: who wrote it, for which key, and the number of the write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Written {
    /// The life of the server, from 1 on.
    pub(crate) life: u64,
    pub(crate) client: u64,
    pub(crate) key: u64,
    /// The number of the write, of all of its client.
    pub(crate) number: u64,
}

impl Written {
    /// The value's bytes: its fields, and a filling that they choose.
    pub(crate) fn bytes(self, length: usize) -> Vec<u8> {
        let Self {
            life,
            client,
            key,
            number,
        } = self;
        let mut bytes = format!("{life}:{client}:{key}:{number}:{length}:").into_bytes();
        let mut state = life ^ client << 16 ^ key << 24 ^ number << 40;
        while bytes.len() < length {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            bytes.extend_from_slice(&state.to_le_bytes());
        }
        bytes.truncate(length);
        bytes
    }

    /// The write of a value; `None` if no client writes such bytes.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        let mut fields = bytes.splitn(6, |&byte| byte == b':');
        let mut number = || str::from_utf8(fields.next()?).ok()?.parse::<u64>().ok();
        let written = Self {
            life: number()?,
            client: number()?,
            key: number()?,
            number: number()?,
        };
        let length = usize::try_from(number()?).ok()?;
        (written.bytes(length) == bytes).then_some(written)
    }
}

/// The age of far memory as a request began, and as its answer came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ages {
    pub(crate) before: u64,
    pub(crate) after: u64,
    /// Lost keys of earlier ages were made absent.
    pub(crate) forgotten: u64,
}

impl Ages {
    fn was_healthy(self) -> bool {
        self.before == self.after && self.before.is_multiple_of(2)
    }
}

/// What a key may hold: one of these, and of which age it is.
#[derive(Clone, Debug)]
struct Held {
    states: Vec<Option<Written>>,
    age: u64,
}

/// The keys of one client.
#[derive(Debug)]
pub(crate) struct Keys {
    life: u64,
    held: BTreeMap<u64, Held>,
}

impl Keys {
    /// Those of a server that has just started: nothing survives a process.
    pub(crate) fn of_life(life: u64) -> Self {
        let held = BTreeMap::new();
        Self { life, held }
    }

    fn held(&mut self, key: u64) -> &mut Held {
        let states = vec![None];
        self.held.entry(key).or_insert(Held { states, age: 0 })
    }

    /// A write (or a removal, which writes nothing) was acknowledged.
    pub(crate) fn acknowledge(&mut self, key: u64, state: Option<Written>, ages: Ages) {
        let states = vec![state];
        self.held.insert(
            key,
            Held {
                states,
                age: ages.before,
            },
        );
    }

    /// A write may have happened, or may still: it was refused, or the answer did not come.
    pub(crate) fn doubt(&mut self, key: u64, state: Option<Written>, ages: Ages) {
        let held = self.held(key);
        held.states.push(state);
        held.age = held.age.min(ages.before);
    }

    /// Judges a read that found a value, or none.
    pub(crate) fn judge(
        &mut self,
        key: u64,
        found: Option<&[u8]>,
        ages: Ages,
    ) -> Result<(), String> {
        let life = self.life;
        let held = self.held(key);
        let state = match found {
            None => None,
            Some(bytes) => {
                let written = Written::of(bytes);
                Some(written.ok_or_else(|| format!("key {key}: no client wrote this value"))?)
            }
        };
        if let Some(written) = state
            && (written.life != life || written.key != key)
        {
            return Err(format!("key {key} in life {life}: {written:?}"));
        }
        let was_forgotten = state.is_none() && held.age < ages.forgotten;
        if !held.states.contains(&state) && !was_forgotten {
            return Err(format!(
                "key {key}: {state:?}, not one of {:?}",
                held.states
            ));
        }
        held.states = vec![state];
        Ok(())
    }

    /// Judges an answer that a key is unavailable: it is lost, or its node is.
    pub(crate) fn judge_unavailable(&mut self, key: u64, ages: Ages) -> Result<(), String> {
        let age = self.held(key).age;
        if ages.was_healthy() && age == ages.before {
            return Err(format!("key {key} of age {age} is unavailable at {ages:?}"));
        }
        Ok(())
    }

    /// Judges a refusal of a write.
    pub(crate) fn judge_refusal(ages: Ages, error: &str) -> Result<(), String> {
        match ages.was_healthy() {
            true => Err(format!("a write is refused at {ages:?}: {error}")),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEALTHY: Ages = Ages {
        before: 2,
        after: 2,
        forgotten: 0,
    };

    fn write(number: u64) -> Written {
        Written {
            life: 3,
            client: 1,
            key: 7,
            number,
        }
    }

    fn keys() -> Keys {
        let mut keys = Keys::of_life(3);
        keys.acknowledge(7, Some(write(1)), HEALTHY);
        keys.acknowledge(7, Some(write(2)), HEALTHY);
        keys
    }

    fn read(keys: &mut Keys, written: Option<Written>, ages: Ages) -> Result<(), String> {
        let bytes = written.map(|written| written.bytes(100));
        keys.judge(7, bytes.as_deref(), ages)
    }

    #[test]
    fn what_is_promised_is_accepted() {
        assert_eq!(read(&mut keys(), Some(write(2)), HEALTHY), Ok(()));
        assert_eq!(Keys::of_life(3).judge(7, None, HEALTHY), Ok(()));
        let later = Ages {
            before: 4,
            after: 4,
            forgotten: 0,
        };
        assert_eq!(keys().judge_unavailable(7, later), Ok(()));
        let forgotten = Ages {
            forgotten: 4,
            ..later
        };
        assert_eq!(read(&mut keys(), None, forgotten), Ok(()));
        let mut doubtful = keys();
        doubtful.doubt(7, Some(write(3)), HEALTHY);
        assert_eq!(read(&mut doubtful, Some(write(3)), HEALTHY), Ok(()));
        assert!(
            Keys::judge_refusal(
                Ages {
                    after: 3,
                    ..HEALTHY
                },
                "UNAVAILABLE"
            )
            .is_ok()
        );
    }

    /// Forged histories: each breaks one promise.
    #[test]
    fn what_breaks_a_promise_is_found() {
        let stale = read(&mut keys(), Some(write(1)), HEALTHY);
        assert!(stale.is_err(), "a value that was overwritten");
        let lost = read(&mut keys(), None, HEALTHY);
        assert!(lost.is_err(), "an acknowledged value is absent");
        let later = Ages {
            before: 4,
            after: 4,
            forgotten: 0,
        };
        let silent = read(&mut keys(), None, later);
        assert!(
            silent.is_err(),
            "a lost key is absent, and was not forgotten"
        );
        let other = Written { key: 8, ..write(2) };
        assert!(
            read(&mut keys(), Some(other), HEALTHY).is_err(),
            "of another key"
        );
        let earlier = Written {
            life: 2,
            ..write(2)
        };
        assert!(
            read(&mut keys(), Some(earlier), HEALTHY).is_err(),
            "of an earlier life"
        );
        let mut bytes = write(2).bytes(100);
        bytes[70] ^= 1;
        assert!(
            keys().judge(7, Some(&bytes), HEALTHY).is_err(),
            "a changed bit"
        );
        assert!(
            keys().judge_unavailable(7, HEALTHY).is_err(),
            "without a kill"
        );
        assert!(
            Keys::judge_refusal(HEALTHY, "UNAVAILABLE").is_err(),
            "a write without a kill"
        );
        let mut chosen = keys();
        chosen.doubt(7, Some(write(3)), HEALTHY);
        assert_eq!(read(&mut chosen, Some(write(3)), HEALTHY), Ok(()));
        assert!(
            read(&mut chosen, Some(write(2)), HEALTHY).is_err(),
            "back and forth"
        );
    }
}
