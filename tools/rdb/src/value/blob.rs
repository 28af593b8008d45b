//! A string that holds elements, as it is walked.

use super::BlobKind;
use super::strings::Span;
use crate::error::Problem;
use crate::listpack::{self, Element};
use crate::{intset, ziplist, zipmap};

#[derive(Clone, Debug)]
enum Walk {
    Listpack(usize),
    Ziplist(ziplist::Walk),
    Zipmap(usize),
    Intset(usize),
}

#[derive(Clone, Debug)]
pub(super) struct Blob {
    pub(super) span: Span,
    /// Where what follows it stands.
    pub(super) end: u64,
    walk: Walk,
    /// Elements that it says it has, pairs in a zipmap.
    declared: Option<u64>,
    found: u64,
}

impl Blob {
    pub(super) fn open(
        kind: BlobKind,
        (span, bytes): (Span, &[u8]),
        end: u64,
    ) -> Result<Self, Problem> {
        let (walk, declared) = match kind {
            BlobKind::Listpack => {
                let (at, count) = listpack::begin(bytes)?;
                (Walk::Listpack(at), count)
            }
            BlobKind::Ziplist => {
                let (walk, count) = ziplist::begin(bytes)?;
                (Walk::Ziplist(walk), count)
            }
            BlobKind::Zipmap => {
                let (at, count) = zipmap::begin(bytes)?;
                (Walk::Zipmap(at), count)
            }
            BlobKind::Intset => (Walk::Intset(0), Some(intset::begin(bytes)?)),
        };
        Ok(Self {
            span,
            end,
            walk,
            declared,
            found: 0,
        })
    }

    /// Elements that it has at most, if it has this many bytes.
    pub(super) fn most(&self, bytes: usize) -> u64 {
        self.declared.unwrap_or(bytes as u64 / 2)
    }

    /// Notes an element; no more may be there than are declared.
    fn note(&mut self) -> Result<(), Problem> {
        self.found += 1;
        match self.declared {
            Some(declared) if declared < self.found => Err(self.problem()),
            _ => Ok(()),
        }
    }

    fn problem(&self) -> Problem {
        match self.walk {
            Walk::Listpack(_) => Problem::Listpack,
            Walk::Ziplist(_) => Problem::Ziplist,
            Walk::Zipmap(_) => Problem::Zipmap,
            Walk::Intset(_) => Problem::Intset,
        }
    }

    fn check_end(&self) -> Result<(), Problem> {
        match self.declared {
            Some(declared) if declared != self.found => Err(self.problem()),
            _ => Ok(()),
        }
    }

    /// The next element; `None` at the end.
    pub(super) fn element(&mut self, bytes: &[u8]) -> Result<Option<Element>, Problem> {
        let found = match &mut self.walk {
            Walk::Listpack(at) => listpack::next(bytes, *at)?.map(|(element, behind)| {
                *at = behind;
                element
            }),
            Walk::Ziplist(walk) => ziplist::next(bytes, *walk)?.map(|(element, behind)| {
                *walk = behind;
                element
            }),
            Walk::Intset(number) => intset::next(bytes, *number)?.map(|integer| {
                *number += 1;
                Element::Integer(integer)
            }),
            // Its elements are pairs.
            Walk::Zipmap(_) => return Err(Problem::Zipmap),
        };
        match &found {
            Some(_) => self.note()?,
            None => self.check_end()?,
        }
        Ok(found)
    }

    /// The next two elements; `None` at the end.
    pub(super) fn pair(&mut self, bytes: &[u8]) -> Result<Option<(Element, Element)>, Problem> {
        if let Walk::Zipmap(at) = &mut self.walk {
            let Some((field, value, behind)) = zipmap::next(bytes, *at)? else {
                self.check_end()?;
                return Ok(None);
            };
            *at = behind;
            self.note()?;
            return Ok(Some((Element::Bytes(field), Element::Bytes(value))));
        }
        let Some(first) = self.element(bytes)? else {
            return Ok(None);
        };
        let second = self.element(bytes)?;
        second
            .map(|second| Some((first, second)))
            .ok_or(self.problem())
    }
}
