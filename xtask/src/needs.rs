//! What a programme needs of the machine, checked and installed before its first step, so that it does not fail after
//! an hour.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Error, Result, bail, ensure};
use cmid_softroce::packages::{self, FOR_THE_MACHINE};
use cmid_softroce::{Kernel, cache_directory};

use crate::context::{Context, output};
use crate::host;
use crate::tools::succeeds;

/// A crate of tests. It states the version of Rust that the programme needs.
const TESTS: &str = "tests/conformance/Cargo.toml";
/// In GB: what a programme writes to `target/` where nothing is built, and where everything is.
const DISK: [u64; 2] = [12, 2];
/// The packages for some of the steps on the host.
const MORE: &[&str] = &["valgrind", "python3", "python3-pip", "cmake", "e2fsprogs"];

/// Checks all of it, tells what is there, and fails with all that is missing. Installs the packages if nothing else is
/// missing.
pub(crate) fn check(context: &Context, kernels: &[Kernel], needs_root: bool) -> Result<()> {
    let mut found = vec![rust(context), components(context), disk(context)];
    let packages = [host::PACKAGES, MORE, if kernels.is_empty() { &[] } else { FOR_THE_MACHINE }].concat();
    found.push(debian(&packages));
    found.extend(kernels.iter().map(|kernel| offered(*kernel)));
    if needs_root {
        found.push(if packages::is_root() { Ok("root".into()) } else { Err(Error::msg("root, for a chroot")) });
    }
    let (there, missing): (Vec<_>, Vec<_>) = found.into_iter().partition(Result::is_ok);
    println!("needed: {}", there.into_iter().flatten().collect::<Vec<_>>().join("; "));
    let missing: Vec<_> = missing.into_iter().filter_map(Result::err).map(|error| format!("\n- {error:#}")).collect();
    ensure!(missing.is_empty(), "the programme cannot run here. It needs{}", missing.concat());
    // All at once: a step that installs something would fail if apt is used beside it.
    Ok(packages::ensure(&packages)?)
}

fn rust(context: &Context) -> Result<String> {
    let compiler = output(Command::new("rustc").arg("--version").current_dir(&context.root))?;
    let ours = compiler.split_whitespace().nth(1).context("rustc prints no version")?;
    let manifest = fs::read_to_string(context.root.join(TESTS)).context(TESTS)?;
    let wanted = manifest.lines().find_map(|line| line.strip_prefix("rust-version = ")).context(TESTS)?;
    is_new_enough(ours, wanted.trim_matches('"'))
}

fn is_new_enough(ours: &str, wanted: &str) -> Result<String> {
    ensure!(number(ours)? >= number(wanted)?, "Rust {wanted} or newer for the tests; this is {ours}");
    Ok(format!("Rust {ours}"))
}

/// The major and minor version.
fn number(version: &str) -> Result<(u32, u32)> {
    let mut parts = version.split('.').map(str::parse);
    match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Ok((major, minor)),
        _ => bail!("{version} is no version of Rust"),
    }
}

/// The programs that rustup's minimal profile lacks.
fn components(context: &Context) -> Result<String> {
    for name in ["fmt", "clippy"] {
        let is_there = succeeds(Command::new("cargo").args([name, "--version"]).current_dir(&context.root));
        ensure!(is_there, "cargo {name}: `rustup component add rustfmt clippy` installs it");
    }
    Ok("rustfmt and clippy".into())
}

fn disk(context: &Context) -> Result<String> {
    let target = context.target();
    let is_built = context.release("conformance").exists();
    let there = target.ancestors().find(|folder| folder.exists()).context("no folder of target/ exists")?;
    has_room(&target, free(there)?, DISK[usize::from(is_built)])
}

/// In GB.
fn free(folder: &Path) -> Result<u64> {
    let disk = rustix::fs::statvfs(folder).with_context(|| folder.display().to_string())?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize) / 1_000_000_000)
}

fn has_room(target: &Path, free: u64, wanted: u64) -> Result<String> {
    ensure!(free >= wanted, "{wanted} GB for {}; {free} GB are free", target.display());
    Ok(format!("{wanted} GB for {}", target.display()))
}

/// Each package is there, or apt offers it and this user may install it.
fn debian(packages: &[&str]) -> Result<String> {
    let missing = packages::missing(packages)?;
    packages::check(&missing)?;
    Ok(match missing[..] {
        [] => "all packages".to_owned(),
        _ => format!("packages, which are installed now: {}", missing.join(" ")),
    })
}

/// A kernel in the cache, or one that apt offers.
fn offered(kernel: Kernel) -> Result<String> {
    let release = kernel.find(&cache_directory()?)?;
    Ok(format!("kernel {kernel}: {release}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_is_told_with_what_is_there() {
        let refused = |result: Result<String>| result.unwrap_err().to_string();
        assert_eq!(refused(is_new_enough("1.85.0", "1.95")), "Rust 1.95 or newer for the tests; this is 1.85.0");
        assert!(is_new_enough("1.100.0", "1.95").is_ok() && is_new_enough("1.95.0-nightly", "1.95").is_ok());
        assert_eq!(refused(is_new_enough("new", "1.95")), "new is no version of Rust");
        assert_eq!(refused(has_room(Path::new("/t"), 11, 12)), "12 GB for /t; 11 GB are free");
        assert!(has_room(Path::new("/t"), 12, 12).is_ok());
    }

    #[test]
    fn the_tests_state_a_version_and_the_disk_has_a_size() {
        let context = Context::new(Kernel::default()).unwrap();
        assert!(rust(&context).unwrap().starts_with("Rust 1."));
        assert!(free(Path::new("/")).unwrap() < 1_000_000);
    }
}
