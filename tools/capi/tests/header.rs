//! `include/farcore.h` is what cbindgen writes from the sources.
//!
//! `FARCORE_WRITE=1 cargo test -p farcore-capi --test header` writes it.

use std::fs;
use std::path::Path;

use farcore_protocol::Status;

fn generated() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).expect("settings");
    let builder = cbindgen::Builder::new().with_config(config);
    let bindings = builder.with_crate(folder).generate().expect("a header");
    let mut header = Vec::new();
    bindings.write(&mut header);
    let header = String::from_utf8(header).expect("UTF-8");
    // cbindgen names a variant by all words of its type or by none; codes are FARCORE_OK and so on.
    header.replace("FARCORE_CODE_", "FARCORE_")
}

#[test]
fn the_header_is_what_the_sources_export() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/farcore.h");
    let header = generated();
    if std::env::var_os("FARCORE_WRITE").is_some() {
        fs::write(&path, &header).expect("written");
    }
    let written = fs::read_to_string(&path).expect("the header");
    assert!(
        header == written,
        "{} differs: run FARCORE_WRITE=1 cargo test -p farcore-capi --test header",
        path.display()
    );
}

/// The names and numbers of the codes in a header.
fn codes(header: &str) -> Vec<(String, i32)> {
    let codes = header.split_once("enum farcore_code").expect("the codes").1;
    let codes = codes.split_once("};").expect("their end").0;
    let codes = codes.lines().filter_map(|line| {
        let (name, number) = line.trim().split_once(" = ")?;
        Some((name.to_owned(), number.trim_matches(',').parse().ok()?))
    });
    codes.collect()
}

/// `NotFound` as `NOT_FOUND`.
fn screaming(name: &str) -> String {
    let mut screaming = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !screaming.is_empty() {
            screaming.push('_');
        }
        screaming.push(letter.to_ascii_uppercase());
    }
    screaming
}

#[test]
fn the_codes_of_the_header_are_the_statuses_of_the_protocol() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/farcore.h");
    let header = fs::read_to_string(path).expect("the header");
    let statuses = Status::ALL.map(|status| {
        let name = format!("FARCORE_{}", screaming(&format!("{status:?}")));
        (name, i32::from(status.code()))
    });
    let within = |(_, number): &(String, i32)| (i32::from(i8::MIN)..=0).contains(number);
    let found: Vec<_> = codes(&header).into_iter().filter(within).collect();
    assert_eq!(found, statuses);
}
