//! Runs a program under callgrind and reads the counts that it dumps at each mark.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tempfile::TempDir;

use crate::measure::process::Server;

/// The origin of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    /// The measuring program: the C program, or its Rust counterpart.
    Program,
    /// cmid-proto.
    Core,
    /// cmid-epoll, cmid-mio, and the libraries that they wait with.
    Driver,
    /// cmid-verbs.
    Verbs,
    /// Rust's libraries, where they are not inlined into a function of cmid.
    Std,
    /// librdmacm.
    Librdmacm,
    /// libibverbs and its provider.
    Libibverbs,
    /// libc and the loader.
    Libc,
}

impl Origin {
    pub(crate) const ALL: [(Origin, &'static str); 8] = [
        (Origin::Program, "program"),
        (Origin::Core, "core"),
        (Origin::Driver, "driver"),
        (Origin::Verbs, "verbs"),
        (Origin::Std, "std"),
        (Origin::Librdmacm, "librdmacm"),
        (Origin::Libibverbs, "libibverbs"),
        (Origin::Libc, "libc"),
    ];

    fn of(place: &Location) -> Self {
        let library =
            [("librdmacm", Origin::Librdmacm), ("libibverbs", Origin::Libibverbs), ("librxe", Origin::Libibverbs)];
        if let Some((_, origin)) = library.iter().find(|(name, _)| place.object.contains(name)) {
            return *origin;
        }
        if place.object.ends_with("/versus-c") {
            return Origin::Program;
        }
        if place.object.contains("/lib/") {
            return Origin::Libc;
        }
        let crates = [
            ("proto/src/", "cmid_proto", Origin::Core),
            ("verbs/src/", "cmid_verbs", Origin::Verbs),
            ("io-epoll/src/", "cmid_epoll", Origin::Driver),
            ("io-mio/src/", "cmid_mio", Origin::Driver),
            ("/rustix-", "rustix", Origin::Driver),
            ("/mio-", "mio", Origin::Driver),
            ("benches/vs-c/", "versus", Origin::Program),
            ("tests/harness/", "cmid_harness", Origin::Program),
        ];
        // Inlined code has the file that it is from. For code inlined by Rust's libraries, the function determines
        // the origin.
        let by_file = crates.iter().find(|(path, ..)| place.file.contains(path));
        let by_function = || {
            let named = crates.iter().filter_map(|one| Some((place.function.find(one.1)?, one)));
            named.min_by_key(|(at, _)| *at).map(|(_, one)| one)
        };
        by_file.or_else(by_function).map_or(Origin::Std, |(.., origin)| *origin)
    }
}

/// The instructions of one part of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts(pub(crate) BTreeMap<Origin, u64>);

impl Counts {
    pub(crate) fn total(&self) -> u64 {
        self.0.values().sum()
    }
}

/// The time limit of a program under valgrind.
const LIMIT: Duration = Duration::from_secs(600);

/// Runs a program and returns the counts before each of its `marks` marks, in order.
pub(crate) fn run(program: &[OsString], marks: usize) -> Result<Vec<Counts>> {
    Counted::start(program)?.end(marks)
}

/// A program under valgrind. It is killed on drop.
pub(crate) struct Counted {
    pub(crate) process: Server,
    directory: TempDir,
}

impl Counted {
    pub(crate) fn start(program: &[OsString]) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let mut option = OsString::from("--callgrind-out-file=");
        option.push(directory.path().join("out"));
        // Binds symbols at the start, so that the first caller of a function is not charged for the lookup.
        let valgrind = ["env", "LD_BIND_NOW=1", "valgrind", "-q", "--tool=callgrind", "--dump-before=*callgrind_mark*"];
        let command: Vec<_> =
            valgrind.map(OsString::from).into_iter().chain([option]).chain(program.iter().cloned()).collect();
        Ok(Counted { process: Server::record(&command)?, directory })
    }

    /// Waits until the program has ended by itself.
    pub(crate) fn end(self, marks: usize) -> Result<Vec<Counts>> {
        let Counted { process, directory } = self;
        process.end_within(LIMIT)?;
        let mut reader = Reader::default();
        let parts = (1..=marks).map(|number| {
            let part = directory.path().join(format!("out.{number}"));
            let text = std::fs::read_to_string(&part).with_context(|| format!("the counts before mark {number}"))?;
            reader.read(&text)
        });
        let parts = parts.collect::<Result<Vec<_>>>()?;
        ensure!(!directory.path().join(format!("out.{}", marks + 1)).exists(), "more marks than {marks}");
        Ok(parts)
    }
}

/// The origin of a count.
#[derive(Clone, Debug, Default)]
struct Location {
    object: String,
    file: String,
    function: String,
}

/// Reads callgrind's format. Names are written once, and later referred to by number, across the parts of a run.
#[derive(Default)]
struct Reader {
    names: HashMap<(char, String), String>,
}

impl Reader {
    fn read(&mut self, text: &str) -> Result<Counts> {
        let mut counts = Counts::default();
        let (mut place, mut home, mut summary) = (Location::default(), String::new(), None);
        let mut is_inclusive = false;
        for line in text.lines() {
            if let Some((key, value)) = line.split_once('=') {
                match key {
                    "ob" => place.object = self.name('o', value),
                    "fl" => {
                        place.file = self.name('f', value);
                        home.clone_from(&place.file);
                    }
                    "fi" | "fe" => place.file = self.name('f', value),
                    "fn" => {
                        place.function = self.name('n', value);
                        place.file.clone_from(&home);
                    }
                    "cob" => drop(self.name('o', value)),
                    "cfi" | "cfl" => drop(self.name('f', value)),
                    "cfn" => drop(self.name('n', value)),
                    // The next line has the callee's cost, which is counted at the callee.
                    "calls" => is_inclusive = true,
                    _ => {}
                }
                continue;
            }
            if let Some(total) = line.strip_prefix("summary: ") {
                summary = Some(total.trim().parse::<u64>()?);
            }
            let Some((at, cost)) = line.split_once(' ') else { continue };
            if !at.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
                continue;
            }
            let cost: u64 = cost.trim().parse().with_context(|| format!("not a line of callgrind's: {line}"))?;
            if !std::mem::take(&mut is_inclusive) {
                *counts.0.entry(Origin::of(&place)).or_default() += cost;
            }
        }
        match summary {
            Some(summary) if summary == counts.total() => Ok(counts),
            summary => bail!("callgrind counted {summary:?}, and its lines make {}", counts.total()),
        }
    }

    fn name(&mut self, kind: char, value: &str) -> String {
        let Some((number, name)) = value.strip_prefix('(').and_then(|rest| rest.split_once(')')) else {
            return value.to_owned();
        };
        let key = (kind, number.to_owned());
        if let Some(name) = name.strip_prefix(' ') {
            self.names.insert(key, name.to_owned());
            return name.to_owned();
        }
        self.names.get(&key).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: &str = "\
events: Ir
summary: 15

ob=(1) /usr/lib/librdmacm.so.1
fl=(1) ???
fn=(1) rdma_connect
cob=(2) /target/release/versus
cfi=(2) proto/src/lib.rs
cfn=(2) cmid_proto::poll
calls=1 0
5 12
+1 3

ob=(2)
fl=(2)
fn=(2)
7 4
fi=(3) /rustc/library/core/src/mem.rs
* 6
fl=(4) benches/vs-c/src/main.rs
fn=(3) versus::main
-1 2
";

    #[test]
    fn what_a_callee_cost_is_counted_once_and_inlined_code_belongs_to_whose_function_it_is_in() {
        let counts = Reader::default().read(PART).unwrap();
        assert_eq!(counts.0, BTreeMap::from([(Origin::Program, 2), (Origin::Core, 10), (Origin::Librdmacm, 3)]));
    }

    #[test]
    fn counts_that_do_not_add_up_are_refused() {
        assert!(Reader::default().read(&PART.replace("15", "16")).is_err());
    }
}
