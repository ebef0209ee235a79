//! The test programmes: their steps, in order.

use cmid_softroce::Kernel;

use crate::runner::Programme;
use crate::step::{
    On, Step,
    Work::{self, BuildAndRun, BuildForGuest, Cargo, CargoWith, Guest, GuestCommand, Guests, Host, Report},
};
use crate::{
    bench, blocking, checks, chroot, cmtime, compile_fail, conformance, coverage, datagrams, deny, differential,
    faults, host, interop, kernel_backend, kernel_rereg, mutants, sanitize, static_program, versus,
};

/// The programme that CI runs.
pub(crate) const DAILY: Programme = Programme { steps: STEPS, option: None };
/// The programme of steps that take too long for that.
pub(crate) const LONG: Programme = Programme { steps: SLOW, option: Some("--slow") };

/// Builds the programs that the VM runs.
const BUILD_FOR_GUEST: Work = BuildForGuest(&[
    "build",
    "--release",
    "--lib",
    "--bins",
    "-p",
    "cmid-conformance",
    "-p",
    "cmtime",
    "-p",
    "cmid-differential",
    "-p",
    "cmid-faults",
    "-p",
    "fencing",
    "-p",
    "rping",
    "-p",
    "cmid-kernel-tests",
    "-p",
    "cmid-rereg-shim",
    "-p",
    "cmid-versus",
    "-p",
    "udping",
    "--features",
    "cmid-conformance/verbs,cmtime/verbs,cmid-differential/verbs,cmid-faults/verbs,fencing/verbs,rping/verbs,udping/verbs,cmid-versus/verbs",
]);

/// Arguments that run the tests of `proto/tests/random` in one of its modules.
const fn random(module: &'static str) -> [&'static str; 7] {
    ["test", "--release", "--package", "cmid-proto", "--test", "random", module]
}

/// Cheap steps and those that only need Rust come first.
const STEPS: &[Step] = &[
    Step { name: "format", work: Cargo(&["fmt", "--all", "--check"]) },
    Step { name: "minimum Rust version", work: Host(checks::minimum_rust_version) },
    Step { name: "dependencies of cmid-proto", work: Host(checks::proto_dependencies) },
    Step { name: "licences, bans and sources of dependencies", work: Host(deny::licences) },
    Step { name: "advisories of dependencies", work: Host(deny::advisories) },
    Step { name: "cmid-mio without rdma-core", work: Host(checks::mio_without_rdma_core) },
    Step { name: "packages for rdma-sys", work: Host(host::prepare) },
    Step { name: "the C program that cmid is compared with", work: Host(versus::prepare) },
    Step {
        name: "clippy",
        work: Cargo(&["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"]),
    },
    Step { name: "each feature by itself", work: Host(checks::features) },
    Step {
        name: "documentation",
        work: CargoWith(&[("RUSTDOCFLAGS", "-D warnings")], &["doc", "--workspace", "--no-deps", "--all-features"]),
    },
    Step { name: "tests", work: Host(conformance::tests) },
    Step {
        name: "a loop sees what another thread writes to memory, in a release build",
        work: Cargo(&["test", "--release", "--package", "cmid-verbs", "--test", "flag_loop"]),
    },
    Step { name: "coverage of cmid-proto", work: Host(coverage::run) },
    Step { name: "what must not compile does not, for the reason it names", work: Host(compile_fail::check) },
    Step { name: "what the core costs", work: Host(bench::check) },
    Step { name: "build for the VM", work: BUILD_FOR_GUEST },
    Step { name: "a static program without rdma-core", work: BuildAndRun(On::Selected, static_program::build_and_run) },
    Step { name: "under AddressSanitizer", work: BuildAndRun(On::Selected, sanitize::quick) },
    Step { name: "cmid-verbs by itself", work: Guest(On::Selected, 300, "kernel-device", &[]) },
    Step { name: "connections on the kernel's own interface", work: Guest(On::Selected, 120, "kernel-cm", &[]) },
    Step { name: "the kernel's interface is missing or forbidden", work: Guest(On::Selected, 120, "kernel-open", &[]) },
    Step { name: "a device goes from under cmid-verbs", work: Guest(On::Selected, 300, "kernel-device", &["removal"]) },
    Step {
        name: "cmid-verbs opens the devices that it uses",
        work: Guest(On::Selected, 300, "kernel-device", &["opened"]),
    },
    Step { name: "cmid-verbs where ibacm is silent", work: Guest(On::Selected, 300, "kernel-device", &["ibacm"]) },
    Step {
        name: "re-registration by the kernel itself, and fencing",
        work: GuestCommand(On::Selected, 300, kernel_rereg::command),
    },
    Step { name: "the lost wake-up of librdmacm", work: Guest(On::Selected, 120, "kernel-lost-wakeup", &[]) },
    Step { name: "conformance on soft-RoCE", work: Report(On::Selected, 900, conformance::in_guest) },
    Step {
        name: "conformance of the kernel backend on soft-RoCE",
        work: Report(On::Selected, 900, conformance::on_kernel_backend_quickly),
    },
    Step {
        name: "random programs: the simulator and the kernel agree",
        work: GuestCommand(On::Selected, differential::LIMIT, differential::command),
    },
    Step { name: "faults on soft-RoCE", work: Report(On::Kernel(Kernel::V6_12), 600, faults::in_guest) },
    Step { name: "rping against rdma-core's", work: GuestCommand(On::Selected, 600, interop::command) },
    Step { name: "cmtime against rdma-core's", work: GuestCommand(On::Selected, 300, cmtime::command) },
    Step { name: "datagrams and multicast", work: GuestCommand(On::Selected, 600, datagrams::command) },
    Step {
        name: "instructions over C, and idle drivers",
        work: GuestCommand(On::Kernel(Kernel::V6_12), versus::LIMIT, versus::command),
    },
    Step { name: "nothing blocks in io-mio and io-epoll", work: GuestCommand(On::Selected, 600, blocking::command) },
    Step {
        name: "a listener moves between threads",
        work: Guest(On::Selected, 300, "soak", &["listener", "--driver", "mio", "--device", "verbs"]),
    },
    Step {
        name: "more peers than the backlog",
        work: Guest(On::Selected, 300, "soak", &["flood", "--device", "verbs"]),
    },
    Step {
        name: "the device goes and comes back",
        work: Guest(On::Selected, 300, "soak", &["removal", "--device", "verbs"]),
    },
    Step {
        name: "10,000 cycles with io-mio",
        work: Guest(On::Selected, 900, "soak", &["cycles", "--driver", "mio", "--device", "verbs"]),
    },
    Step {
        name: "10,000 cycles with io-epoll",
        work: Guest(On::Selected, 900, "soak", &["cycles", "--driver", "epoll", "--device", "verbs"]),
    },
];

/// The steps that take too long for the daily programme: `cargo xtask test --slow`. The kernel waits for an answer
/// for up to 17 minutes. Such scenarios all wait at the same time.
const SLOW: &[Step] = &[
    Step { name: "packages for rdma-sys", work: Host(host::prepare) },
    Step { name: "build for the VM", work: BUILD_FOR_GUEST },
    Step { name: "cmid-verbs by itself", work: Guest(On::Kernel(Kernel::V6_1), 300, "kernel-device", &[]) },
    Step {
        name: "connections on the kernel's own interface",
        work: Guest(On::Kernel(Kernel::V6_1), 120, "kernel-cm", &[]),
    },
    Step {
        name: "the kernel's interface is missing or forbidden",
        work: Guest(On::Kernel(Kernel::V6_1), 120, "kernel-open", &[]),
    },
    Step {
        name: "a device goes from under cmid-verbs",
        work: Guest(On::Kernel(Kernel::V6_1), 300, "kernel-device", &["removal"]),
    },
    Step { name: "conformance on soft-RoCE", work: Report(On::Kernel(Kernel::V6_1), 900, conformance::in_guest) },
    Step {
        name: "conformance of the kernel backend on soft-RoCE",
        work: Report(On::Kernel(Kernel::V6_1), 900, conformance::on_kernel_backend),
    },
    Step {
        name: "cmid-verbs by itself, with ibv_post_send",
        work: GuestCommand(On::Kernel(Kernel::V6_12), 300, kernel_backend::device_with_classic_posts),
    },
    Step {
        name: "conformance with ibv_post_send",
        work: Report(On::Kernel(Kernel::V6_12), 900, conformance::with_classic_posts),
    },
    Step {
        name: "cmid-verbs by itself, on the kernel backend",
        work: GuestCommand(On::Kernel(Kernel::V6_12), 300, kernel_backend::device),
    },
    Step {
        name: "a device goes from under the kernel backend",
        work: GuestCommand(On::Kernel(Kernel::V6_12), 300, kernel_backend::removal),
    },
    Step {
        name: "the kernel backend opens the devices that it uses",
        work: GuestCommand(On::Kernel(Kernel::V6_12), 300, kernel_backend::opened),
    },
    Step {
        name: "the kernel backend where ibacm is silent",
        work: GuestCommand(On::Kernel(Kernel::V6_12), 300, kernel_backend::ibacm),
    },
    Step {
        name: "nothing blocks on the kernel backend",
        work: GuestCommand(On::Kernel(Kernel::V6_12), 900, blocking::kernel_backend),
    },
    Step {
        name: "a listener moves between threads, on the kernel backend",
        work: GuestCommand(On::Kernel(Kernel::V6_12), 300, kernel_backend::listener),
    },
    Step {
        name: "10,000 cycles with io-epoll, on the kernel backend",
        work: GuestCommand(On::Kernel(Kernel::V6_12), 900, kernel_backend::cycles),
    },
    Step {
        name: "faults on soft-RoCE, on the kernel backend",
        work: GuestCommand(On::Kernel(Kernel::V6_12), 900, kernel_backend::faults),
    },
    Step {
        name: "2,000 random programs: the simulator and the kernel backend agree",
        work: GuestCommand(On::Kernel(Kernel::V6_12), differential::LONG_LIMIT, kernel_backend::differential),
    },
    Step {
        name: "re-registration by the kernel itself, and fencing",
        work: GuestCommand(On::Kernel(Kernel::V6_1), 300, kernel_rereg::command),
    },
    Step { name: "under AddressSanitizer, all of it", work: BuildAndRun(On::Kernel(Kernel::V6_12), sanitize::full) },
    Step { name: "under AddressSanitizer, quickly", work: BuildAndRun(On::Kernel(Kernel::V6_1), sanitize::quick) },
    Step {
        name: "under AddressSanitizer, on the kernel backend",
        work: BuildAndRun(On::Kernel(Kernel::V6_12), sanitize::kernel_backend),
    },
    Step { name: "every state of small worlds", work: Cargo(&["run", "--release", "--package", "cmid-exploration"]) },
    Step { name: "mutants of the core", work: Host(mutants::all) },
    Step {
        name: "400,000 random programs on a core by itself",
        work: CargoWith(&[("CMID_RANDOM", "1000000..1400000")], &random("core_alone")),
    },
    Step {
        name: "60,000 random programs on two drives",
        work: CargoWith(&[("CMID_RANDOM", "1000000..1060000")], &random("two_drives")),
    },
    Step {
        name: "20,000 random programs on memory regions",
        work: CargoWith(&[("CMID_RANDOM", "1000000..1020000")], &random("regions")),
    },
    Step { name: "faults on soft-RoCE, with every driver", work: Guests("6.12", faults::at_length) },
    Step {
        name: "2,000 random programs: the simulator and the kernel agree",
        work: GuestCommand(On::Kernel(Kernel::V6_12), differential::LONG_LIMIT, differential::at_length),
    },
    Step {
        name: "500 random programs: the simulator and the older kernel agree",
        work: GuestCommand(On::Kernel(Kernel::V6_1), differential::LONG_LIMIT, differential::at_length),
    },
    Step { name: "slow conformance on soft-RoCE", work: Guests("6.1 and 6.12", conformance::slow) },
    Step { name: "the programme of every day on Debian 13", work: Host(chroot::programme) },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_names_are_unique() {
        for steps in [STEPS, SLOW] {
            let mut names: Vec<_> = steps.iter().map(|step| step.name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), steps.len());
        }
    }
}
