//! The documents and the code agree: the orders of layers, the circles of modules, the checks of
//! invariants, and the glossaries in ARCHITECTURE.md and docs/internals.
//! The comments are plain: none is wider than 100 columns, none uses a word to avoid, and each can
//! be read alone.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod modules;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use modules::{Graph, Name};

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
        .unwrap_or_else(|| panic!("the document has no `{marking}`"));
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

/// Source without comments and without tests.
fn code(path: &Path) -> String {
    modules::code(&fs::read_to_string(path).unwrap())
}

/// A crate whose modules lie in layers.
struct Layered {
    source: &'static str,
    /// The document with its tables, and what marks them there.
    document: &'static str,
    layers: &'static str,
    circles: &'static str,
    /// Files of its largest circle, at most.
    circle_max: usize,
}

const LAYERED: [Layered; 4] = [
    Layered {
        source: "rdma/src",
        document: "docs/internals/fabric.md",
        layers: "layers",
        circles: "circles",
        circle_max: 9,
    },
    Layered {
        source: "engine/src",
        document: "ARCHITECTURE.md",
        layers: "layers",
        circles: "circles",
        circle_max: 7,
    },
    Layered {
        source: "bench/src",
        document: "ARCHITECTURE.md",
        layers: "layers of bench",
        circles: "circles of bench",
        circle_max: 3,
    },
    Layered {
        source: "tools/server/src",
        document: "docs/internals/server.md",
        layers: "layers",
        circles: "circles",
        circle_max: 9,
    },
];

/// The modules that a cell names.
fn cell(text: &str) -> impl Iterator<Item = Name> {
    let names = text.split(',').map(|name| name.trim().trim_matches('`'));
    names.map(|name| name.split('/').map(str::to_owned).collect())
}

/// The layer of each module that a table names; modules inside of it have the same.
fn layers(text: &str, mark: &str) -> BTreeMap<Name, u32> {
    let mut layers = BTreeMap::new();
    for row in table(text, mark) {
        let layer = row[0].parse().expect("the first cell is a number");
        for name in cell(row[1]) {
            assert!(layers.insert(name, layer).is_none(), "{row:?} is twice");
        }
    }
    layers
}

/// The number of files of each circle that a table names, with a module of it.
fn listed_circles(text: &str, mark: &str) -> Vec<(usize, Name)> {
    let rows = table(text, mark).into_iter();
    rows.map(|row| {
        let files = row[0].parse().expect("the first cell is a number");
        (files, cell(row[1]).next().unwrap())
    })
    .collect()
}

fn shown(name: &Name) -> String {
    name.join("/")
}

/// What is wrong with the order of modules: one that names another above it, has no layer, or is in
/// a circle which is not listed as it is.
fn faults(graph: &Graph, layers: &BTreeMap<Name, u32>, listed: &[(usize, Name)]) -> Vec<String> {
    let mut faults = Vec::new();
    let entry = |name: &Name| {
        let mut lengths = (1..=name.len()).rev();
        lengths.find_map(|length| layers.get_key_value(&name[..length]))
    };
    let mut seen = BTreeSet::new();
    for (module, names) in graph {
        let Some((own_entry, own)) = entry(module) else {
            faults.push(format!("`{}` has no layer", shown(module)));
            continue;
        };
        seen.insert(own_entry);
        for name in names {
            if entry(name).is_some_and(|(_, layer)| layer > own) {
                let (module, name) = (shown(module), shown(name));
                faults.push(format!("`{module}` names `{name}`, which is above it"));
            }
        }
    }
    for unused in layers.keys().filter(|name| !seen.contains(name)) {
        faults.push(format!("`{}` is listed, but no module", shown(unused)));
    }
    let circles = modules::circles(graph);
    for circle in &circles {
        let rows = listed.iter().filter(|(_, name)| circle.contains(name));
        let rows: Vec<_> = rows.map(|(files, _)| *files).collect();
        if rows != [circle.len()] {
            let (files, names) = (circle.len(), circle.iter().map(shown));
            let names: Vec<_> = names.collect();
            faults.push(format!(
                "{files} files name each other, listed are {rows:?}: {}",
                names.join(" ")
            ));
        }
    }
    for (_, name) in listed {
        if !circles.iter().any(|circle| circle.contains(name)) {
            faults.push(format!("`{}` is in no circle any more", shown(name)));
        }
    }
    faults
}

#[test]
fn no_module_names_one_above_it_and_circles_are_listed() {
    let mut wrong = Vec::new();
    for layered in &LAYERED {
        let text = fs::read_to_string(root().join(layered.document)).unwrap();
        let layers = layers(&text, layered.layers);
        assert!(layers.len() > 8, "the table was not read: {layers:?}");
        let circles = listed_circles(&text, layered.circles);
        let mut modules = modules::read(&root().join(layered.source));
        // What tests of the engine reach of it.
        modules.remove(&["internals".to_owned()][..]);
        // A simulation stands on all of the fabric, which names it where it replaces a part.
        let is_simulated = |name: &Name| name.iter().any(|part| part.starts_with("simulat"));
        modules.retain(|name, _| !is_simulated(name));
        assert!(modules.len() > 20, "the sources were not read");
        let found = faults(&modules::graph(&modules), &layers, &circles);
        let is_larger = |&&(files, _): &&(usize, Name)| files > layered.circle_max;
        let larger = circles.iter().filter(is_larger);
        let larger = larger.map(|(files, _)| format!("a circle of {files} files is too large"));
        let found = found.into_iter().chain(larger);
        wrong.extend(found.map(|fault| format!("{}: {fault}", layered.source)));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Modules with their code.
fn planted(modules: &[(&str, &str)]) -> Graph {
    let modules = modules.iter().map(|(name, code)| {
        let name = cell(name).next().unwrap();
        (name, (*code).to_owned())
    });
    modules::graph(&modules.collect())
}

#[test]
fn a_planted_import_of_a_module_above_is_found() {
    let layers: BTreeMap<Name, u32> = [("low", 1), ("room", 2), ("room/top", 3)]
        .into_iter()
        .map(|(name, layer)| (cell(name).next().unwrap(), layer))
        .collect();
    let upward = [
        "use crate::room::top::Top;",
        "use crate::{other::X, room::{self, top::{Top, Other}}};",
        "fn f() { crate::room::top::g() }",
        "use super::room::Top;",
    ];
    let room = "mod top;\npub(crate) use self::top::Top;\nmod part;";
    let modules = |code| {
        planted(&[
            ("low", code),
            ("room", room),
            ("room/part", "use crate::low::Low;"),
            ("room/top", "use super::part::Part;\nuse crate::low;"),
        ])
    };
    assert_eq!(
        faults(&modules("use crate::low::Low;"), &layers, &[]),
        [""; 0]
    );
    for code in upward {
        let found = faults(&modules(code), &layers, &[]);
        let expected = "`low` names `room/top`, which is above it";
        assert!(
            found.iter().any(|fault| fault == expected),
            "{code}: {found:?}"
        );
    }
    let part = planted(&[
        ("low", ""),
        ("room", room),
        ("room/part", "use super::Top;"),
        ("room/top", ""),
    ]);
    let found = faults(&part, &layers, &[]);
    assert_eq!(found, ["`room/part` names `room/top`, which is above it"]);
}

#[test]
fn a_planted_circle_is_found_and_one_that_has_shrunk() {
    let layers = [(cell("room").next().unwrap(), 1)].into_iter().collect();
    let modules = planted(&[
        ("room/a", "use super::b::B;"),
        ("room/b", "use crate::room::c;"),
        ("room/c", "fn f() -> crate::room::a::A {}"),
        ("room/d", "use super::a;"),
    ]);
    let at = |name| cell(name).next().unwrap();
    let of = |listed: &[(usize, Name)]| faults(&modules, &layers, listed).len();
    assert_eq!(of(&[(3, at("room/b"))]), 0);
    assert_eq!(of(&[]), 1);
    assert_eq!(of(&[(2, at("room/b"))]), 1);
    assert_eq!(of(&[(4, at("room/b"))]), 1);
    assert_eq!(of(&[(3, at("room/b")), (2, at("room/d"))]), 1);
    assert_eq!(of(&[(3, at("room/b")), (3, at("room/a"))]), 1);
}

#[test]
fn code_of_tests_is_left_out() {
    let text = "use a::b; // c\n#[cfg(test)]\nmod by_hand;\nuse d;\n#[cfg(test)]\nmod tests {\n}";
    assert_eq!(modules::code(text), "use a::b; \n\nuse d;");
    let text = "use a;\n#[cfg(test)]\npub(crate) mod tests {\n    use b;\n}\n\
                impl C {\n    #[cfg(test)]\n    fn d() {\n        e();\n    }\n\n    fn f() {}\n}";
    let code = modules::code(text);
    assert_eq!(code, "use a;\n\nimpl C {\n    \n\n    fn f() {}\n}");
}

#[test]
fn the_scope_of_an_item_names_no_module() {
    let item = "pub(in crate::room) struct A;\npub(in crate::room) use super::c::C;";
    let modules = planted(&[
        ("room", "use self::a::A;"),
        ("room/a", item),
        ("room/c", ""),
    ]);
    assert!(modules::circles(&modules).is_empty());
    assert_eq!(modules[&["room", "a"].map(str::to_owned)[..]].len(), 0);
    let passed = planted(&[
        ("room", "use self::a::C;"),
        ("room/a", item),
        ("room/c", "use super::A;"),
    ]);
    let circles = modules::circles(&passed);
    assert_eq!(circles.len(), 1, "{circles:?}");
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

/// The invariants that headers in the engine number, with their files as the tables name them.
fn invariants(files: &[PathBuf], source: &Path) -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    for path in files {
        let inside = path.strip_prefix(source).unwrap().with_extension("");
        let name = inside.display().to_string();
        let name = name.strip_suffix("/mod").unwrap_or(&name);
        for line in fs::read_to_string(path).unwrap().lines() {
            let line = line.trim_start();
            let item = ["//! - ", "/// - "]
                .iter()
                .find_map(|start| line.strip_prefix(start));
            let Some((number, _)) = item.and_then(|item| item.split_once(": ")) else {
                continue;
            };
            let digits = number.trim_start_matches(|c: char| c.is_ascii_uppercase());
            let letters = number.len() - digits.len();
            if letters == 1 && !digits.is_empty() && digits.parse::<u32>().is_ok() {
                found.insert((name.to_owned(), number.to_owned()));
            }
        }
    }
    found
}

/// What a table names in backticks.
fn ticked(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

#[test]
fn every_invariant_has_a_check_or_a_reason_why_not() {
    let source = root().join("engine/src");
    let mut files = Vec::new();
    sources(&source, &mut files);
    let page = fs::read_to_string(root().join("docs/internals/checks.md")).unwrap();
    let mut tests = files.clone();
    sources(&root().join("engine/tests"), &mut tests);
    let texts: Vec<String> = tests
        .iter()
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let mut wrong = Vec::new();
    let mut named = BTreeSet::new();
    let checked = table(&page, "checks");
    let others = table(&page, "not checked");
    for row in checked.iter().chain(&others) {
        let file = row[0].trim_matches('`');
        for number in row[1].split(", ") {
            if !named.insert((file.to_owned(), number.to_owned())) {
                wrong.push(format!("{file} {number} is twice"));
            }
        }
        for test in ticked(row.last().unwrap()).filter(|name| name.matches('_').count() > 1) {
            if !texts
                .iter()
                .any(|text| text.contains(&format!("fn {test}(")))
            {
                wrong.push(format!("there is no test `{test}`"));
            }
        }
    }
    for row in &checked {
        let file = row[0].trim_matches('`');
        let words = file.rsplit('/').next().unwrap().replace('_', " ");
        let checks: Vec<_> = ticked(row[2])
            .map(|path| fs::read_to_string(source.join(path)).unwrap())
            .collect();
        let test = ticked(row[3]).next().unwrap();
        let planted = texts
            .iter()
            .find(|text| text.contains(&format!("fn {test}(")));
        for number in row[1].split(", ") {
            let message = format!("\"{words} {number}: ");
            if !checks.iter().any(|check| check.contains(&message)) {
                wrong.push(format!("no check says {message}"));
            }
            let breach = format!("\"{words} {number}\"");
            if !planted.is_some_and(|text| text.contains(&breach)) {
                wrong.push(format!("`{test}` plants no breach of {breach}"));
            }
        }
    }
    let found = invariants(&files, &source);
    assert!(found.len() > 100, "the headers were not read: {found:?}");
    for (file, number) in found.symmetric_difference(&named) {
        wrong.push(format!("{file} {number} is in one of table and sources"));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Words that HACKING.md says to avoid, in lower case.
const AVOIDED: [&str; 13] = [
    "whoever",
    "nobody",
    "is told",
    "are told",
    "asked for",
    "asks for",
    "what came of",
    "the own ",
    "the ones that",
    "so many",
    "in hand",
    "strangers",
    "leaves word",
];
/// What no comment begins with, because it refers to another comment.
const REFERRING: &str = "The same";
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
        for (number, line) in comments(&text) {
            let is_table = line.trim_start_matches(['/', '!', ' ']).starts_with('|');
            let has_link = line.contains("://");
            if line.chars().count() > WIDTH_MAX && !is_table && !has_link {
                wrong.push(format!("{name}:{number} is wider than {WIDTH_MAX} columns"));
            }
            let lower = line.to_lowercase();
            for word in AVOIDED.iter().filter(|&&word| lower.contains(word)) {
                wrong.push(format!("{name}:{number} says `{word}`"));
            }
        }
        for (number, line) in first_lines(&text) {
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
