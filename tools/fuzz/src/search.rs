//! A search of a given time: inputs that reach more are kept, and others are drawn from them.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::corpus;
use crate::coverage::Reached;
use crate::mutator::Mutator;

/// How often a search says where it is.
const REPORT: Duration = Duration::from_secs(10);
/// Bytes of one corpus that a search writes, at most.
const CORPUS_BYTES: usize = 6 << 10;

#[derive(Debug)]
pub(crate) struct Search {
    pub(crate) name: &'static str,
    pub(crate) longest: usize,
    pub(crate) time: Duration,
    /// Known inputs that code makes; those behind are of the corpus.
    pub(crate) made: usize,
}

impl Search {
    /// Searches; `try_input` panics if an input fails.
    pub(crate) fn run(
        &self,
        mut known: Vec<Vec<u8>>,
        mutator: &mut Mutator,
        try_input: impl Fn(&[u8]),
    ) {
        let kept = self.file_of_finds();
        let given = known.len();
        known.extend(kept.as_deref().map(corpus::read).unwrap_or_default());
        let mut reached = Reached::default();
        for input in &known {
            Reached::clear();
            try_input(input);
            reached.add();
        }
        let (start, mut reported, mut tries) = (Instant::now(), Duration::ZERO, 0u64);
        while start.elapsed() < self.time {
            let input = mutator.draw(&known, self.longest);
            Reached::clear();
            try_input(&input);
            tries += 1;
            if reached.add() > 0 {
                if let Some(file) = &kept {
                    append(file, &input).expect("the file of finds");
                }
                known.push(input);
            }
            if start.elapsed() - reported > REPORT {
                reported = start.elapsed();
                self.report(tries, &known, &reached);
            }
        }
        self.report(tries, &known, &reached);
        if env::var_os("FARCORE_FUZZ_KEEP").is_some() {
            self.keep(&known, given, &try_input);
        }
    }

    fn report(&self, tries: u64, known: &[Vec<u8>], reached: &Reached) {
        let places = reached.places();
        println!(
            "{}: {tries} inputs, {} kept, {places} places reached",
            self.name,
            known.len()
        );
    }

    /// Where finds lie between searches.
    fn file_of_finds(&self) -> Option<PathBuf> {
        let folder = PathBuf::from(env::var_os("FARCORE_FUZZ_FINDS")?);
        fs::create_dir_all(&folder).expect("a folder for finds");
        let name = self.name.replace(' ', "-");
        Some(folder.join(name).with_extension("txt"))
    }

    /// Writes as the corpus what was in it, and the shortest inputs that reach other places.
    fn keep(&self, known: &[Vec<u8>], given: usize, try_input: &impl Fn(&[u8])) {
        let mut reached = Reached::default();
        let mut is_new = |input: &[u8]| {
            Reached::clear();
            try_input(input);
            reached.add_places() > 0
        };
        for input in &known[..given] {
            is_new(input);
        }
        let mut kept = known[self.made..given].to_vec();
        let mut found = known[given..].to_vec();
        found.sort_by_key(Vec::len);
        let mut bytes: usize = kept.iter().map(|input| corpus::escape(input).len()).sum();
        for input in found {
            let length = corpus::escape(&input).len();
            if bytes + length <= CORPUS_BYTES && is_new(&input) {
                bytes += length;
                kept.push(input);
            }
        }
        corpus::write(&corpus::file(self.name), &kept).expect("a corpus");
        println!("{}: {} inputs are the corpus", self.name, kept.len());
    }
}

fn append(file: &Path, input: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).create(true).open(file)?;
    writeln!(file, "{}", corpus::escape(input))
}
