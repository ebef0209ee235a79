//! Extracts the kernel from Debian's compressed boot image.
//!
//! QEMU starts an ELF kernel by its PVH entry, so the guest does not have to unpack it under emulation.
//! The layout is that of the kernel's Documentation/arch/x86/boot.rst.

use crate::{
    error::{Error, WithPath},
    tool::{self, SHORT},
};
use std::{
    fs::{self, File},
    io::{Read, Write},
    path::Path,
};

/// The packing of a payload: the program that unpacks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Packing {
    Gzip,
    Xz,
    Zstd,
}

impl Packing {
    fn of(bytes: &[u8]) -> Option<Self> {
        [
            (Packing::Gzip, &b"\x1f\x8b\x08"[..]),
            (Packing::Xz, &b"\xfd7zXZ\0"[..]),
            (Packing::Zstd, &b"\x28\xb5\x2f\xfd"[..]),
        ]
        .into_iter()
        .find_map(|(packing, magic)| bytes.starts_with(magic).then_some(packing))
    }

    fn program(self) -> &'static str {
        match self {
            Packing::Gzip => "gzip",
            Packing::Xz => "xz",
            Packing::Zstd => "zstd",
        }
    }

    /// The number of bytes that the kernel's build appends to the packed data: the unpacked size, where the format
    /// has no such field.
    fn appendix(self) -> usize {
        match self {
            Packing::Gzip => 0,
            Packing::Xz | Packing::Zstd => 4,
        }
    }
}

/// Writes the ELF kernel inside the boot image `image` to `to`.
pub(crate) fn extract(image: &Path, to: &Path) -> Result<(), Error> {
    let bytes = fs::read(image).about_file(image)?;
    let (packing, payload) = payload(&bytes).map_err(|why| Error::Unexpected(format!("{}: {why}", image.display())))?;
    let mut packed = tempfile::NamedTempFile::new().about("a temporary file")?;
    packed.write_all(payload).about("a temporary file")?;
    let mut command = tool::command(packing.program());
    command.args(["-d", "-c"]).stdin(packed.reopen().about("a temporary file")?);
    command.stdout(File::create(to).about_file(to)?);
    tool::succeed(&mut command, SHORT)?;
    let mut magic = [0; 4];
    File::open(to).and_then(|mut file| file.read_exact(&mut magic)).about_file(to)?;
    if &magic == b"\x7fELF" {
        Ok(())
    } else {
        Err(Error::Unexpected(format!("{}: its payload is no ELF kernel", image.display())))
    }
}

/// Finds the packed kernel in a boot image by its set-up header.
fn payload(image: &[u8]) -> Result<(Packing, &[u8]), &'static str> {
    const TRUNCATED: &str = "the boot image is truncated";
    if image.get(0x202..0x206) != Some(b"HdrS") {
        return Err("no boot image of x86 Linux");
    }
    let number = |at: usize, len: usize| -> Result<usize, &'static str> {
        let bytes = image.get(at..at + len).ok_or(TRUNCATED)?;
        Ok(bytes.iter().rev().fold(0, |value, byte| value << 8 | usize::from(*byte)))
    };
    if number(0x206, 2)? < 0x208 {
        return Err("the boot protocol is older than 2.08");
    }
    // The boot sector counts too; 0 means 4 for historical reasons.
    let sectors = match number(0x1f1, 1)? {
        0 => 4,
        some => some,
    } + 1;
    let begin = sectors * 512 + number(0x248, 4)?;
    let payload = image.get(begin..begin + number(0x24c, 4)?).ok_or(TRUNCATED)?;
    let packing = Packing::of(payload).ok_or("the kernel is packed in an unknown format")?;
    let packed = payload.len().checked_sub(packing.appendix()).ok_or(TRUNCATED)?;
    Ok((packing, payload.get(..packed).ok_or(TRUNCATED)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A boot image with one set-up sector, and the payload at an offset of 7 bytes.
    fn image(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0xaa; 1024 + 7];
        image[0x1f1] = 1;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x206..0x208].copy_from_slice(&0x20f_u16.to_le_bytes());
        image[0x248..0x24c].copy_from_slice(&7_u32.to_le_bytes());
        image[0x24c..0x250].copy_from_slice(&u32::try_from(payload.len()).unwrap().to_le_bytes());
        image.extend_from_slice(payload);
        image.extend_from_slice(b"what follows the payload");
        image
    }

    #[test]
    fn the_payload_ends_before_its_appended_size() {
        assert_eq!(payload(&image(b"\xfd7zXZ\0data....")), Ok((Packing::Xz, &b"\xfd7zXZ\0data"[..])));
        assert_eq!(payload(&image(b"\x28\xb5\x2f\xfddata....")), Ok((Packing::Zstd, &b"\x28\xb5\x2f\xfddata"[..])));
        assert_eq!(payload(&image(b"\x1f\x8b\x08data")), Ok((Packing::Gzip, &b"\x1f\x8b\x08data"[..])));
    }

    #[test]
    fn bad_images_are_refused() {
        assert!(payload(b"").is_err());
        assert!(payload(&image(b"unknown")).is_err());
        assert!(payload(&image(b"\x28\xb5\x2f\xfd")[..1000]).is_err());
        let mut beyond = image(b"\x1f\x8b\x08data");
        beyond[0x24c..0x250].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(payload(&beyond).is_err());
    }

    #[test]
    fn a_packed_elf_comes_out_whole() {
        let directory = tempfile::tempdir().unwrap();
        let elf = directory.path().join("elf");
        fs::write(&elf, b"\x7fELF and the rest").unwrap();
        let packed = tool::output(tool::command("gzip").arg("-c").arg(&elf), SHORT).unwrap();
        let (boot, out) = (directory.path().join("vmlinuz"), directory.path().join("vmlinux"));
        fs::write(&boot, image(&packed)).unwrap();
        extract(&boot, &out).unwrap();
        assert_eq!(fs::read(out).unwrap(), b"\x7fELF and the rest");
    }
}
