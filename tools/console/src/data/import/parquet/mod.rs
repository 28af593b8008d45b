//! Parquet files without nested columns.
//!
//! - [`thrift`], [`footer`]: the metadata, read and checked by our own code. [`pages`]: pages found
//!   and unpacked within limits. [`values`]: values decoded by the `parquet` crate, as cells.
//!
//! - I1: nothing is decoded before its size is checked: columns, rows and places of the metadata,
//!   then the sizes of each page.
//!
//! Truth values are 1 and 0. Dates and times are whole numbers in the unit of the file since 1970
//! (INT96: nanoseconds). Decimals become numbers.

mod footer;
mod pages;
mod thrift;
mod values;

use std::sync::Arc;

use self::footer::{Footer, RowGroup};
use self::pages::{PageBudget, Pages};
use self::values::Values;
use super::csv::check_rows;
use super::{Input, Source, unreadable};
use crate::data::cell::{Column, RowSink};
use crate::data::limits::broken;
use crate::data::names::ColumnNames;
use crate::error::ApiResult;

/// Rows that are decoded at once.
const BATCH_ROWS: usize = 1_024;

/// A Parquet file whose columns are known.
pub(super) struct ParquetSource<'a> {
    input: &'a Input<'a>,
    footer: Footer,
    columns: Vec<Column>,
}

impl<'a> ParquetSource<'a> {
    /// Reads the metadata.
    ///
    /// # Errors
    /// The file is broken, too large, or has columns that are not imported.
    pub(super) fn open(input: &'a Input<'a>) -> ApiResult<Self> {
        let footer = Footer::read(input.file, &input.limits)?;
        let mut names = ColumnNames::default();
        let columns = footer.leaves.iter().enumerate().map(|(place, leaf)| {
            let name = names.add(&leaf.name, place)?;
            Ok(Column::new(name, values::kind(leaf)))
        });
        Ok(Self {
            columns: columns.collect::<ApiResult<_>>()?,
            input,
            footer,
        })
    }

    fn read_group(
        &self,
        group: &RowGroup,
        budget: &Arc<PageBudget>,
        before: u64,
        sink: &mut dyn RowSink,
    ) -> ApiResult<()> {
        let mut columns = Vec::with_capacity(group.chunks.len());
        for (&chunk, leaf) in group.chunks.iter().zip(&self.footer.leaves) {
            let file = self.input.file.try_clone().map_err(unreadable)?;
            let budget = Arc::clone(budget);
            let is_optional = leaf.is_optional;
            let pages = Pages::new(Arc::new(file), chunk, group.rows, is_optional, budget);
            columns.push(values::open(leaf, pages)?);
        }
        let mut left = group.rows;
        while left > 0 {
            let batch = usize::try_from(left).map_or(BATCH_ROWS, |left| left.min(BATCH_ROWS));
            let first = before + (group.rows - left) + 1;
            for (column, named) in columns.iter_mut().zip(&self.columns) {
                if let Err(what) = column.decode(batch) {
                    // Pages that are not read because the work shall stop are not broken.
                    self.input.stop.check()?;
                    return Err(broken(format!(
                        "column `{}`, from row {first} on: {what}",
                        named.name
                    )));
                }
            }
            self.give_rows(&mut columns, batch, first, sink)?;
            left -= batch as u64;
        }
        Ok(())
    }

    fn give_rows(
        &self,
        columns: &mut [Box<dyn Values>],
        count: usize,
        first: u64,
        sink: &mut dyn RowSink,
    ) -> ApiResult<()> {
        for row in (first..).take(count) {
            check_rows(row, &self.input.limits, self.input)?;
            let cells = columns.iter_mut().zip(&self.columns);
            let cells = cells.map(|(column, named)| {
                column
                    .next_cell()
                    .map_err(|what| broken(format!("row {row}, column `{}`: {what}", named.name)))
            });
            let cells: Vec<_> = cells.collect::<ApiResult<_>>()?;
            sink.row(&cells)?;
        }
        Ok(())
    }
}

impl Source for ParquetSource<'_> {
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn read(&mut self, sink: &mut dyn RowSink) -> ApiResult<()> {
        let budget = PageBudget::new(self.input.limits.dataset_bytes, self.input.stop.clone());
        let mut before = 0;
        for group in &self.footer.groups {
            self.input.stop.check()?;
            self.read_group(group, &budget, before, sink)?;
            before += group.rows;
        }
        Ok(())
    }
}
