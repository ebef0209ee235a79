//! Import cycles: no file of a product crate depends on itself, directly or through other files.
//!
//! A file depends on another one if it names an item that the other one defines: in a `use` that is not a re-export, in a path, or in
//! the arguments of a macro. Imports and re-exports are followed to the definition. So `mod.rs` and `lib.rs` may declare and re-export
//! their children, and a child depends on its parent only if the parent's own file defines what the child names.
//! Not counted: `mod` declarations, paths that name only a module, method calls, documentation, test code.

use crate::context::Context;
use anyhow::{Context as _, Result, ensure};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};
use syn::visit::{self, Visit};

/// The folders of the crates that applications depend on.
const PRODUCT: &[&str] = &["proto", "sim", "verbs", "trace", "io-mio", "io-epoll", "io-blocking"];

/// The segments of a path, from the root of the crate.
type Names = Vec<String>;

/// The modules of a crate that have a file of their own, by path.
type Modules = BTreeMap<Names, Module>;

/// One file, with the modules inside of it.
#[derive(Default)]
struct Module {
    /// The module that is being read: that of the file, or one inside of it.
    here: Names,
    /// What `use` brings in, by its name here.
    imports: BTreeMap<String, Names>,
    /// The paths in its code.
    named: BTreeSet<Names>,
}

/// Fails if a product crate has a cycle, and lists the dependencies that make it up.
pub(crate) fn check(context: &mut Context) -> Result<()> {
    let mut found = String::new();
    for name in PRODUCT {
        let mut modules = Modules::new();
        read(&context.root.join(name).join("src"), &[], &mut modules)?;
        ensure!(modules.len() > 1, "{name} has no modules");
        for cycle in cycles(&modules) {
            found += &format!("\n{name}, {} files:\n  {}", cycle.files, cycle.dependencies.join("\n  "));
        }
    }
    ensure!(found.is_empty(), "files depend on themselves{found}");
    Ok(())
}

/// Reads the files of a module's folder.
fn read(folder: &Path, module: &[String], into: &mut Modules) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let stem = path.file_stem().and_then(|stem| stem.to_str()).context("a file name")?.to_owned();
        let here = if matches!(&*stem, "lib" | "mod") {
            module.to_vec()
        } else {
            [module, std::slice::from_ref(&stem)].concat()
        };
        if path.is_dir() {
            read(&path, &here, into)?;
        } else if stem != "tests" && !stem.ends_with("_tests") {
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

    /// A path as written, from the root of the crate. One that starts with none of `crate`, `self`, `super` starts in this module.
    fn absolute(&self, written: &[String]) -> Names {
        let (mut base, mut rest) = (self.here.clone(), written);
        while let [first, others @ ..] = rest {
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

    fn import(&mut self, prefix: &[String], tree: &syn::UseTree, exported: bool) {
        let (name, alias) = match tree {
            syn::UseTree::Path(path) => {
                return self.import(&[prefix, &[path.ident.to_string()]].concat(), &path.tree, exported);
            }
            syn::UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.import(prefix, tree, exported));
            }
            syn::UseTree::Glob(_) => ("*".to_owned(), "*".to_owned()),
            syn::UseTree::Name(name) => (name.ident.to_string(), name.ident.to_string()),
            syn::UseTree::Rename(rename) => (rename.ident.to_string(), rename.rename.to_string()),
        };
        // `use a::{self, B}` imports the module `a`.
        let (mut path, mut alias) = (self.absolute(&[prefix, &[name]].concat()), alias);
        if path.last().is_some_and(|last| last == "self") {
            path.pop();
            alias = path.last().filter(|_| alias == "self").cloned().unwrap_or(alias);
        }
        if !exported {
            self.named.insert(path.clone());
        }
        self.imports.insert(alias, path);
    }
}

fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    let is_test = |attribute: &syn::Attribute| attribute.parse_args::<syn::Ident>().is_ok_and(|word| word == "test");
    attributes.iter().any(|attribute| attribute.path().is_ident("cfg") && is_test(attribute))
}

impl Visit<'_> for Module {
    fn visit_item_mod(&mut self, item: &syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            self.here.push(item.ident.to_string());
            visit::visit_item_mod(self, item);
            self.here.pop();
        }
    }

    fn visit_item_use(&mut self, item: &syn::ItemUse) {
        if item.leading_colon.is_none() && !is_for_tests(&item.attrs) {
            self.import(&[], &item.tree, !matches!(item.vis, syn::Visibility::Inherited));
        }
    }

    fn visit_path(&mut self, path: &syn::Path) {
        let written: Names = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.named.insert(self.absolute(&written));
        visit::visit_path(self, path);
    }

    /// Its arguments need not be Rust: whatever looks like a path outside of a string counts.
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

/// The file that defines what a path names, and the name; none for a module, and for what is not of this crate.
fn definition(modules: &Modules, path: &[String], depth: u32) -> Option<(Names, String)> {
    let file = (0..=path.len()).rev().find(|&end| modules.contains_key(&path[..end]))?;
    let (name, rest) = path[file..].split_first()?;
    let here = &path[..file];
    match modules[here].imports.get(name) {
        // What leads nowhere else is imported from another crate.
        Some(target) if depth > 0 => {
            definition(modules, &[target, rest].concat(), depth - 1).filter(|(found, _)| found != here)
        }
        Some(_) | None => Some((here.to_vec(), name.clone())),
    }
}

/// Files that all depend on one another.
struct Cycle {
    files: usize,
    /// Which file uses what of which other one.
    dependencies: Vec<String>,
}

fn cycles(modules: &Modules) -> Vec<Cycle> {
    let uses = |(file, module): (&Names, &Module)| {
        let defined = module.named.iter().filter_map(|path| definition(modules, path, 8));
        (file.clone(), defined.filter(|(used, _)| used != file).collect::<BTreeSet<_>>())
    };
    let uses: BTreeMap<Names, _> = modules.iter().map(uses).collect();
    let mut reached: BTreeMap<&Names, BTreeSet<&Names>> =
        uses.iter().map(|(file, used)| (file, used.iter().map(|(used, _)| used).collect())).collect();
    for through in modules.keys() {
        let further = reached[through].clone();
        for set in reached.values_mut().filter(|set| set.contains(through)) {
            set.extend(&further);
        }
    }
    let cycle_of = |file: &Names| -> BTreeSet<&Names> {
        modules.keys().filter(|&other| reached[file].contains(other) && reached[other].contains(file)).collect()
    };
    let cycles: BTreeSet<_> = modules.keys().map(cycle_of).filter(|files| !files.is_empty()).collect();
    let within = |files: BTreeSet<&Names>| {
        let all = files.iter().flat_map(|&from| uses[from].iter().map(move |(to, name)| (from, to, name)));
        let inside = all.filter(|(_, to, _)| files.contains(to));
        let dependencies = inside.map(|(from, to, name)| format!("{} uses {name} of {}", show(from), show(to)));
        Cycle { files: files.len(), dependencies: dependencies.collect() }
    };
    cycles.into_iter().map(within).collect()
}

fn show(file: &[String]) -> String {
    if file.is_empty() { "lib".to_owned() } else { file.join("/") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The dependencies in the cycles of a crate with these files.
    fn found(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let names = |path: &str| path.split('/').filter(|name| *name != "lib").map(str::to_owned).collect::<Names>();
        let module = |(path, text): &(&str, &str)| (names(path), Module::parse(names(path), text).unwrap());
        cycles(&files.iter().map(module).collect()).into_iter().map(|cycle| cycle.dependencies).collect()
    }

    #[test]
    fn a_cycle_is_found_however_the_files_name_one_another() {
        let lib = ("lib", "mod a; mod b; mod c; pub use c::{d::D, C};");
        let d = ("c/d", "use super::C; pub struct D(C);");
        for a in [
            "use crate::b::{self}; fn f(b: b::B) {}",
            "use crate::b::B; fn f() { g!(B) }",
            "fn f(b: crate::b::B) {}",
            "fn f() { g!(crate::b::B) }",
        ] {
            let files =
                [lib, ("a", a), ("b", "pub struct B(crate::D);"), ("c", "pub(crate) mod d; pub use crate::a::C;"), d];
            assert_eq!(found(&files), [["a uses B of b", "b uses D of c/d", "c/d uses C of a"]], "{a}");
        }
    }

    #[test]
    fn a_child_may_use_what_its_parent_re_exports() {
        let lib = ("lib", "mod a; pub use a::{A, B};");
        let a = "mod x; mod y; pub use x::A; pub use y::B;";
        let (x, y) = (("a/x", "pub struct A;"), ("a/y", "use super::A; pub struct B(A, crate::a::A);"));
        assert_eq!(found(&[lib, ("a", a), x, y]), [[""; 0]; 0]);
        let helper = ("a/y", "use super::{A, help}; pub struct B(A);");
        assert_eq!(found(&[lib, ("a", &format!("{a} fn help() {{}}")), x, helper]), [[""; 0]; 0]);
        let both = [["a uses f of a/y", "a/y uses help of a"]];
        assert_eq!(found(&[lib, ("a", &format!("{a} fn help() {{ y::f() }}")), x, helper]), both);
    }

    #[test]
    fn what_is_of_another_crate_does_not_count() {
        let files = [
            ("lib", "mod a;"),
            ("a", "mod b; pub use other::Other; use b::B;"),
            ("a/b", "pub struct B(super::Other);"),
        ];
        assert_eq!(found(&files), [[""; 0]; 0]);
    }

    #[test]
    fn documentation_tests_and_strings_do_not_count() {
        let b = ("b", "pub struct B; #[cfg(test)] mod tests { use crate::a::A; } #[cfg(test)] use crate::a::A;");
        let a = ("a", "/// See [`crate::b::B`].\npub struct A(crate::b::B);");
        assert_eq!(found(&[("lib", "mod a; mod b;"), a, b]), [[""; 0]; 0]);
        let words = ("b", "pub struct B; f! { /// A \"quoted\" `crate::a::A`.\n struct C; \"crate::a::A\" }");
        assert_eq!(found(&[("lib", "mod a; mod b;"), a, words]), [[""; 0]; 0]);
    }
}
