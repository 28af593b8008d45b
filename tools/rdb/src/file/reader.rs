//! Reads a file.

use super::{HEAD_BYTES, MAGIC, SUMMED_FROM, records};
use crate::VERSION_MAX;
use crate::crc64::Crc64;
use crate::error::{Error, Problem, Stop};
use crate::text::Text;
use crate::value::{Decoder, Item, Step, ValueKind};
use crate::window::{Cursor, Window};

/// What comes before a value.
#[derive(Clone, Copy, Debug)]
pub struct KeyHead<'a> {
    /// The key.
    pub key: Text<'a>,
    /// What its value is.
    pub kind: ValueKind,
    /// The type of its value, as a payload of `DUMP` begins.
    pub value_type: u8,
    /// When it expires, in milliseconds since 1970.
    pub expiry_ms: Option<u64>,
    /// For how long it was not used, in seconds.
    pub idle_s: Option<u64>,
    /// How often it was used, about.
    pub frequency: Option<u8>,
}

/// A part of a file.
#[derive(Clone, Copy, Debug)]
pub enum FileEvent<'a> {
    /// The version, which comes first.
    Version(u32),
    /// A note about the file, such as the version of its server.
    Note(Text<'a>, Text<'a>),
    /// What follows is of this database.
    Database(u64),
    /// Keys of the database, and those of them with an expiry.
    Sizes(u64, u64),
    /// A library of functions, which is passed over.
    Function,
    /// A key, whose value follows.
    Key(KeyHead<'a>),
    /// A part of the value of the key before.
    Item(Item<'a>),
    /// The value of the key before is whole.
    KeyEnd,
    /// The file is whole. True if its checksum was compared.
    End(bool),
}

/// What a step of a file came to; see [`Step`].
#[derive(Clone, Copy, Debug)]
pub enum FileStep<'a> {
    /// A part of the file.
    Event(FileEvent<'a>),
    /// More bytes are needed.
    More,
    /// It unpacks a string to this many bytes once [`FileReader::allow`] has allowed it.
    Room(usize),
    /// Some was done, and there was no part.
    Busy,
    /// The file has ended.
    End,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    Version(u32),
    Note,
    Database(u64),
    Sizes(u64, u64),
    Function,
    Key(u8),
    End(bool),
    Nothing,
}

#[derive(Clone, Debug)]
enum State {
    Begin,
    Records,
    Value(Box<Decoder>),
    Done,
}

/// Reads a file whose bytes come in pieces: a caller keeps those from [`FileReader::at`] on.
#[derive(Clone, Debug)]
pub struct FileReader {
    state: State,
    at: u64,
    version: u32,
    crc: Crc64,
    expiry_ms: Option<u64>,
    idle_s: Option<u64>,
    frequency: Option<u8>,
    /// Reads keys and notes.
    strings: crate::value::Strings,
    allowed: usize,
    spans: [Option<crate::value::Span>; 2],
}

impl Default for FileReader {
    fn default() -> Self {
        Self {
            state: State::Begin,
            at: 0,
            version: 0,
            crc: Crc64::default(),
            expiry_ms: None,
            idle_s: None,
            frequency: None,
            strings: crate::value::Strings::default(),
            allowed: 0,
            spans: [None, None],
        }
    }
}

impl FileReader {
    /// The first byte that it still needs.
    #[must_use]
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Allows it to unpack a string of this many bytes; see [`Decoder::allow`].
    pub fn allow(&mut self, bytes: usize) {
        self.allowed = self.allowed.max(bytes);
        self.strings.allow(bytes);
        if let State::Value(decoder) = &mut self.state {
            decoder.allow(bytes);
        }
    }

    /// Goes on by one step.
    ///
    /// # Errors
    /// The bytes are no such file.
    pub fn next<'a>(&'a mut self, window: Window<'a>) -> Result<FileStep<'a>, Error> {
        let before = self.at;
        if let State::Value(_) = self.state {
            return self.value(window);
        }
        let mut cursor = Cursor::new(window, before);
        let found = match self.record(&mut cursor, window) {
            Ok(found) => found,
            Err(Stop::More) => return Ok(FileStep::More),
            Err(Stop::Room(bytes)) => return Ok(FileStep::Room(bytes)),
            Err(Stop::Busy) => return Ok(FileStep::Busy),
            Err(Stop::Bad(problem)) => {
                return Err(Error {
                    problem,
                    at: before,
                });
            }
        };
        let Some(found) = found else {
            return Ok(FileStep::End);
        };
        self.at = cursor.at();
        if !matches!(found, Found::End(_)) {
            let passed = window.place(before)..window.place(self.at);
            self.crc.add(&window.bytes[passed]);
        }
        let text = |place: usize| match &self.spans[place] {
            Some(span) => self.strings.text(span, window),
            None => Text::Bytes(&[]),
        };
        let event = match found {
            Found::Version(version) => FileEvent::Version(version),
            Found::Note => FileEvent::Note(text(0), text(1)),
            Found::Database(number) => FileEvent::Database(number),
            Found::Sizes(keys, expiring) => FileEvent::Sizes(keys, expiring),
            Found::Function => FileEvent::Function,
            Found::End(is_summed) => FileEvent::End(is_summed),
            Found::Nothing => return Ok(FileStep::Busy),
            Found::Key(value_type) => {
                let mut decoder = Decoder::new(value_type, self.at)?;
                decoder.allow(self.allowed);
                let kind = decoder.kind();
                self.state = State::Value(Box::new(decoder));
                FileEvent::Key(KeyHead {
                    key: text(0),
                    kind,
                    value_type,
                    expiry_ms: self.expiry_ms.take(),
                    idle_s: self.idle_s.take(),
                    frequency: self.frequency.take(),
                })
            }
        };
        Ok(FileStep::Event(event))
    }

    /// Goes on with a value.
    fn value<'a>(&'a mut self, window: Window<'a>) -> Result<FileStep<'a>, Error> {
        // An item lies in the decoder until the next step, so the end is known before.
        if matches!(&self.state, State::Value(decoder) if decoder.is_over()) {
            self.state = State::Records;
            return Ok(FileStep::Event(FileEvent::KeyEnd));
        }
        let State::Value(decoder) = &mut self.state else {
            return Ok(FileStep::Busy);
        };
        let before = decoder.at();
        let at = &mut self.at;
        let crc = &mut self.crc;
        let step = decoder.next_noting(window, |now| {
            crc.add(&window.bytes[window.place(before)..window.place(now)]);
            *at = now;
        })?;
        Ok(match step {
            Step::Item(item) => FileStep::Event(FileEvent::Item(item)),
            Step::More => FileStep::More,
            Step::Room(bytes) => FileStep::Room(bytes),
            Step::Busy | Step::End => FileStep::Busy,
        })
    }

    /// Reads the head.
    fn begin(&mut self, cursor: &mut Cursor<'_>) -> Result<Found, Stop> {
        let head: [u8; HEAD_BYTES] = cursor.array()?;
        let (magic, digits) = head.split_at(MAGIC.len());
        let version = std::str::from_utf8(digits).ok();
        let version: Option<u32> = version.and_then(|digits| digits.parse().ok());
        let version = version.filter(|&version| magic == MAGIC && version > 0);
        self.version = version.ok_or(Problem::Magic)?;
        if self.version > u32::from(VERSION_MAX) {
            return Err(Problem::Version(self.version).into());
        }
        self.state = State::Records;
        Ok(Found::Version(self.version))
    }

    /// Reads a record; none behind the end.
    fn record(
        &mut self,
        cursor: &mut Cursor<'_>,
        window: Window<'_>,
    ) -> Result<Option<Found>, Stop> {
        match self.state {
            State::Begin => return self.begin(cursor).map(Some),
            State::Done => {
                return match cursor.left() {
                    Some(0) => Ok(None),
                    Some(_) => Err(Problem::Trailing.into()),
                    None => Err(Stop::More),
                };
            }
            State::Records | State::Value(_) => {}
        }
        Ok(Some(match cursor.byte()? {
            records::EXPIRY_MS => {
                self.expiry_ms = Some(u64::from_le_bytes(cursor.array()?));
                Found::Nothing
            }
            records::EXPIRY_S => {
                let seconds = u32::from_le_bytes(cursor.array()?);
                self.expiry_ms = Some(u64::from(seconds) * 1000);
                Found::Nothing
            }
            records::IDLE => {
                self.idle_s = Some(cursor.length()?);
                Found::Nothing
            }
            records::FREQUENCY => {
                self.frequency = Some(cursor.byte()?);
                Found::Nothing
            }
            records::DATABASE => Found::Database(cursor.length()?),
            records::SIZES => Found::Sizes(cursor.length()?, cursor.length()?),
            records::SLOT => {
                let _ = (cursor.length()?, cursor.length()?, cursor.length()?);
                Found::Nothing
            }
            records::NOTE => {
                let name = self.strings.fetch(0, cursor, window)?;
                let value = self.strings.fetch(1, cursor, window)?;
                self.spans = [Some(name), Some(value)];
                Found::Note
            }
            records::FUNCTION => {
                self.strings.fetch(0, cursor, window)?;
                Found::Function
            }
            records::MODULE => return Err(Problem::Module.into()),
            records::FUNCTION_EARLY => {
                return Err(Problem::Record(records::FUNCTION_EARLY).into());
            }
            records::END => {
                let is_summed = self.end(cursor)?;
                self.state = State::Done;
                Found::End(is_summed)
            }
            value_type => {
                let key = self.strings.fetch(0, cursor, window)?;
                self.spans = [Some(key), None];
                Found::Key(value_type)
            }
        }))
    }

    /// Compares the checksum; false if there is none.
    fn end(&mut self, cursor: &mut Cursor<'_>) -> Result<bool, Stop> {
        if self.version < SUMMED_FROM {
            return Ok(false);
        }
        let checksum = u64::from_le_bytes(cursor.array()?);
        // A server that makes no checksums writes zeros.
        if checksum == 0 {
            return Ok(false);
        }
        let mut crc = self.crc;
        crc.add(&[records::END]);
        if crc.value() != checksum {
            return Err(Problem::Checksum.into());
        }
        Ok(true)
    }
}
