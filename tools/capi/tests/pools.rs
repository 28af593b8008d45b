//! The examples and the tests of pools in C and C++, compiled by gcc and clang against an installed
//! library, and run against memory nodes in this process.

mod support;

use std::path::{Path, PathBuf};

use farcore_pool::{Plain, PoolOptions, RemotePool, RemoteSlice};

use crate::support::TOKEN;
use crate::support::compile::{
    CLANG, Compilation, Compilers, GCC, Installed, Program, folder, run,
};
use crate::support::nodes::{Node, conduct};

const EXAMPLES: [Program; 5] = [
    Program {
        path: "examples/pool_counter.c",
        prints: "counter: 400, highest: 3099\n",
    },
    Program {
        path: "examples/pool_pipeline.c",
        prints: "read: 50\nat once: 50\n",
    },
    Program {
        path: "examples/pool_shared.c",
        prints: "shared: 8000 bytes, the last is 1099\nchanged: 105\nkept: 105\n\
                 given away: yes\ntaken: 8\n",
    },
    Program {
        path: "examples/pool_slice.cpp",
        prints: "orders: 1000, the last: 999\nchanged: 77\nsum: 11\nbehind it: 4\n\
                 outside: refused\nunder way: 20\nword: 15\nword: 60\n\
                 freed: the allocation was freed: keep its owner for as long as pointers to it \
                 are used\n",
    },
    Program {
        path: "examples/pool_list.cpp",
        prints: "sum: 5050\nlast: 100\nleft: 4950\nallocated: 0\n",
    },
];

/// The examples that need no node.
const EMBEDDED: [&str; 4] = [
    "pool_counter.c",
    "pool_pipeline.c",
    "pool_slice.cpp",
    "pool_list.cpp",
];

const TESTS: [Program; 3] = [
    Program {
        path: "tests/programs/pool_misuse.c",
        prints: "0 of 246 wrong\n",
    },
    Program {
        path: "tests/programs/pool_sharing.c",
        prints: "0 of 99 wrong\n",
    },
    Program {
        path: "tests/programs/pool_errors.cpp",
        prints: "0 wrong\n",
    },
];

/// What a program in Rust shares with one in C++, which has the same struct.
#[derive(Clone, Copy, Plain)]
struct Order {
    is_open: bool,
    price: f64,
    amount: u32,
}

/// A folder, the library in it, and where programs are compiled to.
struct Library {
    folder: tempfile::TempDir,
    installed: Installed,
}

impl Library {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let installed = Installed::below(folder.path());
        std::fs::write(folder.path().join("token"), TOKEN).expect("written");
        Self { folder, installed }
    }

    fn token(&self) -> PathBuf {
        self.folder.path().join("token")
    }

    fn compilation<'a>(&'a self, compilers: &'a Compilers, is_sanitized: bool) -> Compilation<'a> {
        Compilation {
            installed: &self.installed,
            compilers,
            is_sanitized,
            binary: self.folder.path().join("program"),
        }
    }
}

/// Compiles the examples and runs them against nodes, and without them.
fn run_examples(compilers: &Compilers, is_sanitized: bool) {
    let library = Library::new();
    let compilation = library.compilation(compilers, is_sanitized);
    let nodes = [Node::start(false), Node::start(false)];
    for program in &EXAMPLES {
        let start = compilation.of(program.path);
        let mut runs = vec![nodes.each_ref().map(Node::name).to_vec()];
        if EMBEDDED.iter().any(|name| program.path.ends_with(name)) {
            runs.push(Vec::new());
        }
        for arguments in runs {
            let mut start = compilation.again(&start);
            let printed = run(start.args(&arguments), compilers.packages).stdout;
            let printed = String::from_utf8_lossy(&printed);
            let (path, compiler) = (program.path, compilers.c);
            assert_eq!(
                printed, program.prints,
                "{path} by {compiler} {arguments:?}"
            );
        }
    }
}

/// What the programs import: memory of another pool, as text.
struct Exporter {
    _pool: RemotePool,
    words: RemoteSlice<u64>,
    orders: RemoteSlice<Order>,
}

impl Exporter {
    fn at(node: &Node) -> Self {
        let pool = RemotePool::connect([node.name()], PoolOptions::default()).expect("a node");
        let words = pool.alloc_from(&[7_u64, 8, 9]).wait().expect("memory");
        let order = |amount| Order {
            is_open: amount % 2 == 0,
            price: f64::from(amount) / 2.0,
            amount,
        };
        let orders: Vec<_> = (1..=3).map(order).collect();
        let orders = pool.alloc_from(&orders).wait().expect("memory");
        Self {
            _pool: pool,
            words,
            orders,
        }
    }

    fn texts(&self) -> [String; 2] {
        let words = self.words.export(false).wait().expect("it is exported");
        let orders = self.orders.export(true).wait().expect("it is exported");
        [words.to_string(), orders.to_string()]
    }
}

/// Compiles the tests and runs them under sanitizers. They have nodes 0 and 1, which they have
/// stopped and started, node 2, which requires a token, and node 3, whose memory is shared.
fn run_tests(compilers: &Compilers) {
    let library = Library::new();
    let compilation = library.compilation(compilers, true);
    for program in &TESTS {
        let mut nodes = [false, false, true, false].map(Node::start);
        let exporter = Exporter::at(&nodes[3]);
        let mut start = compilation.of(program.path);
        start.args(nodes.each_ref().map(Node::name));
        start.arg(library.token()).args(exporter.texts());
        let (status, printed) = conduct(&mut start, &mut nodes);
        let (path, compiler) = (program.path, compilers.c);
        assert_eq!(printed, program.prints, "{path} by {compiler}");
        assert!(status.success(), "{path} by {compiler}: {status}");
        // What the program has stored.
        if Path::new(path).extension().is_some_and(|end| end == "cpp") {
            let changed = exporter.orders.read(2).wait().expect("a value");
            let found = (changed.is_open, changed.price, changed.amount);
            assert_eq!(found, (true, 1.5, 77));
        }
    }
}

#[test]
fn gcc_compiles_the_examples_of_pools_and_they_run() {
    run_examples(&GCC, false);
}

#[test]
fn clang_compiles_the_examples_of_pools_and_they_run() {
    run_examples(&CLANG, false);
}

#[test]
fn the_examples_of_pools_have_no_error_for_sanitizers_of_gcc() {
    run_examples(&GCC, true);
}

#[test]
fn the_examples_of_pools_have_no_error_for_sanitizers_of_clang() {
    run_examples(&CLANG, true);
}

#[test]
fn every_misuse_of_pools_has_its_code_by_gcc() {
    run_tests(&GCC);
}

#[test]
fn every_misuse_of_pools_has_its_code_by_clang() {
    run_tests(&CLANG);
}

#[test]
fn every_example_of_pools_is_run() {
    let examples = std::fs::read_dir(folder().join("examples")).expect("examples");
    for example in examples {
        let name = example.expect("an example").file_name();
        let is_run = |program: &Program| Path::new(program.path).file_name() == Some(&name);
        let is_of_pools = name.to_string_lossy().starts_with("pool_");
        assert!(!is_of_pools || EXAMPLES.iter().any(is_run), "{name:?}");
    }
}
