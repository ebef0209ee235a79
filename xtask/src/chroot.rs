//! `cargo xtask chroot`: runs a command in another release of Debian, made by debootstrap, with this workspace and
//! this Rust.
//!
//! The system stays in the cache, so packages are installed once. Builds go to a folder of their own in the target
//! directory. The VM that the command boots has the chroot as its root, and so that release's rdma-core. Its kernel
//! is the one that the release's apt offers.

use crate::context::{Context, output};
use anyhow::{Context as _, Result, ensure};
use clap::Args;
use cmid_softroce::{cache_directory, packages, progress};
use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
};

/// Debian 13.
const TRIXIE: &str = "trixie";
/// What rustc needs to link. The programme installs all other packages.
const INCLUDED: &str = "--include=ca-certificates,gcc,libc6-dev";
/// The repositories of Debian, by the end of their addresses, with the suites that a release has there.
const REPOSITORIES: [(&str, &[&str]); 2] = [("debian", &["", "-updates"]), ("debian-security", &["-security"])];
/// The mirror if the host's apt has none of them.
const MIRROR: &str = "http://deb.debian.org/";
/// The options of the host's apt that are copied: how to reach the packages, and how old they may be.
const APT_OPTIONS: &[&str] = &["Acquire::http", "Acquire::https", "Acquire::Check-", "Acquire::Retries"];
/// Variables with paths of the host's own system.
const HOST_ONLY: &[&str] =
    &["LIBCLANG_PATH", "BINDGEN_EXTRA_CLANG_ARGS", "LD_LIBRARY_PATH", "TMPDIR", "XDG_CACHE_HOME"];
/// The directory in the chroot for kernels and other downloads.
const CACHE: &str = "/var/cache/cmid";
/// The target of `cargo install`. Its programs are linked with the release's own libc, so the host's cargo must not
/// find them.
const INSTALLED: &str = "/usr/local";

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The release of Debian, by its code name
    #[arg(long, default_value = TRIXIE, value_name = "NAME")]
    release: String,
    /// Use another system, in which the programme installs nothing
    #[arg(long)]
    bare: bool,
    /// The command. It runs in the working directory, as root
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Runs the command. A status other than 0 is an error.
pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let status = enter(context, &arguments.release, arguments.bare, &env::current_dir()?, &arguments.command)?;
    ensure!(status.success(), "in the chroot: {status}");
    Ok(())
}

/// Runs the daily programme on Debian 13: with its rdma-core, and its own kernel in the VM.
pub(crate) fn programme(context: &mut Context) -> Result<()> {
    let command = ["cargo", "xtask", "test"].map(OsString::from);
    let status = enter(context, TRIXIE, false, &context.root, &command)?;
    ensure!(status.success(), "on Debian 13: {status}");
    Ok(())
}

/// Builds a crate outside of the workspace with the feature `verbs`, on a Debian 13 with its own Rust and
/// without the headers of rdma-core.
pub(crate) fn outside(context: &mut Context) -> Result<()> {
    bare(context, include_str!("outside.sh"))
}

/// Builds what README.md names on a Debian 13 with its own Rust: it runs the demonstrations and the tests of the product crates.
pub(crate) fn own_rust(context: &mut Context) -> Result<()> {
    bare(context, include_str!("own_rust.sh"))
}

/// Runs the core's tests on an emulated aarch64, built with Debian 13's own Rust and its standard library for that architecture.
pub(crate) fn aarch64(context: &mut Context) -> Result<()> {
    bare(context, include_str!("aarch64.sh"))
}

/// Runs a script in the bare Debian 13.
fn bare(context: &Context, script: &str) -> Result<()> {
    // Only if this succeeds is the compiler the release's own: it comes before the host's in PATH.
    let script = format!("{}\n{script}", include_str!("bare.sh"));
    let command = ["sh", "-euc", &script].map(OsString::from);
    let status = enter(context, TRIXIE, true, &context.root, &command)?;
    ensure!(status.success(), "on bare Debian 13: {status}");
    Ok(())
}

fn enter(context: &Context, release: &str, bare: bool, directory: &Path, command: &[OsString]) -> Result<ExitStatus> {
    let plain = !release.is_empty() && release.bytes().all(|byte| byte.is_ascii_lowercase());
    ensure!(plain, "{release:?} is no code name of a release");
    // The chroot mounts file systems, and debootstrap makes devices.
    ensure!(output(Command::new("id").arg("-u"))?.trim() == "0", "a chroot needs root");
    packages::ensure(&["debootstrap", "debian-archive-keyring", "util-linux"])?;
    let known = output(Command::new("apt-get").args(["indextargets", "--format", "$(REPO_URI)"]))?;
    let options = apt_options(&output(Command::new("apt-config").arg("dump"))?);
    let name = if bare { format!("debian-{release}-bare") } else { format!("debian-{release}") };
    let root = system(&name, release, &mirror("debian", &known), &options)?;
    let apt = tempfile::tempdir().context("a temporary directory")?;
    fs::write(apt.path().join("sources.list"), sources(release, &known))?;
    fs::write(apt.path().join("options"), &options)?;
    let target = context.target().join(&name);
    fs::create_dir_all(&target).with_context(|| target.display().to_string())?;

    let mut command_line = Command::new("setpriv");
    // If this process is killed, the first process of the PID namespace is killed, and with it all others.
    command_line.args(["--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "private"]);
    command_line.args(["--pid", "--fork", "--kill-child", "sh", "-euc", include_str!("chroot.sh"), "chroot.sh"]);
    command_line.arg(&root).arg(apt.path()).arg(&target).arg(directory);
    command_line.arg(&context.root).args(rust()?).arg("--").args(command);
    for name in HOST_ONLY {
        command_line.env_remove(name);
    }
    command_line.env("PATH", path()?).env("CARGO_TARGET_DIR", &target);
    command_line.env("CMID_CACHE", CACHE).env("CARGO_INSTALL_ROOT", INSTALLED);
    command_line.status().context("setpriv unshare")
}

/// Returns the chroot with this name. Makes it if it does not exist.
fn system(name: &str, release: &str, mirror: &str, options: &str) -> Result<PathBuf> {
    let cache = cache_directory()?;
    let root = cache.join(name);
    let _lock = cmid_softroce::lock(&cache, name)?;
    if !root.exists() {
        progress::begin(&format!("installing Debian {release} into {}", root.display()));
        let unfinished = cache.join(format!("{name}.unfinished"));
        if unfinished.exists() {
            fs::remove_dir_all(&unfinished).with_context(|| unfinished.display().to_string())?;
        }
        let mut debootstrap = Command::new("debootstrap");
        debootstrap.args(["--variant=minbase", INCLUDED, release]).arg(&unfinished).arg(mirror);
        // debootstrap does not read apt's configuration.
        if let Some(proxy) = proxy(options).filter(|_| env::var_os("http_proxy").is_none()) {
            debootstrap.env("http_proxy", proxy);
        }
        output(&mut debootstrap)?;
        // Both are copied from the host at each run.
        for name in ["sources.list", "apt.conf.d/90host"] {
            fs::write(unfinished.join("etc/apt").join(name), "").context("the chroot's apt")?;
        }
        // The last step makes the complete system visible.
        fs::rename(&unfinished, &root).with_context(|| root.display().to_string())?;
    }
    Ok(root)
}

/// The directories of cargo and rustup.
fn rust() -> Result<[PathBuf; 2]> {
    let home = env::var_os("HOME").map(PathBuf::from).context("HOME is not set")?;
    let of = |variable: &str, name: &str| {
        let directory = env::var_os(variable).map_or_else(|| home.join(name), PathBuf::from);
        directory.canonicalize().with_context(|| format!("{}: the chroot uses rustup's Rust", directory.display()))
    };
    Ok([of("CARGO_HOME", ".cargo")?, of("RUSTUP_HOME", ".rustup")?])
}

/// The PATH in the chroot: the release's own programs, and the host's cargo.
fn path() -> Result<OsString> {
    let [cargo, _] = rust()?;
    let own = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
    Ok(env::join_paths(own.map(PathBuf::from).into_iter().chain([cargo.join("bin")]))?)
}

/// The address of a repository, from the repositories of the host's apt, one in a line.
fn mirror(repository: &str, known: &str) -> String {
    let is_it = |uri: &&str| uri.trim_end_matches('/').ends_with(&format!("/{repository}"));
    let uri = known.lines().map(str::trim).find(is_it);
    uri.map_or_else(|| format!("{MIRROR}{repository}/"), str::to_owned)
}

/// apt's sources.list of the release. Without security updates its kernel would be outdated.
fn sources(release: &str, known: &str) -> String {
    let lines = REPOSITORIES.iter().flat_map(|(repository, suites)| {
        let mirror = mirror(repository, known);
        suites.iter().map(move |suite| format!("deb {mirror} {release}{suite} main\n"))
    });
    lines.collect()
}

/// The lines of `apt-config dump` that configure how packages are reached.
fn apt_options(dump: &str) -> String {
    let wanted = |line: &&str| APT_OPTIONS.iter().any(|option| line.starts_with(option));
    dump.lines().filter(wanted).map(|line| format!("{line}\n")).collect()
}

/// The proxy for all hosts in these options.
fn proxy(options: &str) -> Option<&str> {
    let value = options.lines().find_map(|line| line.strip_prefix("Acquire::http::Proxy "))?;
    Some(value.trim_end_matches(';').trim_matches('"')).filter(|proxy| !proxy.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirrors_are_the_hosts() {
        let known = "http://a/debian-security/\nhttps://b/x/debian/\nhttp://c/debian/\n";
        assert_eq!(mirror("debian", known), "https://b/x/debian/");
        assert_eq!(mirror("debian-security", "http://a/ubuntu/\n"), format!("{MIRROR}debian-security/"));
        let sources = sources("trixie", known);
        let lines: Vec<_> = sources.lines().collect();
        assert_eq!(
            lines,
            [
                "deb https://b/x/debian/ trixie main",
                "deb https://b/x/debian/ trixie-updates main",
                "deb http://a/debian-security/ trixie-security main",
            ]
        );
    }

    #[test]
    fn apts_way_to_the_packages_is_taken_over() {
        let dump = "APT::Architecture \"amd64\";\nAcquire::http::Proxy \"http://p:1/\";\nAcquire::Check-Date \"false\";\n\
            Acquire::IndexTargets::deb \"\";\nDPkg::Post-Invoke:: \"x\";\n";
        let options = apt_options(dump);
        assert_eq!(options, "Acquire::http::Proxy \"http://p:1/\";\nAcquire::Check-Date \"false\";\n");
        assert_eq!(proxy(&options), Some("http://p:1/"));
        assert_eq!(proxy("Acquire::http \"\";\nAcquire::http::Proxy \"\";\n"), None);
    }
}
