//! The workspace, and the environment of the programs that steps run.

use anyhow::{Context as _, Result, bail, ensure};
use cmid_softroce::{Kernel, packages};
use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The data that all steps share.
#[derive(Debug)]
pub(crate) struct Context {
    /// The workspace's root.
    pub(crate) root: PathBuf,
    /// The kernel of the VM.
    pub(crate) kernel: Kernel,
    /// Variables for every program: the path of the libclang that rdma-sys is built with.
    pub(crate) environment: Vec<(OsString, OsString)>,
}

impl Context {
    pub(crate) fn new(kernel: Kernel) -> Result<Self> {
        // cargo sets the variable for programs that it runs. The constant is for a program started by hand.
        let here = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
        let root = Path::new(&here).parent().context("xtask has no parent directory")?.to_owned();
        Ok(Context { root, kernel, environment: Vec::new() })
    }

    /// cargo's target directory.
    pub(crate) fn target(&self) -> PathBuf {
        match env::var_os("CARGO_TARGET_DIR") {
            // A relative path is relative to the caller's directory, which cargo does not change.
            Some(directory) if !directory.is_empty() => env::current_dir().unwrap_or_default().join(directory),
            _ => self.root.join("target"),
        }
    }

    /// The path of a program that `cargo build --release` has made.
    pub(crate) fn release(&self, program: &str) -> PathBuf {
        self.target().join("release").join(program)
    }

    /// Runs cargo in the workspace. Its output goes to this program's output.
    pub(crate) fn cargo(&self, arguments: &[&str], environment: &[(&str, &OsStr)]) -> Result<()> {
        run(self.cargo_command(arguments).envs(environment.iter().copied()))
    }

    /// Runs a program of the workspace in the caller's directory; the words select it for cargo, which shows what it
    /// builds.
    pub(crate) fn program(&self, words: &str, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<()> {
        let mut command = self.cargo_command(&["run", "--manifest-path"]);
        command.arg(self.root.join("Cargo.toml")).args(words.split(' ')).arg("--").args(arguments);
        run(command.current_dir(env::current_dir()?))
    }

    /// Runs cargo in the workspace and returns its standard output.
    pub(crate) fn cargo_output(&self, arguments: &[&str]) -> Result<String> {
        output(&mut self.cargo_command(arguments))
    }

    /// The same; also returns its standard output.
    pub(crate) fn cargo_tells(&self, arguments: &[&str], environment: &[(&str, &OsStr)]) -> Result<String> {
        let mut command = self.cargo_command(arguments);
        command.envs(environment.iter().copied()).stderr(Stdio::inherit());
        let mut child = command.stdout(Stdio::piped()).spawn().context("cargo")?;
        let mut said = String::new();
        for line in BufReader::new(child.stdout.take().context("cargo's output")?).lines() {
            let line = line.context("cargo's output")?;
            println!("{line}");
            said += &(line + "\n");
        }
        let status = child.wait().context("cargo")?;
        ensure!(status.success(), "cargo {} failed: {status}", arguments.join(" "));
        Ok(said)
    }

    /// Runs a script of xtask/scripts on the host, with the path of the target directory. Installs the packages that it
    /// needs.
    pub(crate) fn script(&self, name: &str, needs: &[&str]) -> Result<()> {
        packages::ensure(needs)?;
        let mut command = Command::new(self.root.join("xtask/scripts").join(name));
        command.arg(self.target()).current_dir(&self.root);
        run(command.envs(self.environment.iter().cloned()))
    }

    fn cargo_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(arguments).current_dir(&self.root).env("CARGO_TARGET_DIR", self.target());
        command.envs(self.environment.iter().cloned());
        command
    }
}

/// Runs a program. Its output goes to this program's output. A status other than 0 is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let words = [command.get_program()].into_iter().chain(command.get_args());
    let what = words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ");
    let status = command.status().with_context(|| what.clone())?;
    ensure!(status.success(), "{what} failed: {status}");
    Ok(())
}

/// Runs a program and returns its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let what = format!("{command:?}");
    let output = command.output().with_context(|| what.clone())?;
    if !output.status.success() {
        bail!("{what} failed: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr).trim_end());
    }
    String::from_utf8(output.stdout).with_context(|| format!("{what}: its output is not text"))
}
