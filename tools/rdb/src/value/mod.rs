//! Values, an element at a time.
//!
//! A step reads one part: a string, a pair, an element of a blob. It is read again from its
//! beginning when more bytes have come, so a caller keeps bytes from [`Decoder::at`] on.
//!
//! - V1: what a step does not end changes nothing but strings that are being unpacked.

mod blob;
mod stream;
mod strings;

use self::blob::Blob;
use self::stream::Stream;
pub(crate) use self::strings::{Span, Strings};
use crate::error::{Error, Problem, Stop};
use crate::listpack::Element;
use crate::text::Text;
use crate::window::{Cursor, Window};

pub use self::stream::{Fields, Id, StreamHead};

/// What a value is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ValueKind {
    /// A string.
    String,
    /// A list.
    List,
    /// A set.
    Set,
    /// A hash.
    Hash,
    /// A sorted set.
    SortedSet,
    /// A stream.
    Stream,
}

/// How a value is encoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Encoding {
    Plain,
    /// Scores are bytes of a double.
    Binary,
    Blob(BlobKind),
    /// Ziplists in a list.
    Ziplists,
    /// Listpacks and long elements in a list.
    Nodes,
    /// A stream, by the version of its form.
    Stream(u8),
}

/// What a string that holds elements is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum BlobKind {
    Listpack,
    Ziplist,
    Zipmap,
    Intset,
}

/// A part of a value.
#[derive(Clone, Copy, Debug)]
pub enum Item<'a> {
    /// At most this many elements follow. It comes first for a set, a hash or a sorted set, so that
    /// a caller can prepare to find those that occur twice.
    Count(u64),
    /// A whole string.
    String(Text<'a>),
    /// An element of a list, or a member of a set.
    Element(Text<'a>),
    /// A field of a hash, and its value.
    Pair(Text<'a>, Text<'a>),
    /// A member of a sorted set, and its score.
    Scored(Text<'a>, f64),
    /// An entry of a stream; they come in order.
    Entry(Id, Fields<'a>),
    /// What a stream is beside its entries, behind them.
    Stream(StreamHead),
    /// A group of a stream; groups come in the order of their names.
    Group {
        /// Its name.
        name: Text<'a>,
        /// The last ID that was delivered.
        last_id: Id,
        /// Entries that were read, if that is known.
        entries_read: Option<u64>,
    },
    /// An ID that is pending in the group before; they come in order.
    Pending {
        /// It.
        id: Id,
        /// When it was delivered last, in milliseconds since 1970.
        delivered_ms: u64,
        /// How often it was delivered.
        deliveries: u64,
    },
    /// A consumer of the group before; consumers come in the order of their names.
    Consumer {
        /// Its name.
        name: Text<'a>,
        /// When it was seen, in milliseconds since 1970.
        seen_ms: u64,
    },
    /// An ID that is pending at the consumer before. Each pending ID of a group is, at one.
    Owned(Id),
}

/// What a step came to.
#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    /// A part of the value.
    Item(Item<'a>),
    /// More bytes are needed.
    More,
    /// It unpacks a string to this many bytes once [`Decoder::allow`] has allowed it.
    Room(usize),
    /// Some was done, and there was no part.
    Busy,
    /// The value has ended at [`Decoder::at`].
    End,
}

/// A part, as places of its bytes.
#[derive(Clone, Debug)]
enum Found {
    Count(u64),
    String(Span),
    Element(Span),
    Pair(Span, Span),
    Scored(Span, f64),
    InBlob(Element),
    PairInBlob(Element, Element),
    ScoredInBlob(Element, f64),
    Entry(Id, stream::FieldPlaces),
    Stream(StreamHead),
    Group(Span, Id, Option<u64>),
    Pending(Id, u64, u64),
    Consumer(Span, u64),
    Owned(Id),
    Nothing,
    End,
}

#[derive(Clone, Debug)]
enum State {
    Begin,
    /// Elements that are left.
    Plain(u64),
    /// Nodes that are left.
    Nodes(u64),
    Blob(Blob, u64),
    Stream(Box<Stream>),
    Done,
}

/// Reads one value.
///
/// ```
/// use farcore_rdb::{Decoder, Item, Step, Window};
///
/// let payload = b"\x02two";
/// let mut decoder = Decoder::new(0, 0).unwrap();
/// let step = decoder.next(Window::whole(payload)).unwrap();
/// assert!(matches!(step, Step::Item(Item::String(_))));
/// # let _ = decoder;
/// ```
#[derive(Clone, Debug)]
pub struct Decoder {
    kind: ValueKind,
    encoding: Encoding,
    state: State,
    strings: Strings,
    at: u64,
    /// Elements that were found.
    count: u64,
    /// Fields of an entry of a stream, at most.
    pairs_max: u64,
}

impl Decoder {
    /// A decoder of a value of a type, which begins at a place.
    ///
    /// # Errors
    /// No such value is read.
    pub fn new(value_type: u8, at: u64) -> Result<Self, Error> {
        let blob = |kind| Encoding::Blob(kind);
        let (kind, encoding) = match value_type {
            0 => (ValueKind::String, Encoding::Plain),
            1 => (ValueKind::List, Encoding::Plain),
            2 => (ValueKind::Set, Encoding::Plain),
            3 => (ValueKind::SortedSet, Encoding::Plain),
            4 => (ValueKind::Hash, Encoding::Plain),
            5 => (ValueKind::SortedSet, Encoding::Binary),
            9 => (ValueKind::Hash, blob(BlobKind::Zipmap)),
            10 => (ValueKind::List, blob(BlobKind::Ziplist)),
            11 => (ValueKind::Set, blob(BlobKind::Intset)),
            12 => (ValueKind::SortedSet, blob(BlobKind::Ziplist)),
            13 => (ValueKind::Hash, blob(BlobKind::Ziplist)),
            14 => (ValueKind::List, Encoding::Ziplists),
            15 => (ValueKind::Stream, Encoding::Stream(1)),
            16 => (ValueKind::Hash, blob(BlobKind::Listpack)),
            17 => (ValueKind::SortedSet, blob(BlobKind::Listpack)),
            18 => (ValueKind::List, Encoding::Nodes),
            19 => (ValueKind::Stream, Encoding::Stream(2)),
            20 => (ValueKind::Set, blob(BlobKind::Listpack)),
            21 => (ValueKind::Stream, Encoding::Stream(3)),
            6 | 7 => {
                return Err(Error {
                    problem: Problem::Module,
                    at,
                });
            }
            22..=25 => {
                return Err(Error {
                    problem: Problem::FieldExpiry,
                    at,
                });
            }
            other => {
                return Err(Error {
                    problem: Problem::Type(other),
                    at,
                });
            }
        };
        Ok(Self {
            kind,
            encoding,
            state: State::Begin,
            strings: Strings::default(),
            at,
            count: 0,
            pairs_max: u64::MAX,
        })
    }

    /// What the value is.
    #[must_use]
    pub fn kind(&self) -> ValueKind {
        self.kind
    }

    /// The first byte that it still needs.
    #[must_use]
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Allows it to unpack a string of this many bytes, and all shorter ones. It holds two such
    /// strings at most.
    pub fn allow(&mut self, bytes: usize) {
        self.strings.allow(bytes);
    }

    /// Has it refuse entries of a stream with more fields, before it walks these.
    pub fn limit_fields(&mut self, pairs_max: u64) {
        self.pairs_max = pairs_max;
    }

    /// Bytes that it holds of strings that it has unpacked.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.strings.held_bytes()
    }

    /// Goes on by one step.
    ///
    /// # Errors
    /// The bytes are no such value.
    pub fn next<'a>(&'a mut self, window: Window<'a>) -> Result<Step<'a>, Error> {
        self.next_noting(window, |_| ())
    }

    /// True if the next step is [`Step::End`].
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// As [`Decoder::next`]; `note` gets the first byte that is needed then, if the step was made.
    pub(crate) fn next_noting<'a>(
        &'a mut self,
        window: Window<'a>,
        note: impl FnOnce(u64),
    ) -> Result<Step<'a>, Error> {
        let mut cursor = Cursor::new(window, self.at);
        let advanced = self.advance(&mut cursor, window);
        if advanced.is_ok() {
            note(self.at);
        }
        match advanced {
            Ok(Found::End) => Ok(Step::End),
            Ok(Found::Nothing) => Ok(Step::Busy),
            Ok(found) => Ok(Step::Item(self.item(found, window))),
            Err(Stop::More) => Ok(Step::More),
            Err(Stop::Room(bytes)) => Ok(Step::Room(bytes)),
            Err(Stop::Busy) => Ok(Step::Busy),
            Err(Stop::Bad(problem)) => Err(Error {
                problem,
                at: self.at,
            }),
        }
    }

    fn item<'a>(&'a self, found: Found, window: Window<'a>) -> Item<'a> {
        let text = |span: &Span| self.strings.text(span, window);
        let blob = self.blob_bytes(window);
        match found {
            Found::Count(count) => Item::Count(count),
            Found::String(span) => Item::String(text(&span)),
            Found::Element(span) => Item::Element(text(&span)),
            Found::Pair(field, value) => Item::Pair(text(&field), text(&value)),
            Found::Scored(member, score) => Item::Scored(text(&member), score),
            Found::InBlob(element) => Item::Element(element.text(blob)),
            Found::PairInBlob(field, value) => Item::Pair(field.text(blob), value.text(blob)),
            Found::ScoredInBlob(member, score) => Item::Scored(member.text(blob), score),
            Found::Entry(id, fields) => Item::Entry(id, fields.of(blob)),
            Found::Stream(head) => Item::Stream(head),
            Found::Group(name, last_id, entries_read) => Item::Group {
                name: text(&name),
                last_id,
                entries_read,
            },
            Found::Pending(id, delivered_ms, deliveries) => Item::Pending {
                id,
                delivered_ms,
                deliveries,
            },
            Found::Consumer(name, seen_ms) => Item::Consumer {
                name: text(&name),
                seen_ms,
            },
            Found::Owned(id) => Item::Owned(id),
            Found::Nothing | Found::End => Item::Count(0),
        }
    }

    /// The bytes of the blob whose elements are read.
    fn blob_bytes<'a>(&'a self, window: Window<'a>) -> &'a [u8] {
        match &self.state {
            State::Blob(blob, _) => self.strings.bytes(&blob.span, window),
            State::Stream(stream) => match stream.node() {
                Some(span) => self.strings.bytes(span, window),
                None => &[],
            },
            _ => &[],
        }
    }

    fn advance(&mut self, cursor: &mut Cursor<'_>, window: Window<'_>) -> Result<Found, Stop> {
        let found = match &mut self.state {
            State::Begin => self.begin(cursor, window)?,
            State::Plain(0) | State::Nodes(0) => return self.end(),
            State::Plain(_) => self.plain(cursor, window)?,
            State::Nodes(_) => self.node(cursor, window)?,
            State::Blob(..) => return self.in_blob(window),
            State::Stream(stream) => {
                let (found, at) = stream.advance(&mut self.strings, cursor, window)?;
                if matches!(found, Found::End) {
                    self.state = State::Done;
                }
                self.at = at;
                return Ok(found);
            }
            State::Done => return Ok(Found::End),
        };
        self.at = cursor.at();
        Ok(found)
    }

    fn end(&mut self) -> Result<Found, Stop> {
        if self.count == 0 {
            return Err(Problem::Empty.into());
        }
        self.state = State::Done;
        Ok(Found::End)
    }

    /// Reads what comes before the elements.
    fn begin(&mut self, cursor: &mut Cursor<'_>, window: Window<'_>) -> Result<Found, Stop> {
        let each = match (self.kind, self.encoding) {
            (ValueKind::String, _) => {
                let span = self.strings.fetch(0, cursor, window)?;
                self.state = State::Done;
                return Ok(Found::String(span));
            }
            (_, Encoding::Stream(version)) => {
                self.state =
                    State::Stream(Box::new(Stream::begin((version, self.pairs_max), cursor)?));
                return Ok(Found::Nothing);
            }
            (_, Encoding::Nodes | Encoding::Ziplists) => {
                self.state = State::Nodes(cursor.count(1)?);
                return Ok(Found::Nothing);
            }
            (_, Encoding::Blob(kind)) => return self.open_blob(kind, (cursor, window), 0),
            (ValueKind::SortedSet, Encoding::Binary) => 9,
            (ValueKind::SortedSet | ValueKind::Hash, _) => 2,
            _ => 1,
        };
        let count = cursor.count(each)?;
        self.state = State::Plain(count);
        Ok(match self.kind {
            ValueKind::List => Found::Nothing,
            _ => Found::Count(count),
        })
    }

    /// Opens a string that holds elements; `left` nodes follow.
    fn open_blob(
        &mut self,
        kind: BlobKind,
        (cursor, window): (&mut Cursor<'_>, Window<'_>),
        left: u64,
    ) -> Result<Found, Stop> {
        let before = self.at;
        let span = self.strings.fetch(0, cursor, window)?;
        let bytes = self.strings.bytes(&span, window);
        let blob = Blob::open(kind, (span, bytes), cursor.at())?;
        let most = blob.most(bytes.len());
        self.state = State::Blob(blob, left);
        // Its bytes are needed still.
        cursor.place = window.place(before);
        Ok(match self.kind {
            ValueKind::List => Found::Nothing,
            _ => Found::Count(most),
        })
    }

    /// Reads an element that is not in a blob.
    fn plain(&mut self, cursor: &mut Cursor<'_>, window: Window<'_>) -> Result<Found, Stop> {
        let first = self.strings.fetch(0, cursor, window)?;
        let found = match (self.kind, self.encoding) {
            (ValueKind::Hash, _) => {
                let value = self.strings.fetch(1, cursor, window)?;
                Found::Pair(first, value)
            }
            (ValueKind::SortedSet, Encoding::Binary) => {
                let score = f64::from_le_bytes(cursor.array()?);
                Found::Scored(first, checked(score)?)
            }
            (ValueKind::SortedSet, _) => Found::Scored(first, text_score(cursor, window)?),
            _ => Found::Element(first),
        };
        if let State::Plain(left) = &mut self.state {
            *left -= 1;
        }
        self.count += 1;
        Ok(found)
    }

    /// Reads a node of a list.
    fn node(&mut self, cursor: &mut Cursor<'_>, window: Window<'_>) -> Result<Found, Stop> {
        let State::Nodes(nodes) = &self.state else {
            return Ok(Found::Nothing);
        };
        let left = nodes - 1;
        if self.encoding == Encoding::Ziplists {
            return self.open_blob(BlobKind::Ziplist, (cursor, window), left);
        }
        match cursor.length()? {
            1 => {
                let element = self.strings.fetch(0, cursor, window)?;
                // Short ones stand in listpacks.
                if self.strings.text(&element, window).is_empty() {
                    return Err(Problem::Node.into());
                }
                self.state = State::Nodes(left);
                self.count += 1;
                Ok(Found::Element(element))
            }
            2 => self.open_blob(BlobKind::Listpack, (cursor, window), left),
            _ => Err(Problem::Node.into()),
        }
    }

    /// Reads an element of a blob.
    fn in_blob(&mut self, window: Window<'_>) -> Result<Found, Stop> {
        let State::Blob(blob, left) = &mut self.state else {
            return Ok(Found::Nothing);
        };
        let bytes = self.strings.bytes(&blob.span, window);
        let found = match self.kind {
            ValueKind::Hash => blob
                .pair(bytes)?
                .map(|(field, value)| Found::PairInBlob(field, value)),
            ValueKind::SortedSet => match blob.pair(bytes)? {
                Some((member, score)) => {
                    let score = match score {
                        Element::Integer(number) => number as f64,
                        Element::Bytes(range) => score_of(&bytes[range])?,
                    };
                    Some(Found::ScoredInBlob(member, score))
                }
                None => None,
            },
            _ => blob.element(bytes)?.map(Found::InBlob),
        };
        if let Some(found) = found {
            self.count += 1;
            return Ok(found);
        }
        // A node of a list may be empty, as long as others are not.
        self.at = blob.end;
        self.state = State::Nodes(*left);
        Ok(Found::Nothing)
    }
}

fn checked(score: f64) -> Result<f64, Problem> {
    if score.is_nan() {
        Err(Problem::Score)
    } else {
        Ok(score)
    }
}

/// The score that a text is.
fn score_of(text: &[u8]) -> Result<f64, Problem> {
    let text = std::str::from_utf8(text).map_err(|_| Problem::Score)?;
    checked(text.parse().map_err(|_| Problem::Score)?)
}

/// A score that is a text behind its length, which also says what is no number.
fn text_score(cursor: &mut Cursor<'_>, window: Window<'_>) -> Result<f64, Stop> {
    Ok(match cursor.byte()? {
        255 => f64::NEG_INFINITY,
        254 => f64::INFINITY,
        253 => return Err(Problem::Score.into()),
        bytes => {
            let range = cursor.take(u64::from(bytes))?;
            score_of(&window.bytes[range])?
        }
    })
}
