//! The virtual machine: QEMU, its devices, and the control connection on which the guest reports.

use crate::error::{Error, WithPath};
use crate::kernel::Unpacked;
use crate::segment::Segment;
use crate::{Options, tool};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::{
    fd::OwnedFd,
    unix::{ffi::OsStrExt, ffi::OsStringExt, net::UnixStream, process::CommandExt},
};
use std::path::Path;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

/// Arguments of the kernel: few messages, stop at the first oops, no features that only cost time under emulation.
/// The check of the timer counts interrupts for a few milliseconds and panics if the host is busy, so it is left out
/// too.
const KERNEL_ARGUMENTS: &str =
    "console=ttyS0 quiet panic=-1 oops=panic mitigations=off cryptomgr.notests no_timer_check";

/// The root bus has no room for many more devices.
pub(crate) const MOST_WRITABLE: usize = 16;

/// A report of the guest on the control connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// The command begins.
    Begin,
    /// The command ended, with this status, and all its output is in the files.
    Exit(u8),
    /// QEMU is gone.
    Gone,
}

/// A running machine, stopped on drop.
pub(crate) struct Machine {
    child: Child,
    control: UnixStream,
    /// An incomplete report.
    line: Vec<u8>,
}

impl Machine {
    /// Starts QEMU, and sends the path of the run's directory to the guest's init. In that directory are the `initramfs`,
    /// the files `console`, `stdout` and `stderr` that the guest writes, QEMU's own `messages`, and for a machine on a wire
    /// the socket `monitor`.
    pub(crate) fn start(
        options: &Options,
        wire: Option<&Segment>,
        kernel: &Unpacked,
        directory: &Path,
    ) -> Result<Self, Error> {
        let messages = File::create(directory.join("messages")).about("QEMU's messages")?;
        let (mut control, theirs) = UnixStream::pair().about("a socket pair")?;
        // setpriv: QEMU must not outlive this process. A process group of its own: Ctrl-C is handled by this process
        // only.
        let mut command = tool::command("setpriv");
        command.args(["--pdeathsig", "KILL", "qemu-system-x86_64"]).args(arguments(options, wire, kernel, directory));
        command.stdin(OwnedFd::from(theirs)).stdout(messages.try_clone().about("a file")?).stderr(messages);
        let child = command.process_group(0).spawn().map_err(|error| Error::Tool {
            what: "setpriv qemu-system-x86_64".to_owned(),
            detail: error.to_string(),
        })?;
        // This process's copy of QEMU's end must be closed, or the end of QEMU would not be noticed.
        drop(command);
        control.set_read_timeout(Some(Duration::from_millis(20))).about("the control socket")?;
        let greeting = [directory.as_os_str().as_bytes(), b"\n"].concat();
        // If QEMU has already ended, the first wait for a report returns that.
        let _ = control.write_all(&greeting);
        Ok(Machine { child, control, line: Vec::new() })
    }

    /// Waits a few milliseconds for the guest's next report.
    pub(crate) fn report(&mut self) -> Result<Option<Report>, Error> {
        let mut buffer = [0; 256];
        match self.control.read(&mut buffer) {
            Ok(0) => return Ok(Some(Report::Gone)),
            Ok(length) => self.line.extend_from_slice(buffer.get(..length).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(Some(Report::Gone)),
            Err(error) if [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&error.kind()) => {}
            Err(error) => return Err(error).about("the control socket"),
        }
        let Some(end) = self.line.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
        let line: Vec<u8> = self.line.drain(..=end).collect();
        parse(&String::from_utf8_lossy(&line)).map(Some)
    }

    /// Waits until QEMU ends by itself, at most `limit`.
    pub(crate) fn wait(&mut self, limit: Duration) {
        let deadline = Instant::now() + limit;
        while Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills the machine. Nothing is lost: the guest has written back all its writes to the host.
    pub(crate) fn stop(&mut self) {
        // QEMU may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.stop();
    }
}

fn parse(line: &str) -> Result<Report, Error> {
    match line.trim_end().split_once(' ') {
        None if line.trim_end() == "begin" => Some(Report::Begin),
        Some(("exit", status)) => status.parse().ok().map(Report::Exit),
        _ => None,
    }
    .ok_or_else(|| Error::Unexpected(format!("the guest reported {line:?}")))
}

fn arguments(options: &Options, wire: Option<&Segment>, kernel: &Unpacked, directory: &Path) -> Vec<OsString> {
    let mut arguments = Arguments(Vec::new());
    if options.counted_clock {
        arguments.add("-accel", "tcg,thread=single");
        arguments.add("-icount", "shift=0");
    } else {
        arguments.add("-accel", "tcg,thread=multi");
    }
    arguments.add("-machine", "q35");
    arguments.add("-cpu", "max");
    arguments.add("-smp", options.cpus.to_string());
    arguments.add("-m", options.memory_mib.to_string());
    arguments.add("-display", "none");
    for flag in ["-nodefaults", "-no-user-config", "-no-reboot"] {
        arguments.0.push(flag.into());
    }
    arguments.add("-kernel", kernel.vmlinux());
    arguments.add("-initrd", directory.join("initramfs"));
    arguments.add("-append", KERNEL_ARGUMENTS);
    arguments.file("console", directory);
    arguments.add("-serial", "chardev:console");
    arguments.add("-device", "virtio-serial-pci,id=serial");
    // QEMU's standard input is the control socket.
    arguments.add("-chardev", "socket,id=control,fd=0");
    arguments.file("stdout", directory);
    arguments.file("stderr", directory);
    for name in ["control", "stdout", "stderr"] {
        arguments.add("-device", format!("virtserialport,bus=serial.0,chardev={name},name={name}"));
    }
    if let Some(segment) = wire {
        for (option, value) in segment.arguments() {
            arguments.add(option, value);
        }
        arguments
            .add("-chardev", with_path("socket,id=monitor,server=on,wait=off,path=", &directory.join("monitor"), ""));
        arguments.add("-mon", "chardev=monitor,mode=readline");
    }
    if let Some(disk) = wire.and_then(|segment| segment.disk.as_deref()) {
        arguments.add("-drive", with_path("format=raw,if=none,id=disk,file=", disk, ""));
        arguments.add("-device", "virtio-blk-pci,drive=disk");
    }
    arguments.share("root", Path::new("/"), ",readonly=on");
    for (index, directory) in options.writable.iter().enumerate() {
        arguments.share(&writable_tag(index), directory, "");
    }
    arguments.0
}

/// The name under which the guest mounts a writable directory.
pub(crate) fn writable_tag(index: usize) -> String {
    format!("writable{index}")
}

struct Arguments(Vec<OsString>);

impl Arguments {
    fn add(&mut self, option: &str, value: impl AsRef<OsStr>) {
        self.0.push(option.into());
        self.0.push(value.as_ref().to_owned());
    }

    /// A character device that ends in the file of its name.
    fn file(&mut self, id: &str, directory: &Path) {
        self.add("-chardev", with_path(&format!("file,id={id},path="), &directory.join(id), ""));
    }

    /// A directory that the guest can mount.
    fn share(&mut self, tag: &str, directory: &Path, more: &str) {
        // remap: the host's root may span file systems with colliding inode numbers.
        let more = format!(",security_model=none,multidevs=remap{more}");
        self.add("-fsdev", with_path(&format!("local,id={tag},path="), directory, &more));
        self.add("-device", format!("virtio-9p-pci,fsdev={tag},mount_tag={tag}"));
    }
}

/// An option's value that contains a path. QEMU reads a doubled comma as a comma.
fn with_path(before: &str, path: &Path, after: &str) -> OsString {
    let mut value = before.as_bytes().to_vec();
    for byte in path.as_os_str().as_bytes() {
        value.push(*byte);
        if *byte == b',' {
            value.push(*byte);
        }
    }
    value.extend_from_slice(after.as_bytes());
    OsString::from_vec(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_in_paths_are_doubled() {
        assert_eq!(with_path("path=", Path::new("/a,b"), ",x"), "path=/a,,b,x");
    }

    #[test]
    fn reports_are_understood_or_refused() {
        assert_eq!(parse("begin\n").unwrap(), Report::Begin);
        assert_eq!(parse("exit 7\r\n").unwrap(), Report::Exit(7));
        for bad in ["", "\n", "exit\n", "exit 256\n", "exit x\n", "begin now\n"] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
