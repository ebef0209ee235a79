//! The script that runs the command in the guest, as the host's shell would have run it.

use crate::error::{Error, WithPath};
use crate::{Options, tool};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Variables about the host's machine or a program there, which would mislead in the guest.
const HOST_ONLY: &[&str] = &[
    "CARGO_MAKEFLAGS",
    "DISPLAY",
    "HOSTNAME",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "LISTEN_FDS",
    "LISTEN_PID",
    "MAKEFLAGS",
    "MFLAGS",
    "NOTIFY_SOCKET",
    "OLDPWD",
    "PATH",
    "PWD",
    "SHLVL",
    "STY",
    "TMUX",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "XDG_RUNTIME_DIR",
    "_",
];
const HOST_ONLY_PREFIXES: &[&str] = &["DBUS_", "SSH_", "XDG_SESSION_"];

/// Builds the script from this process's directory and environment.
pub(crate) fn build(options: &Options, command: &[OsString], release: &str) -> Result<Vec<u8>, Error> {
    if command.is_empty() {
        return Err(Error::Usage("there is no command to run".to_owned()));
    }
    let directory = std::env::current_dir().about("the working directory")?;
    let mut environment: Vec<(OsString, OsString)> = std::env::vars_os().filter(|(name, _)| !host_only(name)).collect();
    // The guest's user is root, so its PATH contains the system's directories.
    environment.push(("PATH".into(), tool::search_path()));
    environment.push(("CMID_SOFTROCE".into(), "1".into()));
    environment.push(("CMID_KERNEL".into(), release.into()));
    environment.push(("CMID_TRANSPORT".into(), options.transport.name().into()));
    environment.extend_from_slice(&options.environment);
    Ok(script(&directory, &environment, command))
}

fn host_only(name: &OsStr) -> bool {
    HOST_ONLY.iter().any(|other| name == *other)
        || HOST_ONLY_PREFIXES.iter().any(|prefix| name.as_bytes().starts_with(prefix.as_bytes()))
}

fn script(directory: &Path, environment: &[(OsString, OsString)], command: &[OsString]) -> Vec<u8> {
    let mut script = b"ulimit -l unlimited\ncd ".to_vec();
    quote(&mut script, directory.as_os_str());
    // env accepts any name, unlike the shell's export. The inner shell accepts a command with '=' in it.
    script.extend_from_slice(b" || exit 127\nexec env -i");
    for (name, value) in environment {
        let mut pair = name.clone();
        pair.push("=");
        pair.push(value);
        script.push(b' ');
        quote(&mut script, &pair);
    }
    script.extend_from_slice(br#" sh -c 'exec "$@"' sh"#);
    for word in command {
        script.push(b' ');
        quote(&mut script, word);
    }
    script.push(b'\n');
    script
}

/// Adds a word, quoted for the shell.
fn quote(script: &mut Vec<u8>, word: &OsStr) {
    script.push(b'\'');
    for byte in word.as_bytes() {
        match byte {
            b'\'' => script.extend_from_slice(br"'\''"),
            other => script.push(*other),
        }
    }
    script.push(b'\'');
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{os::unix::ffi::OsStringExt, process::Command};

    fn run(environment: &[(OsString, OsString)], command: &[OsString]) -> Vec<u8> {
        let script = script(Path::new("/"), environment, command);
        // Raising the limit may be forbidden here, and does not matter.
        let script = [&b"ulimit() { :; }\n"[..], &script].concat();
        let output = Command::new("sh").arg("-c").arg(OsString::from_vec(script)).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        output.stdout
    }

    #[test]
    fn words_come_through_as_they_are() {
        let words: [&[u8]; 6] = [b"", b"a b", b"it's", b"$HOME `x` \"y\" \\", b"line\nline", b"\xff\xfe"];
        let mut command: Vec<OsString> = vec!["/usr/bin/printf".into(), "%s|".into()];
        command.extend(words.iter().map(|word| OsString::from_vec(word.to_vec())));
        let expected: Vec<u8> = words.iter().flat_map(|word| [word, &b"|"[..]].concat()).collect();
        assert_eq!(run(&[], &command), expected);
    }

    #[test]
    fn the_environment_is_exactly_what_was_given() {
        let environment = [("BASH_FUNC_x%%".into(), "() { :; }".into()), ("A".into(), "it's\n1".into())];
        let output = run(&environment, &["/usr/bin/printenv".into(), "A".into()]);
        assert_eq!(output, b"it's\n1\n");
        let output = String::from_utf8(run(&environment, &["/usr/bin/env".into()])).unwrap();
        assert!(!output.contains("HOME="), "{output}");
    }

    #[test]
    fn the_hosts_own_variables_stay_outside() {
        for name in ["DISPLAY", "SSH_AUTH_SOCK", "PWD", "DBUS_SESSION_BUS_ADDRESS"] {
            assert!(host_only(OsStr::new(name)), "{name}");
        }
        for name in ["HOME", "RUST_LOG", "LD_LIBRARY_PATH", "SSH"] {
            assert!(!host_only(OsStr::new(name)), "{name}");
        }
    }
}
