//! The put of a long value: begin, pieces, commit; or abort. The commit may be a put of its own.

use super::{LongPieces, Routed, WINDOW};
use crate::client::call::PutOutcome;
use crate::client::shard_requests::ShardRequests;
use crate::error::{Error, Result};
use crate::message::change::{Change, PutOptions};
use crate::message::hash::{Hasher128, IndexHash};
use crate::message::long::{long_parts, piece_key, word};
use crate::message::operation::{OperationKind, RequestParts};
use crate::message::outcome::Answer;

/// What is done next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Begin,
    Write,
    Commit,
    Abort,
    End,
}

/// One put of a long value.
pub(crate) struct LongPut<'a, I: Iterator> {
    routed: Routed<'a>,
    hasher: Hasher128,
    options: PutOptions<'a>,
    said: u64,
    /// Where the bytes come from, how many came, and the part of which the rest is to be taken.
    source: I,
    given: u64,
    part: Option<(I::Item, usize)>,
    /// The next piece.
    piece: Vec<u8>,
    id: u64,
    piece_bytes: usize,
    stage: Stage,
    /// The request of the stage was sent; of writes, how many.
    sent: u32,
    answered: u32,
    outcome: Option<PutOutcome>,
    error: Option<Error>,
    /// It ends before the commit, or begins with it: its pieces stay unless it fails before.
    is_partial: bool,
}

impl<'a, B: AsRef<[u8]>, I: Iterator<Item = B>> LongPut<'a, I> {
    pub(crate) fn new(
        routed: Routed<'a>,
        hasher: Hasher128,
        said: u64,
        source: I,
        options: PutOptions<'a>,
    ) -> Self {
        Self {
            routed,
            hasher,
            options,
            said,
            source,
            given: 0,
            part: None,
            piece: Vec::new(),
            id: 0,
            piece_bytes: 0,
            stage: Stage::Begin,
            sent: 0,
            answered: 0,
            outcome: None,
            error: None,
            is_partial: false,
        }
    }

    /// A put up to the commit, which comes later.
    pub(crate) fn uncommitted(routed: Routed<'a>, hasher: Hasher128, said: u64, source: I) -> Self {
        Self {
            is_partial: true,
            ..Self::new(routed, hasher, said, source, PutOptions::default())
        }
    }

    /// The commit of pieces that were written before. If it does not happen they stay.
    pub(crate) fn commit_of(
        routed: Routed<'a>,
        hasher: Hasher128,
        pieces: &LongPieces,
        source: I,
        options: PutOptions<'a>,
    ) -> Self {
        Self {
            is_partial: true,
            stage: Stage::Commit,
            id: pieces.id,
            ..Self::new(routed, hasher, pieces.length, source, options)
        }
    }

    /// The pieces that were written.
    pub(crate) fn written(self) -> Result<LongPieces> {
        match self.error {
            Some(error) => Err(error),
            None if self.stage != Stage::End => Err(Error::Closed),
            None => Ok(LongPieces {
                shard: self.routed.shard,
                id: self.id,
                length: self.said,
                piece_bytes: self.piece_bytes as u64,
            }),
        }
    }

    pub(crate) fn result(self) -> Result<PutOutcome> {
        match (self.error, self.outcome) {
            (Some(error), _) => Err(error),
            (None, Some(outcome)) => Ok(outcome),
            (None, None) => Err(Error::Closed),
        }
    }

    fn pieces(&self) -> u64 {
        self.said.div_ceil(self.piece_bytes.max(1) as u64)
    }

    /// Takes bytes for the next piece; false if they are not there yet, or, with an error, if there
    /// are too few.
    fn fill(&mut self) -> bool {
        let before = u64::from(self.sent) * self.piece_bytes as u64;
        let left = usize::try_from(self.said - before).unwrap_or(usize::MAX);
        let wanted = left.min(self.piece_bytes);
        while self.piece.len() < wanted {
            let Some((part, at)) = &mut self.part else {
                let Some(part) = self.source.next() else {
                    self.fail(Error::LongValueLength {
                        said: self.said,
                        given: self.given,
                    });
                    return false;
                };
                if part.as_ref().is_empty() {
                    return false;
                }
                self.given += part.as_ref().len() as u64;
                self.part = Some((part, 0));
                continue;
            };
            let rest = &part.as_ref()[*at..];
            let taken = rest.len().min(wanted - self.piece.len());
            self.piece.extend_from_slice(&rest[..taken]);
            *at += taken;
            if taken == rest.len() {
                self.part = None;
            }
        }
        true
    }

    /// True, with an error, if more bytes are given than were said.
    fn has_too_many(&mut self) -> bool {
        while self.given <= self.said
            && let Some(bytes) = self.source.next()
        {
            self.given += bytes.as_ref().len() as u64;
        }
        let too_many = self.given > self.said;
        if too_many {
            self.fail(Error::LongValueLength {
                said: self.said,
                given: self.given,
            });
        }
        too_many
    }

    fn fail(&mut self, error: Error) {
        self.error.get_or_insert(error);
        let is_kept = self.is_partial && self.stage == Stage::Commit;
        self.go_to(if self.stage == Stage::Begin || is_kept {
            Stage::End
        } else {
            Stage::Abort
        });
    }

    fn go_to(&mut self, stage: Stage) {
        if self.stage != stage {
            (self.stage, self.sent) = (stage, 0);
        }
    }

    fn change(&self) -> Change<'a> {
        Change::Put {
            value: &[],
            expiry: self.options.expiry,
            condition: self.options.condition,
            previous: false,
        }
    }
}

/// Numbers of requests.
const BEGIN: u32 = 0;
const WRITE: u32 = 1;
const COMMIT: u32 = 2;
const ABORT: u32 = 3;

impl<B: AsRef<[u8]>, I: Iterator<Item = B>> ShardRequests for LongPut<'_, I> {
    fn next<T>(
        &mut self,
        send: impl FnOnce(u16, IndexHash, u32, &RequestParts<'_>) -> (bool, T),
    ) -> Option<T> {
        let Routed { key, shard, hash } = self.routed;
        if self.stage == Stage::Write {
            let under_way = self.sent - self.answered;
            if u64::from(self.sent) == self.pieces() {
                if under_way > 0 {
                    return None;
                }
                if !self.has_too_many() {
                    self.go_to(if self.is_partial {
                        Stage::End
                    } else {
                        Stage::Commit
                    });
                }
            } else if under_way == WINDOW {
                return None;
            } else if !self.fill() {
                if self.stage == Stage::Write {
                    return None;
                }
            } else {
                let name = piece_key(self.id, self.sent);
                let hash = self.hasher.hash(&name).index;
                let parts = long_parts(OperationKind::LongWrite, &name, &self.piece);
                let (is_sent, result) = send(shard, hash, WRITE, &parts);
                if is_sent {
                    self.sent += 1;
                    self.piece.clear();
                }
                return Some(result);
            }
        }
        let name = piece_key(self.id, 0);
        let mut value = Vec::new();
        let (kind, key, hash, number) = match self.stage {
            _ if self.sent > 0 => return None,
            Stage::Begin => {
                value.extend(self.said.to_le_bytes());
                (OperationKind::LongBegin, key, IndexHash(0), BEGIN)
            }
            Stage::Commit => {
                let mut put = Vec::new();
                self.change().encode(&mut put);
                value.extend(self.id.to_le_bytes());
                value.extend(put);
                (OperationKind::LongCommit, key, hash, COMMIT)
            }
            Stage::Abort => (OperationKind::LongAbort, &name[..], IndexHash(0), ABORT),
            Stage::Write | Stage::End => return None,
        };
        let (is_sent, result) = send(shard, hash, number, &long_parts(kind, key, &value));
        self.sent = u32::from(is_sent);
        Some(result)
    }

    fn take(&mut self, number: u32, answer: Answer<'_>) {
        match (number, answer) {
            (BEGIN, Answer::Value { version, value }) => {
                self.id = version;
                self.piece_bytes = usize::try_from(word(value, 0)).unwrap_or(usize::MAX);
                self.go_to(Stage::Write);
            }
            (BEGIN, Answer::Failed(error)) => self.fail(error.clone()),
            (WRITE, answer) => {
                self.answered += 1;
                match answer {
                    Answer::Stored { .. } => {}
                    Answer::Failed(error) => self.fail(error.clone()),
                    _ => self.fail(Error::LongValueGone),
                }
            }
            (COMMIT, answer) => {
                let outcome = match answer {
                    Answer::Stored { version } => PutOutcome::Stored(version),
                    Answer::Mismatch { current } => PutOutcome::Unmet(current),
                    Answer::Failed(error) => return self.fail(error.clone()),
                    _ => PutOutcome::Expired,
                };
                self.outcome = Some(outcome);
                // Nothing was adopted: the pieces are not needed.
                self.go_to(match outcome {
                    _ if self.is_partial => Stage::End,
                    PutOutcome::Stored(_) => Stage::End,
                    PutOutcome::Unmet(_) | PutOutcome::Expired => Stage::Abort,
                });
            }
            (ABORT, _) => self.go_to(Stage::End),
            _ => self.fail(Error::Closed),
        }
    }

    fn is_done(&self) -> bool {
        self.stage == Stage::End
    }
}
