//! Checks that no type, trait or public function has a name that was replaced by a term of RDMA, Rust or networking.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::Path;
use std::process::Command;

use syn::visit::{self, Visit};

/// Types and traits.
const TYPES: &[&str] = &[
    "About",
    "Alarm",
    "Alarms",
    "Around",
    "Ask",
    "Awaited",
    "Belief",
    "Bench",
    "Books",
    "Carrier",
    "Doing",
    "Enclosed",
    "Enclosure",
    "Fact",
    "Flights",
    "Heard",
    "Lab",
    "Law",
    "LetGo",
    "Letter",
    "Loose",
    "Lot",
    "Mail",
    "Mint",
    "Mourner",
    "NotAdopted",
    "Picture",
    "Place",
    "Quiesce",
    "Receipt",
    "Reel",
    "Rest",
    "Say",
    "Seat",
    "Seating",
    "Seats",
    "Spy",
    "Stage",
    "Station",
    "Subject",
    "Tell",
    "Thread",
    "Track",
    "Verb",
    "Voice",
    "Waiting",
    "Watched",
    "Who",
    "Why",
    "Willing",
    "Wire",
];

/// Public functions.
const FUNCTIONS: &[&str] =
    &["disown", "hear", "home", "is_littered", "line", "lose", "news", "settle", "strike", "sweep", "told"];

#[derive(Default)]
struct Definitions {
    replaced: Vec<String>,
    seen: usize,
}

impl Definitions {
    fn name(&mut self, name: &syn::Ident, replaced: &[&str]) {
        self.seen += 1;
        if replaced.contains(&name.to_string().as_str()) {
            self.replaced.push(name.to_string());
        }
    }
}

impl Visit<'_> for Definitions {
    fn visit_item_struct(&mut self, item: &syn::ItemStruct) {
        self.name(&item.ident, TYPES);
    }
    fn visit_item_enum(&mut self, item: &syn::ItemEnum) {
        self.name(&item.ident, TYPES);
    }
    fn visit_item_type(&mut self, item: &syn::ItemType) {
        self.name(&item.ident, TYPES);
    }
    fn visit_item_trait(&mut self, item: &syn::ItemTrait) {
        self.name(&item.ident, TYPES);
        for item in &item.items {
            if let syn::TraitItem::Fn(function) = item {
                self.name(&function.sig.ident, FUNCTIONS);
            }
        }
        visit::visit_item_trait(self, item);
    }
    fn visit_item_fn(&mut self, item: &syn::ItemFn) {
        if matches!(item.vis, syn::Visibility::Public(_)) {
            self.name(&item.sig.ident, FUNCTIONS);
        }
        visit::visit_item_fn(self, item);
    }
    fn visit_impl_item_fn(&mut self, item: &syn::ImplItemFn) {
        if matches!(item.vis, syn::Visibility::Public(_)) {
            self.name(&item.sig.ident, FUNCTIONS);
        }
        visit::visit_impl_item_fn(self, item);
    }
}

#[test]
fn names_are_terms_of_the_field() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let listed = Command::new("git").args(["ls-files", "*.rs"]).current_dir(&root).output().unwrap();
    let mut seen = 0;
    for file in String::from_utf8(listed.stdout).unwrap().lines() {
        let mut definitions = Definitions::default();
        definitions.visit_file(&syn::parse_file(&std::fs::read_to_string(root.join(file)).unwrap()).unwrap());
        assert!(definitions.replaced.is_empty(), "{file}: {}", definitions.replaced.join(", "));
        seen += definitions.seen;
    }
    assert!(seen > 1000, "{seen} names");
}
