//! The documents and the code agree: the order of layers in ARCHITECTURE.md, and the glossaries there
//! and in docs/internals.
//! The comments are plain: none is wider than 100 columns, none uses a word to avoid, and each can
//! be read alone.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn architecture() -> String {
    fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap()
}

/// The lines from a marking comment to the next blank line after a table or list.
fn section<'a>(text: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let marking = format!("<!-- {name} -->");
    let start = text
        .find(&marking)
        .unwrap_or_else(|| panic!("ARCHITECTURE.md has no `{marking}`"));
    text[start..].lines().skip(1)
}

/// The cells of a table's rows, its heading left out.
fn table<'a>(text: &'a str, name: &str) -> Vec<Vec<&'a str>> {
    let rows = section(text, name).take_while(|line| line.starts_with('|'));
    rows.skip(2)
        .map(|row| row.trim_matches('|').split('|').map(str::trim).collect())
        .collect()
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// Source without comments and without the tests at its end.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let lines = text.lines().map(|line| line.split("//").next().unwrap());
    lines.collect::<Vec<_>>().join("\n")
}

/// Modules that a source names as `crate::module`, including groups in braces.
fn named(code: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        let word = |text: &str| -> String {
            let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            text[..end.unwrap_or(text.len())].to_owned()
        };
        if let Some(group) = rest.strip_prefix('{') {
            let mut depth = 0;
            let mut item = String::new();
            for c in group.chars() {
                match c {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    ',' if depth == 0 => {
                        names.insert(word(item.trim()));
                        item.clear();
                        continue;
                    }
                    _ => {}
                }
                item.push(c);
            }
            names.insert(word(item.trim()));
        } else {
            names.insert(word(rest));
        }
    }
    names
}

/// The layer of each module of `engine/src`.
fn layers(text: &str) -> BTreeMap<String, u32> {
    let rows = table(text, "layers");
    let layer = |row: &Vec<&str>| {
        let number = row[0].parse().expect("the first cell is a number");
        (row[1].trim_matches('`').to_owned(), number)
    };
    rows.iter().map(layer).collect()
}

#[test]
fn no_module_names_one_above_it() {
    let text = architecture();
    let layers = layers(&text);
    assert!(layers.len() > 8, "the table was not read: {layers:?}");
    let source = root().join("engine/src");
    let mut files = Vec::new();
    sources(&source, &mut files);
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for path in files {
        let inside = path.strip_prefix(&source).unwrap();
        let first = inside.iter().next().unwrap().to_str().unwrap();
        let module = first.trim_end_matches(".rs");
        let is_test = inside
            .iter()
            .any(|part| part == "tests" || part == "tests.rs");
        if is_test || module == "lib" || module == "internals" {
            continue;
        }
        let Some(own) = layers.get(module) else {
            wrong.push(format!("`{module}` has no layer"));
            continue;
        };
        seen.insert(module.to_owned());
        for name in named(&code(&path)) {
            if layers.get(&name).is_some_and(|layer| layer > own) {
                wrong.push(format!(
                    "{} names `{name}`, which is above it",
                    inside.display()
                ));
            }
        }
    }
    let listed: BTreeSet<String> = layers.into_keys().collect();
    let missing: Vec<_> = listed.difference(&seen).collect();
    assert!(
        missing.is_empty(),
        "listed, but without a module: {missing:?}"
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// How many modules deep a source of a crate lies: 1 for `x.rs` and `x/mod.rs`.
fn depth(inside: &Path) -> usize {
    inside.iter().count() - usize::from(inside.ends_with("mod.rs"))
}

/// The most `super`s in a row that code has.
fn supers(code: &str) -> usize {
    let chains = code.match_indices("super::").map(|(at, step)| {
        let mut rest = &code[at..];
        let mut count = 0;
        while let Some(next) = rest.strip_prefix(step) {
            (rest, count) = (next, count + 1);
        }
        count
    });
    chains.max().unwrap_or(0)
}

#[test]
fn no_module_reaches_another_layer_by_super() {
    let source = root().join("engine/src");
    let mut files = Vec::new();
    sources(&source, &mut files);
    for path in files {
        let inside = path.strip_prefix(&source).unwrap();
        if inside
            .iter()
            .any(|part| part == "tests" || part == "tests.rs")
        {
            continue;
        }
        let (supers, depth) = (supers(&code(&path)), depth(inside));
        let name = inside.display();
        assert!(
            supers < depth,
            "{name} names the crate by {supers} `super`s"
        );
    }
}

#[test]
fn depths_and_supers_are_counted() {
    assert_eq!(depth(Path::new("cipher.rs")), 1);
    assert_eq!(depth(Path::new("shard/mod.rs")), 1);
    assert_eq!(depth(Path::new("shard/ops/change.rs")), 3);
    let code = "use super::a;\nuse super::super::b::{c, d};";
    assert_eq!(supers(code), 2);
}

#[test]
fn one_file_of_the_engine_and_one_of_the_fabric_name_glommio() {
    let mut naming = BTreeSet::new();
    for source in ["engine/src", "rdma/src"] {
        let mut files = Vec::new();
        sources(&root().join(source), &mut files);
        let names = |path: &PathBuf| code(path).contains("glommio::");
        naming.extend(files.into_iter().filter(names));
    }
    let naming: Vec<_> = naming
        .iter()
        .map(|path| path.strip_prefix(root()).unwrap())
        .collect();
    let allowed = ["engine/src/executor/mod.rs", "rdma/src/executor.rs"];
    assert_eq!(naming, allowed.map(Path::new));
}

#[test]
fn names_of_modules_are_read_from_code() {
    let code = "use crate::shard::{Shard, x};\nuse crate::{a::B, c::{D, E}, f};\ncrate::log::y()";
    let names: Vec<_> = named(code).into_iter().collect();
    assert_eq!(names, ["a", "c", "f", "log", "shard"]);
}

/// ARCHITECTURE.md, and the pages of single parts that have a glossary of their own.
fn glossaries() -> Vec<String> {
    let pages = fs::read_dir(root().join("docs/internals")).unwrap();
    let pages = pages.map(|page| fs::read_to_string(page.unwrap().path()).unwrap());
    let own = pages.filter(|text| text.contains("<!-- glossary -->"));
    own.chain([architecture()]).collect()
}

/// The words of a camel-case name, in lower case.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut before_lower = false;
    for c in name.chars() {
        if c.is_ascii_uppercase() && (before_lower || words.is_empty()) {
            words.push(String::new());
        }
        before_lower = c.is_ascii_lowercase() || c.is_ascii_digit();
        words.last_mut().unwrap().push(c.to_ascii_lowercase());
    }
    words
}

#[test]
fn every_type_is_named_by_words_that_are_explained() {
    let text = architecture();
    let mut known = BTreeSet::new();
    for text in glossaries() {
        for row in table(&text, "glossary") {
            for word in row[0].split([' ', '-', ',']) {
                known.insert(word.trim_matches('`').to_lowercase());
            }
        }
    }
    let standard = section(&text, "standard terms").take_while(|line| !line.starts_with('#'));
    for line in standard.filter(|line| line.starts_with('-') || line.starts_with(' ')) {
        for word in line.split([' ', '-', ',']) {
            known.insert(word.to_lowercase());
        }
    }
    assert!(known.len() > 60, "the glossary was not read: {known:?}");
    let source = root().join("engine/src");
    let mut files = Vec::new();
    sources(&source, &mut files);
    let mut unknown = BTreeSet::new();
    let kinds = ["struct ", "enum ", "trait ", "type "];
    let is_test = |path: &&PathBuf| {
        path.iter()
            .any(|part| part == "tests" || part == "tests.rs")
    };
    files.retain(|path| !path.ends_with("internals.rs") && !is_test(&path));
    for path in &files {
        for line in code(path).lines() {
            let line = line.trim_start();
            let Some(rest) = line.strip_prefix("pub") else {
                continue;
            };
            let rest = rest.trim_start();
            let rest = match rest.strip_prefix('(') {
                Some(inside) => inside
                    .split_once(')')
                    .map_or("", |(_, rest)| rest.trim_start()),
                None => rest,
            };
            let Some(name) = kinds.iter().find_map(|kind| rest.strip_prefix(kind)) else {
                continue;
            };
            let end = name.find(|c: char| !c.is_ascii_alphanumeric());
            let name = &name[..end.unwrap_or(name.len())];
            for word in words(name) {
                let singular = word.strip_suffix('s').unwrap_or(&word);
                if !known.contains(&word) && !known.contains(singular) {
                    unknown.insert(format!("`{word}` of `{name}`"));
                }
            }
        }
    }
    assert!(
        unknown.is_empty(),
        "neither in the glossary nor a standard term: {unknown:?}"
    );
}

/// Words that HACKING.md says to avoid, in lower case.
const AVOIDED: [&str; 9] = [
    "whoever",
    "nobody",
    "is told",
    "are told",
    "asked for",
    "asks for",
    "what came of",
    "the own ",
    "the ones that",
];
/// Further words to avoid, so far in [`STRICT_FOLDERS`] alone.
const AVOIDED_STRICTLY: [&str; 4] = ["so many", "in hand", "strangers", "leaves word"];
/// What no comment begins with in [`STRICT_FOLDERS`], because it refers to another comment.
const REFERRING: &str = "The same";
/// The folders to which the rules about [`AVOIDED_STRICTLY`] and [`REFERRING`] apply so far.
const STRICT_FOLDERS: [&str; 5] = ["engine", "rdma", "bench", "tuning", "tools"];
/// The folder in one of them to which they do not apply yet.
const LENIENT_FOLDER: &str = "tools/server/src";
const WIDTH_MAX: usize = 100;

/// The comments of a source with the numbers of their lines, without fenced diagrams and code.
fn comments(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    let lines = (1..).zip(text.lines());
    lines.filter(move |(_, line)| {
        let line = line.trim_start();
        let comment = line.starts_with("//");
        let fence = comment && line.trim_start_matches(['/', '!', ' ']).starts_with("```");
        fenced = comment && fenced != fence;
        comment && !fenced
    })
}

/// The lines that begin a comment, with their numbers.
fn first_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_comment = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let before = std::mem::replace(&mut is_comment, line.trim_start().starts_with("//"));
        is_comment && !before
    })
}

#[test]
fn comments_are_plain_and_not_wide() {
    let mut files = Vec::new();
    for folder in ["engine", "rdma", "tuning", "bench", "tools"] {
        sources(&root().join(folder), &mut files);
    }
    files.retain(|path| !path.ends_with("engine/tests/architecture.rs"));
    assert!(files.len() > 200, "the sources were not found");
    let mut wrong = Vec::new();
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        let path = path.strip_prefix(root()).unwrap();
        let name = path.display().to_string();
        let is_strict = STRICT_FOLDERS.iter().any(|folder| path.starts_with(folder))
            && !path.starts_with(LENIENT_FOLDER);
        let strictly: &[&str] = if is_strict { &AVOIDED_STRICTLY } else { &[] };
        for (number, line) in comments(&text) {
            let is_table = line.trim_start_matches(['/', '!', ' ']).starts_with('|');
            let has_link = line.contains("://");
            if line.chars().count() > WIDTH_MAX && !is_table && !has_link {
                wrong.push(format!("{name}:{number} is wider than {WIDTH_MAX} columns"));
            }
            let lower = line.to_lowercase();
            let avoided = AVOIDED.iter().chain(strictly);
            for word in avoided.filter(|&&word| lower.contains(word)) {
                wrong.push(format!("{name}:{number} says `{word}`"));
            }
        }
        for (number, line) in first_lines(&text).filter(|_| is_strict) {
            let line = line.trim_start_matches(['/', '!', ' ']);
            if line.starts_with(REFERRING) {
                wrong.push(format!("{name}:{number} begins with `{REFERRING}`"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn comments_are_found() {
    let text =
        "code // not this\n/// but this\n    // and this\n// ```\n// nor this\n// ```\n// this";
    let found: Vec<_> = comments(text).map(|(number, _)| number).collect();
    assert_eq!(found, [2, 3, 6, 7]);
    let first: Vec<_> = first_lines(text).map(|(number, _)| number).collect();
    assert_eq!(first, [2]);
    let text = "//! a\n\n/// b\n/// c\nfn f() {} // d\n    // e";
    let first: Vec<_> = first_lines(text).map(|(number, _)| number).collect();
    assert_eq!(first, [1, 3, 6]);
}
