//! JSON files: an array of flat objects, or objects one after the other, such as one a line.
//!
//! - I1: the document is never in memory as a tree: an object is read field by field, and a value
//!   that is an array or object itself ends the import at once.
//! - I2: the columns are the names of all objects, in the order in which they appear. A field that
//!   an object does not have is missing, and so is `null`; of a field that it has twice, the last
//!   counts.
//!
//! `true` and `false` are 1 and 0, but in columns with texts. A column with integers and other
//! numbers has numbers.

use std::cell::Cell as SharedCell;
use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{BufReader, Read};
use std::rc::Rc;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::string_guard::{StringGuard, TooLong};
use super::{Input, Source, csv::check_rows, text, unreadable};
use crate::data::cell::{Cell, Column, ColumnType, RowSink, number_text};
use crate::data::limits::broken;
use crate::data::names::ColumnNames;
use crate::error::{ApiError, ApiResult};

/// Bytes that are read at once.
const BLOCK_BYTES: usize = 64 << 10;

/// A value of a field.
#[derive(Clone, PartialEq, Debug)]
enum Scalar {
    Null,
    Boolean(bool),
    Integer(i64),
    Number(f64),
    Text(String),
}

/// What was seen in a column.
#[derive(Clone, Copy, Default, Debug)]
struct Seen {
    integers: bool,
    numbers: bool,
    texts: bool,
}

impl Seen {
    fn add(&mut self, value: &Scalar) {
        match value {
            Scalar::Null => {}
            Scalar::Boolean(_) | Scalar::Integer(_) => self.integers = true,
            Scalar::Number(_) => self.numbers = true,
            Scalar::Text(_) => self.texts = true,
        }
    }

    fn kind(self) -> ColumnType {
        match self {
            Self { texts: true, .. } => ColumnType::Text,
            Self { numbers: true, .. } => ColumnType::Number,
            Self { integers: true, .. } => ColumnType::Integer,
            _ => ColumnType::Text,
        }
    }
}

impl Scalar {
    /// Makes the value a text, as columns with texts have it.
    fn into_text(self) -> Self {
        match self {
            Self::Boolean(value) => Self::Text(value.to_string()),
            Self::Integer(value) => Self::Text(value.to_string()),
            Self::Number(value) => Self::Text(number_text(value)),
            other => other,
        }
    }

    fn cell(&self, kind: ColumnType) -> Cell<'_> {
        match (self, kind) {
            (Self::Null, _) => Cell::Null,
            (Self::Boolean(value), ColumnType::Integer) => Cell::Integer(i64::from(*value)),
            (Self::Boolean(value), _) => Cell::Number(f64::from(u8::from(*value))),
            (Self::Integer(value), ColumnType::Integer) => Cell::Integer(*value),
            (Self::Integer(value), _) => Cell::Number(*value as f64),
            (Self::Number(value), _) => Cell::number(*value),
            (Self::Text(text), _) => Cell::Text(text),
        }
    }
}

/// The names of fields, by appearance.
#[derive(Debug, Default)]
struct Fields {
    places: HashMap<String, usize>,
    names: ColumnNames,
    named: Vec<String>,
}

/// Reads objects into one row, which it gives to `on_row`.
struct Reading<'a, F> {
    input: &'a Input<'a>,
    fields: &'a mut Fields,
    row: Vec<Scalar>,
    rows: u64,
    on_row: F,
    /// An error of our own, which the JSON reader only passes through.
    error: Option<ApiError>,
}

impl<F: FnMut(&mut Vec<Scalar>) -> ApiResult<()>> Reading<'_, F> {
    fn fail<E: Error>(&mut self, error: ApiError) -> E {
        self.error = Some(error);
        E::custom("stopped")
    }

    fn end_row(&mut self) -> ApiResult<()> {
        self.rows += 1;
        check_rows(self.rows, &self.input.limits, self.input)?;
        self.row.resize(self.fields.named.len(), Scalar::Null);
        (self.on_row)(&mut self.row)?;
        self.row.fill(Scalar::Null);
        Ok(())
    }

    fn place(&mut self, name: &str) -> ApiResult<usize> {
        if let Some(&place) = self.fields.places.get(name) {
            return Ok(place);
        }
        let place = self.fields.named.len();
        if place >= self.input.limits.columns {
            let here = format!("row {}", self.rows + 1);
            return Err(self.input.limits.too_many_columns(&here, place + 1));
        }
        let unique = self.fields.names.add(name, place)?;
        self.fields.named.push(unique);
        self.fields.places.insert(name.to_owned(), place);
        Ok(place)
    }
}

/// Reads the name of a field.
struct NameSeed<'r, 'a, F>(&'r mut Reading<'a, F>);

impl<'de, F: FnMut(&mut Vec<Scalar>) -> ApiResult<()>> DeserializeSeed<'de>
    for NameSeed<'_, '_, F>
{
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<usize, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de, F: FnMut(&mut Vec<Scalar>) -> ApiResult<()>> Visitor<'de> for NameSeed<'_, '_, F> {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<usize, E> {
        let place = self.0.place(name);
        place.map_err(|error| self.0.fail(error))
    }
}

/// Reads the value of a field.
struct ScalarSeed;

impl<'de> DeserializeSeed<'de> for ScalarSeed {
    type Value = Scalar;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Scalar, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ScalarSeed {
    type Value = Scalar;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, a text, true, false or null: nested values are not imported")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Scalar, E> {
        Ok(Scalar::Boolean(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Scalar, E> {
        Ok(Scalar::Integer(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Scalar, E> {
        // An integer beyond 64 bits with a sign is kept as the nearest number.
        Ok(i64::try_from(value).map_or(Scalar::Number(value as f64), Scalar::Integer))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Scalar, E> {
        Ok(Scalar::Number(value))
    }

    fn visit_str<E>(self, text: &str) -> Result<Scalar, E> {
        Ok(Scalar::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Scalar, E> {
        Ok(Scalar::Text(text))
    }

    fn visit_unit<E>(self) -> Result<Scalar, E> {
        Ok(Scalar::Null)
    }
}

/// Reads an object as a row.
struct RowSeed<'r, 'a, F>(&'r mut Reading<'a, F>);

impl<'de, F: FnMut(&mut Vec<Scalar>) -> ApiResult<()>> DeserializeSeed<'de> for RowSeed<'_, '_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, F: FnMut(&mut Vec<Scalar>) -> ApiResult<()>> Visitor<'de> for RowSeed<'_, '_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = self.0.rows + 1;
        write!(f, "row {row} to be an object of names and values")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        while let Some(place) = fields.next_key_seed(NameSeed(self.0))? {
            let value = fields.next_value_seed(ScalarSeed)?;
            if self.0.row.len() <= place {
                self.0.row.resize(place + 1, Scalar::Null);
            }
            self.0.row[place] = value;
        }
        let ended = self.0.end_row();
        ended.map_err(|error| self.0.fail(error))
    }
}

/// Reads an array of objects.
struct ArraySeed<'r, 'a, F>(&'r mut Reading<'a, F>);

impl<'de, F: FnMut(&mut Vec<Scalar>) -> ApiResult<()>> Visitor<'de> for ArraySeed<'_, '_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of objects, or one object a line")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut rows: A) -> Result<(), A::Error> {
        while rows.next_element_seed(RowSeed(self.0))?.is_some() {}
        Ok(())
    }
}

/// The first byte that is no space.
fn first_byte(file: &File) -> ApiResult<Option<u8>> {
    for byte in BufReader::new(text(file)?).bytes() {
        let byte = byte.map_err(unreadable)?;
        if !byte.is_ascii_whitespace() {
            return Ok(Some(byte));
        }
    }
    Ok(None)
}

/// Gives each row of a file to a function.
fn each_row(
    input: &Input<'_>,
    fields: &mut Fields,
    on_row: impl FnMut(&mut Vec<Scalar>) -> ApiResult<()>,
) -> ApiResult<()> {
    let is_array = match first_byte(input.file)? {
        Some(byte) => byte == b'[',
        None => {
            return Err(broken(
                "the file is empty: a JSON file has at least one object",
            ));
        }
    };
    let too_long: TooLong = Rc::new(SharedCell::new(false));
    let guard = StringGuard::new(
        text(input.file)?,
        input.limits.cell_bytes,
        Rc::clone(&too_long),
    );
    let buffered = BufReader::with_capacity(BLOCK_BYTES, guard);
    let mut deserializer = serde_json::Deserializer::from_reader(buffered);
    let mut reading = Reading {
        input,
        fields,
        row: Vec::new(),
        rows: 0,
        on_row,
        error: None,
    };
    let mut read = || -> serde_json::Result<()> {
        if is_array {
            deserializer.deserialize_seq(ArraySeed(&mut reading))?;
            return deserializer.end();
        }
        while deserializer.end().is_err() {
            RowSeed(&mut reading).deserialize(&mut deserializer)?;
        }
        Ok(())
    };
    let read = read();
    let Err(error) = read else {
        return Ok(());
    };
    if let Some(own) = reading.error {
        return Err(own);
    }
    if too_long.get() {
        let here = format!("row {}", reading.rows + 1);
        let length = input.limits.cell_bytes + 1;
        return Err(input.limits.text_too_long(&here, length));
    }
    if error.is_io() {
        return Err(unreadable(error.into()));
    }
    Err(broken(format!("row {}: {error}", reading.rows + 1)))
}

/// A JSON file whose columns are known.
pub(super) struct JsonSource<'a> {
    input: &'a Input<'a>,
    fields: Fields,
    columns: Vec<Column>,
}

impl<'a> JsonSource<'a> {
    /// Finds columns and types; reads the whole file once.
    ///
    /// # Errors
    /// The file is broken or too large.
    pub(super) fn open(input: &'a Input<'a>) -> ApiResult<Self> {
        let mut fields = Fields::default();
        let mut seen: Vec<Seen> = Vec::new();
        each_row(input, &mut fields, |row| {
            seen.resize(row.len(), Seen::default());
            seen.iter_mut()
                .zip(&*row)
                .for_each(|(seen, value)| seen.add(value));
            Ok(())
        })?;
        let columns = fields.named.iter().zip(&seen);
        let columns = columns.map(|(name, seen)| Column::new(name, seen.kind()));
        Ok(Self {
            columns: columns.collect(),
            input,
            fields,
        })
    }
}

impl Source for JsonSource<'_> {
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn read(&mut self, sink: &mut dyn RowSink) -> ApiResult<()> {
        let kinds: Vec<ColumnType> = self.columns.iter().map(|column| column.kind).collect();
        each_row(self.input, &mut self.fields, |row| {
            for (value, &kind) in row.iter_mut().zip(&kinds) {
                if kind == ColumnType::Text {
                    *value = std::mem::replace(value, Scalar::Null).into_text();
                }
            }
            let cells = row.iter().zip(&kinds);
            let cells: Vec<_> = cells.map(|(value, &kind)| value.cell(kind)).collect();
            sink.row(&cells)
        })
    }
}
