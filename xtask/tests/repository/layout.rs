//! The top level of the repository, and the crates of the repository that examples depend on.

use std::collections::{BTreeMap, BTreeSet};

use crate::files::{committed, read, texts};

/// The files and folders of the top level, without dot files.
const TOP: &str = "ARCHITECTURE.md CHANGELOG.md CONTRIBUTING.md Cargo.lock Cargo.toml LICENSE-APACHE LICENSE-MIT README.md \
    benches docs examples fuzz io-blocking io-common io-epoll io-mio io-tokio programs proto sim tests trace verbs xtask";

/// The product crates. Also the crates that an example consists of are permitted.
const PRODUCT: [&str; 8] =
    ["cmid-blocking", "cmid-epoll", "cmid-mio", "cmid-proto", "cmid-sim", "cmid-tokio", "cmid-trace", "cmid-verbs"];

/// The maximum number of lines of an example.
const EXAMPLE: usize = 300;

#[test]
fn the_top_level_has_its_folders_and_no_other_files() {
    let files = committed(&[]);
    let top: BTreeSet<_> = files.iter().filter_map(|path| path.split('/').next()).collect();
    let visible: Vec<_> = top.into_iter().filter(|name| !name.starts_with('.')).collect();
    assert_eq!(visible.join(" "), TOP);
}

/// The crates of the repository in a manifest: by their names, or by paths into the folder of another crate.
fn dependencies(manifest: &str) -> impl Iterator<Item = &str> {
    let lines = manifest.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter(|line| line.contains("path = \"..") || line.starts_with("cmid-"))
        .filter_map(|line| line.split([' ', '.', '=']).next())
}

#[test]
fn examples_depend_on_product_crates_only() {
    let mut seen = BTreeSet::new();
    for (path, manifest) in texts(&["examples/*Cargo.toml", "programs/*Cargo.toml"]) {
        let example = path.split('/').nth(1).unwrap();
        for name in dependencies(&manifest).filter(|name| *name != example) {
            assert!(PRODUCT.contains(&name), "{path}: {name}");
            seen.insert(name.to_owned());
        }
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), PRODUCT, "each product crate has an example");
}

/// A reader finishes an example: its files, tests included. In `loops` it is one loop, with the program that all run.
#[test]
fn an_example_has_at_most_300_lines() {
    let lines = |path: &str| read(path).lines().count();
    let mut examples: BTreeMap<String, usize> = BTreeMap::new();
    for path in &committed(&["examples/*.rs"]) {
        let (folder, file) = (path.split('/').nth(1).unwrap(), path.rsplit('/').next().unwrap());
        if folder != "loops" {
            *examples.entry(folder.to_owned()).or_default() += lines(path);
        } else if file.starts_with("on_") {
            let others: &[&str] =
                if file == "on_acceptor.rs" { &["program.rs", "reactor.rs"] } else { &["program.rs"] };
            let others = others.iter().map(|other| lines(&format!("examples/loops/src/{other}"))).sum::<usize>();
            examples.insert(path.clone(), lines(path) + others);
        }
    }
    println!("{examples:?}");
    assert!(examples.len() > 10, "{examples:?}");
    assert!(examples.values().all(|&lines| lines <= EXAMPLE), "{examples:?}");
}

/// examples/README.md says of each example and each program what it is for.
#[test]
fn each_example_and_program_is_on_their_page() {
    let page = read("examples/README.md");
    for path in committed(&["*/Cargo.toml"]).iter().filter(|path| path.matches('/').count() == 2) {
        let link = match path.split('/').collect::<Vec<_>>()[..] {
            ["examples", name, _] => format!("]({name}/"),
            ["programs", name, _] => format!("](../programs/{name}/"),
            _ => continue,
        };
        assert!(page.contains(&link), "examples/README.md has no link to {path}");
    }
}

#[test]
fn a_dependency_is_found_by_its_name_and_by_its_path() {
    let manifest = "[package]\nname = \"a\"\n[dependencies]\nanyhow.workspace = true\ncmid-sim.workspace = true\n\
                    cmid-proto = { workspace = true }\nheap = { path = \"../../tests/kernel/heap\" }\n# cmid-x\n";
    assert_eq!(dependencies(manifest).collect::<Vec<_>>(), ["cmid-sim", "cmid-proto", "heap"]);
}
