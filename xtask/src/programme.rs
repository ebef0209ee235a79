//! The test programmes: their steps, in order.

use cmid_softroce::Kernel;

use crate::backend::Backend::{self, Librdmacm};
use crate::runner::Programme;
use crate::step::{
    On, Step,
    Work::{self, Beside, BuildAndRun, BuildForGuest, Cargo, CargoWith, Guest, GuestCommand, Guests, Host, Report},
};
use crate::{
    bench, check, checks, chroot, cmtime, compile_fail, conformance, coverage, demo, differential, faults, host, iwarp,
    mutants, power, sanitize, scripts, static_program, versus,
};

/// The programme that CI runs.
pub(crate) const DAILY: Programme =
    Programme { steps: STEPS, option: None, time: "22 minutes on two cores, up to 90 where nothing is built" };
/// The programme of steps that take too long for that.
pub(crate) const LONG: Programme = Programme { steps: SLOW, option: Some("--slow"), time: "hours" };

/// The selected kernel, the older one, and the newer one.
const ANY: On = On::Selected;
const V6_1: On = On::Kernel(Kernel::V6_1);
const V6_12: On = On::Kernel(Kernel::V6_12);
/// The backend on the kernel's own interface.
const OWN: Backend = Backend::Kernel;

/// Builds the programs that the VM runs.
const BUILD_FOR_GUEST: Work = BuildForGuest(
    "build --release --lib --bins -p cmid-check -p cmid-conformance -p cmtime -p cmid-differential -p cmid-faults -p fencing \
     -p foreign -p rping -p cmid-kernel-tests -p cmid-rereg-shim -p loops -p replog -p ticker -p udping -p wildcard --features \
     cmid-check/verbs,cmid-conformance/verbs,cmtime/verbs,cmid-differential/verbs,cmid-faults/verbs,fencing/verbs,foreign/verbs,\
     loops/verbs,replog/verbs,rping/verbs,ticker/verbs,udping/verbs,wildcard/verbs",
);

/// Clients on two devices of the VM.
const WILDCARD: &str = "wildcard --device verbs 10.99.0.2=rxe0 10.98.0.2=rxe2 10.99.0.1=rxe0 10.98.0.2=rxe2";

const fn step(name: &'static str, work: Work) -> Step {
    Step { name, work }
}

/// Cheap steps and those that only need Rust come first.
const STEPS: &[Step] = &[
    step("format", Cargo("fmt --all --check")),
    step("spelling", Host(checks::spelling)),
    step("dependencies of cmid-proto", Host(checks::proto_dependencies)),
    step("licences, bans and sources of dependencies", Host(checks::licences)),
    step("advisories of dependencies", Host(checks::advisories)),
    step("cmid-mio without rdma-core", Host(checks::mio_without_rdma_core)),
    step("packages for rdma-sys", Host(host::prepare)),
    // Two at a time. A build waits for another one with the same profile, so the profiles alternate.
    step("clippy", Cargo("clippy --workspace --all-targets --all-features -- -D warnings")),
    step("the programs of the comparison with C", Beside(versus::prepare)),
    step("each feature by itself", Beside(checks::features)),
    step("build for the VM", BUILD_FOR_GUEST),
    step("documentation", CargoWith(&[("RUSTDOCFLAGS", "-D warnings")], "doc --workspace --no-deps --all-features")),
    step("tests", Beside(conformance::tests)),
    step(
        "a loop sees what another thread writes to memory, in a release build",
        Cargo("test --release --package cmid-verbs --test flag_loop"),
    ),
    step("tests of cmid-verbs", Cargo("test -p cmid-verbs --features headers,scripted-data,scripted-kernel")),
    step("cmid-verbs with rdma-sys", Cargo("test -p cmid-verbs --all-features --lib --test layout")),
    step("a program starts without rdma-core", Beside(|context| scripts::on_host(context, "without-rdma-core.sh"))),
    step("what the core costs", Beside(bench::check)),
    step("coverage of cmid-proto", Beside(coverage::run)),
    step("what must not compile does not, for the reason it names", Beside(compile_fail::check)),
    // Three at a time. The longest come first, so that all lanes end at about the same time.
    step("a static program without rdma-core", BuildAndRun(ANY, OWN, static_program::build_and_run)),
    step("the device under AddressSanitizer", BuildAndRun(ANY, Librdmacm, sanitize::device)),
    step("conformance on soft-RoCE", Report(ANY, Librdmacm, 900, conformance::in_guest)),
    // On both backends.
    step("instructions over C, and idle drivers", GuestCommand(V6_12, Librdmacm, versus::LIMIT, versus::command)),
    step("faults on soft-RoCE", Report(V6_12, Librdmacm, 600, faults::in_guest)),
    step("conformance of the kernel backend on soft-RoCE", Report(ANY, OWN, 900, conformance::quickly)),
    step("10,000 cycles with io-epoll", Guest(ANY, Librdmacm, 900, "soak cycles --driver epoll --device verbs")),
    step(
        "random programs: the simulator and the kernel agree",
        GuestCommand(ANY, Librdmacm, differential::LIMIT, differential::command),
    ),
    step("cmid-verbs by itself", Guest(ANY, Librdmacm, 300, "kernel-device")),
    step("connections on the kernel's own interface", Guest(ANY, OWN, 120, "kernel-cm")),
    step("the kernel's interface is missing or forbidden", Guest(ANY, OWN, 120, "kernel-open")),
    step("a device goes from under cmid-verbs", Guest(ANY, Librdmacm, 300, "kernel-device removal")),
    step("cmid-verbs opens the devices that it uses", Guest(ANY, Librdmacm, 300, "kernel-device opened")),
    step("cmid-verbs where ibacm is silent", Guest(ANY, Librdmacm, 300, "kernel-device ibacm")),
    step("re-registration by the kernel itself, and fencing", GuestCommand(ANY, Librdmacm, 300, scripts::rereg)),
    step("the lost wake-up of librdmacm", Guest(ANY, Librdmacm, 120, "kernel-lost-wakeup")),
    step("random programs on the data path", Guest(V6_12, OWN, 300, "differential --data --seed 1 --programs 200")),
    step("rping against rdma-core's", GuestCommand(ANY, Librdmacm, 600, scripts::rping)),
    step("cmtime against rdma-core's", GuestCommand(ANY, Librdmacm, 300, cmtime::command)),
    step("datagrams and multicast", GuestCommand(ANY, Librdmacm, 600, scripts::datagrams)),
    step("each event loop on soft-RoCE", Guest(ANY, OWN, 120, "loops --device verbs")),
    step("market data and orders", Guest(ANY, OWN, 120, "ticker demo --device verbs --ticks 500")),
    step("errors of users of replog and ticker", GuestCommand(ANY, OWN, 300, scripts::user_errors)),
    step("a replicated log under kills", Guest(ANY, OWN, 300, "replog torture --election-timeout 1000")),
    step("a wildcard server on two devices", Guest(ANY, OWN, 120, WILDCARD)),
    step("a foreign data path", Guest(ANY, OWN, 120, "foreign")),
    step("nothing blocks in io-mio and io-epoll", GuestCommand(ANY, Librdmacm, 600, scripts::blocking)),
    step("a listener moves between threads", Guest(ANY, Librdmacm, 300, "soak listener --driver mio --device verbs")),
    step("more peers than the backlog", Guest(ANY, Librdmacm, 300, "soak flood --device verbs")),
    step("the device goes and comes back", Guest(ANY, Librdmacm, 300, "soak removal --device verbs")),
];

/// The steps that take too long for the daily programme: `cargo xtask test --slow`. The kernel waits for an answer
/// for up to 17 minutes. Such scenarios all wait at the same time.
const SLOW: &[Step] = &[
    step("packages for rdma-sys", Host(host::prepare)),
    step("build for the VM", BUILD_FOR_GUEST),
    step("cmid-verbs by itself", Guest(V6_1, Librdmacm, 300, "kernel-device")),
    step("connections on the kernel's own interface", Guest(V6_1, OWN, 120, "kernel-cm")),
    step("the kernel's interface is missing or forbidden", Guest(V6_1, OWN, 120, "kernel-open")),
    step("a device goes from under cmid-verbs", Guest(V6_1, Librdmacm, 300, "kernel-device removal")),
    step("conformance on soft-RoCE", Report(V6_1, Librdmacm, 900, conformance::in_guest)),
    step("conformance of the kernel backend on soft-RoCE", Report(V6_1, OWN, 900, conformance::in_guest)),
    step("cmid-verbs by itself, on the kernel backend", Guest(V6_12, OWN, 300, "kernel-device")),
    step("cmid-verbs by itself, with ibv_post_send", Guest(V6_12, OWN, 300, "kernel-device classic")),
    step("conformance with ibv_post_send", Report(V6_12, OWN, 900, conformance::with_classic_posts)),
    step("conformance with the bindings of rdma-sys", Report(V6_12, Librdmacm, 900, conformance::with_rdma_sys)),
    step("a device goes from under the kernel backend", Guest(V6_12, OWN, 300, "kernel-device removal")),
    step("the kernel backend opens the devices that it uses", Guest(V6_12, OWN, 300, "kernel-device opened")),
    step("the kernel backend where ibacm is silent", Guest(V6_12, OWN, 300, "kernel-device ibacm")),
    step("nothing blocks on the kernel backend", GuestCommand(V6_12, OWN, 900, scripts::blocking)),
    step(
        "a listener moves between threads, on the kernel backend",
        Guest(V6_12, OWN, 300, "soak listener --driver mio --device verbs"),
    ),
    step(
        "a replicated log under 200 kills",
        Guest(V6_12, OWN, 3600, "replog torture --rounds 200 --election-timeout 1000"),
    ),
    step(
        "a replicated log with two reactors under 50 kills",
        Guest(V6_12, OWN, 900, "replog torture --rounds 50 --reactors 2 --election-timeout 1000"),
    ),
    step("10,000 cycles with io-mio", Guest(V6_12, Librdmacm, 900, "soak cycles --driver mio --device verbs")),
    step(
        "10,000 cycles with io-epoll, on the kernel backend",
        Guest(V6_12, OWN, 900, "soak cycles --driver epoll --device verbs"),
    ),
    step(
        "2,000 random programs: the simulator and the kernel backend agree",
        GuestCommand(V6_12, OWN, differential::LONG_LIMIT, differential::at_length),
    ),
    step("re-registration by the kernel itself, and fencing", GuestCommand(V6_1, Librdmacm, 300, scripts::rereg)),
    step("under AddressSanitizer, with every driver", BuildAndRun(V6_12, Librdmacm, sanitize::all_drivers)),
    step("under AddressSanitizer, with one driver", BuildAndRun(V6_1, Librdmacm, sanitize::one_driver)),
    step("under AddressSanitizer, on the kernel backend", BuildAndRun(V6_12, OWN, sanitize::one_driver)),
    step("the demonstrations", Host(demo::run)),
    step("the product crates as packages", Host(scripts::product_crates)),
    step("the interface of the last release", Host(checks::interface)),
    step("the programs as a Debian package", Host(scripts::debian_package)),
    step("the book of docs/", Host(scripts::book)),
    step("every state of small worlds", Cargo("run --release --package cmid-exploration")),
    step("mutants of the core", Host(mutants::all)),
    step(
        "50,000 random programs of each kind",
        CargoWith(&[("PROPTEST_CASES", "50000")], "test --release -p cmid-model --all-features --test random"),
    ),
    step(
        "a replicated log on three machines under 50 cuts of power and links",
        Guests("6.12", |context| power::cuts(context, &power::FIFTY)),
    ),
    step("market data over a wire that loses packets", GuestCommand(V6_12, OWN, 1200, scripts::ticker_loss)),
    step("market data and orders between machines", Guests("6.12", scripts::ticker_between_machines)),
    step("rping between machines with unlike kernels", Guests("6.1 and 6.12", scripts::between_machines)),
    step("faults on soft-RoCE, with every driver, kernel and backend", Guests("6.1 and 6.12", faults::at_length)),
    step(
        "2,000 random programs: the simulator and the kernel agree",
        GuestCommand(V6_12, Librdmacm, differential::LONG_LIMIT, differential::at_length),
    ),
    step(
        "500 random programs: the simulator and the older kernel agree",
        GuestCommand(V6_1, Librdmacm, differential::LONG_LIMIT, differential::at_length),
    ),
    step("cmid-check in one machine, on soft-RoCE and soft-iWARP", Guests("6.1 and 6.12", check::on_one_machine)),
    step("cmid-check between two machines, on soft-RoCE", Guests("6.12", check::on_roce)),
    step("cmid-check between two machines, on soft-iWARP", Guests("6.12", check::on_iwarp)),
    step("ib_send_lat -R of perftest", GuestCommand(V6_12, OWN, 200, scripts::perftest)),
    step("conformance on soft-iWARP", Report(V6_12, Librdmacm, 900, iwarp::scenarios)),
    step("conformance of the kernel backend on soft-iWARP", Report(V6_12, OWN, 900, iwarp::scenarios)),
    step("rping, cmtime, ucmatose and perftest as peers on soft-iWARP", Report(V6_12, OWN, 600, iwarp::peers)),
    step(
        "rping, cmtime, ucmatose and perftest as peers over librdmacm on soft-iWARP",
        Report(V6_12, Librdmacm, 600, iwarp::peers),
    ),
    step(
        "1,000 random programs: the simulator and the kernel backend agree on soft-iWARP",
        Report(V6_12, OWN, differential::LONG_LIMIT, differential::on_siw),
    ),
    step(
        "1,000 random programs: the simulator and librdmacm agree on soft-iWARP",
        Report(V6_12, Librdmacm, differential::LONG_LIMIT, differential::on_siw),
    ),
    step("posts and completions on soft-iWARP", Report(V6_12, OWN, 300, iwarp::posts)),
    step("posts and completions on soft-iWARP, over librdmacm", Report(V6_12, Librdmacm, 300, iwarp::posts)),
    step("calls that wait for a peer on soft-iWARP", Report(V6_12, OWN, 300, iwarp::waits)),
    step("calls of librdmacm that wait for a peer on soft-iWARP", Report(V6_12, Librdmacm, 300, iwarp::waits)),
    step("slow conformance on soft-RoCE", Guests("6.1 and 6.12", conformance::slow)),
    step("the core's tests and the bindings on aarch64", Host(chroot::aarch64)),
    step("a crate outside of the workspace on bare Debian 13", Host(chroot::outside)),
    step("what README names, with Debian 13's own Rust", Host(chroot::own_rust)),
    step("the programme of every day on Debian 13", Host(chroot::programme)),
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
