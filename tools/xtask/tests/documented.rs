//! The documents and the command agree: every chore that they name exists, and so does everything
//! that they link to.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The Markdown files of the project's folder and of `docs`.
fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folders = ["", "docs", "docs/internals", "docs/decisions"];
    let files = folders.iter().flat_map(|folder| {
        let entries = fs::read_dir(root.join(folder)).unwrap();
        entries.map(|entry| entry.unwrap().path())
    });
    files
        .filter(|path| path.extension().is_some_and(|end| end == "md"))
        .collect()
}

/// The task of each `cargo xtask TASK`, and the word after it, which may be a task of that task.
fn chores(text: &str) -> impl Iterator<Item = Vec<&str>> {
    let is_name = |word: &&str| word.bytes().all(|byte| byte.is_ascii_lowercase());
    text.split("cargo xtask ").skip(1).map(move |rest| {
        let command = rest.split(['`', '\n', '#']).next().unwrap();
        let words = command.split_whitespace().take(2);
        words.take_while(is_name).collect()
    })
}

/// What `xtask help` says of a task, if there is such a task.
fn help(task: &[&str]) -> Option<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    let output = command.arg("help").args(task).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    output.status.success().then_some(said)
}

/// A task that has tasks of its own lists them under a heading.
fn exists(chore: &[&str]) -> bool {
    match *chore {
        [] => true,
        [task] => help(&[task]).is_some(),
        [task, ref within @ ..] => help(&[task]).is_some_and(|said| {
            !said.contains("\nCommands:\n") || help(&[&[task], within].concat()).is_some()
        }),
    }
}

#[test]
fn every_chore_that_a_document_names_exists() {
    let texts: Vec<_> = documents()
        .into_iter()
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let named: BTreeSet<_> = texts.iter().flat_map(|text| chores(text)).collect();
    assert!(named.len() > 12, "the documents were not read: {named:?}");
    let missing: Vec<_> = named.into_iter().filter(|chore| !exists(chore)).collect();
    assert!(missing.is_empty(), "documented, but absent: {missing:?}");
}

#[test]
fn chores_are_read_from_documents() {
    let text = "`cargo xtask` has `cargo xtask lab run -- COMMAND` and\ncargo xtask sim --seed 1\n";
    let found: Vec<_> = chores(text).collect();
    assert_eq!(found, [vec!["lab", "run"], vec!["sim"]]);
    assert!(exists(&["lab", "run"]) && exists(&["sim"]) && exists(&["results"]));
    assert!(!exists(&["lab", "dance"]) && !exists(&["dance"]));
}

/// A document without its blocks of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.starts_with("```");
        fenced = fenced != fence;
        !fence && !fenced
    })
}

/// The anchors of a document's headings, made as forges make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let letters = heading.trim_start_matches('#').trim().chars();
        let kept = letters.filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        let name: String = kept.collect();
        name.to_lowercase().replace(' ', "-")
    };
    headings.map(anchor).collect()
}

/// What a document links to, without the addresses of other sites.
fn links(text: &str) -> Vec<&str> {
    let ends = prose(text).flat_map(|line| line.split("](").skip(1));
    let links = ends.filter_map(|rest| rest.split_once(')').map(|(link, _)| link));
    let inside = |link: &&str| !link.contains("://") && !link.contains(' ');
    links.filter(inside).collect()
}

#[test]
fn every_link_of_a_document_leads_somewhere() {
    let (mut seen, mut broken) = (0, Vec::new());
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for link in links(&text) {
            seen += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => document.clone(),
                file => document.parent().unwrap().join(file),
            };
            let found = match anchor {
                "" => target.exists(),
                anchor => {
                    fs::read_to_string(&target).is_ok_and(|text| anchors(&text).contains(anchor))
                }
            };
            if !found {
                broken.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(seen > 200, "the documents were not read: {seen} links");
    assert!(broken.is_empty(), "links to nothing: {broken:#?}");
}

#[test]
fn links_and_anchors_are_read_from_documents() {
    let text = "# Is it true?\n[one](#is-it-true), [two](a.md#b) and [far](https://c)\n\
        ```sh\n# no heading, [no](link)\n```\n";
    assert_eq!(links(text), ["#is-it-true", "a.md#b"]);
    assert_eq!(anchors(text), BTreeSet::from(["is-it-true".into()]));
}
