//! Command lines of VMs, in the form in which a programme states them:
//! `[NAME=VALUE...] PROGRAM [WORD...]`, or `[NAME=VALUE...] sh [pairs+]SCRIPT [WORD...]` for a script of
//! `tests/kernel/scripts`, with the shell functions of `pairs.sh` before it on request. Every line gets the variable
//! `CMID_BACKEND`, which the suites read. Single quotes keep a word with blanks together.
//!
//! | in a value or word | |
//! | --- | --- |
//! | `@NAME` | a program that the step "build for the VM" has made |
//! | `@FOLDER/NAME` | a path in the target directory |
//! | `%FOLDER/NAME` | a report, in the target directory, which the command must write |
//! | `{root}`, `{backend}` | the workspace, and the backend of cmid-verbs |
//! | `{environment}` | the name of the recorded results on this kernel, backend and transport |
//! | `{rereg}` | what soft-RoCE's driver in this kernel can re-register |
//! | `{rereg-shim}` | the option with the library that passes `ibv_rereg_mr` to the kernel; nothing on Linux 6.1 |
//! | `{old}` | `--old` on Linux 6.1 |

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use cmid_softroce::{Kernel, Transport};

use crate::backend::Backend;
use crate::context::Context;

/// A command, what it needs of the target directory, and the reports that it writes.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) words: Vec<OsString>,
    needs: Vec<PathBuf>,
    reports: Vec<PathBuf>,
}

/// Makes a command of a text.
pub(crate) fn line(
    context: &Context,
    kernel: Kernel,
    backend: Backend,
    transport: Transport,
    text: &str,
) -> Result<Line> {
    let mut line = Line { words: Vec::new(), needs: Vec::new(), reports: Vec::new() };
    let environment = backend.environment(kernel, transport);
    let root = context.root.to_str().context("the path of the workspace is not text")?;
    let texts =
        [("{root}", root), ("{backend}", backend.name()), ("{environment}", &environment), ("{rereg}", rereg(kernel))];
    let texts = |word: &str| texts.iter().fold(word.to_owned(), |word, (name, value)| word.replace(name, value));
    let words = split(text);
    let (variables, command) = words.split_at(words.iter().take_while(|word| word.contains('=')).count());
    line.words.extend(["env".into(), format!("CMID_BACKEND={}", backend.name()).into()]);
    variables.iter().for_each(|word| line.push(context, &texts(word)));
    let command = match command {
        [shell, name, rest @ ..] if shell == "sh" => {
            line.words.extend(["sh".into(), "-c".into(), script(context, name)?.into()]);
            rest
        }
        _ => command,
    };
    for word in command {
        match word.as_str() {
            "{old}" | "{rereg-shim}" if (word == "{old}") != (kernel == Kernel::V6_1) => {}
            "{old}" => line.words.push("--old".into()),
            "{rereg-shim}" => line.push_all(context, &["--rereg-shim", "@libcmid_rereg_shim.so"]),
            _ => line.push(context, &texts(word)),
        }
    }
    Ok(line)
}

impl Line {
    fn push_all(&mut self, context: &Context, words: &[&str]) {
        words.iter().for_each(|word| self.push(context, word));
    }

    /// Adds a word. A path in it is made absolute.
    fn push(&mut self, context: &Context, word: &str) {
        let Some(at) = word.find(['@', '%']) else { return self.words.push(word.into()) };
        let (before, name) = (&word[..at], &word[at + 1..]);
        let path = if name.contains('/') { context.target().join(name) } else { context.release(name) };
        self.words.push([OsStr::new(before), path.as_os_str()].into_iter().collect());
        let paths = if word[at..].starts_with('%') { &mut self.reports } else { &mut self.needs };
        paths.push(path);
    }

    /// The folders that the command writes to.
    pub(crate) fn folders(&self) -> Vec<PathBuf> {
        self.reports.iter().filter_map(|report| report.parent()).map(Into::into).collect()
    }

    /// Fails if a program has not been built. Makes the folders, and removes the reports of an earlier run, so that they
    /// cannot be taken for this one's.
    pub(crate) fn begin(&self) -> Result<()> {
        if let Some(missing) = self.needs.iter().find(|path| !path.exists()) {
            bail!("{} is missing: `cargo xtask step \"build for the VM\"` builds the programs", missing.display());
        }
        self.folders().iter().try_for_each(fs::create_dir_all).context("the folder of a report")?;
        let mut old = self.reports.iter().filter(|report| report.exists());
        old.try_for_each(fs::remove_file).context("an old report")
    }

    /// Fails if a report is not there.
    pub(crate) fn end(&self) -> Result<()> {
        let missing = self.reports.iter().find(|report| !report.exists());
        missing.map_or(Ok(()), |report| bail!("the run left no report at {}", report.display()))
    }
}

/// The words of a text.
fn split(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (number, part) in text.split('\'').enumerate() {
        match number % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    words
}

/// The text of a script. A command line holds the text and not the path, so that the script may change meanwhile.
fn script(context: &Context, name: &str) -> Result<String> {
    let read = |name: &str| {
        let path = context.root.join("tests/kernel/scripts").join(format!("{name}.sh"));
        fs::read_to_string(&path).with_context(|| path.display().to_string())
    };
    let texts: Vec<_> = name.split('+').map(read).collect::<Result<_>>()?;
    Ok(texts.join("\n"))
}

/// What soft-RoCE's driver in this kernel can re-register. It supports it since 6.5; Ubuntu's kernels are newer.
fn rereg(kernel: Kernel) -> &'static str {
    match kernel {
        Kernel::V6_1 => "none",
        Kernel::V6_12 | Kernel::Ubuntu => "pd-access",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_programs_reports_and_the_selection() {
        let context = Context::new(Kernel::V6_1).unwrap();
        let of = |text: &str| line(&context, Kernel::V6_1, Backend::Kernel, Transport::Siw, text).unwrap();
        let made = of("a=@b @c {old} {rereg-shim} 'd e' {backend} {rereg} --f %g/{environment}.json");
        let [b, c] = ["b", "c"].map(|name| context.release(name).display().to_string());
        let report = context.target().join("g/siw-6.1-kernel.json");
        let report = report.display().to_string();
        let a = format!("a={b}");
        let words = ["env", "CMID_BACKEND=kernel", &a, &c, "--old", "d e", "kernel", "none", "--f", &report];
        assert_eq!(made.words, words.map(OsString::from));
        assert_eq!(made.folders(), [context.target().join("g")]);
        let pair = of("sh pairs+rping x").words;
        assert!(pair[4].to_string_lossy().contains("summary()") && pair[2] == "sh" && pair[5] == "x", "{pair:?}");
    }
}
