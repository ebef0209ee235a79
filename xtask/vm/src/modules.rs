//! The kernel modules the guest loads.

use crate::error::{Error, WithPath};
use crate::kernel::Unpacked;
use crate::segment::Segment;
use crate::tool::{self, SHORT};
use crate::transport::Transport;
use std::fs;
use std::path::{Path, PathBuf};

/// The modules for the connection to the host and the file system.
const FIRST: &[&str] = &["virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay"];

/// The modules for connections and networks. They come after those of the transport, among them ib_uverbs: when a
/// device goes, the kernel's parts follow in the reverse order of their loading, and ib_uverbs waits for the programs
/// that have opened the device, which wait for DEVICE_REMOVAL of rdma_ucm.
const LAST: &[&str] = &["rdma_ucm", "dummy", "veth"];

/// The modules for a disk.
const DISK: &[&str] = &["virtio_blk", "ext4"];

/// A module, ready to be loaded.
pub(crate) struct Module {
    /// Its file's name, as in `rdma_rxe.ko`.
    pub(crate) name: String,
    /// Its contents, unpacked.
    pub(crate) contents: Vec<u8>,
}

/// The wanted modules and their dependencies, in load order.
pub(crate) fn load_order(
    kernel: &Unpacked,
    transport: Transport,
    wire: Option<&Segment>,
) -> Result<Vec<Module>, Error> {
    let mut command = tool::command("modprobe");
    // The host's configuration of its own modules does not apply to the guest.
    command.args(["--config", "/dev/null", "--all", "--show-depends", "--set-version", &kernel.release, "--dirname"]);
    command.arg(&kernel.directory).args(FIRST).args(transport.modules()).args(LAST).args(wire.map(|_| "virtio_net"));
    if wire.is_some_and(|segment| segment.disk.is_some()) {
        command.args(DISK);
    }
    let answer = tool::output(&mut command, SHORT)?;
    files(&String::from_utf8_lossy(&answer)).into_iter().map(|path| read(kernel, &path)).collect()
}

/// The files in the output of `modprobe --show-depends`, each once.
fn files(answer: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = Vec::new();
    for line in answer.lines() {
        // Built-in modules are listed too, as "builtin".
        let Some(path) = line.strip_prefix("insmod ") else { continue };
        let path = PathBuf::from(path.trim_end());
        if !files.contains(&path) {
            files.push(path);
        }
    }
    files
}

/// Reads a module, unpacked.
pub(crate) fn read(kernel: &Unpacked, path: &Path) -> Result<Module, Error> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let Some(plain) = name.strip_suffix(".xz") else {
        return Ok(Module { name: name.to_owned(), contents: fs::read(path).about_file(path)? });
    };
    // Unpacked once and kept: twenty starts of xz take a good part of a second.
    let kept = kernel.directory.join("unpacked-modules").join(plain);
    let contents = match fs::read(&kept) {
        Ok(contents) => contents,
        Err(_) => {
            let contents = tool::output(tool::command("xz").args(["-d", "-c"]).arg(path), SHORT)?;
            keep(&kept, &contents)?;
            contents
        }
    };
    Ok(Module { name: plain.to_owned(), contents })
}

/// Writes a file atomically: two runs may do this at the same time.
fn keep(path: &Path, contents: &[u8]) -> Result<(), Error> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(directory).about_file(directory)?;
    let file = tempfile::NamedTempFile::new_in(directory).about_file(directory)?;
    fs::write(file.path(), contents).about_file(file.path())?;
    file.persist(path).map_err(|error| error.error).about_file(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_listed_once_and_in_order() {
        let answer = "builtin virtio\ninsmod /a b/x.ko \ninsmod /y.ko.xz \ninsmod /a b/x.ko \n";
        assert_eq!(files(answer), [Path::new("/a b/x.ko"), Path::new("/y.ko.xz")]);
    }
}
