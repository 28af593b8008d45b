//! Tests of datasets and queries as a whole, over databases in a folder of their own.

mod files;
mod hostile;
mod lifecycle;
mod model;
mod model_terms;
mod parquet_bytes;
mod round_trip;
mod sending;
mod wrong_queries;

use std::future::Future;
use std::io::{Read, Seek};
use std::sync::Arc;

use axum::body::Body;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::catalog::{About, Dataset};
use super::cell::{Cell, Column, RowSink};
use super::export::ExportFormat;
use super::import::{CsvOptions, Format};
use super::limits::DataLimits;
use super::query::Query;
use super::service::{Datasets, ImportRequest};
use super::stop::Stop;
use crate::error::ApiResult;
use crate::store::{CONSOLE, DATA, Database, Folder};

/// Databases in a folder, with a runtime.
struct Place {
    runtime: Runtime,
    datasets: Datasets,
    data: Database,
    folder: Arc<Folder>,
    limits: DataLimits,
    temporary: TempDir,
}

/// Limits that tests reach.
fn small() -> DataLimits {
    DataLimits {
        file_bytes: 64 << 20,
        rows: 100_000,
        columns: 40,
        cell_bytes: 2_000,
        dataset_bytes: 16 << 20,
        ..DataLimits::default()
    }
}

impl Place {
    fn new(limits: DataLimits) -> Self {
        let temporary = tempfile::tempdir().unwrap();
        Self::open(temporary, limits)
    }

    fn open(temporary: TempDir, limits: DataLimits) -> Self {
        let folder = Arc::new(Folder::open(&temporary.path().join("console")).unwrap());
        let console = Database::open(&folder.console_database(), CONSOLE).unwrap();
        let data = Database::open(&folder.data_database(), DATA).unwrap();
        let datasets = Datasets::open(console, data.clone(), Arc::clone(&folder), limits).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread();
        Self {
            runtime: { runtime }.enable_all().build().unwrap(),
            datasets,
            data,
            folder,
            limits,
            temporary,
        }
    }

    /// Ends this console, as at the end of its process, and starts another on the folder.
    fn restart(self) -> Self {
        let Self {
            runtime,
            datasets,
            data,
            folder,
            limits,
            temporary,
        } = self;
        drop((runtime, datasets, data, folder));
        Self::open(temporary, limits)
    }

    fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    fn import(&self, format: Format, bytes: impl Into<Vec<u8>>) -> ApiResult<Dataset> {
        self.import_csv(format, CsvOptions::default(), bytes)
    }

    fn import_csv(
        &self,
        format: Format,
        csv: CsvOptions,
        bytes: impl Into<Vec<u8>>,
    ) -> ApiResult<Dataset> {
        let request = ImportRequest {
            name: "data".to_owned(),
            format,
            csv,
        };
        let body = Body::from(bytes.into());
        self.wait(self.datasets.import(request, "ada".to_owned(), body))
    }

    /// Makes a dataset of rows.
    fn dataset<'a>(
        &self,
        columns: &[Column],
        rows: impl IntoIterator<Item = Vec<Cell<'a>>>,
    ) -> Dataset {
        let mut writer = self.datasets.table(columns, &Stop::default()).unwrap();
        for row in rows {
            writer.row(&row).unwrap();
        }
        let about = About {
            name: "data",
            format: "query",
            columns,
            by: "ada",
        };
        self.datasets.keep(writer, about, None).unwrap()
    }

    fn answer(&self, query: Query) -> ApiResult<Value> {
        let text = self.wait(self.datasets.answer(query))?;
        Ok(serde_json::from_slice(&text).unwrap())
    }

    /// The rows of a dataset, each an array.
    fn rows(&self, dataset: &Dataset) -> Vec<Value> {
        let query = Query {
            limit: Some(10_000),
            ..Query::of(dataset.id)
        };
        let answer = self.answer(query).unwrap();
        assert_eq!(answer["more"], json!(false));
        answer["rows"].as_array().unwrap().clone()
    }

    fn export(&self, query: Query, format: ExportFormat) -> ApiResult<Vec<u8>> {
        let mut file = self.wait(self.datasets.export(query, format))?.file;
        let mut bytes = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut bytes).unwrap();
        Ok(bytes)
    }

    /// The tables of datasets, complete or not.
    fn tables(&self) -> Vec<String> {
        let list = "SELECT name FROM sqlite_schema WHERE name GLOB 'd_*' ORDER BY name";
        let read = self.data.read_blocking(|data| {
            let mut statement = data.prepare(list)?;
            let names = statement.query_map([], |row| row.get(0))?;
            Ok(names.collect::<rusqlite::Result<_>>()?)
        });
        read.unwrap()
    }

    /// Whether an import left anything behind.
    fn is_empty(&self) -> bool {
        let uploads = std::fs::read_dir(self.folder.uploads()).unwrap().count();
        let datasets = self.wait(self.datasets.list()).unwrap();
        uploads == 0 && self.tables().is_empty() && datasets.is_empty()
    }
}

/// A query from JSON.
fn query(value: Value) -> Query {
    serde_json::from_value(value).unwrap()
}
