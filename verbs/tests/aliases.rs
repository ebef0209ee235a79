//! The documentation of the product crates has the names of librdmacm and libibverbs as aliases of its search.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

mod compiler;

/// Functions of librdmacm's headers that cmid does not have, and why.
const WITHOUT: &[(&str, &str)] = &[
    ("rdma_free_devices", "`devices` returns a vector"),
    ("rdma_getaddrinfo", "`std::net::ToSocketAddrs` looks names up"),
    ("rdma_freeaddrinfo", "as rdma_getaddrinfo"),
    ("rdma_create_srq_ex", "`create_srq` makes an SRQ of the basic type"),
    ("rdma_seterrno", "a helper of the header's own functions; calls return `Errno`"),
    // librdmacm 60.
    ("rdma_resolve_addrinfo", "as rdma_getaddrinfo"),
    ("rdma_query_addrinfo", "as rdma_resolve_addrinfo"),
    ("rdma_write_cm_event", "the drivers have a `Waker`"),
];

/// Names of librdmacm 60, which older headers do not have.
const NEWER: &[&str] = &[
    "RDMA_CM_EVENT_ADDRINFO_RESOLVED",
    "RDMA_CM_EVENT_ADDRINFO_ERROR",
    "RDMA_CM_EVENT_USER",
    "RDMA_CM_EVENT_INTERNAL",
];

#[test]
fn each_function_and_event_of_librdmacm_has_an_alias() {
    let (headers, aliases) = (headers(), aliases());
    let functions = calls(&headers, &["rdma_"]);
    assert!(functions.contains("rdma_migrate_id") && functions.contains("rdma_post_send"), "{functions:?}");
    let events = words(&headers).filter(|word| word.starts_with("RDMA_CM_EVENT_")).map(str::to_owned);
    let missing: Vec<_> = functions
        .into_iter()
        .chain(events)
        .filter(|name| !aliases.contains(name) && WITHOUT.iter().all(|(without, _)| without != name))
        .collect();
    assert!(missing.is_empty(), "add `#[doc(alias)]`, or a reason to WITHOUT: {missing:?}");
    for (name, _) in WITHOUT {
        assert!(!aliases.contains(*name), "{name} has an alias: remove it from WITHOUT");
    }
}

/// What cmid has for a function, or that it is left out, is in one place.
#[test]
fn each_function_of_the_headers_is_on_the_page_of_functions() {
    let page =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/functions.md")).expect("the page");
    let functions = calls(&headers(), &["rdma_", "ibv_"]);
    assert!(functions.contains("rdma_connect") && functions.contains("ibv_reg_dmabuf_mr"), "{functions:?}");
    // Macros and helpers of the headers themselves begin with two underscores or with `verbs_`.
    let missing: Vec<_> = functions.iter().filter(|name| !page.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "add them to docs/functions.md: {missing:?}");
}

#[test]
fn each_alias_is_a_name_of_the_headers() {
    let headers = headers();
    let names: BTreeSet<_> = words(&headers).chain(NEWER.iter().copied()).collect();
    for alias in aliases() {
        let of_c = ["rdma_", "ibv_", "RDMA_", "IBV_"].iter().any(|prefix| alias.starts_with(prefix));
        assert!(!of_c || names.contains(&*alias), "{alias}");
    }
}

#[test]
fn each_manual_page_that_the_core_and_the_data_path_name_has_an_alias() {
    let (text, aliases) = (sources(&["proto"]), aliases());
    for (before, _) in text.match_indices("(3)").map(|(at, _)| text.split_at(at)) {
        let name = words(before).next_back().unwrap_or_default();
        let of_c = ["rdma_", "ibv_"].iter().any(|prefix| name.starts_with(prefix));
        assert!(!of_c || aliases.contains(name), "{name}(3)");
    }
}

/// The text of librdmacm's headers, and of those that they include, without comments.
fn headers() -> String {
    // -dD keeps the macros.
    let includes = "#include <rdma/rdma_cma.h>\n#include <rdma/rdma_verbs.h>\n";
    compiler::compile("aliases.c", includes, &["-E", "-P", "-dD"])
}

/// The names in `text` that are followed by a parenthesis and begin with one of these prefixes.
fn calls(text: &str, prefixes: &[&str]) -> BTreeSet<String> {
    let before = text.match_indices('(').map(|(at, _)| &text[..at]);
    let names = before.filter(|before| before.ends_with(is_of_word)).filter_map(|before| words(before).next_back());
    names.filter(|name| prefixes.iter().any(|prefix| name.starts_with(prefix))).map(str::to_owned).collect()
}

fn words(text: &str) -> impl DoubleEndedIterator<Item = &str> {
    text.split(|c| !is_of_word(c)).filter(|word| !word.is_empty())
}

fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// The aliases in the sources of the product crates.
fn aliases() -> BTreeSet<String> {
    let text = sources(&["proto", "verbs", "io-common", "io-mio", "io-epoll", "io-blocking", "io-tokio"]);
    let attributes = text.split("#[doc(alias").skip(1).filter_map(|rest| rest.split(")]").next());
    attributes.flat_map(|attribute| attribute.split('"').skip(1).step_by(2)).map(str::to_owned).collect()
}

/// The sources of these crates.
fn sources(crates: &[&str]) -> String {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut folders: Vec<PathBuf> = crates.iter().map(|name| top.join(name).join("src")).collect();
    let mut text = String::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                text += &fs::read_to_string(&path).expect("text");
            }
        }
    }
    text
}
