//! Checks that no type, trait or public function has a name that was replaced by a term of RDMA, Rust or networking,
//! and no member of certain types.

#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "a test")]

use std::path::Path;
use std::process::Command;

use syn::visit::{self, Visit};

/// Types and traits.
const TYPES: &[&str] = &[
    "About",
    "Alarm",
    "Alarms",
    "Answered",
    "Around",
    "Ask",
    "Asked",
    "Asking",
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
const FUNCTIONS: &[&str] = &[
    "arrive",
    "disown",
    "hear",
    "home",
    "is_littered",
    "line",
    "littered",
    "lose",
    "moved",
    "news",
    "place",
    "relocate",
    "rows",
    "settle",
    "start_move",
    "strike",
    "sweep",
    "tape",
    "told",
    "transfer",
];

/// Members that only these types and traits do not have: functions of any visibility, constants, fields, variants.
const MEMBERS: &[(&str, &[&str])] = &[
    ("Core", &["arrive", "moved", "place", "relocate", "start_move", "transfer"]),
    ("Device", &["LISTENS", "hear"]),
    ("Id", &["home", "line"]),
    ("Mio", &["before_poll"]),
    ("Next", &["Look", "More", "Until"]),
    ("State", &["Answered", "Asked", "Asking"]),
    ("Step", &["Look"]),
];

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

    fn members<'a>(&mut self, of: &syn::Ident, names: impl Iterator<Item = &'a syn::Ident>) {
        if let Some((_, replaced)) = MEMBERS.iter().find(|(name, _)| of == name) {
            names.for_each(|name| self.name(name, replaced));
        }
    }
}

impl Visit<'_> for Definitions {
    fn visit_item_struct(&mut self, item: &syn::ItemStruct) {
        self.name(&item.ident, TYPES);
        self.members(&item.ident, item.fields.iter().filter_map(|field| field.ident.as_ref()));
    }
    fn visit_item_enum(&mut self, item: &syn::ItemEnum) {
        self.name(&item.ident, TYPES);
        self.members(&item.ident, item.variants.iter().map(|variant| &variant.ident));
    }
    fn visit_item_type(&mut self, item: &syn::ItemType) {
        self.name(&item.ident, TYPES);
    }
    fn visit_item_trait(&mut self, item: &syn::ItemTrait) {
        self.name(&item.ident, TYPES);
        for member in &item.items {
            match member {
                syn::TraitItem::Fn(function) => self.name(&function.sig.ident, FUNCTIONS),
                syn::TraitItem::Const(constant) => self.members(&item.ident, [&constant.ident].into_iter()),
                _ => {}
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
    fn visit_item_impl(&mut self, item: &syn::ItemImpl) {
        let of = if let syn::Type::Path(of) = &*item.self_ty { of.path.segments.last() } else { None };
        if let Some(of) = of {
            let functions = item.items.iter().filter_map(|item| match item {
                syn::ImplItem::Fn(function) => Some(&function.sig.ident),
                _ => None,
            });
            self.members(&of.ident, functions);
        }
        visit::visit_item_impl(self, item);
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

#[test]
fn each_kind_of_name_is_checked() {
    let found = |code: &str| {
        let mut definitions = Definitions::default();
        definitions.visit_file(&syn::parse_str(code).unwrap());
        definitions.replaced
    };
    for (code, name) in [
        ("struct Mail;", "Mail"),
        ("mod a { enum Rest {} }", "Rest"),
        ("trait Tell {}", "Tell"),
        ("type Why = ();", "Why"),
        ("pub fn settle() {}", "settle"),
        ("impl A { pub fn hear(&self) {} }", "hear"),
        ("trait A { fn lose(&self); }", "lose"),
        ("trait Device { const LISTENS: bool; }", "LISTENS"),
        ("enum State { Asking }", "Asking"),
        ("struct Id { home: u8 }", "home"),
        ("impl<D> super::Mio<D> { fn before_poll(&self) {} }", "before_poll"),
    ] {
        assert_eq!(found(code), [name], "{code}");
    }
    // Other types may have such a function, and private functions any name.
    assert!(found("impl Epoll { pub fn timeout(&self) {} }\nfn settle() {}\nstruct A { home: u8 }").is_empty());
}
