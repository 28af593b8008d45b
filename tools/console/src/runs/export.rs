//! A run as a file: CSV and Parquet of its series, JSON of all of it.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::IntoResponse;
use parquet::basic::{Repetition, Type as Physical};
use parquet::data_type::DoubleType;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use rusqlite::Connection;
use serde::Deserialize;

use super::api;
use super::run::series_of;
use super::series::Series;
use crate::error::{ApiError, ApiResult};
use crate::http::{Id, Parameters};
use crate::state::AppState;

/// The format of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ExportFormat {
    /// A heading, and a line a row.
    Csv,
    /// An object.
    Json,
    /// A column a figure.
    Parquet,
}

impl ExportFormat {
    /// The end of a file's name, and its kind.
    pub(crate) const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Csv => ("csv", "text/csv; charset=utf-8"),
            Self::Json => ("json", "application/json"),
            Self::Parquet => ("parquet", "application/vnd.apache.parquet"),
        }
    }
}

/// The parameters of an export.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    format: ExportFormat,
}

fn csv(series: &Series) -> ApiResult<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let names = series.columns.iter().map(|column| column.name);
    writer.write_record(names).map_err(ApiError::internal)?;
    for row in &series.rows {
        let figures = row.iter().map(f64::to_string);
        writer.write_record(figures).map_err(ApiError::internal)?;
    }
    writer.into_inner().map_err(ApiError::internal)
}

fn parquet(series: &Series) -> parquet::errors::Result<Vec<u8>> {
    let fields = series.columns.iter().map(|column| {
        let builder = Type::primitive_type_builder(column.name, Physical::DOUBLE);
        builder
            .with_repetition(Repetition::REQUIRED)
            .build()
            .map(Arc::new)
    });
    let fields = fields.collect::<Result<Vec<_>, _>>()?;
    let schema = Type::group_type_builder("series")
        .with_fields(fields)
        .build()?;
    let properties = Arc::new(WriterProperties::builder().build());
    let mut writer = SerializedFileWriter::new(Vec::new(), Arc::new(schema), properties)?;
    let mut group = writer.next_row_group()?;
    for place in 0..series.columns.len() {
        let figure = |row: &Vec<f64>| row.get(place).copied().unwrap_or(0.0);
        let figures: Vec<f64> = series.rows.iter().map(figure).collect();
        if let Some(mut column) = group.next_column()? {
            column
                .typed::<DoubleType>()
                .write_batch(&figures, None, None)?;
            column.close()?;
        }
    }
    group.close()?;
    writer.into_inner()
}

fn bytes(console: &Connection, id: i64, format: ExportFormat) -> ApiResult<Vec<u8>> {
    match format {
        ExportFormat::Json => Ok(serde_json::to_vec_pretty(&api::whole(console, id)?)?),
        ExportFormat::Csv => csv(&series_of(console, id)?.1),
        ExportFormat::Parquet => parquet(&series_of(console, id)?.1).map_err(ApiError::internal),
    }
}

/// `GET /api/runs/{id}/export`
pub(super) async fn export(
    State(state): State<AppState>,
    Id(id): Id,
    Parameters(wanted): Parameters<Wanted>,
) -> ApiResult<impl IntoResponse> {
    let format = wanted.format;
    let read = move |console: &Connection| bytes(console, id, format);
    let bytes = state.console.read(read).await?;
    let (end, kind) = format.names();
    // The name holds a number alone, whatever the run's name is.
    let place = format!("attachment; filename=\"run-{id}.{end}\"");
    let place = HeaderValue::try_from(place).map_err(ApiError::internal)?;
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        (header::CONTENT_DISPOSITION, place),
    ];
    Ok((headers, bytes))
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    use super::*;
    use crate::runs::series::SERIES_COLUMNS;

    fn series() -> Series {
        let row = |first: f64| {
            let mut row = vec![0.5; SERIES_COLUMNS.len()];
            row[0] = first;
            row
        };
        Series::of(vec![row(1.0), row(2.0)])
    }

    #[test]
    fn a_csv_has_a_heading_and_a_line_a_point() {
        let text = String::from_utf8(csv(&series()).unwrap()).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(
            lines[0].starts_with("at_ns,messages,messages_s,hit_ratio"),
            "{text}"
        );
        assert!(lines[2].starts_with("2,0.5"), "{text}");
    }

    #[test]
    fn a_parquet_file_is_read_back() {
        let bytes = parquet(&series()).unwrap();
        let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
        let rows: Vec<_> = reader
            .get_row_iter(None)
            .unwrap()
            .map(Result::unwrap)
            .collect();
        assert_eq!(rows.len(), 2);
        assert!((rows[1].get_double(0).unwrap() - 2.0).abs() < 1e-9);
    }
}
