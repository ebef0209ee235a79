//! The whole test programme: what must succeed, in this order.

use crate::{
    blocking, checks, host, interop,
    step::{
        Step,
        Work::{BuildForGuest, Cargo, CargoWith, Guest, GuestCommand, Host},
    },
    tables,
};

/// Cheap ones and those that need nothing but Rust come first.
pub(crate) const STEPS: &[Step] = &[
    Step { name: "format", work: Cargo(&["fmt", "--all", "--check"]) },
    Step { name: "minimum Rust version", work: Host(checks::minimum_rust_version) },
    Step { name: "docs/tables.md", work: Host(tables::check) },
    Step { name: "dependencies of cmid-proto", work: Host(checks::proto_dependencies) },
    Step { name: "cmid-mio without rdma-core", work: Host(checks::mio_without_rdma_core) },
    Step { name: "packages for rdma-sys", work: Host(host::prepare) },
    Step {
        name: "clippy",
        work: Cargo(&["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"]),
    },
    Step {
        name: "documentation",
        work: CargoWith(&[("RUSTDOCFLAGS", "-D warnings")], &["doc", "--workspace", "--no-deps", "--all-features"]),
    },
    Step { name: "tests", work: Cargo(&["test", "--workspace", "--all-features"]) },
    Step {
        name: "build for the VM",
        work: BuildForGuest(&[
            "build",
            "--release",
            "--bins",
            "--examples",
            "-p",
            "cmid-conformance",
            "-p",
            "rping",
            "-p",
            "cmid-verbs",
            "--features",
            "cmid-conformance/verbs,rping/verbs",
        ]),
    },
    Step { name: "cmid-verbs by itself", work: Guest(300, "examples/device", &[]) },
    Step { name: "the lost wake-up of librdmacm", work: Guest(120, "examples/lost_wakeup", &[]) },
    Step { name: "conformance on soft-RoCE", work: Guest(900, "conformance", &["--device", "verbs"]) },
    Step { name: "rping against rdma-core's", work: GuestCommand(600, interop::command) },
    Step { name: "nothing blocks in io-mio and io-epoll", work: GuestCommand(600, blocking::command) },
];
