//! `docs/unsafe.md`: everything unsafe in this workspace, by what it takes to be sound, each with its argument.
//!
//! It is rendered from the SAFETY comments of the source, so the two cannot differ; what has no argument, or one that leans on
//! another comment, or is of no known kind, is an error.

mod kinds;
mod scan;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::context::Context;
use kinds::Kind;
use scan::{Form, Place};

const FILE: &str = "docs/unsafe.md";

/// The folders of what is linked into users' programs, and of what is for tests only. There is unsafe code nowhere else.
const LIBRARY: &str = "verbs/src";
const HEAP: &str = "verbs/heap/src";
const SHIM: &str = "verbs/shim/src";
const TESTS: [&str; 2] = ["verbs/examples", "verbs/tests"];

/// Writes the file.
pub(crate) fn write(context: &Context) -> Result<()> {
    fs::write(context.root.join(FILE), render(&context.root)?).context(FILE)
}

/// The file says what the source says.
pub(crate) fn check(context: &mut Context) -> Result<()> {
    let written = fs::read_to_string(context.root.join(FILE)).context(FILE)?;
    ensure!(written == render(&context.root)?, "{FILE} is not what the source says: run `cargo xtask diagrams`");
    nowhere_else(context)
}

/// No other package has unsafe code, in whatever target.
fn nowhere_else(context: &Context) -> Result<()> {
    for entry in fs::read_dir(&context.root)? {
        let folder = entry?.path();
        if folder.join("Cargo.toml").is_file() && !folder.ends_with("verbs") {
            let name = folder.strip_prefix(&context.root).unwrap_or(&folder);
            let places = scan_folder(&context.root, &name.to_string_lossy())?;
            let place = places.first().map(|place| place.file.display());
            ensure!(places.is_empty(), "unsafe code outside of verbs/: {}", place.unwrap_or(name.display()));
        }
    }
    Ok(())
}

fn render(root: &Path) -> Result<String> {
    let library = scan_folder(root, LIBRARY)?;
    let heap = scan_folder(root, HEAP)?;
    let shim = scan_folder(root, SHIM)?;
    let tests = TESTS.iter().map(|folder| scan_folder(root, folder)).collect::<Result<Vec<_>>>()?.concat();
    let (own_tests, library): (Vec<_>, Vec<_>) = library.into_iter().partition(|place| place.in_test);
    let mut text = String::from(
        "# Unsafe code\n\nRendered by `cargo xtask diagrams` from the SAFETY comments of the source; do not edit. It is grouped by \
         what is done, because that decides what has to be argued. `cargo xtask sanitize` runs the checks of verbs and the \
         conformance suite under AddressSanitizer, and first makes mistakes of most of these kinds, to see that they are reported.\n\n",
    );
    // Writing to a string does not fail.
    let _ = writeln!(text, "| where | blocks | impls | functions |\n| --- | --- | --- | --- |");
    for (name, places) in [
        (format!("`{LIBRARY}`"), &library),
        ("its unit tests (each argued there, not listed)".into(), &own_tests),
        (format!("`{HEAP}`, for tests only"), &heap),
        (format!("`{SHIM}`, for tests only"), &shim),
        ("examples and tests (each argued there, not listed)".into(), &tests),
    ] {
        let count = |form| places.iter().filter(|place| place.form == form).count();
        let _ =
            writeln!(text, "| {name} | {} | {} | {} |", count(Form::Block), count(Form::Impl), count(Form::Function));
    }
    section(&mut text, LIBRARY, "", &library)?;
    section(&mut text, HEAP, " in the crate that measures the heap", &heap)?;
    section(&mut text, SHIM, " in the library for tests", &shim)?;
    Ok(text)
}

/// The places of a folder, a table for each kind.
fn section(text: &mut String, folder: &str, suffix: &str, places: &[Place]) -> Result<()> {
    let promising: Vec<&str> =
        places.iter().filter(|place| place.form == Form::Function).map(|place| place.name.as_str()).collect();
    let mut by_kind: BTreeMap<Kind, Vec<&Place>> = BTreeMap::new();
    for place in places {
        by_kind.entry(Kind::of(place, &promising)?).or_default().push(place);
    }
    for (kind, places) in by_kind {
        let _ = writeln!(text, "\n## {}{suffix} ({})\n", kind.title(), places.len());
        if suffix.is_empty() {
            let _ = writeln!(text, "{}\n", kind.obligation());
        }
        let _ = writeln!(text, "| where | what | why that is sound |\n| --- | --- | --- |");
        for place in places {
            let file = place.file.strip_prefix(folder).unwrap_or(&place.file);
            let _ = writeln!(
                text,
                "| `{}` {} | {} | {} |",
                file.display(),
                quoted(&place.name),
                kinds::what(place, &promising),
                place.argument.replace('|', "\\|")
            );
        }
    }
    Ok(())
}

fn quoted(name: &str) -> String {
    if name.is_empty() { String::new() } else { format!("`{name}`") }
}

fn scan_folder(root: &Path, folder: &str) -> Result<Vec<Place>> {
    let mut files = Vec::new();
    sources(&root.join(folder), &mut files)?;
    files.sort();
    let mut places = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let relative = file.strip_prefix(root).unwrap_or(&file);
        places.extend(scan::scan(relative, &text).with_context(|| relative.display().to_string())?);
    }
    Ok(places)
}

fn sources(folder: &Path, into: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            sources(&path, into)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
    Ok(())
}
