//! Programs of other projects that cargo installs, each of one version, under `target/tools`.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use crate::context::Context;

/// A program by the name of its crate.
#[derive(Debug)]
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
}

impl Tool {
    /// Where it is installed to.
    pub(crate) fn path(&self, context: &Context) -> PathBuf {
        context.target().join("tools/bin").join(self.name)
    }

    /// The program of that version, if it is there: installed by us, or found by its name.
    pub(crate) fn find(&self, context: &Context) -> Option<PathBuf> {
        let is_it = |program: &PathBuf| {
            let output = Command::new(program).arg("--version").stderr(Stdio::null()).output();
            output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).trim().ends_with(self.version))
        };
        [self.path(context), PathBuf::from(self.name)].into_iter().find(is_it)
    }

    /// Compiles it, which takes minutes.
    pub(crate) fn compile(&self, context: &Context) -> Result<PathBuf> {
        let root = context.target().join("tools");
        let root = root.to_str().context("the path of target/ is not text")?;
        context.cargo(&["install", self.name, "--locked", "--version", self.version, "--root", root], &[])?;
        Ok(self.path(context))
    }
}
