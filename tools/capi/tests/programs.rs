//! The examples and the tests in C and C++, compiled by gcc and clang against an installed library,
//! and run against a server in this process.

mod support;

use std::path::Path;
use std::process::Command;

use crate::support::Served;
use crate::support::compile::{
    CLANG, Compilation, Compilers, GCC, Installed, Program, WARNINGS, folder, run,
};

const EXAMPLES: [Program; 8] = [
    Program {
        path: "examples/quick_start.c",
        prints: "hello, version as stored\n5 bytes\nexpires: yes\nexists: no\n",
    },
    Program {
        path: "examples/batch.c",
        prints: "stored: 100\noutcome 100: there is no such key\nread: 100\nremoved: 100\n",
    },
    Program {
        path: "examples/pipeline.c",
        prints: "stored: 500\nread: 500\n",
    },
    Program {
        path: "examples/counter.c",
        prints: "counter: 200\n",
    },
    Program {
        path: "examples/quick_start.cpp",
        prints: "hello, version as stored\nexpires: yes\nexists: no\n",
    },
    Program {
        path: "examples/batch.cpp",
        prints: "stored: 100\noutcome 100: there is no such key\nread: 100\nremoved: 100\n",
    },
    Program {
        path: "examples/pipeline.cpp",
        prints: "stored: 500\nread: 500\n",
    },
    Program {
        path: "examples/counter.cpp",
        prints: "counter: 200\n",
    },
];

const TESTS: [Program; 2] = [
    Program {
        path: "tests/programs/misuse.c",
        prints: "0 of 130 wrong\n",
    },
    Program {
        path: "tests/programs/errors.cpp",
        prints: "0 wrong\n",
    },
];

/// Compiles programs and runs them against a server, plain or under sanitizers.
fn compile_and_run(programs: &[Program], compilers: &Compilers, is_sanitized: bool) {
    let served = Served::start();
    let compilation = Compilation {
        installed: &Installed::below(&served.folder()),
        compilers,
        is_sanitized,
        binary: served.folder().join("program"),
    };
    for program in programs {
        let mut start = compilation.of(program.path);
        start.arg(&served.address).arg(served.token());
        let printed = run(&mut start, compilers.packages).stdout;
        let printed = String::from_utf8_lossy(&printed);
        let (path, compiler) = (program.path, compilers.c);
        assert_eq!(printed, program.prints, "{path} by {compiler}");
    }
}

/// The sanitizers of a compiler find planted faults with memory of the library.
fn find_planted_faults(compilers: &Compilers) {
    let served = Served::start();
    let compilation = Compilation {
        installed: &Installed::below(&served.folder()),
        compilers,
        is_sanitized: true,
        binary: served.folder().join("program"),
    };
    let start = compilation.of("tests/programs/leak.c");
    for (fault, finding) in [("leak", "LeakSanitizer"), ("late", "heap-use-after-free")] {
        let mut start = Command::new(start.get_program());
        start.arg(&served.address).arg(served.token()).arg(fault);
        let output = start.output().expect("it was compiled");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{fault} is not found");
        assert!(said.contains(finding), "{fault}: {said}");
    }
}

#[test]
fn gcc_compiles_the_examples_and_they_run() {
    compile_and_run(&EXAMPLES, &GCC, false);
}

#[test]
fn clang_compiles_the_examples_and_they_run() {
    compile_and_run(&EXAMPLES, &CLANG, false);
}

#[test]
fn the_examples_of_gcc_have_no_error_for_sanitizers() {
    compile_and_run(&EXAMPLES, &GCC, true);
}

#[test]
fn the_examples_of_clang_have_no_error_for_sanitizers() {
    compile_and_run(&EXAMPLES, &CLANG, true);
}

#[test]
fn every_misuse_has_its_code_by_gcc() {
    compile_and_run(&TESTS, &GCC, true);
}

#[test]
fn every_misuse_has_its_code_by_clang() {
    compile_and_run(&TESTS, &CLANG, true);
}

#[test]
fn the_sanitizers_of_gcc_find_planted_faults() {
    find_planted_faults(&GCC);
}

#[test]
fn the_sanitizers_of_clang_find_planted_faults() {
    find_planted_faults(&CLANG);
}

#[test]
fn the_programs_of_the_guide_compile() {
    let guide = folder().join("../../docs/c.md");
    let guide = std::fs::read_to_string(guide).expect("the guide");
    let temporary = tempfile::tempdir().expect("a folder");
    let installed = Installed::below(temporary.path());
    let mut count = 0;
    for part in guide.split("\n```").skip(1) {
        let (language, program) = part.split_once('\n').unwrap_or_default();
        let standard = match language {
            "c" => "-std=c11",
            "cpp" => "-std=c++17",
            _ => continue,
        };
        count += 1;
        let source = temporary.path().join(format!("program.{language}"));
        std::fs::write(&source, program).expect("written");
        let compiler = if language == "c" { GCC.c } else { GCC.cpp };
        let mut compile = Command::new(compiler);
        compile.arg(standard).args(WARNINGS).arg("-fsyntax-only");
        compile.args(installed.flags(&["--cflags"])).arg(source);
        run(&mut compile, GCC.packages);
    }
    assert_eq!(count, 7);
}

#[test]
fn the_guide_has_every_code() {
    let read = |path: &str| std::fs::read_to_string(folder().join(path)).expect(path);
    let (header, guide) = (read("include/farcore.h"), read("../../docs/c.md"));
    let codes = header.split_once("enum farcore_code").expect("the codes").1;
    let codes = codes.split_once("};").expect("their end").0;
    let codes = codes
        .lines()
        .filter_map(|line| line.trim().split_once(" = "));
    let rows = codes.map(|(name, number)| format!("| `{name}` | {} |", number.trim_matches(',')));
    let rows: Vec<String> = rows.collect();
    assert!(rows.len() > 20, "{rows:?}");
    let missing: Vec<_> = rows.iter().filter(|row| !guide.contains(*row)).collect();
    assert!(missing.is_empty(), "docs/c.md lacks {missing:?}");
}

#[test]
fn every_example_is_run() {
    let examples = std::fs::read_dir(folder().join("examples")).expect("examples");
    for example in examples {
        let name = example.expect("an example").file_name();
        // Those of pools are run by the tests of pools.
        let is_of_pools = name.to_string_lossy().starts_with("pool_");
        let is_run = |program: &Program| Path::new(program.path).file_name() == Some(&name);
        assert!(is_of_pools || EXAMPLES.iter().any(is_run), "{name:?}");
    }
}
