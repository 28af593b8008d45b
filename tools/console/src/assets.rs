//! The pages: files that are part of the program.
//!
//! - I1: a path is compared with the names of the files and never reaches a file system.
//! - I2: a page that names another file by its content's version cannot meet an older one: every
//!   answer has an ETag and is checked anew.

use std::collections::HashMap;
use std::io::Write;
use std::sync::LazyLock;

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};

use crate::error::ApiError;

/// Names and contents, in the order of names.
const FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/assets.rs"));
/// The page of all paths without an extension.
const PAGE: &str = "index.html";

struct Asset {
    plain: &'static [u8],
    /// Compressed, if that is shorter.
    gzip: Option<Bytes>,
    kind: &'static str,
    tag: String,
}

fn kind(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, end)| end) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js" | "mjs") => "text/javascript; charset=utf-8",
        Some("json") => "application/json",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("ico") => "image/x-icon",
        Some("woff2") => "font/woff2",
        Some("txt") => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

fn gzip(plain: &[u8]) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(plain).ok()?;
    let short = encoder.finish().ok()?;
    (short.len() < plain.len()).then(|| short.into())
}

static ASSETS: LazyLock<HashMap<&'static str, Asset>> = LazyLock::new(|| {
    let asset = |&(name, plain): &(&'static str, &'static [u8])| {
        let digest = Sha256::digest(plain);
        let asset = Asset {
            plain,
            gzip: gzip(plain),
            kind: kind(name),
            tag: format!("\"{}\"", URL_SAFE_NO_PAD.encode(&digest[..16])),
        };
        (name, asset)
    };
    FILES.iter().map(asset).collect()
});

fn takes_gzip(headers: &HeaderMap) -> bool {
    let texts = headers.get_all(header::ACCEPT_ENCODING).iter();
    let mut codings = texts
        .filter_map(|text| text.to_str().ok())
        .flat_map(|text| text.split(','));
    codings.any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let is_gzip = parts
            .next()
            .is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        is_gzip && !parts.any(|part| matches!(part, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"))
    })
}

fn absent() -> ApiError {
    let message = "there is nothing at this path: check its spelling";
    ApiError::new(StatusCode::NOT_FOUND, "not_found", message)
}

/// The file of a path: itself, or the page for paths that the page routes.
fn find(path: &str) -> Result<&'static Asset, ApiError> {
    let path = path.strip_prefix('/').ok_or_else(absent)?;
    if let Some(asset) = ASSETS.get(path) {
        return Ok(asset);
    }
    let has_extension = path
        .rsplit('/')
        .next()
        .is_some_and(|last| last.contains('.'));
    let is_interface = path == "api" || path.starts_with("api/");
    let page = ASSETS.get(PAGE).filter(|_| !has_extension && !is_interface);
    page.ok_or_else(absent)
}

/// Answers every path that is no route of the interface.
pub(crate) async fn serve(request: Request) -> Response {
    let asset = match find(request.uri().path()) {
        Ok(asset) => asset,
        Err(error) => return error.into_response(),
    };
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let message = "pages are for the methods GET and HEAD";
        let status = StatusCode::METHOD_NOT_ALLOWED;
        return ApiError::new(status, "wrong_method", message).into_response();
    }
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(asset.kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if let Ok(tag) = HeaderValue::from_str(&asset.tag) {
        headers.insert(header::ETAG, tag);
    }
    let known = request.headers().get(header::IF_NONE_MATCH);
    let known = known.and_then(|known| known.to_str().ok());
    let is_known = |known: &str| known.split(',').any(|one| one.trim() == asset.tag);
    if known.is_some_and(is_known) {
        return (StatusCode::NOT_MODIFIED, headers).into_response();
    }
    match asset
        .gzip
        .as_ref()
        .filter(|_| takes_gzip(request.headers()))
    {
        Some(short) => {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            (headers, short.clone()).into_response()
        }
        None => (headers, Bytes::from_static(asset.plain)).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_to_files_of_the_program_alone() {
        for path in ["/", "/runs", "/runs/7", "/index.html"] {
            assert!(find(path).is_ok(), "{path}");
        }
        for path in [
            "/../Cargo.toml",
            "/..%2fCargo.toml",
            "//etc/passwd.txt",
            "/api/nothing",
            "/absent.js",
            "*",
        ] {
            assert!(find(path).is_err(), "{path}");
        }
    }

    #[test]
    fn every_file_that_the_page_names_is_part_of_the_program() {
        let page = FILES.iter().find(|(name, _)| *name == PAGE).unwrap().1;
        let page = std::str::from_utf8(page).unwrap();
        let named = page.split('"').filter(|part| part.starts_with('/'));
        let named: Vec<_> = named.collect();
        assert!(named.len() > 10, "{named:?}");
        for path in named {
            assert!(ASSETS.contains_key(&path[1..]), "{path}");
        }
    }

    #[test]
    fn a_client_says_whether_it_takes_gzip() {
        let takes = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, text.parse().unwrap());
            takes_gzip(&headers)
        };
        assert!(takes("br, gzip") && takes("gzip;q=0.5") && takes("GZIP"));
        assert!(!takes("gzip;q=0") && !takes("br") && !takes("identity"));
    }
}
