//! cmid's rping against rdma-core's: every driver, in both roles, in one VM.

use crate::context::Context;
use cmid_softroce::Kernel;
use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
};

const DRIVERS: &[&str] = &["mio", "epoll", "blocking"];
const ROUNDS: &str = "-C 100 -S 4096 -V";
const ADDRESS: &str = "10.99.0.1";
/// The first port. Every pair has its own, because a port may stay in use for a while after its connection.
const FIRST_PORT: u16 = 7200;

/// Defines the shell functions `pair` and `summary`.
const FUNCTIONS: &str = include_str!("pairs.sh");

#[derive(Debug, Clone, Copy)]
enum Role {
    Server,
    Client,
}

impl Role {
    fn flag(self) -> &'static str {
        match self {
            Role::Server => "-s",
            Role::Client => "-c",
        }
    }
}

/// The command to run in the VM.
pub(crate) fn command(context: &Context, _: Kernel) -> Vec<OsString> {
    let script = script(context.release("rping").as_os_str());
    vec!["sh".into(), "-c".into(), script]
}

fn script(program: &OsStr) -> OsString {
    // A variable holds the program's path, because it may contain any character.
    let mut script = b"ours='".to_vec();
    script.extend(program.as_bytes().iter().flat_map(|byte| match byte {
        b'\'' => br"'\''".to_vec(),
        other => vec![*other],
    }));
    script.extend_from_slice(b"'\n");
    script.extend_from_slice(FUNCTIONS.as_bytes());
    script.extend_from_slice(calls().as_bytes());
    OsString::from_vec(script)
}

/// A call of `pair` for every driver and role.
fn calls() -> String {
    let mut calls = String::new();
    let mut port = FIRST_PORT;
    for driver in DRIVERS {
        for role in [Role::Server, Role::Client] {
            let (server, client, name) = match role {
                Role::Server => (ours(driver, role, port), theirs(Role::Client, port), "server"),
                Role::Client => (theirs(Role::Server, port), ours(driver, role, port), "client"),
            };
            calls.push_str(&format!("pair '{driver} as {name}' 'listening {port}' '{server}' '{client}'\n"));
            port += 1;
        }
    }
    calls.push_str("summary\n");
    calls
}

/// The command line of cmid's rping.
fn ours(driver: &str, role: Role, port: u16) -> String {
    format!("\"$ours\" {} --driver {driver} --device verbs -a {ADDRESS} -p {port} {ROUNDS}", role.flag())
}

/// rdma-core's rping's command line.
fn theirs(role: Role, port: u16) -> String {
    format!("rping {} -a {ADDRESS} -p {port} {ROUNDS}", role.flag())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_driver_plays_both_roles_on_a_port_of_its_own() {
        let calls = calls();
        assert_eq!(calls.lines().count(), DRIVERS.len() * 2 + 1);
        for (index, line) in calls.lines().take(DRIVERS.len() * 2).enumerate() {
            let port = (usize::from(FIRST_PORT) + index).to_string();
            assert_eq!(line.matches(&port).count(), 3, "{line}");
            assert_eq!(line.matches("$ours").count(), 1, "{line}");
        }
    }
}
