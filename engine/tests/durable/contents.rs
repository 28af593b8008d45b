//! All that an engine holds, to be compared with what another holds.

use std::collections::BTreeMap;

use farcore::{Engine, ExportOptions, TreeScoreBound, TreeScoreRange};

/// What a key holds.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Content {
    Value(Vec<u8>),
    /// A map, or a list: its elements in their order.
    Elements(Vec<(Vec<u8>, Vec<u8>)>),
    Scored(Vec<(Vec<u8>, f64, Vec<u8>)>),
}

/// What an engine holds, by key, with when it expires.
pub(crate) type Contents = BTreeMap<Vec<u8>, (Option<u64>, Content)>;

/// Reads all that an engine holds.
pub(crate) fn of(engine: &Engine) -> Contents {
    let mut handle = engine.handle().expect("a handle is free");
    let mut found = Vec::new();
    let summary = handle
        .export(ExportOptions::default(), |entry| {
            let value = entry.value.map(<[u8]>::to_vec);
            found.push((entry.key.to_vec(), entry.expiry_ms, entry.collection, value));
        })
        .expect("everything can be read");
    assert_eq!(summary.unreadable, 0);
    let mut contents = Contents::new();
    for (key, expiry_ms, is_collection, value) in found {
        let content = match value {
            _ if is_collection => collection(&mut handle, &key),
            Some(value) => Content::Value(value),
            None => {
                let mut value = Vec::new();
                let read = handle.get_long(&key, &mut value).expect("it can be read");
                assert!(read.is_some());
                Content::Value(value)
            }
        };
        contents.insert(key, (expiry_ms, content));
    }
    contents
}

/// The tags of collections: they say of what kind one is.
pub(crate) const LIST_TAG: u8 = 1;
pub(crate) const SCORED_TAG: u8 = 2;

fn collection(handle: &mut farcore::Handle, key: &[u8]) -> Content {
    let length = handle.tree(key).len().wait().expect("it is a collection");
    if length.tag == SCORED_TAG {
        let all = TreeScoreRange::Scores {
            from: TreeScoreBound::Included(f64::NEG_INFINITY),
            to: TreeScoreBound::Included(f64::INFINITY),
        };
        let mut members = Vec::new();
        loop {
            let mut tree = handle.tree(key).tagged(SCORED_TAG);
            let page = tree.score_range(all, false, members.len() as u64, u32::MAX);
            let page = page.wait().expect("it can be read");
            let before = members.len();
            members.extend(
                page.scored()
                    .map(|(member, score, value)| (member.to_vec(), score, value.to_vec())),
            );
            if members.len() == before || !page.has_more() {
                break;
            }
        }
        assert_eq!(members.len() as u64, length.elements);
        return Content::Scored(members);
    }
    let mut elements = Vec::new();
    while (elements.len() as u64) < length.elements {
        let mut tree = handle.tree(key).tagged(length.tag);
        let page = tree.range_by_rank(elements.len() as u64, u64::MAX, false, u32::MAX);
        let page = page.wait().expect("it can be read");
        let before = elements.len();
        elements.extend(
            page.iter()
                .map(|(key, value)| (key.to_vec(), value.to_vec())),
        );
        assert!(
            elements.len() > before,
            "it has as many elements as it says"
        );
    }
    Content::Elements(elements)
}
