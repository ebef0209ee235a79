//! The minimum Rust version holds for each crate that README.md names, and for xtask: the crate and what it depends on
//! state none that is newer. Whether they compile is a step of the programme.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

use crate::files::{read, root};

/// The crates that README.md does not link to.
const ALSO: [&str; 2] = ["xtask", "xtask/vm"];

/// The folders of crates that README.md links to, and those of xtask.
fn folders() -> Vec<String> {
    let readme = read("README.md");
    let links = readme.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let folders = links.map(|link| link.trim_end_matches('/')).chain(ALSO);
    let crates: BTreeSet<_> = folders.filter(|folder| root().join(folder).join("Cargo.toml").is_file()).collect();
    crates.into_iter().map(str::to_owned).collect()
}

/// The major and minor version; `0.0` if none is stated.
fn version(package: &Value) -> (u32, u32) {
    let mut parts = package["rust_version"].as_str().unwrap_or("0.0").split('.').map(|part| part.parse().unwrap());
    (parts.next().unwrap(), parts.next().unwrap())
}

#[test]
fn no_crate_that_readme_names_depends_on_one_that_states_a_newer_version() {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--format-version", "1", "--locked", "--filter-platform", "x86_64-unknown-linux-gnu"]);
    let metadata = cargo.current_dir(root()).output().unwrap();
    assert!(metadata.status.success(), "{}", String::from_utf8_lossy(&metadata.stderr));
    let metadata: Value = serde_json::from_slice(&metadata.stdout).unwrap();
    let by_id = |list: &'static str| {
        let entries = if list == "nodes" { &metadata["resolve"][list] } else { &metadata[list] };
        entries.as_array().unwrap().iter().map(|entry| (entry["id"].as_str().unwrap(), entry)).collect()
    };
    let (packages, nodes): (BTreeMap<_, _>, BTreeMap<_, _>) = (by_id("packages"), by_id("nodes"));
    let manifest = |folder: &str| root().join(folder).join("Cargo.toml");
    let of = |folder: &str| {
        packages.iter().find(|(_, package)| package["manifest_path"] == *manifest(folder).to_str().unwrap())
    };
    let minimum = version(of("proto").unwrap().1);
    let readme = read("README.md");
    let promised = readme.lines().find_map(|line| line.strip_prefix("Minimum supported Rust version: ")).unwrap();
    assert_eq!(promised, format!("{}.{}", minimum.0, minimum.1));
    let mut newer = Vec::new();
    for folder in folders() {
        let (mut found, mut next) = (BTreeSet::new(), vec![*of(&folder).unwrap_or_else(|| panic!("{folder}")).0]);
        while let Some(id) = next.pop() {
            if !found.insert(id) {
                continue;
            }
            let is_test = |kinds: &Value| kinds.as_array().unwrap().iter().all(|kind| kind["kind"] == "dev");
            let links = nodes[id]["deps"].as_array().unwrap().iter().filter(|link| !is_test(&link["dep_kinds"]));
            next.extend(links.map(|link| link["pkg"].as_str().unwrap()));
        }
        let late = found.into_iter().filter(|id| version(packages[id]) > minimum);
        newer.extend(late.map(|id| format!("{folder}: {} {}", packages[id]["name"], packages[id]["rust_version"])));
    }
    assert!(newer.is_empty(), "newer than {minimum:?}: {newer:#?}");
}

/// `cargo xtask --help` builds all of it.
#[test]
fn what_xtask_depends_on_is_small() {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["tree", "--locked", "--package", "xtask", "--edges", "normal,build", "--prefix", "none"]);
    let tree = String::from_utf8(cargo.current_dir(root()).output().unwrap().stdout).unwrap();
    let crates: BTreeSet<_> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    let ours: Vec<_> = crates.iter().filter(|name| name.starts_with("cmid")).collect();
    assert!(ours == [&"cmid-softroce"] && (20..50).contains(&crates.len()), "{crates:?}");
}
