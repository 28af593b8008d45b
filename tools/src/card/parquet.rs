//! A sheet as Parquet: one row group, columns of strings and doubles.

use std::sync::Arc;

use anyhow::{Context, Result};
use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use super::columns::Sheet;

/// The file's bytes.
///
/// # Errors
/// Those of the library.
pub(super) fn bytes(sheet: &Sheet) -> Result<Vec<u8>> {
    write(sheet).context("the Parquet file cannot be made")
}

fn write(sheet: &Sheet) -> parquet::errors::Result<Vec<u8>> {
    let field = |name: &str, physical, logical| {
        let builder = Type::primitive_type_builder(name, physical)
            .with_repetition(Repetition::REQUIRED)
            .with_logical_type(logical);
        builder.build().map(Arc::new)
    };
    let texts = sheet
        .texts
        .iter()
        .map(|(name, _)| field(name, Physical::BYTE_ARRAY, Some(LogicalType::String)));
    let figures = sheet
        .figures
        .iter()
        .map(|(name, _)| field(name, Physical::DOUBLE, None));
    let fields = texts.chain(figures).collect::<Result<Vec<_>, _>>()?;
    let schema = Type::group_type_builder("sheet")
        .with_fields(fields)
        .build()?;
    let properties = Arc::new(WriterProperties::builder().build());
    let mut writer = SerializedFileWriter::new(Vec::new(), Arc::new(schema), properties)?;
    let mut group = writer.next_row_group()?;
    for (_, values) in &sheet.texts {
        let values: Vec<ByteArray> = values.iter().map(|text| text.as_str().into()).collect();
        if let Some(mut column) = group.next_column()? {
            column
                .typed::<ByteArrayType>()
                .write_batch(&values, None, None)?;
            column.close()?;
        }
    }
    for (_, values) in &sheet.figures {
        if let Some(mut column) = group.next_column()? {
            column
                .typed::<DoubleType>()
                .write_batch(values, None, None)?;
            column.close()?;
        }
    }
    group.close()?;
    writer.into_inner()
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let sheet = Sheet {
            texts: vec![(
                "policy".to_owned(),
                vec!["lru".to_owned(), "s3-fifo".to_owned()],
            )],
            figures: vec![("misses".to_owned(), vec![1.5, -2.0])],
        };
        let bytes = bytes(&sheet).unwrap();
        let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
        let rows: Vec<(String, f64)> = reader
            .get_row_iter(None)
            .unwrap()
            .map(|row| {
                let row = row.unwrap();
                (
                    row.get_string(0).unwrap().clone(),
                    row.get_double(1).unwrap(),
                )
            })
            .collect();
        assert_eq!(
            rows,
            [("lru".to_owned(), 1.5), ("s3-fifo".to_owned(), -2.0)]
        );
    }
}
