//! Compiles programs in C and C++ by gcc and clang against an installed library.
//!
//! Plain, they use the shared library as `pkg-config` names it. Under AddressSanitizer and
//! UndefinedBehaviorSanitizer they use the static one; what the library allocates is checked for
//! leaks and late uses, too.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const SANITIZERS: [&str; 3] = [
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-g",
];
pub(crate) const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Werror", "-pedantic"];

/// A pair of compilers, and the Debian packages that have them.
pub(crate) struct Compilers {
    pub(crate) c: &'static str,
    pub(crate) cpp: &'static str,
    pub(crate) packages: &'static str,
}

pub(crate) const GCC: Compilers = Compilers {
    c: "gcc",
    cpp: "g++",
    packages: "gcc g++",
};
pub(crate) const CLANG: Compilers = Compilers {
    c: "clang",
    cpp: "clang++",
    packages: "clang libclang-rt-dev",
};

/// A program, and what it prints.
pub(crate) struct Program {
    pub(crate) path: &'static str,
    pub(crate) prints: &'static str,
}

pub(crate) fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs a command, which must succeed; `packages` have its program.
pub(crate) fn run(command: &mut Command, packages: &str) -> Output {
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => panic!("{command:?}: {error}; run: apt-get install {packages}"),
    };
    assert!(
        output.status.success(),
        "{command:?}: {}; it needs the packages {packages}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// The library, installed below a folder.
pub(crate) struct Installed(PathBuf);

impl Installed {
    pub(crate) fn below(folder_of_test: &Path) -> Self {
        // Cargo has built the libraries beside this test.
        let this = std::env::current_exe().expect("a path");
        let built = this.parent().expect("a folder");
        let prefix = folder_of_test.join("usr");
        let mut install = Command::new(folder().join("install.sh"));
        install.args([built.as_os_str(), prefix.as_os_str()]);
        install.arg(env!("CARGO_PKG_VERSION"));
        // As `cargo xtask capi install --verbs` does.
        if cfg!(feature = "verbs") {
            install.arg("libibverbs librdmacm");
        }
        run(&mut install, "coreutils");
        Self(prefix)
    }

    fn libraries(&self) -> PathBuf {
        self.0.join("lib")
    }

    /// What `pkg-config` says.
    pub(crate) fn flags(&self, arguments: &[&str]) -> Vec<String> {
        let mut command = Command::new("pkg-config");
        command.env("PKG_CONFIG_PATH", self.libraries().join("pkgconfig"));
        let said = run(command.args(arguments).arg("farcore"), "pkg-config").stdout;
        let said = String::from_utf8(said).expect("UTF-8");
        said.split_whitespace().map(str::to_owned).collect()
    }

    /// The arguments of a linker for the shared or for the static library.
    fn link(&self, is_static: bool) -> Vec<String> {
        if !is_static {
            return self.flags(&["--libs"]);
        }
        let mut link = self.flags(&["--libs", "--static"]);
        let archive = self.libraries().join("libfarcore.a");
        let shared = link.iter_mut().find(|flag| *flag == "-lfarcore");
        *shared.expect("it is named") = archive.display().to_string();
        link
    }
}

/// What compiles a program, and where to.
pub(crate) struct Compilation<'a> {
    pub(crate) installed: &'a Installed,
    pub(crate) compilers: &'a Compilers,
    pub(crate) is_sanitized: bool,
    pub(crate) binary: PathBuf,
}

impl Compilation<'_> {
    /// Compiles a program; the command that starts it.
    pub(crate) fn of(&self, path: &str) -> Command {
        let source = folder().join(path);
        let is_c = source.extension() == Some(OsStr::new("c"));
        let (compiler, standard) = match is_c {
            true => (self.compilers.c, "-std=c11"),
            false => (self.compilers.cpp, "-std=c++17"),
        };
        let mut compile = Command::new(compiler);
        compile.arg(standard).args(WARNINGS);
        if self.is_sanitized {
            compile.args(SANITIZERS);
        }
        compile.args(self.installed.flags(&["--cflags"]));
        compile.arg(&source).arg("-o").arg(&self.binary);
        let link = self.installed.link(self.is_sanitized);
        compile.args(link).arg("-pthread");
        run(&mut compile, self.compilers.packages);
        self.again(&Command::new(&self.binary))
    }

    /// A command that starts what another one starts, without its arguments.
    pub(crate) fn again(&self, start: &Command) -> Command {
        let mut start = Command::new(start.get_program());
        start.env("LD_LIBRARY_PATH", self.installed.libraries());
        start
    }
}
