//! rdma-core's programs on the same device, if they are installed. Both sides run on this machine.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::wire::Message;

/// The limit of one program.
const SPAN: Duration = Duration::from_secs(60);
/// The time in which a server must listen.
const START: Duration = Duration::from_secs(2);
/// The port of a server.
const PORT: &str = "18999";

/// Returns the results of the programs. Leaves out programs that are not installed.
pub(crate) fn measure(device: &str, address: IpAddr, pings: usize, connections: usize) -> BTreeMap<String, String> {
    let mut results = BTreeMap::new();
    let mut add = |name: &str, result: Result<Option<String>>| {
        let value = result.unwrap_or_else(|error| Some(format!("no result: {error:#}")));
        results.extend(value.map(|value| (name.to_owned(), value)));
    };
    add("ibv_rc_pingpong", rc_pingpong(device, address, pings));
    add("cmtime", cmtime(address, connections));
    results
}

fn rc_pingpong(device: &str, address: IpAddr, pings: usize) -> Result<Option<String>> {
    let (size, pings) = (Message::LEN.to_string(), pings.to_string());
    let mut arguments = vec!["-d", device, "-s", &size, "-n", &pings, "-p", PORT];
    let gid = gid_index(device, address).map(|index| index.to_string());
    if let Some(gid) = &gid {
        arguments.extend(["-g", gid]);
    }
    let client = [&arguments[..], &["127.0.0.1"]].concat();
    let Some(output) = pair("ibv_rc_pingpong", &arguments, &client)? else { return Ok(None) };
    let time = output.lines().find_map(|line| line.split_once(" = ")?.1.strip_suffix(" usec/iter"));
    Ok(Some(format!("{} us there and back, {size} bytes", time.context("its output has no time")?)))
}

fn cmtime(address: IpAddr, connections: usize) -> Result<Option<String>> {
    let (address, connections) = (address.to_string(), connections.to_string());
    let server = ["-b", &address, "-p", PORT, "-c", &connections];
    let client = ["-s", &address, "-p", PORT, "-c", &connections];
    let Some(output) = pair("cmtime", &server, &client)? else { return Ok(None) };
    let total = phases(&output).context("its output has no times")?;
    Ok(Some(format!("{connections} connections in {total:.1} ms, each phase for all at once")))
}

/// The sum of the totals of cmtime's phases, in milliseconds: a name, a colon, and the total.
fn phases(output: &str) -> Option<f64> {
    let total = |line: &str| line.split_once(':')?.1.split_whitespace().next()?.parse::<f64>().ok();
    let totals: Vec<f64> = output.lines().filter_map(total).collect();
    (!totals.is_empty()).then(|| totals.iter().sum())
}

/// Runs a server and a client of it. Returns the output of the client; `None` if the program is not installed.
fn pair(program: &str, server: &[&str], client: &[&str]) -> Result<Option<String>> {
    let start = |arguments: &[&str], output: Stdio| {
        Command::new(program).args(arguments).stdin(Stdio::null()).stdout(output).stderr(Stdio::null()).spawn()
    };
    let mut server = match start(server, Stdio::null()) {
        Ok(child) => Ended(child),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let end = Instant::now() + SPAN;
    thread::sleep(START);
    ensure!(server.0.try_wait()?.is_none(), "the server has ended");
    let mut client = Ended(start(client, Stdio::piped())?);
    // The output is less than the capacity of a pipe.
    let status = loop {
        if let Some(status) = client.0.try_wait()? {
            break status;
        }
        ensure!(Instant::now() < end, "no end within {} s", SPAN.as_secs());
        thread::sleep(Duration::from_millis(20));
    };
    ensure!(status.success(), "the client: {status}");
    let mut output = String::new();
    let stdout = client.0.stdout.as_mut().context("the client's output")?;
    std::io::Read::read_to_string(stdout, &mut output)?;
    Ok(Some(output))
}

/// A program that is killed at the end of its measurement.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // Kills the program, unless it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The index of the GID of an address on port 1: that of RoCE v2, if there are several.
fn gid_index(device: &str, address: IpAddr) -> Option<usize> {
    let port = format!("/sys/class/infiniband/{device}/ports/1");
    let gid = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    let is_its = |index: &usize| {
        let text = fs::read_to_string(format!("{port}/gids/{index}")).unwrap_or_default();
        text.trim().parse::<std::net::Ipv6Addr>() == Ok(gid)
    };
    let version_2 = |index: &usize| {
        let kind = fs::read_to_string(format!("{port}/gid_attrs/types/{index}")).unwrap_or_default();
        kind.contains("v2")
    };
    let all: Vec<usize> = (0..256).filter(is_its).collect();
    all.iter().copied().find(version_2).or_else(|| all.first().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_phases_of_cmtime_are_added() {
        let output = "step              total ms     max ms     min us  us / conn\n\
            create id    :       1.50       0.00       1.00       1.06\nbind addr    :       0.25       0.00 1 1\n";
        assert_eq!(phases(output), Some(1.75));
        assert_eq!(phases("cmtime: no such device\n"), None);
    }
}
