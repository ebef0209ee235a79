//! Kernels of Debian and Ubuntu, downloaded and unpacked but never installed.

use crate::error::{Error, WithPath};
use crate::tool::{self, LONG, SHORT};
use crate::{cache, packages, progress};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::{fmt, fs};

/// Extracts the kernel from a boot image.
const VMLINUX: &str = include_str!("../vmlinux.sh");

/// A kernel to boot: the newest of its series that apt offers at the first use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// Linux 6.1, the kernel of Debian 12.
    V6_1,
    /// Linux 6.12, the kernel of Debian 13, which Debian 12 offers too.
    V6_12,
    /// The kernel of Ubuntu, of any series.
    Ubuntu,
}

impl Default for Kernel {
    /// Ubuntu's on Ubuntu, else 6.12.
    fn default() -> Self {
        let system = fs::read_to_string("/etc/os-release").unwrap_or_default();
        if system.lines().any(|line| line == "ID=ubuntu") { Kernel::Ubuntu } else { Kernel::V6_12 }
    }
}

impl Kernel {
    /// All kernels.
    pub const ALL: &[Kernel] = &[Kernel::V6_1, Kernel::V6_12, Kernel::Ubuntu];

    /// The series, as in "6.12"; "ubuntu" for Ubuntu's own.
    #[must_use]
    pub fn series(self) -> &'static str {
        match self {
            Kernel::V6_1 => "6.1",
            Kernel::V6_12 => "6.12",
            Kernel::Ubuntu => "ubuntu",
        }
    }

    /// Returns the release of this kernel in the cache, or the package that [`run`](crate::run) would download.
    ///
    /// # Errors
    ///
    /// apt offers no such kernel, or does not reach a server.
    pub fn find(self, cache: &Path) -> Result<String, Error> {
        let directory = self.directory(cache);
        if directory.exists() { Ok(Unpacked::at(directory)?.release) } else { image(self) }
    }

    fn directory(self, cache: &Path) -> PathBuf {
        cache.join(format!("kernel-{self}"))
    }

    /// Packages that depend on this kernel, on different releases of Debian.
    fn metapackages(self) -> &'static [&'static str] {
        match self {
            Kernel::V6_1 => &["linux-image-amd64"],
            Kernel::V6_12 => &["linux-image-6.12-amd64", "linux-image-amd64"],
            Kernel::Ubuntu => &["linux-image-generic"],
        }
    }

    /// Whether this package holds an image of this kernel.
    fn is_image(self, package: &str) -> bool {
        let release = package.strip_prefix("linux-image-");
        release.is_some_and(|release| match self {
            Kernel::V6_1 | Kernel::V6_12 => release.starts_with(&format!("{}.", self.series())),
            Kernel::Ubuntu => release.ends_with("-generic"),
        })
    }

    /// All packages with the files of a kernel, given the package of the image. Ubuntu has three, and the last one
    /// contains `rdma_rxe`.
    fn packages(self, image: &str) -> Vec<String> {
        let also: &[&str] = match self {
            Kernel::V6_1 | Kernel::V6_12 => &[],
            Kernel::Ubuntu => &["linux-modules-", "linux-modules-extra-"],
        };
        let release = image.strip_prefix("linux-image-").unwrap_or(image);
        [image.to_owned()].into_iter().chain(also.iter().map(|prefix| format!("{prefix}{release}"))).collect()
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.series())
    }
}

impl FromStr for Kernel {
    type Err = Error;

    fn from_str(series: &str) -> Result<Self, Error> {
        Kernel::ALL.iter().copied().find(|kernel| kernel.series() == series).ok_or_else(|| {
            let known: Vec<_> = Kernel::ALL.iter().map(|kernel| kernel.series()).collect();
            Error::Usage(format!("unknown kernel {series}; there are {}", known.join(" and ")))
        })
    }
}

/// An unpacked kernel in the cache.
#[derive(Debug)]
pub(crate) struct Unpacked {
    /// Holds `vmlinux` and `lib/modules`.
    pub(crate) directory: PathBuf,
    /// The release, as printed by `uname -r`.
    pub(crate) release: String,
}

impl Unpacked {
    pub(crate) fn vmlinux(&self) -> PathBuf {
        self.directory.join("vmlinux")
    }

    fn at(directory: PathBuf) -> Result<Self, Error> {
        let modules = directory.join("lib/modules");
        let first = fs::read_dir(&modules).about_file(&modules)?.flatten().next();
        let release = first.and_then(|entry| entry.file_name().into_string().ok());
        let release = release.ok_or_else(|| Error::Unexpected(format!("{} is empty", modules.display())))?;
        Ok(Unpacked { directory, release })
    }
}

/// Finds the kernel in the cache, or downloads it.
pub(crate) fn ensure(cache: &Path, kernel: Kernel) -> Result<Unpacked, Error> {
    let _lock = cache::lock(cache, &format!("kernel-{kernel}"))?;
    let directory = kernel.directory(cache);
    if !directory.exists() {
        progress::begin(&format!("downloading and unpacking kernel {kernel}"));
        let unpacked = tempfile::Builder::new().prefix("kernel-").tempdir_in(cache).about_file(cache)?;
        for package in kernel.packages(&image(kernel)?) {
            let archive = download(&package, unpacked.path())?;
            extract(&archive, unpacked.path())?;
        }
        prepare(unpacked.path())?;
        // The last step makes the complete directory visible.
        fs::rename(unpacked.keep(), &directory).about_file(&directory)?;
    }
    Unpacked::at(directory)
}

/// The name of the package with the kernel's image.
fn image(kernel: Kernel) -> Result<String, Error> {
    packages::with_fresh_lists(&format!("looking for kernel {kernel}"), || {
        dependency(kernel)?.ok_or_else(|| {
            let known = kernel.metapackages().join(" or ");
            Error::Unexpected(format!(
                "apt offers no kernel {kernel}: it would be what {known} depends on, in Debian 12 from its security archive"
            ))
        })
    })
}

fn dependency(kernel: Kernel) -> Result<Option<String>, Error> {
    for metapackage in kernel.metapackages() {
        let mut query = tool::command("apt-cache");
        let (answer, _) = tool::capture(query.args(["depends", metapackage]), SHORT)?;
        if let Some(package) = image_package(&String::from_utf8_lossy(&answer), kernel) {
            return Ok(Some(package));
        }
    }
    Ok(None)
}

/// Finds an image of this kernel in the output of `apt-cache depends`.
fn image_package(answer: &str, kernel: Kernel) -> Option<String> {
    let mut dependencies = answer.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    dependencies.find(|name| kernel.is_image(name)).map(str::to_owned)
}

fn download(package: &str, into: &Path) -> Result<PathBuf, Error> {
    // Old package lists name files that the servers no longer have.
    packages::with_fresh_lists(&format!("downloading {package}"), || {
        let mut command = packages::apt_get(false);
        command.args(["download", package]).current_dir(into);
        tool::succeed(&mut command, LONG)
    })?;
    let files = fs::read_dir(into).about_file(into)?.flatten().map(|entry| entry.path());
    files
        .into_iter()
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .ok_or_else(|| Error::Unexpected(format!("apt-get download {package} left no file")))
}

fn extract(archive: &Path, into: &Path) -> Result<(), Error> {
    tool::succeed(tool::command("dpkg-deb").arg("--extract").arg(archive).arg(into), LONG)?;
    fs::remove_file(archive).about_file(archive)
}

/// Prepares the extracted files for booting.
fn prepare(into: &Path) -> Result<(), Error> {
    // Newer packages have usr/lib, and kmod may look for either.
    let (lib, usr_lib) = (into.join("lib"), into.join("usr/lib"));
    if !lib.join("modules").exists() && usr_lib.join("modules").exists() {
        fs::rename(&usr_lib, &lib).about_file(&lib)?;
        std::os::unix::fs::symlink("../lib", &usr_lib).about_file(&usr_lib)?;
    }
    let unpacked = Unpacked::at(into.to_owned())?;
    let mut depmod = tool::command("depmod");
    tool::succeed(depmod.arg("--basedir").arg(into).arg(&unpacked.release), SHORT)?;
    let mut extract = tool::command("sh");
    extract.args(["-euc", VMLINUX, "vmlinux.sh"]).arg(into.join(format!("boot/vmlinuz-{}", unpacked.release)));
    tool::succeed(extract.arg(unpacked.vmlinux()), SHORT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_series_must_match_whole() {
        let answer = "linux-image-amd64\n  Depends: linux-image-6.12.9+deb13-amd64\n  Suggests: other\n";
        assert_eq!(image_package(answer, Kernel::V6_12).as_deref(), Some("linux-image-6.12.9+deb13-amd64"));
        assert_eq!(image_package(answer, Kernel::V6_1), None);
    }

    #[test]
    fn ubuntus_kernel_comes_in_three_packages() {
        let answer = "linux-image-generic\n  Depends: linux-firmware\n  Depends: linux-image-6.8.0-31-generic\n";
        let image = image_package(answer, Kernel::Ubuntu).unwrap();
        let all =
            ["linux-image-6.8.0-31-generic", "linux-modules-6.8.0-31-generic", "linux-modules-extra-6.8.0-31-generic"];
        assert_eq!(Kernel::Ubuntu.packages(&image), all);
        assert_eq!(Kernel::V6_12.packages("linux-image-6.12.9-amd64"), ["linux-image-6.12.9-amd64"]);
    }

    #[test]
    fn a_packed_elf_comes_out_whole_and_other_images_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("elf"), b"\x7fELF and the rest").unwrap();
        let packed = tool::output(tool::command("gzip").arg("-c").arg(path("elf")), SHORT).unwrap();
        // One set-up sector, and the payload at an offset of 7 bytes, with something behind it.
        let mut image = vec![0xaa; 1024 + 7];
        image[0x1f1] = 1;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x206..0x208].copy_from_slice(&0x20f_u16.to_le_bytes());
        image[0x248..0x24c].copy_from_slice(&7_u32.to_le_bytes());
        image[0x24c..0x250].copy_from_slice(&u32::try_from(packed.len()).unwrap().to_le_bytes());
        image.extend([&packed, &b"more"[..]].concat());
        let extract = |image: &[u8]| {
            fs::write(path("vmlinuz"), image).unwrap();
            let mut command = tool::command("sh");
            command.args(["-euc", VMLINUX, "vmlinux.sh"]).args([path("vmlinuz"), path("vmlinux")]);
            tool::succeed(&mut command, SHORT)
        };
        extract(&image).unwrap();
        assert_eq!(fs::read(path("vmlinux")).unwrap(), b"\x7fELF and the rest");
        for bad in [&image[..1040], b"no image"] {
            assert!(extract(bad).is_err());
        }
    }

    #[test]
    fn kernels_are_known_by_their_series() {
        for kernel in Kernel::ALL {
            assert_eq!(kernel.to_string().parse::<Kernel>().unwrap(), *kernel);
        }
        assert!("5.10".parse::<Kernel>().is_err());
    }
}
