//! Datasets: made from files, results and figures, asked, exported, removed.
//!
//! - I1: whatever ends an import or a save before its dataset is in the catalogue, a dropped
//!   request included, removes what it wrote.
//! - I2: making a dataset, and removing one, is one transaction with its entry in the audit trail.

use std::sync::Arc;

use axum::body::Body;
use rusqlite::Connection;
use tempfile::NamedTempFile;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::answer::Answer;
use super::catalog::{self, About, Dataset};
use super::cell::{Cell, Column, ColumnType, RowSink};
use super::export::{Export, ExportFormat};
use super::import::{self, CsvOptions, Format, Input};
use super::limits::DataLimits;
use super::names::{ColumnNames, dataset_name};
use super::query::{Plan, Query, Runner, Source, Time, Window, compile};
use super::send::{Exported, Sent};
use super::stop::Stop;
use super::table::{self, TableWriter};
use super::upload::{failed, receive};
use crate::error::{ApiError, ApiResult};
use crate::events::{Event, Level};
use crate::store::{Database, Folder};

/// Files that arrive at a time.
const UPLOADS: usize = 8;
/// Files that are read, and results that are saved, at a time.
const WRITERS: usize = 2;
/// Exported files that are made and sent at a time: each may fill the disk up to its limit.
const EXPORTS: usize = 4;
/// Rows of a page that does not say how many.
const PAGE_ROWS: u64 = 100;

/// All datasets. Clones are the same ones.
#[derive(Clone, Debug)]
pub(crate) struct Datasets(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    console: Database,
    data: Database,
    folder: Arc<Folder>,
    limits: DataLimits,
    runner: Runner,
    uploads: Arc<Semaphore>,
    writers: Arc<Semaphore>,
    exports: Arc<Semaphore>,
}

/// How a file is imported.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ImportRequest {
    /// The name of the dataset.
    pub(crate) name: String,
    /// What the file is.
    pub(crate) format: Format,
    /// How a CSV file is read.
    pub(crate) csv: CsvOptions,
}

impl Datasets {
    /// Opens the datasets; removes what a killed process left half made.
    ///
    /// # Errors
    /// A database fails.
    pub(crate) fn open(
        console: Database,
        data: Database,
        folder: Arc<Folder>,
        limits: DataLimits,
    ) -> ApiResult<Self> {
        console.write_blocking(|console| {
            data.write_blocking(|data| catalog::recover(console, data, &folder))
        })?;
        Ok(Self(Arc::new(Inner {
            runner: Runner::new(folder.data_database(), limits),
            uploads: Arc::new(Semaphore::new(UPLOADS)),
            writers: Arc::new(Semaphore::new(WRITERS)),
            exports: Arc::new(Semaphore::new(EXPORTS)),
            console,
            data,
            folder,
            limits,
        })))
    }

    /// All datasets, the newest first.
    ///
    /// # Errors
    /// The database fails.
    pub(crate) async fn list(&self) -> ApiResult<Vec<Dataset>> {
        self.0.console.read(catalog::list).await
    }

    /// A dataset.
    ///
    /// # Errors
    /// There is none of this number.
    pub(crate) async fn get(&self, id: i64) -> ApiResult<Dataset> {
        self.0
            .console
            .read(move |console| catalog::get(console, id))
            .await
    }

    /// Removes a dataset.
    ///
    /// # Errors
    /// There is none of this number.
    pub(crate) async fn remove(&self, id: i64, by: String) -> ApiResult<()> {
        let removed = move |console: &Connection| {
            let dataset = catalog::remove(console, id)?;
            let message = format!("deleted dataset {id}, {:?}", dataset.name);
            Event::audit(Level::Info, &by, message).write(console)
        };
        self.0.console.write(removed).await?;
        let this = self.clone();
        let dropped = move |data: &Connection| {
            table::drop_table(data, id).map_err(table::failed)?;
            // Only datasets of format `trace` have a text.
            let _ = std::fs::remove_file(this.0.folder.trace(id));
            Ok(())
        };
        self.0.data.write(dropped).await
    }

    async fn writer(&self) -> ApiResult<OwnedSemaphorePermit> {
        let turn = Arc::clone(&self.0.writers).acquire_owned();
        match timeout(self.0.limits.save_time, turn).await {
            Ok(turn) => turn.map_err(ApiError::internal),
            Err(_) => Err(ApiError::busy(format!(
                "{WRITERS} datasets are being made, the most at a time: try again later"
            ))),
        }
    }

    /// Imports a file that comes as a body.
    ///
    /// # Errors
    /// There is no room, or the file is broken, too large, or does not arrive.
    pub(crate) async fn import(
        &self,
        request: ImportRequest,
        by: String,
        body: Body,
    ) -> ApiResult<Dataset> {
        let name = dataset_name(&request.name)?;
        let limits = self.0.limits;
        let check = move |console: &Connection| catalog::check_room(console, &limits, 0);
        self.0.console.read(check).await?;
        let upload = {
            let turn = Arc::clone(&self.0.uploads).try_acquire_owned();
            let _turn = turn.map_err(|_| {
                ApiError::busy(format!(
                    "{UPLOADS} files are arriving, the most at a time: try again when one has ended"
                ))
            })?;
            receive(body, &self.0.folder.uploads(), &limits).await?
        };
        let turn = self.writer().await?;
        let this = self.clone();
        blocking(move |stop| {
            let _turn = turn;
            this.import_file(&name, &request, &by, upload, stop)
        })
        .await
    }

    fn import_file(
        &self,
        name: &str,
        request: &ImportRequest,
        by: &str,
        upload: NamedTempFile,
        stop: &Stop,
    ) -> ApiResult<Dataset> {
        let format = import::found(upload.as_file(), request.format)?;
        let input = Input {
            file: upload.as_file(),
            format,
            csv: request.csv,
            limits: self.0.limits,
            stop,
        };
        let mut made = None;
        let writer = import::read(&input, |columns| {
            made = Some(columns.to_vec());
            self.table(columns, stop)
        })?;
        let about = About {
            name,
            format: format.name(),
            columns: &made.unwrap_or_default(),
            by,
        };
        let text = (format == Format::Trace).then_some(upload);
        self.keep(writer, about, text)
    }

    /// Makes the table of a new dataset.
    ///
    /// # Errors
    /// There are too many columns, or the database fails.
    pub(super) fn table(&self, columns: &[Column], stop: &Stop) -> ApiResult<TableWriter> {
        let connection = self.0.data.connect(false)?;
        TableWriter::create(connection, columns, self.0.limits, stop.clone())
    }

    /// Puts a complete table, and the text of a trace, into the catalogue.
    ///
    /// # Errors
    /// There is no room, or a database or the disk fails.
    pub(super) fn keep(
        &self,
        mut writer: TableWriter,
        about: About<'_>,
        text: Option<NamedTempFile>,
    ) -> ApiResult<Dataset> {
        let written = writer.finish()?;
        let place = self.0.folder.trace(written.id);
        let has_text = text.is_some();
        if let Some(text) = text {
            text.persist(&place).map_err(|error| failed(error.error))?;
        }
        let added = self.0.console.write_blocking(|console| {
            let dataset = catalog::add(console, &self.0.limits, written, about)?;
            let message = format!(
                "made dataset {}, {:?}, of {} rows from {}",
                dataset.id, dataset.name, dataset.rows, dataset.format
            );
            Event::audit(Level::Info, about.by, message).write(console)?;
            Ok(dataset)
        });
        match &added {
            Ok(_) => writer.keep(),
            Err(_) if has_text => {
                // The next start removes it if this fails.
                let _ = std::fs::remove_file(place);
            }
            Err(_) => {}
        }
        added
    }

    /// Compiles a query over the datasets that it names.
    async fn plan(&self, query: Query, window: Window) -> ApiResult<Plan> {
        let compiled = move |console: &Connection| {
            let source = |id: i64, field: &str| {
                let found = catalog::get(console, id).map_err(|error| error.of_field(field))?;
                Ok::<_, ApiError>(Source {
                    id,
                    columns: found.columns,
                })
            };
            let left = source(query.source, "source")?;
            let right = match &query.join {
                Some(join) => Some(source(join.dataset, "join.dataset")?),
                None => None,
            };
            compile(&query, &left, right.as_ref(), window)
        };
        self.0.console.read(compiled).await
    }

    /// The answer to a query, as JSON: `{"columns", "rows", "more"}`.
    ///
    /// # Errors
    /// The query does not fit its datasets, or takes too long.
    pub(crate) async fn answer(&self, query: Query) -> ApiResult<Vec<u8>> {
        let limits = self.0.limits;
        let window = Window::Page {
            default: PAGE_ROWS.min(limits.answer_rows),
            most: limits.answer_rows,
        };
        let plan = self.plan(query, window).await?;
        let turn = self.0.runner.turn(Time::Show).await?;
        let this = self.clone();
        blocking(move |stop| {
            let _turn = turn;
            let page = plan.page.unwrap_or(limits.answer_rows);
            let mut answer = Answer::new(page, limits.answer_bytes);
            this.0.runner.run(&plan, Time::Show, stop, &mut answer)?;
            answer.finish(&plan.columns)
        })
        .await
    }

    /// Saves the result of a query as a dataset.
    ///
    /// # Errors
    /// The query does not fit its datasets, takes too long, or its result is too large.
    pub(crate) async fn save(&self, name: &str, query: Query, by: String) -> ApiResult<Dataset> {
        let name = dataset_name(name)?;
        let limits = self.0.limits;
        let check = move |console: &Connection| catalog::check_room(console, &limits, 0);
        self.0.console.read(check).await?;
        let plan = self.plan(query, Window::All).await?;
        let writer_turn = self.writer().await?;
        let turn = self.0.runner.turn(Time::Save).await?;
        let this = self.clone();
        blocking(move |stop| {
            let _turns = (writer_turn, turn);
            let mut writer = this.table(&plan.columns, stop)?;
            this.0.runner.run(&plan, Time::Save, stop, &mut writer)?;
            let about = About {
                name: &name,
                format: "query",
                columns: &plan.columns,
                by: &by,
            };
            this.keep(writer, about, None)
        })
        .await
    }

    /// Writes the result of a query as a file.
    ///
    /// # Errors
    /// The query does not fit its datasets, takes too long, or its result is too large; or as many
    /// files as may be are made or sent.
    pub(super) async fn export(&self, query: Query, format: ExportFormat) -> ApiResult<Exported> {
        let source = self.get(query.source).await?;
        let plan = self.plan(query, Window::All).await?;
        let export_turn = Arc::clone(&self.0.exports).try_acquire_owned();
        let export_turn = export_turn.map_err(|_| {
            ApiError::busy(format!(
                "{EXPORTS} exports are made or sent, the most at a time: try again when one has ended"
            ))
        })?;
        let turn = self.0.runner.turn(Time::Save).await?;
        let this = self.clone();
        let file = blocking(move |stop| {
            let _turn = turn;
            let folder = this.0.folder.uploads();
            let mut export = Export::create(format, &folder, &plan.columns, &this.0.limits)?;
            this.0.runner.run(&plan, Time::Save, stop, &mut export)?;
            export.finish()
        })
        .await?;
        Ok(Exported {
            file,
            name: source.name,
            turn: export_turn,
        })
    }

    /// Sends an exported file.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) async fn send(&self, exported: Exported) -> ApiResult<Sent> {
        exported.send(&self.0.limits).await
    }

    /// Makes a dataset of figures, as of a run's series: one a column and row. Columns whose
    /// figures are all whole become integers.
    ///
    /// # Errors
    /// There is no room, or the database fails.
    pub(crate) async fn save_figures(
        &self,
        name: &str,
        by: String,
        columns: Vec<String>,
        rows: Vec<Vec<f64>>,
    ) -> ApiResult<Dataset> {
        let name = dataset_name(name)?;
        let turn = self.writer().await?;
        let this = self.clone();
        blocking(move |stop| {
            let _turn = turn;
            let mut names = ColumnNames::default();
            let columns = columns.iter().enumerate().map(|(place, raw)| {
                let mut figures = rows.iter().filter_map(|row| row.get(place));
                let kind = match figures.all(|&figure| whole(figure).is_some()) {
                    true => ColumnType::Integer,
                    false => ColumnType::Number,
                };
                Ok(Column::new(names.add(raw, place)?, kind))
            });
            let columns: Vec<Column> = columns.collect::<ApiResult<_>>()?;
            let mut writer = this.table(&columns, stop)?;
            for row in &rows {
                let cells = row.iter().zip(&columns).map(|(&figure, column)| {
                    match (whole(figure), column.kind) {
                        (Some(value), ColumnType::Integer) => Cell::Integer(value),
                        _ => Cell::number(figure),
                    }
                });
                writer.row(&cells.collect::<Vec<_>>())?;
            }
            let about = About {
                name: &name,
                format: "run",
                columns: &columns,
                by: &by,
            };
            this.keep(writer, about, None)
        })
        .await
    }
}

/// A figure as an integer, if it is one that doubles tell from its neighbours.
#[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
fn whole(figure: f64) -> Option<i64> {
    const LIMIT: f64 = 9_007_199_254_740_992.0;
    let is_whole = figure.fract() == 0.0 && figure.abs() <= LIMIT;
    is_whole.then_some(figure as i64)
}

/// Runs work on a thread for blocking calls; tells it to stop if the future is dropped.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce(&Stop) -> ApiResult<T> + Send + 'static,
) -> ApiResult<T> {
    let stop = Stop::default();
    let _guard = stop.guard();
    let done = tokio::task::spawn_blocking(move || work(&stop)).await;
    done.map_err(ApiError::internal)?
}
