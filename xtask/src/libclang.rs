//! Finds a libclang that rdma-sys 0.3 can be built with.
//!
//! Its bindgen (0.59.2) panics with libclang 16 and later ("not a valid Ident"). Debian 12 has 14. Where the system
//! has only newer ones, version 15 is taken from the Python package `libclang`, which is one library in a zip file.

use crate::context::output;
use anyhow::{Context as _, Result, ensure};
use cmid_softroce::{cache_directory, packages, progress};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Directories of usable versions, the newest first.
const SYSTEM: &[&str] = &["/usr/lib/llvm-15/lib", "/usr/lib/llvm-14/lib", "/usr/lib/llvm-13/lib"];
/// The version of the Python package.
const PYTHON_PACKAGE: &str = "libclang==15.0.6.1";
/// The path of the library in the archive.
const IN_PYTHON_PACKAGE: &str = "libclang-15.0.6.1.data/platlib/clang/native";

/// The variables that rdma-sys needs to be built.
pub(crate) fn environment() -> Result<Vec<(OsString, OsString)>> {
    if env::var_os("LIBCLANG_PATH").is_some_and(|path| !path.is_empty()) {
        // The user has chosen a libclang.
        return Ok(Vec::new());
    }
    if let Some(directory) = SYSTEM.iter().map(Path::new).find(|directory| has_libclang(directory)) {
        return Ok(vec![("LIBCLANG_PATH".into(), directory.into())]);
    }
    let directory = from_python()?;
    let headers = clang_headers()?;
    let mut arguments = OsString::from("-I");
    arguments.push(headers);
    Ok(vec![("LIBCLANG_PATH".into(), directory.into()), ("BINDGEN_EXTRA_CLANG_ARGS".into(), arguments)])
}

/// Whether bindgen's loader would find the library there.
fn has_libclang(directory: &Path) -> bool {
    let Ok(entries) = fs::read_dir(directory) else { return false };
    entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).any(|name| is_libclang(&name))
}

fn is_libclang(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("libclang") else { return false };
    // libclang-cpp.so is a different library.
    rest == ".so" || rest.starts_with(".so.") || (rest.starts_with("-1") && rest.contains(".so"))
}

/// Downloads the Python package into the cache, once. Unpacks it without installing it, as Debian's Python requires.
fn from_python() -> Result<PathBuf> {
    let cache = cache_directory()?;
    let kept = cache.join(PYTHON_PACKAGE.replace("==", "-"));
    let library = kept.join(IN_PYTHON_PACKAGE);
    if has_libclang(&library) {
        return Ok(library);
    }
    packages::ensure(&["python3", "python3-pip"])?;
    progress::begin(&format!("downloading {PYTHON_PACKAGE} from Python's package index"));
    let work = tempfile::Builder::new().prefix("libclang-").tempdir_in(&cache).context("a temporary directory")?;
    let (wheels, unpacked) = (work.path().join("wheels"), work.path().join("unpacked"));
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest"]);
    output(pip.arg(&wheels).arg(PYTHON_PACKAGE))?;
    let wheel = fs::read_dir(&wheels).context("the downloaded package")?.next().context("pip downloaded nothing")??;
    output(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(wheel.path()).arg(&unpacked))?;
    ensure!(has_libclang(&unpacked.join(IN_PYTHON_PACKAGE)), "{PYTHON_PACKAGE} holds no libclang");
    // Another process may have renamed its copy first; both are the same.
    if fs::rename(&unpacked, &kept).is_err() {
        ensure!(has_libclang(&library), "{} is in the way", kept.display());
    }
    Ok(library)
}

/// The compiler's own headers (stddef.h and the like), which the Python package lacks.
fn clang_headers() -> Result<PathBuf> {
    let directory = output(Command::new("clang").arg("-print-resource-dir"))?;
    let headers = Path::new(directory.trim_end()).join("include");
    ensure!(headers.join("stddef.h").is_file(), "clang has no headers in {}", headers.display());
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_known_by_its_name() {
        for name in ["libclang.so", "libclang.so.1", "libclang-14.so.14.0.6", "libclang-14.so.1"] {
            assert!(is_libclang(name), "{name}");
        }
        for name in ["libclang-cpp.so.14", "libclang.a", "libclang-common.so", "libLLVM-14.so"] {
            assert!(!is_libclang(name), "{name}");
        }
    }
}
