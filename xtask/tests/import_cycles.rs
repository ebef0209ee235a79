//! Import cycles: no file of a crate depends on itself, directly or through other files. All crates of the repository
//! are checked: products, tests, benches, examples, tasks.
//!
//! A file depends on another one if it names an item that the other one defines: in a `use` that is not a re-export,
//! in a path, or in the arguments of a macro. Imports and re-exports are followed to the definition. So `mod.rs` and
//! `lib.rs` may declare and re-export their children, and a child depends on its parent only if the parent's own file
//! defines what the child names. Not counted: `mod` declarations, paths that name only a module, method calls,
//! documentation, test code.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, slice::from_ref};

use syn::visit::{self, Visit};

/// The files that a crate can begin with, without their suffix.
const ROOTS: [&str; 2] = ["lib", "main"];

/// A path from the root of the crate.
type Names = Vec<String>;

/// One file. Modules inside of it are part of it.
#[derive(Default)]
struct Module {
    /// The current module: that of the file, or one inside of it.
    here: Names,
    /// The imports of `use`, by their name here.
    imports: BTreeMap<String, Names>,
    /// The modules that it declares.
    declared: BTreeSet<String>,
    /// The paths in its code.
    named: BTreeSet<Names>,
}

#[test]
fn no_crate_has_an_import_cycle() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (mut count, mut found) = (0, Vec::new());
    for folder in crates(&repository) {
        for root in ROOTS.into_iter().filter(|root| is_root(&folder, root)) {
            let mut modules = BTreeMap::new();
            read(&folder, root, &[], &mut modules);
            // A folder may contain two crates, a library and a program.
            let declared = modules[&Names::new()].declared.clone();
            modules.retain(|name, _| name.first().is_none_or(|top| declared.contains(top)));
            let of = folder.strip_prefix(&repository).unwrap().join(root);
            found.extend(cycles(&modules).iter().map(|cycle| format!("{}: {cycle}", of.display())));
            count += 1;
        }
    }
    assert!(count > 30, "only {count} crates");
    assert!(found.is_empty(), "files depend on themselves:\n{}", found.join("\n"));
}

fn is_root(folder: &Path, root: &str) -> bool {
    folder.join(root).with_extension("rs").is_file()
}

/// The folders with the root file of a crate.
fn crates(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_source = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        path.is_dir() && !name.starts_with('.') && !name.starts_with("target")
    };
    let below = entries.filter(is_source).flat_map(|path| crates(&path));
    ROOTS.iter().any(|root| is_root(folder, root)).then(|| folder.to_owned()).into_iter().chain(below).collect()
}

/// Reads the files of a module's folder. `root` is the root file of the crate, without its suffix.
fn read(folder: &Path, root: &str, module: &[String], into: &mut BTreeMap<Names, Module>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let is_top = module.is_empty() && ROOTS.contains(&&*name);
        let here = if is_top || name == "mod" { module.to_vec() } else { [module, from_ref(&name)].concat() };
        if path.is_dir() {
            // A folder with a root file is another crate.
            if !ROOTS.iter().any(|root| is_root(&path, root)) {
                read(&path, root, &here, into);
            }
        } else if path.extension().is_some_and(|suffix| suffix == "rs")
            && (!is_top || name == root)
            && name != "tests"
            && !name.ends_with("_tests")
        {
            into.insert(here.clone(), parse(here, &fs::read_to_string(&path).unwrap()));
        }
    }
}

fn parse(here: Names, text: &str) -> Module {
    let mut module = Module { here, ..Module::default() };
    module.visit_file(&syn::parse_file(text).unwrap());
    module
}

impl Module {
    /// Makes a written path absolute. A path without `crate`, `self` or `super` starts in this module.
    fn absolute(&self, written: &[String]) -> Names {
        written.iter().fold(self.here.clone(), |mut path, name| {
            match name.as_str() {
                "crate" => path.clear(),
                "super" => drop(path.pop()),
                "self" => {}
                _ => path.push(name.clone()),
            }
            path
        })
    }

    fn import(&mut self, prefix: &[String], tree: &syn::UseTree, exported: bool) {
        let path = |name: &syn::Ident| [prefix, &[name.to_string()]].concat();
        let (written, alias) = match tree {
            syn::UseTree::Path(tree) => return self.import(&path(&tree.ident), &tree.tree, exported),
            syn::UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.import(prefix, tree, exported));
            }
            syn::UseTree::Glob(_) => ([prefix, &["*".to_owned()]].concat(), None),
            syn::UseTree::Name(name) => (path(&name.ident), None),
            syn::UseTree::Rename(name) => (path(&name.ident), Some(name.rename.to_string())),
        };
        let path = self.absolute(&written);
        if let Some(alias) = alias.or_else(|| path.last().cloned()) {
            self.imports.insert(alias, path.clone());
        }
        if !exported {
            self.named.insert(path);
        }
    }
}

fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    let is_test = |attribute: &syn::Attribute| attribute.parse_args::<syn::Ident>().is_ok_and(|word| word == "test");
    attributes.iter().any(|attribute| attribute.path().is_ident("cfg") && is_test(attribute))
}

impl Visit<'_> for Module {
    fn visit_item_mod(&mut self, item: &syn::ItemMod) {
        self.declared.insert(item.ident.to_string());
        if item.content.is_some() && !is_for_tests(&item.attrs) {
            self.here.push(item.ident.to_string());
            visit::visit_item_mod(self, item);
            self.here.pop();
        }
    }

    fn visit_item_use(&mut self, item: &syn::ItemUse) {
        if !is_for_tests(&item.attrs) {
            self.import(&[], &item.tree, !matches!(item.vis, syn::Visibility::Inherited));
        }
    }

    fn visit_path(&mut self, path: &syn::Path) {
        let written: Names = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.named.insert(self.absolute(&written));
        visit::visit_path(self, path);
    }

    /// The arguments need not be Rust: whatever looks like a path outside of a string counts.
    fn visit_macro(&mut self, called: &syn::Macro) {
        let tokens = called.tokens.to_string().replace("\\\"", "").replace(" :: ", "::");
        for code in tokens.split('"').step_by(2) {
            for path in code.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')) {
                let written: Names = path.split("::").map(str::to_owned).collect();
                self.named.insert(self.absolute(&written));
            }
        }
    }
}

/// The file that defines what a path names, and the name. `None` for a module, and for items of other crates.
fn definition(modules: &BTreeMap<Names, Module>, path: &[String], depth: u32) -> Option<(Names, String)> {
    let file = (0..=path.len()).rev().find(|&end| modules.contains_key(&path[..end]))?;
    let (here, (name, rest)) = (&path[..file], path[file..].split_first()?);
    match modules[here].imports.get(name) {
        // A name without a definition in this crate is imported from another one.
        Some(target) if depth > 0 => {
            definition(modules, &[target, rest].concat(), depth - 1).filter(|(found, _)| found != here)
        }
        // A module that was not read: that of another crate, or inside of the file.
        None if modules[here].declared.contains(name) => None,
        Some(_) | None => Some((here.to_vec(), name.clone())),
    }
}

/// The dependencies between files that depend on themselves.
fn cycles(modules: &BTreeMap<Names, Module>) -> Vec<String> {
    let mut uses = BTreeSet::new();
    for (file, module) in modules {
        let found = module.named.iter().filter_map(|path| definition(modules, path, 8));
        uses.extend(found.filter(|(used, _)| used != file).map(|(used, name)| (file.clone(), used, name)));
    }
    let mut direct: BTreeMap<&Names, BTreeSet<&Names>> = BTreeMap::new();
    for (from, to, _) in &uses {
        direct.entry(from).or_default().insert(to);
    }
    let reached = |from| {
        let (mut found, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(next) = open.pop() {
            open.extend(direct.get(next).into_iter().flatten().filter(|to| found.insert(**to)));
        }
        found
    };
    let reached: BTreeMap<_, _> = direct.keys().map(|&from| (from, reached(from))).collect();
    let circular = uses.iter().filter(|(from, to, _)| reached.get(to).is_some_and(|found| found.contains(from)));
    circular.map(|(from, to, name)| format!("{} uses {name} of {}", from.join("/"), to.join("/"))).collect()
}

#[test]
fn a_cycle_is_found_through_re_exports_and_however_files_name_one_another() {
    let found = |files: &[(&str, &str)]| {
        let names = |path: &str| path.split('/').filter(|name| *name != "lib").map(str::to_owned).collect::<Names>();
        let module = |(path, text): &(&str, &str)| (names(path), parse(names(path), text));
        cycles(&files.iter().map(module).collect())
    };
    let (lib, c) = (("lib", "mod a; mod b; mod c; pub use c::{d::D, C};"), ("c", "mod d; pub use crate::a::C;"));
    let (b, d) =
        (("b", "pub struct B(crate::D, other::O);"), ("c/d", "pub use other::O; use super::C; pub struct D(C);"));
    for a in ["use crate::b::B;", "fn f(b: crate::b::B) {}", "f!(crate::b::B);", "use crate::b::{self}; f!(b::B);"] {
        let expected = ["a uses B of b", "b uses D of c/d", "c/d uses C of a"];
        assert_eq!(found(&[lib, ("a", a), b, c, d]), expected, "{a}");
    }
    // Re-exports, documentation, strings and tests do not count.
    for a in [
        "pub use crate::b::B;",
        "/// [`crate::b::B`]\nstruct A;",
        "f! { /// A \"crate::b::B\".\n \"crate::b::B\" }",
        "#[cfg(test)] use crate::b::B;",
        "#[cfg(test)] mod tests { use crate::b::B; }",
    ] {
        assert!(found(&[lib, ("a", a), b, c, d]).is_empty(), "{a}");
    }
}
