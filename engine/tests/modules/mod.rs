//! The modules of a crate as its sources name each other: which names which, and in which circles.
//!
//! A module is a file. What it names is read from its text: paths that begin with `crate`, `self`,
//! `super`, or a module of its own. A name that another module passes on (`pub use`) counts as that
//! of the module which defines it. Code of tests is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The path of a module in its crate; empty for the crate itself.
pub(crate) type Name = Vec<String>;

/// The modules of a crate with the modules that each names.
pub(crate) type Graph = BTreeMap<Name, BTreeSet<Name>>;

/// Whether a character can be part of a word.
fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Source without comments, and without what is compiled for tests alone.
pub(crate) fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let lines = text.lines().map(|line| line.split("//").next().unwrap());
    let text = lines.collect::<Vec<_>>().join("\n");
    let mut parts = text.split("#[cfg(test)]");
    let mut code = parts.next().unwrap().to_owned();
    for part in parts {
        code.push_str(after_item(part, &indent(&code)));
    }
    code
}

/// The spaces that the last line of code begins with, if it has nothing else.
fn indent(code: &str) -> String {
    let line = code.rsplit('\n').next().unwrap();
    line.chars().take_while(|c| *c == ' ').collect()
}

/// What follows an item that begins a text: a declaration ends with a semicolon, a block with a
/// brace that is as far from the margin as the item.
fn after_item<'a>(text: &'a str, indent: &str) -> &'a str {
    let Some(end) = text.find([';', '{']) else {
        return text;
    };
    if text[end..].starts_with(';') {
        return &text[end + 1..];
    }
    let close = format!("\n{indent}}}");
    let block = text.split_once(&close);
    block.map_or(text, |(_, rest)| rest)
}

/// Modules that a source declares for tests alone.
fn of_tests(text: &str) -> impl Iterator<Item = &str> {
    let declarations = text.split("#[cfg(test)]").skip(1);
    declarations.filter_map(|rest| {
        let declaration = rest.split_once(';')?.0.trim();
        let name = declaration.rsplit_once("mod ")?.1;
        name.chars().all(is_word).then_some(name)
    })
}

/// Reads the modules of a crate: their names, and their code.
pub(crate) fn read(source: &Path) -> BTreeMap<Name, String> {
    let mut found = BTreeMap::new();
    read_folder(source, &Vec::new(), &mut found);
    found
}

fn read_folder(folder: &Path, name: &Name, found: &mut BTreeMap<Name, String>) {
    let mut entries: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    let text_of = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    let texts = entries
        .iter()
        .filter(|path| path.is_file())
        .map(|path| text_of(path));
    let texts: Vec<_> = texts
        .chain([text_of(&folder.with_extension("rs"))])
        .collect();
    let tests: BTreeSet<&str> = texts.iter().flat_map(|text| of_tests(text)).collect();
    for path in &entries {
        let stem = path.file_stem().unwrap().to_str().unwrap();
        if tests.contains(stem) || stem == "tests" {
            continue;
        }
        let inner = || name.iter().cloned().chain([stem.to_owned()]).collect();
        if path.is_dir() {
            read_folder(path, &inner(), found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            let is_own = matches!(stem, "mod" | "lib" | "main");
            let name = if is_own { name.clone() } else { inner() };
            found.insert(name, code(&text_of(path)));
        }
    }
}

/// The paths of a tree that `use` names.
fn expand(tree: &str) -> Vec<String> {
    let tree = tree.trim();
    let Some((before, rest)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap();
        return vec![path.split_whitespace().collect()];
    };
    let before: String = before.split_whitespace().collect();
    let (mut depth, mut items) = (0, vec![String::new()]);
    for c in rest.chars() {
        match c {
            '}' if depth == 0 => break,
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if c == ',' && depth == 0 {
            items.push(String::new());
        } else {
            items.last_mut().unwrap().push(c);
        }
    }
    let items = items.iter().filter(|item| !item.trim().is_empty());
    items
        .flat_map(|item| expand(item))
        .map(|item| format!("{before}{item}"))
        .collect()
}

/// The places of a word in code.
fn places<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |&at| {
            let before = code[..at].chars().next_back();
            let after = code[at + word.len()..].chars().next();
            !before.is_some_and(|c| is_word(c) || c == ':' || c == '.' || c == '#')
                && !after.is_some_and(is_word)
        })
}

/// Code without the scopes of what is visible in a part of the crate (`pub(in crate::part)`): an
/// item that is visible somewhere needs nothing of what is there.
fn without_scopes(code: &str) -> String {
    let mut parts = code.split("pub(in ");
    let mut rest = parts.next().unwrap().to_owned();
    for part in parts {
        let (_, item) = part.split_once(')').unwrap();
        rest.push_str("pub");
        rest.push_str(item);
    }
    rest
}

/// What code names: paths, and those of them that it passes on.
fn paths(code: &str, children: &[&str]) -> (Vec<String>, Vec<String>) {
    let code = &without_scopes(code);
    let (mut named, mut passed_on) = (Vec::new(), Vec::new());
    let mut rest = code.to_owned();
    for at in places(code, "use") {
        let tree = &code[at + "use".len()..];
        if !tree.starts_with(char::is_whitespace) {
            continue;
        }
        let Some((tree, _)) = tree.split_once(';') else {
            continue;
        };
        let before = code[..at].trim_end();
        let line = before.rsplit('\n').next().unwrap().trim_start();
        let is_public = before.ends_with("pub") || line.starts_with("pub(") && line.ends_with(')');
        let into = if is_public {
            &mut passed_on
        } else {
            &mut named
        };
        into.extend(expand(tree));
        let end = at + "use".len() + tree.len();
        rest.replace_range(at..end, &" ".repeat(end - at));
    }
    for first in ["crate", "self", "super"].iter().chain(children) {
        for at in places(&rest, first) {
            let path = &rest[at..];
            let end = path.find(|c| !is_word(c) && c != ':').unwrap_or(path.len());
            let path = path[..end].trim_end_matches(':');
            if path.contains("::") {
                named.push(path.to_owned());
            }
        }
    }
    (named, passed_on)
}

/// A path from the crate on, if it is one of the crate.
fn absolute(module: &Name, path: &str, children: &[&str]) -> Option<Name> {
    let mut parts = path.split("::").peekable();
    let mut base = module.clone();
    match *parts.peek()? {
        "crate" => {
            base.clear();
            parts.next();
        }
        "self" => {
            parts.next();
        }
        "super" => {}
        first if children.contains(&first) => {}
        _ => return None,
    }
    while parts.next_if_eq(&"super").is_some() {
        base.pop();
    }
    base.extend(parts.map(str::to_owned));
    Some(base)
}

/// Which modules name which.
pub(crate) fn graph(modules: &BTreeMap<Name, String>) -> Graph {
    let mut named = BTreeMap::new();
    let mut passed_on: BTreeMap<(Name, String), Name> = BTreeMap::new();
    for (module, code) in modules {
        let is_child = |name: &&Name| name.len() == module.len() + 1 && name.starts_with(module);
        let children = modules.keys().filter(is_child);
        let children: Vec<_> = children.map(|name| name.last().unwrap().as_str()).collect();
        let (names, passes) = paths(code, &children);
        let names = names
            .iter()
            .filter_map(|path| absolute(module, path, &children));
        named.insert(module.clone(), names.collect::<Vec<_>>());
        for path in passes
            .iter()
            .filter_map(|path| absolute(module, path, &children))
        {
            if let Some(last) = path.last().cloned() {
                passed_on.insert((module.clone(), last), path);
            }
        }
    }
    let resolve = |path: &Name| {
        let mut path = path.clone();
        // A name is passed on a few times at most.
        for _ in 0..8 {
            let lengths = (0..=path.len()).rev();
            let known = lengths
                .into_iter()
                .find(|&length| modules.contains_key(&path[..length]))?;
            let module = path[..known].to_vec();
            let next = path
                .get(known)
                .and_then(|name| passed_on.get(&(module.clone(), name.clone())));
            match next {
                Some(next) if *next != path => {
                    path = next.iter().chain(&path[known + 1..]).cloned().collect();
                }
                _ => return Some(module),
            }
        }
        None
    };
    let resolved = named.iter().map(|(module, names)| {
        let names = names.iter().filter_map(resolve);
        let names = names.filter(|name| name != module && !name.is_empty());
        (module.clone(), names.collect())
    });
    resolved.filter(|(module, _)| !module.is_empty()).collect()
}

/// The circles: sets of modules each of which reaches all others by what it names.
pub(crate) fn circles(graph: &Graph) -> Vec<BTreeSet<Name>> {
    let reached = |from: &Name| {
        let (mut reached, mut left) = (BTreeSet::new(), vec![from]);
        while let Some(module) = left.pop() {
            for next in graph.get(module).into_iter().flatten() {
                if reached.insert(next.clone()) {
                    left.push(next);
                }
            }
        }
        reached
    };
    let reached: BTreeMap<_, _> = graph
        .keys()
        .map(|module| (module, reached(module)))
        .collect();
    let mut circles: Vec<BTreeSet<Name>> = Vec::new();
    for (&module, reaches) in &reached {
        let is_known = circles.iter().any(|circle| circle.contains(module));
        if is_known || !reaches.contains(module) {
            continue;
        }
        let is_in = |other: &&Name| reached.get(other).is_some_and(|back| back.contains(module));
        circles.push(reaches.iter().filter(is_in).cloned().collect());
    }
    circles
}
