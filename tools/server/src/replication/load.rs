//! The data of a source: an RDB file of a length, or up to a mark, whose keys become commands.
//!
//! Nothing but the part that is read is held: a string, some elements of a collection, or a whole
//! stream, which only `RESTORE` makes as it was.
//!
//! - I1: a part of the file is held as its bytes come, up to [`PART_BYTES_MAX`]; what a length
//!   declares takes nothing.

use farcore_rdb::{FileEvent, FileReader, FileStep, ValueKind, Window};

use super::error::LinkError;
use super::inlet::Outgoing;
use super::input::Input;
use super::loaded_value::LoadedValue;
use super::source::take_line;
use crate::databases::DATABASES;

/// Bytes of a string or a stream, at most.
const PART_BYTES_MAX: usize = 64 << 20;
/// Bytes beside them: a head, and what comes with the last bytes.
const BESIDE_BYTES: usize = 1 << 20;
/// Bytes of the mark behind a file of no known length.
const MARK_BYTES: usize = 40;
/// What helps where a part is longer.
const REMEDY: &str = "delete or split the key at the source";

/// Where a file ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum End {
    Length(u64),
    Mark([u8; MARK_BYTES]),
}

impl End {
    /// That of the line before a file, once it is there.
    pub(super) fn take(input: &mut Input) -> Result<Option<Self>, LinkError> {
        let Some(line) = take_line(input)? else {
            return Ok(None);
        };
        let malformed = || LinkError::Malformed(format!("{line:?} announces no data"));
        if let Some(error) = line.strip_prefix('-') {
            return Err(LinkError::Refused {
                command: "PSYNC",
                reply: error.to_owned(),
            });
        }
        let text = line.strip_prefix('$').ok_or_else(malformed)?;
        let end = match text.strip_prefix("EOF:") {
            Some(mark) => mark.as_bytes().try_into().ok().map(Self::Mark),
            None => text.parse().ok().map(Self::Length),
        };
        end.map(Some).ok_or_else(malformed)
    }
}

/// Loads the data of a source.
#[derive(Debug)]
pub(super) struct Load {
    end: End,
    reader: FileReader,
    /// Where the input stands in the file.
    start: u64,
    value: Option<LoadedValue>,
    /// The database that the stream begins in.
    database: u64,
    is_whole: bool,
}

impl Load {
    pub(super) fn new(end: End) -> Self {
        Self {
            end,
            reader: FileReader::default(),
            start: 0,
            value: None,
            database: 0,
            is_whole: false,
        }
    }

    /// Bytes of the file that were read.
    pub(super) fn read_bytes(&self) -> u64 {
        self.reader.at()
    }

    /// Bytes that it has, if that is known.
    pub(super) fn total_bytes(&self) -> Option<u64> {
        match self.end {
            End::Length(bytes) => Some(bytes),
            End::Mark(_) => None,
        }
    }

    /// The database that the stream begins in.
    pub(super) fn database(&self) -> u64 {
        self.database
    }

    /// Makes commands of what has come, until there are some or more must come. True once the file
    /// is whole.
    pub(super) fn step(
        &mut self,
        input: &mut Input,
        out: &mut Outgoing,
    ) -> Result<bool, LinkError> {
        let before = out.commands();
        while !self.is_whole && out.commands() == before {
            if !self.read(input, out)? {
                return Ok(false);
            }
        }
        if !self.is_whole {
            return Ok(false);
        }
        let End::Mark(mark) = &self.end else {
            return Ok(true);
        };
        let Some(found) = input.rest().first_chunk::<MARK_BYTES>() else {
            return Ok(false);
        };
        if found != mark {
            let text = "the data do not end with their mark";
            return Err(LinkError::Malformed(text.to_owned()));
        }
        input.pass(MARK_BYTES);
        Ok(true)
    }

    /// Reads a part of the file. False if more bytes must come.
    fn read(&mut self, input: &mut Input, out: &mut Outgoing) -> Result<bool, LinkError> {
        let rest = input.rest();
        let left = match self.end {
            End::Length(bytes) => usize::try_from(bytes - self.start).unwrap_or(usize::MAX),
            End::Mark(_) => usize::MAX,
        };
        let window = Window {
            bytes: &rest[..rest.len().min(left)],
            start: self.start,
            is_last: rest.len() >= left,
        };
        let at = self.reader.at();
        let mut is_over = false;
        match self.reader.next(window)? {
            FileStep::Event(FileEvent::Database(number)) => {
                if number >= DATABASES.into() {
                    return Err(LinkError::NotStored(format!(
                        "the source has keys in database {number}, and there are {DATABASES} here; move them to another one"
                    )));
                }
                let number = number.to_string();
                out.add(&[b"SELECT", number.as_bytes()]);
            }
            FileStep::Event(FileEvent::Note(name, value)) if *name == *b"repl-stream-db" => {
                // A source that has none yet says -1, and selects one before its first command.
                let text = std::str::from_utf8(&value).ok();
                let number = text.and_then(|text| text.parse().ok());
                self.database = number.filter(|one| *one < DATABASES.into()).unwrap_or(0);
            }
            FileStep::Event(FileEvent::Key(head)) => {
                self.value = Some(LoadedValue::new(&head));
            }
            FileStep::Event(FileEvent::Item(item)) => {
                if let Some(value) = &mut self.value {
                    value.add(item, out);
                }
            }
            FileStep::Event(FileEvent::KeyEnd) => {
                if let Some(value) = self.value.take() {
                    let place = |at: u64| usize::try_from(at - self.start).unwrap_or(usize::MAX);
                    let payload = value.starts_at().and_then(|start| {
                        let end = place(at).min(rest.len());
                        rest.get(place(start)..end)
                    });
                    value.end(payload.unwrap_or_default(), out);
                }
            }
            FileStep::Event(FileEvent::End(_)) | FileStep::End => is_over = true,
            FileStep::Event(_) | FileStep::Busy => {}
            FileStep::Room(bytes) if bytes <= PART_BYTES_MAX => self.reader.allow(bytes),
            FileStep::Room(bytes) => return Err(too_long(bytes)),
            FileStep::More => {
                if rest.len() > PART_BYTES_MAX + BESIDE_BYTES {
                    return Err(too_long(rest.len()));
                }
                self.pass(input);
                return Ok(false);
            }
        }
        if let Some(value) = self
            .value
            .as_mut()
            .filter(|one| one.kind() == ValueKind::Stream)
        {
            value.note_start(self.reader.at());
        }
        if is_over {
            self.end(input)?;
        }
        Ok(true)
    }

    /// Drops what is read, but for the stream that is read.
    fn pass(&mut self, input: &mut Input) {
        let kept = self.value.as_ref().and_then(LoadedValue::starts_at);
        let to = kept.unwrap_or(self.reader.at());
        input.pass(usize::try_from(to - self.start).unwrap_or(usize::MAX));
        self.start = to;
    }

    fn end(&mut self, input: &mut Input) -> Result<(), LinkError> {
        self.pass(input);
        let read = self.reader.at();
        match self.end {
            End::Length(said) if said != read => Err(LinkError::Length { said, read }),
            _ => {
                self.is_whole = true;
                Ok(())
            }
        }
    }
}

fn too_long(bytes: usize) -> LinkError {
    LinkError::TooLong {
        what: "a value",
        bytes: bytes as u64,
        most: PART_BYTES_MAX as u64,
        remedy: REMEDY,
    }
}

#[cfg(test)]
mod tests {
    use farcore_rdb::write::{self, types};
    use farcore_rdb::{FileWriter, Packer};

    use super::*;
    use crate::random::Numbers;

    fn file() -> Vec<u8> {
        let (mut file, mut writer) = (Vec::new(), FileWriter::default());
        let mut packer = Packer::default();
        writer.begin(&mut file);
        writer.aux(&mut file, b"repl-stream-db", b"2");
        writer.database(&mut file, 2, (2, 1));
        writer.key(&mut file, b"text", (types::STRING, Some(1_900_000_000_000)));
        write::string(&mut file, &[b'x'; 400], &mut packer);
        writer.key(&mut file, b"set", (types::SET, Some(1_900_000_000_000)));
        write::length(&mut file, 100);
        for member in 0..100 {
            write::string(&mut file, member.to_string().as_bytes(), &mut packer);
        }
        writer.note(&file);
        file.extend(writer.end());
        file
    }

    /// Loads bytes that come in pieces; returns what is passed on, and whether they were whole.
    fn load(end: End, bytes: &[u8], step: usize) -> Result<(Load, Vec<u8>, bool), LinkError> {
        let (mut input, mut out) = (Input::default(), Outgoing::default());
        let (mut load, mut is_whole) = (Load::new(end), false);
        for part in bytes.chunks(step) {
            input.add(part);
            loop {
                let before = (load.read_bytes(), out.commands());
                is_whole = is_whole || load.step(&mut input, &mut out)?;
                if is_whole || before == (load.read_bytes(), out.commands()) {
                    break;
                }
            }
        }
        Ok((load, out.take(), is_whole))
    }

    #[test]
    fn a_file_is_the_same_however_it_is_split_and_ended() {
        let file = file();
        let mark = [b'm'; MARK_BYTES];
        let marked = [&file[..], &mark].concat();
        let length = End::Length(file.len() as u64);
        let (_, wanted, _) = load(length.clone(), &file, file.len()).expect("a file");
        let text = String::from_utf8_lossy(&wanted).into_owned();
        assert!(text.starts_with("*2\r\n$6\r\nSELECT\r\n$1\r\n2\r\n*5\r\n$3\r\nSET\r\n"));
        assert_eq!(text.matches("SADD").count(), 2);
        assert!(text.ends_with("PEXPIREAT\r\n$3\r\nset\r\n$13\r\n1900000000000\r\n"));
        for step in 1..file.len() {
            for (end, bytes) in [(length.clone(), &file), (End::Mark(mark), &marked)] {
                let (load, out, is_whole) = load(end, bytes, step).expect("a file");
                assert_eq!(
                    (out, is_whole),
                    (wanted.clone(), true),
                    "in steps of {step}"
                );
                assert_eq!(load.database(), 2);
            }
        }
    }

    #[test]
    fn no_bytes_cause_a_panic_and_none_that_are_changed_are_whole() {
        let (file, mut numbers) = (file(), Numbers::new());
        for _ in 0..5_000 {
            let mut bytes = file.clone();
            let at = numbers.below(bytes.len());
            let before = bytes[at];
            bytes[at] ^= u8::try_from(1 + numbers.below(255)).unwrap_or(1);
            let loaded = load(
                End::Length(bytes.len() as u64),
                &bytes,
                1 + numbers.below(90),
            );
            let is_whole = loaded.is_ok_and(|(.., is_whole)| is_whole);
            // Versions without a checksum are read as they are.
            let is_unsummed = (5..9).contains(&at);
            assert!(
                !is_whole || is_unsummed,
                "byte {at}: {before} -> {}",
                bytes[at]
            );
        }
    }

    #[test]
    fn a_length_or_a_mark_ends_a_file() {
        let end = |text: &[u8]| {
            let mut input = Input::default();
            input.add(text);
            End::take(&mut input).ok()
        };
        assert_eq!(end(b"\n\n$17\r\n"), Some(Some(End::Length(17))));
        let marked = [b"$EOF:".as_slice(), &[b'a'; MARK_BYTES], b"\r\n"].concat();
        assert_eq!(end(&marked), Some(Some(End::Mark([b'a'; MARK_BYTES]))));
        assert_eq!(end(b"$1"), Some(None));
        for text in [&b"17\r\n"[..], b"$-1\r\n", b"$EOF:abc\r\n", b"-ERR no\r\n"] {
            assert_eq!(end(text), None);
        }
    }
}
