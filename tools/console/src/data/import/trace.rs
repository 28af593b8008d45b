//! Traces of cards as text: `farcore_card::trace` describes the format.
//!
//! The rows are the messages: time, operation, and up to four handles as 8 hexadecimal digits. The
//! tokens of a trace stay in its text, which runs read.

use std::io::BufReader;

use farcore_card::trace::{Recording, TraceLimits};
use farcore_card::workload::MESSAGE_KEYS_MAX;

use super::{Input, Source, text};
use crate::data::cell::{Cell, Column, ColumnType, RowSink};
use crate::data::limits::broken;
use crate::error::ApiResult;

/// A trace in memory: 40 bytes a message.
pub(super) struct TraceSource {
    recording: Recording,
    columns: Vec<Column>,
}

impl TraceSource {
    /// Reads a trace.
    ///
    /// # Errors
    /// It is broken or too long.
    pub(super) fn open(input: &Input<'_>) -> ApiResult<Self> {
        let messages = usize::try_from(input.limits.rows).unwrap_or(usize::MAX);
        let limits = TraceLimits {
            messages: messages.saturating_add(1),
            ..TraceLimits::default()
        };
        let read = Recording::read(BufReader::new(text(input.file)?), limits);
        let recording = read.map_err(|error| broken(error.to_string()))?;
        if recording.messages().len() > messages {
            return Err(input.limits.too_many_rows());
        }
        let mut columns = vec![
            Column::new("time_ns", ColumnType::Integer),
            Column::new("operation", ColumnType::Text),
        ];
        for place in 1..=MESSAGE_KEYS_MAX {
            columns.push(Column::new(format!("handle_{place}"), ColumnType::Text));
        }
        Ok(Self { recording, columns })
    }
}

impl Source for TraceSource {
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn read(&mut self, sink: &mut dyn RowSink) -> ApiResult<()> {
        let handles = self.recording.handles();
        for message in self.recording.messages() {
            let digits = message.keys().iter().map(|&key| handles[key as usize]);
            let digits: Vec<_> = digits.map(|one| format!("{:08x}", one.bits())).collect();
            let mut row = [Cell::Null; 2 + MESSAGE_KEYS_MAX];
            // Times beyond 292 years are shown as that.
            row[0] = Cell::Integer(i64::try_from(message.time_ns).unwrap_or(i64::MAX));
            row[1] = Cell::Text(message.operation.name());
            for (cell, digits) in row[2..].iter_mut().zip(&digits) {
                *cell = Cell::Text(digits);
            }
            sink.row(&row)?;
        }
        Ok(())
    }
}
