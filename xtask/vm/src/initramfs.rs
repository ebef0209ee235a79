//! The initial file system of the guest's kernel: busybox, the modules, and the guest's scripts.

use crate::error::{Error, WithPath};
use crate::modules::Module;
use crate::tool;
use cpio::newc::{Builder, ModeFileType, trailer};
use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// The guest's first process.
const INIT: &str = include_str!("../guest/init");
/// Sets up the network and the RDMA devices.
const NETWORK: &str = include_str!("../guest/network");
/// The program that the kernel calls to load a module: runs the host's modprobe, with the modules mounted for it.
const MODPROBE: &str = "#!/bin/sh\nexec /bin/chroot /root /sbin/modprobe \"$@\"\n";

const DIRECTORIES: &[&str] = &["bin", "dev", "lower", "modules", "pipe", "proc", "root", "sbin", "sys", "writes"];

/// The programs of busybox that the scripts use.
const APPLETS: &[&str] = &[
    "cat", "chmod", "chroot", "date", "hostname", "insmod", "kill", "ln", "mkdir", "mkfifo", "mount", "poweroff", "sh",
    "sync", "umount", "usleep",
];

/// Writes the archive to `path`.
pub(crate) fn write(path: &Path, modules: &[Module]) -> Result<(), Error> {
    let busybox = tool::find("busybox").ok_or_else(|| Error::Unexpected("busybox is not there".to_owned()))?;
    let busybox = fs::read(&busybox).about_file(&busybox)?;
    fs::write(path, archive(&busybox, modules).about("the initramfs")?).about_file(path)
}

fn archive(busybox: &[u8], modules: &[Module]) -> io::Result<Vec<u8>> {
    let mut archive = Archive { bytes: Vec::new(), entries: 0 };
    for name in DIRECTORIES {
        archive.add(name, ModeFileType::Directory, 0o755, b"")?;
    }
    // The kernel opens the console for init. Without it, error messages of init's programs are lost.
    archive.console()?;
    archive.add("bin/busybox", ModeFileType::Regular, 0o755, busybox)?;
    for name in APPLETS {
        archive.add(&format!("bin/{name}"), ModeFileType::Symlink, 0o777, b"busybox")?;
    }
    archive.add("sbin/modprobe", ModeFileType::Regular, 0o755, MODPROBE.as_bytes())?;
    archive.add("init", ModeFileType::Regular, 0o755, INIT.as_bytes())?;
    archive.add("network", ModeFileType::Regular, 0o644, NETWORK.as_bytes())?;
    let mut order = String::new();
    for module in modules {
        archive.add(&format!("modules/{}", module.name), ModeFileType::Regular, 0o644, &module.contents)?;
        order.push_str(&module.name);
        order.push('\n');
    }
    archive.add("modules/order", ModeFileType::Regular, 0o644, order.as_bytes())?;
    trailer(archive.bytes)
}

struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    fn add(&mut self, name: &str, kind: ModeFileType, permissions: u32, contents: &[u8]) -> io::Result<()> {
        let entry = Builder::new(name).mode(permissions).set_mode_file_type(kind);
        self.write(entry, contents)
    }

    fn console(&mut self) -> io::Result<()> {
        let entry = Builder::new("dev/console").mode(0o600).set_mode_file_type(ModeFileType::Char);
        self.write(entry.rdev_major(5).rdev_minor(1), b"")
    }

    fn write(&mut self, entry: Builder, contents: &[u8]) -> io::Result<()> {
        // Entries with equal inode numbers would be hard links of one another.
        self.entries += 1;
        let size = u32::try_from(contents.len()).map_err(io::Error::other)?;
        let mut writer = entry.ino(self.entries).nlink(1).write(&mut self.bytes, size);
        writer.write_all(contents)?;
        writer.finish()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpio::newc::Reader;
    use std::io::Read;

    /// Reads name, mode and contents of every entry.
    fn entries(mut bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut entries = Vec::new();
        loop {
            let mut reader = Reader::new(bytes).unwrap();
            if reader.entry().is_trailer() {
                return entries;
            }
            let (name, mode) = (reader.entry().name().to_owned(), reader.entry().mode());
            let mut contents = Vec::new();
            reader.read_to_end(&mut contents).unwrap();
            entries.push((name, mode, contents));
            bytes = reader.finish().unwrap();
        }
    }

    #[test]
    fn the_archive_holds_what_was_put_in() {
        let modules = [
            Module { name: "b.ko".to_owned(), contents: b"12345".to_vec() },
            Module { name: "a.ko".to_owned(), contents: b"".to_vec() },
        ];
        let entries = entries(&archive(b"BB", &modules).unwrap());
        let find = |name: &str| {
            let (_, mode, contents) = entries.iter().find(|(other, ..)| other == name).unwrap();
            (*mode, contents.as_slice())
        };
        assert_eq!(find("bin/busybox"), (0o100_755, &b"BB"[..]));
        assert_eq!(find("bin/sh"), (0o120_777, &b"busybox"[..]));
        assert_eq!(find("dev/console").0, 0o020_600);
        assert_eq!(find("modules/b.ko"), (0o100_644, &b"12345"[..]));
        assert_eq!(find("modules/order").1, b"b.ko\na.ko\n");
        assert_eq!(find("init"), (0o100_755, INIT.as_bytes()));
    }

    #[test]
    fn directories_come_before_what_they_hold() {
        let names: Vec<_> = entries(&archive(b"", &[]).unwrap()).into_iter().map(|(name, ..)| name).collect();
        for (at, name) in names.iter().enumerate() {
            if let Some((directory, _)) = name.split_once('/') {
                assert!(names[..at].iter().any(|earlier| earlier == directory), "{name}");
            }
        }
    }
}
