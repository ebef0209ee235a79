//! The test programmes: their steps, in order. A step is a name, the seconds that it takes where nothing is built, and its
//! work; for a VM: kernel, backend, time limit in seconds, and commands in the form of [`command`](crate::command).

use cmid_softroce::{Kernel, Transport};

use crate::backend::Backend::{self, Kernel as Own, Librdmacm};
use crate::runner::Programme;
use crate::step::Work::{self, Alone, Beside, Cargo, Vms};
use crate::step::{On, Step, Vm};
use crate::tools::TYPOS;
use crate::{checks, chroot, differential, host, mutants, power, sanitize, static_program, tools, versus};

/// The programme that CI runs.
pub(crate) const DAILY: Programme = Programme { steps: STEPS, option: None };
/// The programme of steps that take too long for that.
pub(crate) const LONG: Programme = Programme { steps: SLOW, option: Some("--slow") };

/// The selected kernel, the older one, and the newer one.
const ANY: On = On::Selected;
const V6_1: On = On::Kernel(Kernel::V6_1);
const V6_12: On = On::Kernel(Kernel::V6_12);
const TWO: On = On::Machines(&[Kernel::V6_12; 2]);

const fn step(name: &'static str, seconds: u64, work: Work) -> Step {
    Step { name, seconds, work }
}

/// Commands on soft-RoCE.
const fn vm(on: On, backend: Backend, limit: u64, commands: &'static [&'static str]) -> Work {
    Work::Vm(Vm::new(on, backend, limit, commands))
}

/// The same on soft-iWARP.
const fn siw(on: On, backend: Backend, limit: u64, commands: &'static [&'static str]) -> Work {
    Work::Vm(Vm { transport: Transport::Siw, ..Vm::new(on, backend, limit, commands) })
}

/// After a build that only this step needs.
const fn after(before: fn(&crate::context::Context) -> anyhow::Result<()>, vm: Vm) -> Work {
    Work::Vm(Vm { before: Some(before), ..vm })
}

/// In one machine, whose clock counts instructions.
const fn counted(on: On, transport: Transport, commands: &'static [&'static str]) -> Work {
    Work::Vm(Vm { counted_clock: true, transport, ..Vm::new(on, Own, 300, commands) })
}

/// Random programs from a file, on soft-iWARP. All but a fiftieth must agree, the others may stay undecided.
const fn differential_on_siw(backend: Backend, commands: &'static [&'static str]) -> Work {
    let vm = Vm::new(V6_12, backend, 3600, commands);
    after(differential::write_for_siw, Vm { transport: Transport::Siw, counted_clock: true, memory: 1024, ..vm })
}

/// The options of random programs on soft-iWARP, of calls and of the data path.
macro_rules! random_on_siw {
    ($kind:literal, $file:literal) => {
        &[concat!(
            "prlimit --nofile=65536:65536 @differential --backend {backend} --deadline 2880 --batch 20 --failures 3 --least 980 ",
            "--programs 1000 --iwarp",
            $kind,
            " --from @differential/--programs1000",
            $file,
            "--iwarp"
        )]
    };
}

const DATA_ON_SIW: &[&str] = random_on_siw!(" --data", "--data");

/// The steps that build what later steps run.
pub(crate) const BUILDS: [&str; 2] = ["build for the VM", "the programs of the comparison with C"];

/// Builds the programs that the VM runs.
const BUILD_FOR_GUEST: Work = Cargo(
    "build --release --lib --bins -p cmid-check -p cmid-conformance -p cmtime -p cmid-differential -p cmid-faults -p fencing \
     -p cmid-nvme -p foreign -p rping -p cmid-kernel-tests -p cmid-rereg-shim -p loops -p on-tokio -p replog -p ticker -p udping -p wildcard --features \
     cmid-check/verbs,cmid-conformance/verbs,cmid-nvme/verbs,cmtime/verbs,cmid-differential/verbs,cmid-faults/verbs,fencing/verbs,foreign/verbs,\
     loops/verbs,on-tokio/verbs,replog/verbs,rping/verbs,ticker/verbs,udping/verbs,wildcard/verbs",
);

/// The scenarios of conformance of a speed, on a driver, with a program and variables.
macro_rules! conformance {
    ($speed:literal) => {
        conformance!("@conformance", $speed, "")
    };
    ($program:literal, $speed:literal, $driver:literal) => {
        &[concat!(
            $program,
            " --device verbs --speed ",
            $speed,
            " {rereg-shim} --report %conformance-reports/{environment}-",
            $speed,
            ".json --recorded {root}/tests/conformance/results/{environment}.json",
            $driver
        )]
    };
}
/// The same on soft-iWARP.
const CONFORMANCE_ON_SIW: &[&str] =
    &["@conformance --device verbs --report %conformance-reports/{environment}-fast.json \
     --recorded {root}/tests/conformance/results/{environment}.json"];

/// The same on tokio, with a record of its own.
const CONFORMANCE_ON_TOKIO: &[&str] = &[
    "@conformance --device verbs --driver tokio {rereg-shim} --report %conformance-reports/{environment}-tokio-fast.json \
     --recorded {root}/tests/conformance/results/{environment}-tokio.json",
];

/// The fault scenarios of both speeds, with every driver.
const FAULTS: &[&str] = &[
    "@faults run --speed fast --report %faults-reports/{environment}-fast.json",
    "@faults run --speed slow --report %faults-reports/{environment}-slow.json",
];

const RPING: &str = "ours=@rping sh pairs+rping";
/// 20 connections: enough that several are in progress at a time.
const CMTIME: &str = "sh cmtime sh @cmtime {backend} 20 10.99.0.1 interop epoll mio";
const UCMATOSE: &str = "ours=@kernel-cmatose sh pairs+ucmatose";
const PERFTEST: &str = "ours=@kernel-perftest sh pairs+perftest";
const PEERS: &[&str] = &[RPING, CMTIME, UCMATOSE, PERFTEST];
/// Beside the kernel's target and its initiator.
const NVME: &[&str] =
    &["ours=@cmid-nvme modules=@python/nvmeof peer={root}/tests/kernel/scripts/nvme-peer.py sh nvmet+nvme"];
const fn nvme(kernel: Kernel, transport: Transport) -> Work {
    after(tools::python_nvmeof, Vm { transport, ..Vm::new(On::Kernel(kernel), Own, 300, NVME) })
}
const NVME_FAULTS: &[&str] = &["ours=@cmid-nvme sh nvmet+nvme-faults"];
const NVME_BENCH: &[&str] = &["ours=@cmid-nvme report=%nvme-reports/bench.txt sh nvmet+nvme-bench"];
const NVME_COUNT: &[&str] = &["ours=@cmid-nvme report=%nvme-reports/count.txt sh nvmet+nvme-count"];
const REREG: &[&str] = &["shim=@libcmid_rereg_shim.so rereg=@kernel-rereg fencing=@fencing expect={rereg} sh rereg"];
const BLOCKING: &[&str] =
    &["waits=@kernel-waits rping=@rping conformance=@conformance kernel_device=@kernel-device sh blocking"];
/// All but a fiftieth of random programs must agree. The timers of 6.1 are longer, so it runs fewer.
const RANDOM_2000: &[&str] =
    &["prlimit --nofile=65536:65536 @differential --backend {backend} --programs 2000 --least 1960 --deadline 2880"];
const RANDOM_500: &[&str] = &[
    "prlimit --nofile=65536:65536 @differential --backend {backend} --old --programs 500 --least 490 --deadline 2880",
];
/// As many as fit into 70 seconds. No new one begins after 300.
const RANDOM: &[&str] = &[
    "prlimit --nofile=65536:65536 @differential --backend {backend} {old} --programs 100000 --seconds 70 --deadline 300",
];
const POSTS: &[&str] = &["@kernel-device classic 'refused posts' creations"];
/// A peer's write is copied on one CPU while the other one deregisters; a read is sent while the other one disconnects.
/// The last three checks are of soft-iWARP.
const fn under_a_write(transport: Transport) -> Work {
    let commands = &[
        "@kernel-device classic 'a deregistration under' 'flushed reads' 'across pages' 'without the right' 'why a QP'",
    ];
    Work::Vm(Vm { transport, cpus: 2, ..Vm::new(V6_12, Own, 300, commands) })
}
/// `cmid-check`, with the name of its report: each behaviour has the recorded outcome.
macro_rules! check {
    ($report:literal) => {
        &[concat!(
            "ours=@cmid-check report=%check-reports/",
            $report,
            " recorded={root}/verbs/check/results/",
            $report,
            " sh check"
        )]
    };
}

/// Cheap steps come first. [`runner`](crate::runner) says which run at the same time.
#[rustfmt::skip]
const STEPS: &[Step] = &[
    step("format", 5, Cargo("fmt --all --check")),
    step("spelling", 10, Alone(|context| TYPOS.run(context, &[]))),
    step("dependencies of cmid-proto", 1, Alone(checks::proto_dependencies)),
    step("licences, bans and sources of dependencies", 5, Alone(checks::licences)),
    step("advisories of dependencies", 10, Alone(checks::advisories)),
    step("cmid-mio without rdma-core", 10, Alone(|context| checks::without_pkg_config(context, &["check", "-p", "cmid-mio", "--features", "verbs"]))),
    step("packages for rdma-sys", 1, Alone(host::prepare)),
    // Two at a time. A build waits for another one in the same folder, so the profiles alternate. The VMs need their programs.
    step("clippy", 150, Cargo("clippy --workspace --all-targets --all-features -- -D warnings")),
    step(BUILDS[1], 150, Beside(versus::prepare)),
    step("each feature by itself", 90, Beside(checks::features)),
    step(BUILDS[0], 400, BUILD_FOR_GUEST),
    // Three at a time. The longest come first.
    step("a static program without rdma-core", 60, after(static_program::build, Vm::new(ANY, Own, 120, &["ours=@x86_64-unknown-linux-musl/release/handshake sh pairs+handshake"]))),
    step("the device under AddressSanitizer", 150, Work::Vm(sanitize::device(ANY, Librdmacm))),
    step("conformance on soft-RoCE", 250, vm(ANY, Librdmacm, 900, conformance!("fast"))),
    // On both backends.
    step("instructions over C, and idle drivers", 200, vm(V6_12, Librdmacm, versus::LIMIT, &[versus::QUICK])),
    step("faults on soft-RoCE", 150, vm(V6_12, Librdmacm, 600, &["@faults run --speed fast --driver epoll --report %faults-reports/{environment}-fast.json"])),
    step("conformance of the kernel backend on soft-RoCE", 120, vm(ANY, Own, 900, conformance!("@conformance", "fast", " --driver epoll"))),
    step("10,000 cycles with io-epoll", 100, vm(ANY, Librdmacm, 900, &["@soak cycles --driver epoll --device verbs"])),
    step("random programs: the simulator and the kernel agree", 90, vm(ANY, Librdmacm, 420, RANDOM)),
    step("cmid-verbs by itself", 40, vm(ANY, Librdmacm, 300, &["@kernel-device"])),
    step("forked children on the kernel's own interface", 20, vm(ANY, Own, 120, &["@kernel-cm"])),
    step("the kernel's interface is missing or forbidden", 20, vm(ANY, Own, 120, &["@kernel-open"])),
    step("a device goes from under cmid-verbs", 20, vm(ANY, Librdmacm, 300, &["@kernel-device removal"])),
    step("cmid-verbs opens the devices that it uses", 20, vm(ANY, Librdmacm, 300, &["@kernel-device opened"])),
    step("cmid-verbs where ibacm is silent", 20, vm(ANY, Librdmacm, 300, &["@kernel-device ibacm"])),
    step("re-registration by the kernel itself, and fencing", 20, vm(ANY, Librdmacm, 300, REREG)),
    step("the lost wake-up of librdmacm", 20, vm(ANY, Librdmacm, 120, &["@kernel-lost-wakeup"])),
    step("random programs on the data path", 60, vm(V6_12, Own, 300, &["@differential --data --seed 1 --programs 200"])),
    step("rping against rdma-core's", 60, vm(ANY, Librdmacm, 600, &[RPING])),
    step("cmtime against rdma-core's", 40, vm(ANY, Librdmacm, 300, &[CMTIME])),
    step("datagrams and multicast", 40, vm(ANY, Librdmacm, 600, &["ours=@udping sh pairs+datagrams"])),
    step("each event loop on soft-RoCE", 20, vm(ANY, Own, 120, &["@loops --device verbs"])),
    step("an echo on tokio", 20, vm(ANY, Own, 120, &["@on-tokio --device verbs --drops 60"])),
    step("long messages on tokio", 30, vm(ANY, Own, 120, &["@on-tokio --device verbs --channel --messages 40"])),
    step("axum over RDMA and TCP, on tokio", 30, vm(ANY, Own, 120, &["@on-tokio --device verbs --http --messages 30 --tcp 10.99.0.2:7471"])),
    step("market data and orders", 20, vm(ANY, Own, 120, &["@ticker demo --device verbs --ticks 500"])),
    step("errors of users of replog and ticker", 40, vm(ANY, Own, 300, &["replog=@replog ticker=@ticker sh user-errors"])),
    step("a replicated log under kills", 60, vm(ANY, Own, 300, &["@replog torture --election-timeout 1000"])),
    step("NVMe: interoperation", 80, nvme(Kernel::V6_12, Transport::Rxe)),
    step("a wildcard server on two devices", 20, vm(ANY, Own, 120, &["@wildcard --device verbs 10.99.0.2=rxe0 10.98.0.2=rxe2 10.99.0.1=rxe0 10.98.0.2=rxe2"])),
    step("a foreign data path", 20, vm(ANY, Own, 120, &["@foreign"])),
    step("nothing blocks in io-mio and io-epoll", 90, vm(ANY, Librdmacm, 600, BLOCKING)),
    step("a listener moves between threads", 30, vm(ANY, Librdmacm, 300, &["@soak listener --driver mio --device verbs"])),
    step("more peers than the backlog", 30, vm(ANY, Librdmacm, 300, &["@soak flood --device verbs"])),
    step("the device goes and comes back", 30, vm(ANY, Librdmacm, 300, &["@soak removal --device verbs"])),
    // Beside the VMs, two at a time. Those that wait for the build of the tests are after others.
    step("documentation", 70, Cargo("RUSTDOCFLAGS=-Dwarnings doc --workspace --no-deps --all-features")),
    step("tests", 500, Beside(checks::tests)),
    step("a loop sees what another thread writes to memory, in a release build", 3, Beside(checks::flag_loop)),
    step("what the core costs", 80, Beside(|context| checks::bench(context, &["check"]))),
    step("what a world costs", 90, Beside(|context| context.script("world-cost.sh", &["valgrind"]))),
    step("a world in a browser", 90, Beside(|context| checks::browser(context))),
    step("coverage of cmid-proto", 90, Beside(checks::coverage)),
    step("tests of cmid-verbs; what must not compile does not, for the reason it names", 90, Beside(checks::tests_of_verbs)),
    step("cmid-verbs with rdma-sys", 60, Cargo("test -p cmid-verbs --all-features --lib --test layout")),
    step("examples in documentation", 80, Cargo("test --workspace --exclude cmid-verbs --all-features --doc")),
    step("what README names compiles with Debian 13's own Rust, and the host's program starts there", 120, Beside(|context| chroot::bare(context, include_str!("check_rust.sh")))),
    step("a program starts without rdma-core", 5, Beside(|context| context.script("without-rdma-core.sh", &[]))),
];

/// The steps that take too long for the daily programme: `cargo xtask test --slow`. The kernel waits for an answer
/// for up to 17 minutes, and a minute follows it.
#[rustfmt::skip]
const SLOW: &[Step] = &[
    step("packages for rdma-sys", 1, Alone(host::prepare)),
    step(BUILDS[0], 400, BUILD_FOR_GUEST),
    step("slow conformance on soft-RoCE, 6.1", 1300, vm(V6_1, Librdmacm, 1500, conformance!("slow"))),
    step("slow conformance on soft-RoCE, 6.12", 1300, vm(V6_12, Librdmacm, 1500, conformance!("slow"))),
    step("slow conformance of the kernel backend, 6.1", 1300, vm(V6_1, Own, 1500, conformance!("slow"))),
    step("slow conformance of the kernel backend, 6.12", 1300, vm(V6_12, Own, 1500, conformance!("slow"))),
    step("cmid-verbs by itself", 40, vm(V6_1, Librdmacm, 300, &["@kernel-device"])),
    step("forked children on the kernel's own interface", 20, vm(V6_1, Own, 120, &["@kernel-cm"])),
    step("the kernel's interface is missing or forbidden", 20, vm(V6_1, Own, 120, &["@kernel-open"])),
    step("a device goes from under cmid-verbs", 20, vm(V6_1, Librdmacm, 300, &["@kernel-device removal"])),
    step("conformance on soft-RoCE", 300, vm(V6_1, Librdmacm, 900, conformance!("fast"))),
    step("conformance of the kernel backend on soft-RoCE", 300, vm(V6_1, Own, 900, conformance!("fast"))),
    step("cmid-verbs by itself, on the kernel backend", 40, vm(V6_12, Own, 300, &["@kernel-device"])),
    step("cmid-verbs by itself, with ibv_post_send", 40, vm(V6_12, Own, 300, &["@kernel-device classic"])),
    step("conformance on tokio", 250, vm(V6_12, Own, 900, CONFORMANCE_ON_TOKIO)),
    step("conformance with ibv_post_send", 250, vm(V6_12, Own, 900, conformance!("CMID_POST_CALLS=classic @conformance", "fast", ""))),
    step("conformance with the bindings of rdma-sys", 400, after(checks::conformance_with_rdma_sys,
        Vm::new(V6_12, Librdmacm, 900, conformance!("@x86_64-unknown-linux-gnu/release/conformance", "fast", " --driver epoll")))),
    step("a device goes from under the kernel backend", 20, vm(V6_12, Own, 300, &["@kernel-device removal"])),
    step("the kernel backend opens the devices that it uses", 20, vm(V6_12, Own, 300, &["@kernel-device opened"])),
    step("the kernel backend where ibacm is silent", 20, vm(V6_12, Own, 300, &["@kernel-device ibacm"])),
    step("nothing blocks on the kernel backend", 90, vm(V6_12, Own, 900, BLOCKING)),
    step("a listener moves between threads, on the kernel backend", 30, vm(V6_12, Own, 300, &["@soak listener --driver mio --device verbs"])),
    step("a replicated log under 200 kills", 1800, vm(V6_12, Own, 3600, &["@replog torture --rounds 200 --election-timeout 1000"])),
    step("10,000 cycles with io-mio", 100, vm(V6_12, Librdmacm, 900, &["@soak cycles --driver mio --device verbs"])),
    step("10,000 cycles with io-epoll, on the kernel backend", 100, vm(V6_12, Own, 900, &["@soak cycles --driver epoll --device verbs"])),
    step("2,000 random programs: the simulator and the kernel backend agree", 1500, vm(V6_12, Own, 3600, RANDOM_2000)),
    step("re-registration by the kernel itself, and fencing", 20, vm(V6_1, Librdmacm, 300, REREG)),
    step("under AddressSanitizer, with every driver", 1200, Work::Vm(sanitize::all_drivers(V6_12, Librdmacm))),
    step("under AddressSanitizer, with one driver", 600, Work::Vm(sanitize::one_driver(V6_1, Librdmacm))),
    step("under AddressSanitizer, on the kernel backend", 600, Work::Vm(sanitize::one_driver(V6_12, Own))),
    step("the demonstrations", 60, Alone(checks::demo)),
    step("the product crates as packages", 300, Alone(|context| context.script("packages.sh", &[]))),
    step("the interface of the last release", 300, Alone(checks::interface)),
    step("the programs as a Debian package", 300, Alone(|context| context.script("deb.sh", &["dpkg-dev", "help2man", "man-db"]))),
    step("the book of docs/", 60, Alone(|context| context.script("book.sh", &["linkchecker"]))),
    step("every state of small worlds", 600, Cargo("run --release --package cmid-exploration")),
    step("mutants of the core", 14400, Alone(|context| mutants::run(context, &mutants::Arguments::default()))),
    step("NVMe: 1,000 worlds", 300, Cargo("NVME_WORLDS=1000 test --release -p cmid-nvme --test worlds")),
    step("50,000 random programs of each kind", 900, Cargo("PROPTEST_CASES=50000 test --release -p cmid-model --all-features --test random")),
    step("a replicated log on three machines under 50 cuts of power and links", 900, Vms(Kernel::V6_12, |context| power::cuts(context, &power::FIFTY))),
    step("market data over a wire that loses packets", 300, vm(V6_12, Own, 1200, &["ours=@ticker sh ticker-loss"])),
    step("market data and orders between machines", 60, vm(TWO, Own, 300, &["ours=@ticker sh ticker-machines"])),
    step("rping between machines with unlike kernels", 60, vm(On::Machines(&[Kernel::V6_1, Kernel::V6_12]), Own, 300, &["ours=@rping sh machines"])),
    step("faults on soft-RoCE, with every driver, 6.1", 1200, vm(V6_1, Librdmacm, 900, FAULTS)),
    step("faults on soft-RoCE, with every driver, 6.12", 1200, vm(V6_12, Librdmacm, 900, FAULTS)),
    step("faults on the kernel backend, with every driver, 6.1", 1200, vm(V6_1, Own, 900, FAULTS)),
    step("faults on the kernel backend, with every driver, 6.12", 1200, vm(V6_12, Own, 900, FAULTS)),
    step("2,000 random programs: the simulator and the kernel agree", 1500, vm(V6_12, Librdmacm, 3600, RANDOM_2000)),
    step("500 random programs: the simulator and the older kernel agree", 1500, vm(V6_1, Librdmacm, 3600, RANDOM_500)),
    step("cmid-check in one machine, on soft-RoCE, 6.1", 120, counted(V6_1, Transport::Rxe, check!("rxe-6.1.json"))),
    step("cmid-check in one machine, on soft-RoCE, 6.12", 120, counted(V6_12, Transport::Rxe, check!("rxe-6.12.json"))),
    step("cmid-check in one machine, on soft-iWARP", 120, counted(V6_12, Transport::Siw, check!("siw-6.12.json"))),
    step("cmid-check between two machines, on soft-RoCE", 120, vm(TWO, Own, 300, check!("rxe-6.12-two-machines.json"))),
    step("cmid-check between two machines, on soft-iWARP", 120, siw(TWO, Own, 300, check!("siw-6.12-two-machines.json"))),
    step("NVMe: faults", 120, vm(V6_12, Own, 300, NVME_FAULTS)),
    step("NVMe: faults, 6.1", 120, vm(V6_1, Own, 300, NVME_FAULTS)),
    step("NVMe: faults on soft-iWARP", 120, siw(V6_12, Own, 300, NVME_FAULTS)),
    step("NVMe: beside fio on the kernel's initiator", 120, after(tools::measured_nvme, Vm::new(V6_12, Own, 400, NVME_BENCH))),
    step("NVMe: instructions beside fio on the kernel's initiator", 800, after(tools::measured_nvme, Vm { counted_clock: true, ..Vm::new(V6_12, Own, 2400, NVME_COUNT) })),
    step("NVMe: interoperation, 6.1", 80, nvme(Kernel::V6_1, Transport::Rxe)),
    step("NVMe: interoperation on soft-iWARP", 80, nvme(Kernel::V6_12, Transport::Siw)),
    step("ib_send_lat -R of perftest", 60, vm(V6_12, Own, 200, &[PERFTEST])),
    step("conformance on soft-iWARP", 250, siw(V6_12, Librdmacm, 900, CONFORMANCE_ON_SIW)),
    step("conformance of the kernel backend on soft-iWARP", 250, siw(V6_12, Own, 900, CONFORMANCE_ON_SIW)),
    step("rping, cmtime, ucmatose and perftest as peers on soft-iWARP", 200, siw(V6_12, Own, 600, PEERS)),
    step("rping, cmtime, ucmatose and perftest as peers over librdmacm on soft-iWARP", 200, siw(V6_12, Librdmacm, 600, PEERS)),
    step("1,000 random programs: the simulator and the kernel backend agree on soft-iWARP", 1500, differential_on_siw(Own, random_on_siw!("", ""))),
    step("1,000 random programs: the simulator and librdmacm agree on soft-iWARP", 1500, differential_on_siw(Librdmacm, random_on_siw!("", ""))),
    step("1,000 random programs on the data path: the simulator and the kernel backend agree on soft-iWARP", 300, differential_on_siw(Own, DATA_ON_SIW)),
    step("1,000 random programs on the data path: the simulator and librdmacm agree on soft-iWARP", 300, differential_on_siw(Librdmacm, DATA_ON_SIW)),
    step("posts and completions on soft-iWARP", 40, siw(V6_12, Own, 300, POSTS)),
    step("posts and completions on soft-iWARP, over librdmacm", 40, siw(V6_12, Librdmacm, 300, POSTS)),
    step("posts and completions on soft-iWARP of Linux 6.1", 40, siw(V6_1, Own, 300, POSTS)),
    step("each event loop and fencing on soft-iWARP", 40, siw(V6_12, Own, 300, &["@loops --device verbs", "@fencing --device verbs --backend {backend} --way anew"])),
    step("a deregistration under a peer's write, on two CPUs", 40, under_a_write(Transport::Rxe)),
    step("a deregistration under a peer's write on soft-iWARP, on two CPUs", 40, under_a_write(Transport::Siw)),
    step("calls that wait for a peer on soft-iWARP", 120, siw(V6_12, Own, 300, &["@kernel-iwarp-waits"])),
    step("calls of librdmacm that wait for a peer on soft-iWARP", 120, siw(V6_12, Librdmacm, 300, &["@kernel-iwarp-waits"])),
    step("the tests of the core and the simulator, and the bindings, on aarch64", 900, Alone(|context| chroot::bare(context, include_str!("aarch64.sh")))),
    step("a crate outside of the workspace on bare Debian 13", 300, Alone(|context| chroot::bare(context, include_str!("outside.sh")))),
    step("tests and demonstrations with Debian 13's own Rust", 900, Alone(|context| chroot::bare(context, include_str!("own_rust.sh")))),
    step("the programme of every day on Debian 13", 2400, Alone(chroot::programme)),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Context;

    #[test]
    fn names_are_unique_and_each_command_can_be_made() {
        let context = Context::new(Kernel::default()).unwrap();
        for steps in [STEPS, SLOW] {
            let names: std::collections::BTreeSet<_> = steps.iter().map(|step| step.name).collect();
            assert_eq!(names.len(), steps.len());
            for step in steps {
                if let Work::Vm(vm) = &step.work {
                    assert!(!vm.lines(&context).unwrap().is_empty(), "{}", step.name);
                }
            }
        }
    }
}
