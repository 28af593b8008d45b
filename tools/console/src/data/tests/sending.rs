//! Exported files on their way: few at a time, and none for a client that does not read.

use std::time::Duration;

use http_body_util::BodyExt;

use super::{Place, small};
use crate::data::cell::{Cell, Column, ColumnType};
use crate::data::export::ExportFormat;
use crate::data::limits::DataLimits;
use crate::data::query::Query;
use crate::data::send::{Exported, Sent};
use crate::error::ApiResult;

/// A dataset whose file has many pieces.
fn large(place: &Place) -> i64 {
    let text = "x".repeat(1_000);
    let rows = (0..2_000).map(|_| vec![Cell::Text(&text)]);
    place
        .dataset(&[Column::new("t", ColumnType::Text)], rows)
        .id
}

async fn export(place: &Place, id: i64) -> ApiResult<Exported> {
    place
        .datasets
        .export(Query::of(id), ExportFormat::Csv)
        .await
}

async fn send(place: &Place, id: i64) -> Sent {
    let exported = export(place, id).await.unwrap();
    place.datasets.send(exported).await.unwrap()
}

/// Exports once there is a place.
async fn export_in_time(place: &Place, id: i64) -> Exported {
    loop {
        match export(place, id).await {
            Ok(exported) => return exported,
            Err(error) => assert_eq!(error.code(), "busy"),
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn files_that_are_not_read_are_few() {
    let place = Place::new(small());
    let id = large(&place);
    place.wait(async {
        let mut held = vec![export(&place, id).await.unwrap()];
        let mut bodies = Vec::new();
        for _ in 0..3 {
            bodies.push(send(&place, id).await);
        }
        let error = export(&place, id).await.unwrap_err();
        assert_eq!(error.code(), "busy");
        // A place is free when a file is dropped, when its client goes, and when it was sent.
        held.clear();
        held.push(export(&place, id).await.unwrap());
        bodies.pop();
        held.push(export_in_time(&place, id).await);
        let Sent { body, length } = bodies.pop().unwrap();
        let bytes = body.collect().await.unwrap().to_bytes();
        assert_eq!(bytes.len() as u64, length);
        let text = format!("t\n{}", format!("{}\n", "x".repeat(1_000)).repeat(2_000));
        assert!(bytes == text.replace('\n', "\r\n") || bytes == text);
        held.push(export_in_time(&place, id).await);
        assert_eq!(export(&place, id).await.unwrap_err().code(), "busy");
    });
}

#[test]
fn a_client_that_does_not_read_loses_its_file() {
    let place = Place::new(DataLimits {
        send_pause: Duration::from_millis(1),
        ..small()
    });
    let id = large(&place);
    place.wait(async {
        let mut stalled = Vec::new();
        for _ in 0..4 {
            stalled.push(send(&place, id).await);
        }
        // No client reads, and yet places become free.
        for _ in 0..4 {
            let exported = export_in_time(&place, id).await;
            stalled.push(place.datasets.send(exported).await.unwrap());
        }
        for Sent { body, length } in stalled.drain(..4) {
            assert!(length > 2_000_000);
            let error = body.collect().await.unwrap_err();
            assert!(error.to_string().contains("too slowly"), "{error}");
        }
    });
}
