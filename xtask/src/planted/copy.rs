//! A copy of the workspace to plant bugs in. It is brought up to date by what has changed, so that little is built again.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::context::output;

#[derive(Debug)]
pub(crate) struct Copy {
    root: PathBuf,
}

impl Copy {
    /// Of all files that git knows, or would be told of, as they are now.
    pub(crate) fn new(from: &Path, to: PathBuf) -> Result<Self> {
        let mut list = Command::new("git");
        list.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(from);
        let listed = output(&mut list)?;
        let files: BTreeSet<&Path> = listed.split('\0').filter(|file| !file.is_empty()).map(Path::new).collect();
        fs::create_dir_all(&to).with_context(|| to.display().to_string())?;
        remove_others(&to, Path::new(""), &files)?;
        let copy = Copy { root: to };
        for file in files {
            let source = from.join(file);
            // One that was deleted is still known until that is committed.
            if source.exists() {
                copy.put(file, &fs::read(&source).with_context(|| source.display().to_string())?)?;
            }
        }
        Ok(copy)
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn read(&self, file: &str) -> Result<String> {
        fs::read_to_string(self.root.join(file)).with_context(|| file.to_owned())
    }

    pub(crate) fn write(&self, file: &str, text: &str) -> Result<()> {
        self.put(Path::new(file), text.as_bytes())
    }

    /// A file that is the same stays as it is, with its time.
    fn put(&self, file: &Path, content: &[u8]) -> Result<()> {
        let path = self.root.join(file);
        if fs::read(&path).is_ok_and(|old| old == content) {
            return Ok(());
        }
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        }
        fs::write(&path, content).with_context(|| path.display().to_string())
    }
}

/// Removes what is no file of the workspace any more.
fn remove_others(root: &Path, folder: &Path, files: &BTreeSet<&Path>) -> Result<()> {
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let file = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            remove_others(root, &file, files)?;
        } else if !files.contains(&*file) {
            fs::remove_file(entry.path()).with_context(|| file.display().to_string())?;
        }
    }
    Ok(())
}
