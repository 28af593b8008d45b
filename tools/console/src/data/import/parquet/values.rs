//! The values of a column, decoded in batches, as cells.

use std::sync::Arc;

use parquet::basic::{Repetition, Type as Basic};
use parquet::column::reader::{ColumnReaderImpl, get_column_reader, get_typed_column_reader};
use parquet::data_type::{
    AsBytes, BoolType, ByteArrayType, DataType, DoubleType, FixedLenByteArrayType, FloatType,
    Int32Type, Int64Type, Int96, Int96Type,
};
use parquet::errors::ParquetError;
use parquet::schema::types::{ColumnDescriptor, ColumnPath, Type};

use super::footer::{Leaf, Meaning, Physical};
use super::pages::{PageFault, Pages};
use crate::data::cell::{Cell, ColumnType};
use crate::error::{ApiError, ApiResult};

/// What is wrong with a value.
type Checked<T> = Result<T, String>;
/// The Julian number of the first day of 1970.
const DAY_OF_EPOCH: i128 = 2_440_588;
/// Nanoseconds of a day.
const DAY_NS: i128 = 86_400_000_000_000;

/// Makes a cell of a value.
type Convert<T> = fn(&T, Meaning) -> Checked<Cell<'_>>;

/// What is wrong with a column. The library's words for it are for the log.
fn undecoded(error: &ParquetError) -> String {
    if let ParquetError::External(own) = error
        && own.is::<PageFault>()
    {
        return own.to_string();
    }
    tracing::debug!(%error, "a column cannot be decoded");
    "its values cannot be decoded: write the file again".to_owned()
}

/// The values of a column, in order.
pub(super) trait Values {
    /// Decodes the next `count` rows.
    fn decode(&mut self, count: usize) -> Checked<()>;

    /// The next decoded cell.
    fn next_cell(&mut self) -> Checked<Cell<'_>>;
}

/// Decoded values of a type.
struct Typed<T: DataType> {
    reader: ColumnReaderImpl<T>,
    meaning: Meaning,
    convert: Convert<T::T>,
    is_optional: bool,
    /// 0 where a value is missing; one a row, if values can be missing.
    levels: Vec<i16>,
    values: Vec<T::T>,
    row: usize,
    value: usize,
}

impl<T: DataType> Typed<T> {
    fn boxed(
        leaf: &Leaf,
        descriptor: Arc<ColumnDescriptor>,
        pages: Pages,
        convert: Convert<T::T>,
    ) -> Box<dyn Values> {
        Box::new(Self {
            reader: get_typed_column_reader(get_column_reader(descriptor, Box::new(pages))),
            meaning: leaf.meaning,
            convert,
            is_optional: leaf.is_optional,
            levels: Vec::new(),
            values: Vec::new(),
            row: 0,
            value: 0,
        })
    }
}

impl<T: DataType> Values for Typed<T> {
    fn decode(&mut self, count: usize) -> Checked<()> {
        self.levels.clear();
        self.values.clear();
        (self.row, self.value) = (0, 0);
        let levels = Some(&mut self.levels);
        let read = self
            .reader
            .read_records(count, levels, None, &mut self.values);
        let (records, _, _) = read.map_err(|error| undecoded(&error))?;
        if records != count {
            return Err(format!(
                "it has {records} more values, and its row group says {count} or more"
            ));
        }
        Ok(())
    }

    fn next_cell(&mut self) -> Checked<Cell<'_>> {
        let row = self.row;
        self.row += 1;
        if self.is_optional && self.levels.get(row).is_none_or(|&level| level == 0) {
            return Ok(Cell::Null);
        }
        let value = self.values.get(self.value).ok_or("it has no value")?;
        self.value += 1;
        (self.convert)(value, self.meaning)
    }
}

/// The type of a column.
pub(super) fn kind(leaf: &Leaf) -> ColumnType {
    match (leaf.physical, leaf.meaning) {
        (_, Meaning::Decimal { .. }) | (Physical::Float | Physical::Double, _) => {
            ColumnType::Number
        }
        (Physical::Bytes | Physical::Fixed(_), _) => ColumnType::Text,
        _ => ColumnType::Integer,
    }
}

fn scaled(value: f64, scale: i32) -> Cell<'static> {
    Cell::number(value / 10_f64.powi(scale))
}

fn whole(value: i64, unsigned: u64, meaning: Meaning) -> Checked<Cell<'static>> {
    match meaning {
        Meaning::Decimal { scale } => Ok(scaled(value as f64, scale)),
        Meaning::Unsigned => i64::try_from(unsigned).map(Cell::Integer).map_err(|_| {
            format!("{unsigned} does not fit 64 bits with a sign: write it as a double")
        }),
        _ => Ok(Cell::Integer(value)),
    }
}

/// A time as nanoseconds since 1970: the day's number, counted as astronomers do, and its
/// nanoseconds.
fn instant(value: &Int96) -> Checked<Cell<'static>> {
    let &[low, high, day] = value.data() else {
        return Err("a time has no 12 bytes".to_owned());
    };
    let within = (u64::from(high) << 32 | u64::from(low)).cast_signed();
    // Wide enough for every day of 32 bits.
    let days = i128::from(day.cast_signed()) - DAY_OF_EPOCH;
    let since = days * DAY_NS + i128::from(within);
    i64::try_from(since).map(Cell::Integer).map_err(|_| {
        format!(
            "a time is {since} ns after 1970, which does not fit 64 bits: write it in milliseconds"
        )
    })
}

/// A decimal of up to 16 bytes, the most significant first, with a sign.
fn decimal(bytes: &[u8], scale: i32) -> Checked<Cell<'static>> {
    if bytes.len() > 16 {
        return Err(format!(
            "a decimal has {} bytes, and at most 16 are read",
            bytes.len()
        ));
    }
    let is_negative = bytes.first().is_some_and(|&byte| byte & 0x80 != 0);
    let start = if is_negative { -1_i128 } else { 0 };
    let value = bytes
        .iter()
        .fold(start, |value, &byte| (value << 8) | i128::from(byte));
    Ok(scaled(value as f64, scale))
}

fn bytes(bytes: &[u8], meaning: Meaning) -> Checked<Cell<'_>> {
    if let Meaning::Decimal { scale } = meaning {
        return decimal(bytes, scale);
    }
    let text = std::str::from_utf8(bytes);
    text.map(Cell::Text)
        .map_err(|_| "the bytes are no UTF-8 text: write the column as text".to_owned())
}

/// A schema's column, as the decoders know it.
fn descriptor(leaf: &Leaf) -> ApiResult<ColumnDescriptor> {
    let physical = match leaf.physical {
        Physical::Boolean => Basic::BOOLEAN,
        Physical::Int32 => Basic::INT32,
        Physical::Int64 => Basic::INT64,
        Physical::Int96 => Basic::INT96,
        Physical::Float => Basic::FLOAT,
        Physical::Double => Basic::DOUBLE,
        Physical::Bytes => Basic::BYTE_ARRAY,
        Physical::Fixed(_) => Basic::FIXED_LEN_BYTE_ARRAY,
    };
    let length = match leaf.physical {
        Physical::Fixed(length) => length,
        _ => -1,
    };
    let (repetition, level) = if leaf.is_optional {
        (Repetition::OPTIONAL, 1)
    } else {
        (Repetition::REQUIRED, 0)
    };
    let primitive = Type::primitive_type_builder("column", physical)
        .with_repetition(repetition)
        .with_length(length)
        .build()
        .map_err(ApiError::internal)?;
    let path = ColumnPath::new(vec!["column".to_owned()]);
    Ok(ColumnDescriptor::new(Arc::new(primitive), level, 0, path))
}

/// Opens the values of a column's pages.
///
/// # Errors
/// Those of the library.
pub(super) fn open(leaf: &Leaf, pages: Pages) -> ApiResult<Box<dyn Values>> {
    let descriptor = Arc::new(descriptor(leaf)?);
    Ok(match leaf.physical {
        Physical::Boolean => Typed::<BoolType>::boxed(leaf, descriptor, pages, |value, _| {
            Ok(Cell::Integer(i64::from(*value)))
        }),
        Physical::Int32 => Typed::<Int32Type>::boxed(leaf, descriptor, pages, |value, meaning| {
            whole(i64::from(*value), u64::from(value.cast_unsigned()), meaning)
        }),
        Physical::Int64 => Typed::<Int64Type>::boxed(leaf, descriptor, pages, |value, meaning| {
            whole(*value, value.cast_unsigned(), meaning)
        }),
        Physical::Int96 => {
            Typed::<Int96Type>::boxed(leaf, descriptor, pages, |value, _| instant(value))
        }
        Physical::Float => Typed::<FloatType>::boxed(leaf, descriptor, pages, |value, _| {
            Ok(Cell::number(f64::from(*value)))
        }),
        Physical::Double => {
            Typed::<DoubleType>::boxed(leaf, descriptor, pages, |value, _| Ok(Cell::number(*value)))
        }
        Physical::Bytes => {
            Typed::<ByteArrayType>::boxed(leaf, descriptor, pages, |value, meaning| {
                bytes(value.as_bytes(), meaning)
            })
        }
        Physical::Fixed(_) => {
            Typed::<FixedLenByteArrayType>::boxed(leaf, descriptor, pages, |value, meaning| {
                bytes(value.as_bytes(), meaning)
            })
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_do_not_fit_are_errors() {
        let time = |day: i32, nanoseconds: i64| {
            let [a, b, c, d, e, f, g, h] = nanoseconds.to_le_bytes();
            let (low, high) = ([a, b, c, d], [e, f, g, h]);
            let mut value = Int96::new();
            let day = day.cast_unsigned();
            value.set_data(u32::from_le_bytes(low), u32::from_le_bytes(high), day);
            instant(&value)
        };
        assert_eq!(time(2_440_588, 5), Ok(Cell::Integer(5)));
        assert_eq!(time(2_440_587, 0), Ok(Cell::Integer(-86_400_000_000_000)));
        // The last and the first nanosecond of 64 bits.
        let (days, rest) = (106_751, i64::MAX - 106_751 * 86_400_000_000_000);
        assert_eq!(time(2_440_588 + days, rest), Ok(Cell::Integer(i64::MAX)));
        assert_eq!(
            time(2_440_588 - days, -rest - 1),
            Ok(Cell::Integer(i64::MIN))
        );
        for (day, nanoseconds) in [
            (2_440_588 + days, rest + 1),
            (2_440_588 - days, -rest - 2),
            (i32::MAX, 0),
            (i32::MIN, i64::MIN),
            (2_440_589, i64::MAX),
        ] {
            let error = time(day, nanoseconds).unwrap_err();
            assert!(error.contains("does not fit 64 bits"), "{error}");
        }
    }
}
