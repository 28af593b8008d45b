//! Parquet: optional columns of INT64, DOUBLE and UTF-8 texts, with Snappy.

use std::fs::File;
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Basic};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;

use super::spool::{Spool, write_error};
use crate::data::cell::{Cell, Column, ColumnType, RowSink};
use crate::error::{ApiError, ApiResult};

/// Rows of a row group.
const GROUP_ROWS: usize = 100_000;
/// Bytes of a row group in memory, roughly.
const GROUP_BYTES: u64 = 32 << 20;

/// The values of a column that are not written yet, without the missing ones.
#[derive(Debug)]
enum Values {
    Integers(Vec<i64>),
    Numbers(Vec<f64>),
    Texts(Vec<ByteArray>),
}

#[derive(Debug)]
struct Buffered {
    values: Values,
    /// 0 where a value is missing; one a row.
    levels: Vec<i16>,
}

/// A Parquet file.
pub(in crate::data) struct ParquetFile {
    writer: SerializedFileWriter<Spool>,
    columns: Vec<Buffered>,
    rows: usize,
    bytes: u64,
}

fn failed(error: ParquetError) -> ApiError {
    match error {
        ParquetError::External(inner) => match inner.downcast::<std::io::Error>() {
            Ok(error) => write_error(*error),
            Err(other) => ApiError::internal(other),
        },
        other => ApiError::internal(other),
    }
}

fn field(column: &Column) -> Result<Arc<Type>, ParquetError> {
    let (physical, logical) = match column.kind {
        ColumnType::Integer => (Basic::INT64, None),
        ColumnType::Number => (Basic::DOUBLE, None),
        ColumnType::Text => (Basic::BYTE_ARRAY, Some(LogicalType::String)),
    };
    Type::primitive_type_builder(&column.name, physical)
        .with_repetition(Repetition::OPTIONAL)
        .with_logical_type(logical)
        .build()
        .map(Arc::new)
}

impl Buffered {
    fn of(kind: ColumnType) -> Self {
        Self {
            values: match kind {
                ColumnType::Integer => Values::Integers(Vec::new()),
                ColumnType::Number => Values::Numbers(Vec::new()),
                ColumnType::Text => Values::Texts(Vec::new()),
            },
            levels: Vec::new(),
        }
    }

    fn add(&mut self, cell: Cell<'_>) {
        self.levels.push(1);
        match (&mut self.values, cell) {
            (Values::Integers(values), Cell::Integer(value)) => values.push(value),
            (Values::Numbers(values), Cell::Number(value)) => values.push(value),
            (Values::Texts(values), Cell::Text(text)) => values.push(text.into()),
            _ => {
                self.levels.pop();
                self.levels.push(0);
            }
        }
    }

    fn clear(&mut self) {
        self.levels.clear();
        match &mut self.values {
            Values::Integers(values) => values.clear(),
            Values::Numbers(values) => values.clear(),
            Values::Texts(values) => values.clear(),
        }
    }

    fn write(&self, group: &mut SerializedRowGroupWriter<'_, Spool>) -> Result<(), ParquetError> {
        match &self.values {
            Values::Integers(values) => write::<Int64Type>(group, values, &self.levels),
            Values::Numbers(values) => write::<DoubleType>(group, values, &self.levels),
            Values::Texts(values) => write::<ByteArrayType>(group, values, &self.levels),
        }
    }
}

fn write<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, Spool>,
    values: &[T::T],
    levels: &[i16],
) -> Result<(), ParquetError> {
    let Some(mut column) = group.next_column()? else {
        return Err(ParquetError::General("a column too many".to_owned()));
    };
    column
        .typed::<T>()
        .write_batch(values, Some(levels), None)?;
    column.close()
}

impl ParquetFile {
    /// Begins the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn create(spool: Spool, columns: &[Column]) -> ApiResult<Self> {
        let fields = columns.iter().map(field).collect::<Result<_, _>>();
        let schema = Type::group_type_builder("rows")
            .with_fields(fields.map_err(failed)?)
            .build()
            .map_err(failed)?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .build();
        let writer = SerializedFileWriter::new(spool, Arc::new(schema), Arc::new(properties));
        Ok(Self {
            writer: writer.map_err(failed)?,
            columns: columns
                .iter()
                .map(|column| Buffered::of(column.kind))
                .collect(),
            rows: 0,
            bytes: 0,
        })
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut group = self.writer.next_row_group()?;
        for column in &mut self.columns {
            column.write(&mut group)?;
            column.clear();
        }
        group.close()?;
        self.rows = 0;
        self.bytes = 0;
        Ok(())
    }

    /// Ends the file.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn finish(mut self) -> ApiResult<File> {
        self.write_group().map_err(failed)?;
        let spool = self.writer.into_inner().map_err(failed)?;
        spool.into_file()
    }
}

impl RowSink for ParquetFile {
    fn row(&mut self, row: &[Cell<'_>]) -> ApiResult<()> {
        for (column, &cell) in self.columns.iter_mut().zip(row) {
            column.add(cell);
            self.bytes += cell.bytes();
        }
        self.rows += 1;
        if self.rows >= GROUP_ROWS || self.bytes >= GROUP_BYTES {
            self.write_group().map_err(failed)?;
        }
        Ok(())
    }
}
