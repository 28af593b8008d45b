//! `include/farcore.h` is what cbindgen writes from the sources.
//!
//! `FARCORE_WRITE=1 cargo test -p farcore-capi --test header` writes it.

use std::fs;
use std::path::Path;

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
