//! Debian packages of the host, installed when they are lacking.

use crate::{
    error::Error,
    interrupt,
    progress::Step,
    tool::{self, LONG, SHORT},
};
use std::process::Command;

/// What a run needs on the host.
pub(crate) const FOR_THE_MACHINE: &[&str] =
    &["qemu-system-x86", "busybox-static", "kmod", "iproute2", "xz-utils", "zstd", "gzip", "util-linux"];

/// What apt says when a package's file or a server is out of reach.
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

/// Installs those of the named Debian packages that are lacking, and says so.
///
/// # Errors
///
/// [`Error::NotRoot`] names what is lacking if this user may not install it, [`Error::Network`] tells of a failed
/// download, [`Error::Tool`] of anything else apt did not like.
pub fn ensure(names: &[&str]) -> Result<(), Error> {
    let missing = missing(names)?;
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    let sudo = !rustix::process::geteuid().is_root();
    if sudo && tool::find("sudo").is_none() {
        return Err(Error::NotRoot { packages: list });
    }
    let _step = Step::begin(&format!("installing {list}{}", if sudo { " with sudo" } else { "" }));
    with_fresh_lists(&format!("installing {list}"), || {
        let mut command = apt_get(sudo);
        command.args(["install", "--yes", "--no-install-recommends"]).args(&missing);
        tool::succeed(&mut command, LONG)
    })
}

/// Tries something that needs apt's package lists, and, if it fails, once more with new lists.
///
/// A machine without package lists, or with old ones, fails at once; only then the lists are worth their time.
pub(crate) fn with_fresh_lists<T>(what: &str, mut attempt: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    if let Ok(value) = attempt() {
        return Ok(value);
    }
    interrupt::check()?;
    let mut update = apt_get(!rustix::process::geteuid().is_root());
    // Without it, apt takes a server out of reach for a success.
    update.args(["update", "-o", "APT::Update::Error-Mode=any"]);
    let updated = network("apt-get update", tool::succeed(&mut update, LONG));
    match (network(what, attempt()), updated) {
        (Err(_), Err(lost @ Error::Network { .. })) => Err(lost),
        // Lists that are new but for one of many servers may do.
        (result, _) => result,
    }
}

/// `apt-get` with limits to its waits and nothing to ask, as root by `sudo` if wanted.
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

/// Turns apt's message of a failed download into [`Error::Network`].
fn network<T>(what: &str, result: Result<T, Error>) -> Result<T, Error> {
    match result {
        Err(Error::Tool { detail, .. }) if NETWORK_FAILURES.iter().any(|sign| detail.contains(sign)) => {
            Err(Error::Network { what: what.to_owned(), detail })
        }
        other => other,
    }
}

fn missing<'a>(names: &[&'a str]) -> Result<Vec<&'a str>, Error> {
    if tool::find("dpkg-query").is_none() || tool::find("apt-get").is_none() {
        let list = names.join(" ");
        return Err(Error::Unexpected(format!("only Debian's packages are known here, and there is no apt: {list}")));
    }
    let mut query = tool::command("dpkg-query");
    query.args(["--show", "--showformat", "${Package} ${db:Status-Status}\\n"]).args(names);
    // Its status is a failure if one of the names is unknown, but it tells of the others all the same.
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
