//! The machine: kernel, distribution, libraries and limits.

use std::fs;
use std::path::Path;

use rustix::process::{Resource, getrlimit};

use crate::report::Host;

/// Libraries whose files are named in the report.
const LIBRARIES: [&str; 2] = ["libibverbs.so", "librdmacm.so"];

/// Describes this machine and process.
pub(crate) fn describe() -> Host {
    let uname = rustix::system::uname();
    let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
    let os_release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    Host {
        kernel: text(uname.release()),
        machine: text(uname.machine()),
        system: system(&os_release),
        libraries: libraries(&maps),
        memlock: getrlimit(Resource::Memlock).current,
    }
}

fn system(os_release: &str) -> String {
    let name = os_release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.map_or_else(|| "unknown".to_owned(), |name| name.trim_matches('"').to_owned())
}

fn libraries(maps: &str) -> Vec<String> {
    let files = maps.lines().filter_map(|line| line.split_whitespace().nth(5)).map(Path::new);
    let names = files.filter_map(|file| file.file_name()?.to_str());
    let mut names: Vec<_> =
        names.filter(|name| LIBRARIES.iter().any(|library| name.starts_with(library))).map(str::to_owned).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// What to do about `ENOMEM` of a registration, if the limit of locked memory can be the reason.
pub(crate) fn memlock_hint(host: &Host) -> Option<String> {
    let bytes = host.memlock?;
    Some(format!(
        "ENOMEM: the limit of locked memory is {} KiB. Raise it: `ulimit -l unlimited` as root; for a user, a line \
         \"NAME - memlock unlimited\" in /etc/security/limits.d/rdma.conf and a new login; for a service, \
         LimitMEMLOCK=infinity.",
        bytes / 1024
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_versions_are_in_the_names_of_the_files() {
        let maps = "7f00-7f01 r-xp 00000000 fd:00 12 /usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.44.0\n\
            7f02-7f03 r--p 00000000 fd:00 12 /usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.44.0\n\
            7f04-7f05 rw-p 00000000 00:00 0\n\
            7f06-7f07 r-xp 00000000 fd:00 13 /usr/lib/libc.so.6\n";
        assert_eq!(libraries(maps), ["libibverbs.so.1.14.44.0"]);
        assert_eq!(
            system("ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n"),
            "Debian GNU/Linux 12 (bookworm)"
        );
        assert_eq!(system(""), "unknown");
    }

    #[test]
    fn a_hint_names_the_limit() {
        let host = Host { memlock: Some(64 << 10), ..Host::default() };
        assert!(memlock_hint(&host).is_some_and(|hint| hint.contains("is 64 KiB")));
        assert_eq!(memlock_hint(&Host::default()), None);
    }
}
