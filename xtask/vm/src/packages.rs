//! Installs missing Debian packages on the host.

use crate::error::Error;
use crate::tool::{self, LONG, SHORT};
use crate::{interrupt, progress};
use std::process::Command;

/// The packages that a run needs on the host.
pub const FOR_THE_MACHINE: &[&str] =
    &["qemu-system-x86", "busybox-static", "kmod", "iproute2", "xz-utils", "zstd", "gzip", "util-linux"];

/// apt's messages when a package's file or a server is out of reach.
const NETWORK_FAILURES: &[&str] = &[
    "Temporary failure resolving",
    "Could not resolve",
    "Could not connect",
    "Unable to connect",
    "Connection timed out",
    "Failed to fetch",
    "Network is unreachable",
    "no longer has a Release file",
];

/// Installs the missing ones of the named Debian packages, and prints them.
///
/// # Errors
///
/// [`Error::NotRoot`] with the missing packages if this user may not install them, [`Error::Network`] for a failed
/// download, [`Error::Tool`] for any other error of apt.
pub fn ensure(names: &[&str]) -> Result<(), Error> {
    let missing = missing(names)?;
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    let sudo = permitted(&missing)?;
    progress::begin(&format!("installing {list}{}", if sudo { " with sudo" } else { "" }));
    with_fresh_lists(&format!("installing {list}"), || {
        let mut command = apt_get(sudo);
        command.args(["install", "--yes", "--no-install-recommends"]).args(&missing);
        tool::succeed(&mut command, LONG)
    })
}

/// Checks that this user may install packages, and that apt offers these.
///
/// # Errors
///
/// As [`ensure`]. Nothing is installed.
pub fn check(names: &[&str]) -> Result<(), Error> {
    if names.is_empty() {
        return Ok(());
    }
    permitted(names)?;
    with_fresh_lists(&format!("looking for {}", names.join(" ")), || {
        let mut command = apt_get(false);
        tool::succeed(command.args(["install", "--simulate", "--no-install-recommends"]).args(names), SHORT)
    })
}

/// Whether this user is root.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether installing takes `sudo`. An error if this user may not install.
fn permitted(names: &[&str]) -> Result<bool, Error> {
    if !is_root() && tool::find("sudo").is_none() {
        return Err(Error::NotRoot { packages: names.join(" ") });
    }
    Ok(!is_root())
}

/// Attempts something that needs apt's package lists. If it fails, updates the lists and tries once more.
///
/// A machine without package lists, or with old ones, fails at once. Only then the time for an update is spent.
pub(crate) fn with_fresh_lists<T>(what: &str, mut attempt: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    if let Ok(value) = attempt() {
        return Ok(value);
    }
    interrupt::check()?;
    let mut update = apt_get(!is_root());
    // Without this option, apt treats an unreachable server as a success.
    update.args(["update", "-o", "APT::Update::Error-Mode=any"]);
    let updated = network("apt-get update", tool::succeed(&mut update, LONG));
    match (network(what, attempt()), updated) {
        (Err(_), Err(lost @ Error::Network { .. })) => Err(lost),
        // The lists may suffice although one of many servers was unreachable.
        (result, _) => result,
    }
}

/// `apt-get` with time limits and without prompts, as root through `sudo` if `sudo` is set.
pub(crate) fn apt_get(sudo: bool) -> Command {
    let mut command = tool::command(if sudo { "sudo" } else { "apt-get" });
    if sudo {
        command.arg("apt-get");
    }
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command.args(["-q", "-o", "Acquire::Retries=2", "-o", "Acquire::http::Timeout=30"]);
    command.args(["-o", "DPkg::Lock::Timeout=600"]).stdout(std::process::Stdio::null());
    command
}

/// Turns apt's message about a failed download into [`Error::Network`].
fn network<T>(what: &str, result: Result<T, Error>) -> Result<T, Error> {
    match result {
        Err(Error::Tool { detail, .. }) if NETWORK_FAILURES.iter().any(|sign| detail.contains(sign)) => {
            Err(Error::Network { what: what.to_owned(), detail })
        }
        other => other,
    }
}

/// Those of the packages that are not installed.
///
/// # Errors
///
/// There is no apt.
pub fn missing<'a>(names: &[&'a str]) -> Result<Vec<&'a str>, Error> {
    if tool::find("dpkg-query").is_none() || tool::find("apt-get").is_none() {
        let list = names.join(" ");
        return Err(Error::Unexpected(format!("only Debian's packages are known here, and there is no apt: {list}")));
    }
    let mut query = tool::command("dpkg-query");
    query.args(["--show", "--showformat", "${Package} ${db:Status-Status}\\n"]).args(names);
    // The status is a failure if one of the names is unknown, but the output lists the others all the same.
    let (answer, _) = tool::capture(&mut query, SHORT)?;
    Ok(not_installed(names, &String::from_utf8_lossy(&answer)))
}

fn not_installed<'a>(names: &[&'a str], answer: &str) -> Vec<&'a str> {
    let installed = |name: &str| answer.lines().any(|line| line.split_once(' ') == Some((name, "installed")));
    names.iter().copied().filter(|name| !installed(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_and_unknown_packages_are_lacking() {
        let answer = "kmod installed\nzstd config-files\nkmod installed\n";
        assert_eq!(not_installed(&["kmod", "zstd", "xz-utils"], answer), ["zstd", "xz-utils"]);
    }

    #[test]
    fn a_failed_download_is_told_from_other_failures() {
        let fail = |detail: &str| Err::<(), _>(Error::Tool { what: String::new(), detail: detail.to_owned() });
        let lost = network("x", fail("E: Failed to fetch http://a/b  Connection timed out"));
        assert!(matches!(lost, Err(Error::Network { .. })));
        assert!(matches!(network("x", fail("E: Broken packages")), Err(Error::Tool { .. })));
    }
}
