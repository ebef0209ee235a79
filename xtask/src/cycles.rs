//! No file of a product crate uses an item of a file that uses one of its own, directly or through further files.
//!
//! A file uses another where a path, or a `use` that is not a re-export, names an item that the other defines. Where the item is
//! defined decides: imports and re-exports (`crate::Core`, `super::Core`) are followed to the definition. So `mod.rs` and `lib.rs`
//! may declare and re-export their children, and a child uses its parent only if it names what the parent's own file defines.
//! `mod` declarations, paths that name only a module, method calls, and test code do not count.

use crate::context::Context;
use anyhow::{Context as _, Result, ensure};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};
use syn::visit::{self, Visit};

/// The crates of this workspace that applications depend on.
const PRODUCT: &[&str] = &["proto", "sim", "verbs", "trace", "io-mio", "io-epoll", "io-blocking"];

/// The segments of a path from the root of the crate.
type Names = Vec<String>;

/// The modules of a crate that have a file, by their path.
type Modules = BTreeMap<Names, Module>;

/// What one file says. Modules inside of it are part of it.
#[derive(Default)]
struct Module {
    /// The path of the module that is being read: this one, or one inside of it.
    here: Names,
    /// What `use` brings in, by the name that it has here.
    imports: BTreeMap<String, Names>,
    /// The paths that are named.
    named: BTreeSet<Names>,
}

/// No product crate has a cycle; names all files of those that there are.
pub(crate) fn check(context: &mut Context) -> Result<()> {
    let mut found = Vec::new();
    for name in PRODUCT {
        let mut modules = Modules::new();
        read(&context.root.join(name).join("src"), &Names::new(), &mut modules)?;
        ensure!(modules.len() > 1, "{name} has no modules");
        found.extend(cycles(&modules).iter().map(|cycle| format!("{name}: {cycle}")));
    }
    ensure!(found.is_empty(), "files that use one another in a circle:\n{}", found.join("\n"));
    Ok(())
}

/// Reads the files of a module's folder.
fn read(folder: &Path, module: &[String], into: &mut Modules) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let stem = path.file_stem().and_then(|stem| stem.to_str()).context("a file without a name")?.to_owned();
        let child = [module, std::slice::from_ref(&stem)].concat();
        if path.is_dir() {
            read(&path, &child, into)?;
        } else if stem != "tests" && !stem.ends_with("_tests") {
            let here = if matches!(&*stem, "lib" | "mod") { module.to_vec() } else { child };
            let text = fs::read_to_string(&path)?;
            into.insert(here.clone(), Module::parse(here, &text).with_context(|| path.display().to_string())?);
        }
    }
    Ok(())
}

impl Module {
    fn parse(here: Names, text: &str) -> syn::Result<Self> {
        let mut module = Module { here, ..Module::default() };
        module.visit_file(&syn::parse_file(text)?);
        Ok(module)
    }

    /// A path as it is written, from the root; one that begins with neither `crate`, `self` nor `super` begins in this module.
    fn absolute(&self, written: &[String]) -> Names {
        let (mut base, mut rest) = (self.here.clone(), written);
        while let Some((first, others)) = rest.split_first() {
            match first.as_str() {
                "crate" => base.clear(),
                "self" => {}
                "super" => drop(base.pop()),
                _ => break,
            }
            rest = others;
        }
        [&base, rest].concat()
    }

    fn import(&mut self, before: &[String], tree: &syn::UseTree, exported: bool) {
        let (name, alias) = match tree {
            syn::UseTree::Path(path) => {
                return self.import(&[before, &[path.ident.to_string()]].concat(), &path.tree, exported);
            }
            syn::UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.import(before, tree, exported));
            }
            syn::UseTree::Glob(_) => ("*".to_owned(), "*".to_owned()),
            syn::UseTree::Name(name) => (name.ident.to_string(), name.ident.to_string()),
            syn::UseTree::Rename(rename) => (rename.ident.to_string(), rename.rename.to_string()),
        };
        let path = self.absolute(&[before, &[name]].concat());
        if !exported {
            self.named.insert(path.clone());
        }
        self.imports.insert(alias, path);
    }
}

fn for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg") && attribute.parse_args::<syn::Ident>().is_ok_and(|word| word == "test")
    })
}

impl Visit<'_> for Module {
    fn visit_item_mod(&mut self, item: &syn::ItemMod) {
        if !for_tests(&item.attrs) {
            self.here.push(item.ident.to_string());
            visit::visit_item_mod(self, item);
            self.here.pop();
        }
    }

    fn visit_item_use(&mut self, item: &syn::ItemUse) {
        if item.leading_colon.is_none() && !for_tests(&item.attrs) {
            self.import(&[], &item.tree, !matches!(item.vis, syn::Visibility::Inherited));
        }
    }

    fn visit_path(&mut self, path: &syn::Path) {
        let written: Names = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.named.insert(self.absolute(&written));
        visit::visit_path(self, path);
    }

    /// What is in it need not be Rust: whatever looks like a path counts.
    fn visit_macro(&mut self, called: &syn::Macro) {
        let tokens = called.tokens.to_string().replace(" :: ", "::");
        for path in tokens.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')) {
            let written: Names = path.split("::").map(str::to_owned).collect();
            self.named.insert(self.absolute(&written));
        }
        visit::visit_macro(self, called);
    }
}

/// The file that defines what a path names, and the name; none if it names a module, or nothing of this crate.
fn definition(modules: &Modules, path: &[String], depth: u32) -> Option<(Names, String)> {
    let file = (0..=path.len()).rev().find(|&end| modules.contains_key(&path[..end]))?;
    let (name, rest) = path[file..].split_first()?;
    match modules[&path[..file]].imports.get(name) {
        Some(target) if depth > 0 => definition(modules, &[target, rest].concat(), depth - 1),
        Some(_) | None => Some((path[..file].to_vec(), name.clone())),
    }
}

/// The sets of files that reach one another, each as its files and what they name of one another.
fn cycles(modules: &Modules) -> Vec<String> {
    let uses = |file: &Names| -> BTreeSet<(Names, String)> {
        let found = modules[file].named.iter().filter_map(|path| definition(modules, path, 8));
        found.filter(|(used, _)| used != file).collect()
    };
    let used: BTreeMap<_, _> = modules.keys().map(|file| (file, uses(file))).collect();
    let names = |(file, _): &(Names, String)| file.clone();
    let mut reached: BTreeMap<_, BTreeSet<_>> =
        used.iter().map(|(file, uses)| (*file, uses.iter().map(names).collect())).collect();
    for through in modules.keys() {
        let further = reached[through].clone();
        for set in reached.values_mut().filter(|set| set.contains(through)) {
            set.extend(further.iter().cloned());
        }
    }
    let circle = |file: &Names| -> BTreeSet<&Names> {
        modules.keys().filter(|other| reached[file].contains(*other) && reached[other].contains(file)).collect()
    };
    let circles: BTreeSet<_> = modules.keys().map(circle).filter(|files| !files.is_empty()).collect();
    let edges = |files: &BTreeSet<&Names>, from: &Names| -> String {
        let inside = used[from].iter().filter(|(to, _)| files.contains(to));
        inside.map(|(to, name)| format!("  {} uses {name} of {}\n", shown(from), shown(to))).collect()
    };
    let told = |files: BTreeSet<&Names>| {
        format!("{} files\n{}", files.len(), files.iter().map(|from| edges(&files, from)).collect::<String>())
    };
    circles.into_iter().map(told).collect()
}

fn shown(file: &[String]) -> String {
    if file.is_empty() { "lib".to_owned() } else { file.join("/") }
}
