//! A walk over all keys, a few at a time, and names that were found by it.

use farcore::{Core, Cursor, ScanOptions, ScanPage, TreeOp, TreeView};

use super::arguments::is_option;
use crate::databases::{Database, shown_key};
use crate::glob;
use crate::memory::Charge;
use crate::steps;
use crate::tasks::output::TaskOutput;
use crate::types::kind::{Kind, PLAIN};

/// Keys that one step looks at while values are short, and at first.
const KEYS_A_STEP: usize = 256;
const KEYS_FIRST: usize = 16;
/// Bytes of a step's values from which the next one looks at fewer keys, and below which at more.
const STEP_BYTES_MANY: usize = 256 << 10;
const STEP_BYTES_FEW: usize = 32 << 10;
/// Names are gathered in a buffer that grows by this many bytes.
const NAMES_BYTES: usize = 16 << 10;
/// Bytes of names that are gathered.
const NAMES_BYTES_MAX: usize = 1 << 20;

/// Names that were found, with their lengths.
///
/// ```text
/// | length:2 | name | ...
/// ```
pub(super) struct Names {
    bytes: Vec<u8>,
    count: usize,
    held: Charge,
}

impl Names {
    /// None yet.
    pub(super) fn new(output: &TaskOutput) -> Self {
        Self {
            bytes: Vec::new(),
            count: 0,
            held: output.hold(0),
        }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Adds a name; false if there are too many, or their client may not have the memory.
    pub(super) fn add(&mut self, name: &[u8]) -> bool {
        let Ok(length) = u16::try_from(name.len()) else {
            return false;
        };
        let bytes = self.bytes.len() + size_of::<u16>() + name.len();
        if bytes > self.bytes.capacity() {
            let wanted = (bytes + bytes / 4).next_multiple_of(NAMES_BYTES);
            if bytes > NAMES_BYTES_MAX || self.held.grow_to(wanted).is_err() {
                return false;
            }
            self.bytes.reserve_exact(wanted - self.bytes.len());
        }
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes.extend_from_slice(name);
        self.count += 1;
        true
    }

    /// Drops all but the first `count`.
    pub(super) fn truncate(&mut self, count: usize) {
        let kept = self.iter().take(count);
        let bytes = kept.map(|name| size_of::<u16>() + name.len()).sum();
        self.bytes.truncate(bytes);
        self.count = count;
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.bytes[..];
        std::iter::from_fn(move || {
            let (length, after) = rest.split_first_chunk()?;
            let (name, after) = after.split_at_checked(u16::from_le_bytes(*length).into())?;
            rest = after;
            Some(name)
        })
    }
}

/// A walk over all keys, of which those are wanted that match a pattern and have a type.
pub(super) struct Walk<'a> {
    cursor: Option<Cursor>,
    /// Whose keys are wanted, if not those of all.
    database: Option<Database>,
    pattern: Option<&'a [u8]>,
    type_name: Option<&'a [u8]>,
    /// Keys that the next step looks at.
    keys: usize,
    /// Of the last step's keys that hold collections, the tags of these, if types are wanted.
    tags: Vec<u8>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(
        cursor: Cursor,
        database: Option<Database>,
        pattern: Option<&'a [u8]>,
        type_name: Option<&'a [u8]>,
    ) -> Self {
        Self {
            cursor: Some(cursor),
            database,
            pattern,
            type_name,
            keys: KEYS_FIRST,
            tags: Vec::new(),
        }
    }

    /// Where it goes on; `None` at its end.
    pub(super) fn cursor(&self) -> Option<Cursor> {
        self.cursor
    }

    /// The next keys, about `keys_max` at most; `None` if there are none.
    pub(super) async fn step(
        &mut self,
        core: &mut Core,
        keys_max: usize,
    ) -> farcore::Result<Option<ScanPage>> {
        let Some(cursor) = self.cursor else {
            return Ok(None);
        };
        steps::end_slice(core).await;
        let options = ScanOptions {
            // Expired records are seen only with their values.
            values: true,
            entries: self.keys.min(keys_max).max(1),
        };
        let page = core.scan(cursor, options).await?;
        self.cursor = page.next();
        self.read_tags(core, &page).await?;
        steps::count(page.entries().count());
        let values = page.entries().filter_map(|entry| entry.value);
        let bytes: usize = values.map(<[u8]>::len).sum();
        if bytes > STEP_BYTES_MANY {
            self.keys = (self.keys / 4).max(1);
        } else if bytes < STEP_BYTES_FEW {
            self.keys = (self.keys * 2).min(KEYS_A_STEP);
        }
        Ok(Some(page))
    }

    /// Reads which types the collections of a step have, if types are wanted.
    async fn read_tags(&mut self, core: &mut Core, page: &ScanPage) -> farcore::Result<()> {
        self.tags.clear();
        if self.type_name.is_none() {
            return Ok(());
        }
        let collections = page.entries().filter(|entry| entry.collection);
        let lengths = collections.map(|entry| Kind::Hash.operation(entry.key, TreeOp::Len));
        let tags = &mut self.tags;
        core.many(lengths, |place, answer| {
            if tags.len() <= place {
                tags.resize(place + 1, 0);
            }
            // One that was replaced meanwhile has no type: it is not listed.
            tags[place] = TreeView::of(&answer).length().tag;
        })
        .await
    }

    /// The keys of a step that are wanted, as they are shown.
    pub(super) fn matching<'p>(
        &self,
        page: &'p ScanPage,
    ) -> impl Iterator<Item = &'p [u8]> + use<'p, '_, 'a> {
        let (database, pattern, wanted) = (self.database, self.pattern, self.type_name);
        let mut tags = self.tags.iter();
        page.entries()
            .filter(move |entry| {
                let tag = if entry.collection { tags.next() } else { None };
                if database.is_some_and(|database| Database::of(entry.key) != database) {
                    return false;
                }
                wanted.is_none_or(|wanted| {
                    let name = tag.map_or(PLAIN, |&tag| Kind::name_of_tag(tag));
                    is_option(wanted, name)
                })
            })
            .map(|entry| shown_key(entry.key))
            .filter(move |key| pattern.is_none_or(|pattern| glob::matches(pattern, key)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::by_hand::on_first_core;

    #[test]
    fn names_that_are_gathered_are_charged_and_bounded() {
        on_first_core(1, |bench| async move {
            let (mut names, name) = (Names::new(&bench.output()), [b'n'; 1000]);
            while names.add(&name) {
                let taken = names.bytes.capacity();
                assert!(taken <= names.held.bytes());
                assert!(taken <= NAMES_BYTES_MAX / 4 * 5 + NAMES_BYTES);
            }
            assert!(names.count() * name.len() > NAMES_BYTES_MAX / 2);
        });
    }
}
