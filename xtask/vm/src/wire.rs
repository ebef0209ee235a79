//! Commands in a machine, and in several on one wire.

use crate::error::{Error, WithPath};
use crate::segment::Segment;
use crate::{Options, interrupt, session};
use std::ffi::OsString;
use std::io::{self, Write};
use std::net::UdpSocket;
use std::thread;

/// Runs a command in a machine, or in each of several at the same time, one for each of the options, on one wire. Its
/// output goes to this process's output. Returns its exit status.
///
/// With several machines the variable `CMID_MACHINE` is the number of the machine, from 1 on, and each line of output
/// begins with it. A machine with the number N has a device `rxe3` on `eth0`, with the addresses 10.97.0.N and fd97::N.
/// A machine stops when its command has ended. Returns when all have: the first status, in the order of the machines,
/// that is not 0.
///
/// # Errors
///
/// See [`Error`]: the command did not end by itself. The first of a machine, in their order.
pub fn run(machines: &[Options], command: &[OsString]) -> Result<u8, Error> {
    let _signals = interrupt::Watch::begin()?;
    if let [one] = machines {
        return session::run(one, None, command, Box::new(io::stdout()), Box::new(io::stderr()));
    }
    if machines.len() > Segment::MOST.into() {
        return Err(Error::Usage(format!("more than {} machines", Segment::MOST)));
    }
    for options in machines {
        session::prepare(options.kernel)?;
    }
    let port = free_port().about("a port for the wire")?;
    let run = |(options, machine): (&Options, u8)| {
        let mut options = options.clone();
        options.environment.push(("CMID_MACHINE".into(), machine.to_string().into()));
        let wire = Segment::new(machine, port);
        let stdout = Box::new(Numbered::new(machine, io::stdout()));
        session::run(&options, Some(&wire), command, stdout, Box::new(Numbered::new(machine, io::stderr())))
    };
    let statuses: Vec<_> = thread::scope(|scope| {
        let running: Vec<_> = machines.iter().zip(1..).map(|each| scope.spawn(move || run(each))).collect();
        running.into_iter().map(thread::ScopedJoinHandle::join).collect()
    });
    for status in statuses {
        let status = status.unwrap_or_else(|_| Err(Error::Unexpected("a thread panicked".to_owned())))?;
        if status != 0 {
            return Ok(status);
        }
    }
    Ok(0)
}

/// Returns a UDP port that nobody uses now.
pub(crate) fn free_port() -> io::Result<u16> {
    Ok(UdpSocket::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// The longest line that is kept together.
const LINE_MAX: usize = 1 << 16;

/// Writes whole lines, with a number before each.
pub(crate) struct Numbered<W: Write> {
    machine: u8,
    line: Vec<u8>,
    to: W,
}

impl<W: Write> Numbered<W> {
    pub(crate) fn new(machine: u8, to: W) -> Self {
        Numbered { machine, line: Vec::new(), to }
    }

    fn end_line(&mut self) -> io::Result<()> {
        self.line.push(b'\n');
        // One write, so that lines of other machines do not come in between.
        let line = [format!("{}| ", self.machine).as_bytes(), &self.line].concat();
        self.line.clear();
        self.to.write_all(&line)
    }
}

impl<W: Write> Write for Numbered<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for &byte in bytes {
            if byte == b'\n' || self.line.len() == LINE_MAX {
                self.end_line()?;
            }
            if byte != b'\n' {
                self.line.push(byte);
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

impl<W: Write> Drop for Numbered<W> {
    fn drop(&mut self) {
        if !self.line.is_empty() {
            // A failed write has been reported, or is of the last line only.
            let _ = self.end_line();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_the_number_of_its_machine() {
        let mut written = Vec::new();
        let mut numbered = Numbered::new(2, &mut written);
        for part in ["one\ntw", "o\n", "\nlast"] {
            numbered.write_all(part.as_bytes()).unwrap();
        }
        drop(numbered);
        assert_eq!(String::from_utf8(written).unwrap(), "2| one\n2| two\n2| \n2| last\n");
    }

    #[test]
    fn a_line_without_an_end_is_cut() {
        let mut written = Vec::new();
        Numbered::new(1, &mut written).write_all(&[b'x'; LINE_MAX + 1]).unwrap();
        assert_eq!(written.len(), LINE_MAX + 1 + 2 * "1| \n".len());
    }

    #[test]
    fn a_wire_has_room_for_some_machines() {
        let many = vec![Options::default(); 10];
        assert!(matches!(run(&many, &["true".into()]), Err(Error::Usage(_))));
    }
}
