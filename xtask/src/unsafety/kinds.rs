//! Kinds of unsafe code, by what is done there. What is done decides what has to be argued.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::scan::{Form, Place};

/// In the order of the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Threads,
    Makes,
    Uses,
    Ends,
    Looks,
    Memory,
    Values,
    Descriptors,
    Promises,
    Kept,
    Errno,
}

/// What a provider or a loader handed out, by the names that they have in the source.
const PROVIDERS: [&str; 8] =
    ["alloc", "dealloc", "poll", "request_notification", "post_send", "post_send_to", "post_recv", "real"];

/// Functions of `core` that go by an address.
const BY_ADDRESS: [&str; 10] = [
    "copy_nonoverlapping",
    "copy_to_nonoverlapping",
    "from_raw_parts",
    "from_raw_parts_mut",
    "from_ptr",
    "read",
    "read_volatile",
    "write",
    "add",
    "transmute",
];

impl Kind {
    /// The kind of a place, in a crate in which these functions ask something of their callers.
    pub(super) fn of(place: &Place, promising: &[&str]) -> Result<Self> {
        match place.form {
            Form::Impl => return Ok(Kind::Threads),
            Form::Function => return Ok(Kind::Promises),
            Form::Block => {}
        }
        let seen = Seen::of(&place.tokens);
        let foreign: Vec<&str> = seen.foreign(promising).collect();
        if !foreign.is_empty() {
            let any = |parts: &[&str]| foreign.iter().any(|name| parts.iter().any(|part| name.contains(part)));
            return Ok(if any(&["destroy", "dealloc", "dereg", "free", "rdma_ack_cm_event"]) {
                Kind::Ends
            } else if any(&["create", "alloc", "reg_mr_iova2", "get_devices", "rdma_getaddrinfo"]) {
                Kind::Makes
            } else {
                Kind::Uses
            });
        }
        let calls = |names: &[&str]| names.iter().any(|name| seen.calls.contains(*name));
        Ok(if seen.errno {
            Kind::Errno
        } else if calls(promising) {
            Kind::Kept
        } else if calls(&["borrow_raw"]) {
            Kind::Descriptors
        } else if calls(&["assume_init", "zeroed"]) || seen.fields.iter().any(|field| UNIONS.contains(&field.as_str()))
        {
            Kind::Values
        } else if calls(&BY_ADDRESS) {
            Kind::Memory
        } else if seen.follows || calls(&["as_ref", "as_mut"]) {
            Kind::Looks
        } else {
            bail!("{} {}: of no known kind (xtask/src/unsafety/kinds.rs)", place.file.display(), place.name);
        })
    }

    pub(super) const fn title(self) -> &'static str {
        match self {
            Kind::Threads => "What may change threads",
            Kind::Makes => "Calls that make something",
            Kind::Uses => "Calls that use something",
            Kind::Ends => "Calls that end something",
            Kind::Looks => "Fields of the libraries' objects",
            Kind::Memory => "Reading and writing by address",
            Kind::Values => "Zeros and unions",
            Kind::Descriptors => "Descriptors",
            Kind::Promises => "Functions that ask something of their callers",
            Kind::Kept => "Their callers",
            Kind::Errno => "The thread's errno",
        }
    }

    pub(super) const fn obligation(self) -> &'static str {
        match self {
            Kind::Threads => {
                "That no library ties the object to a thread; and for `Sync`, that nothing which a shared reference allows writes \
                 to what another thread reads. `verbs/src/lib.rs` lists who is Send and Sync, and does not compile otherwise; \
                 examples of `Mr` show which races do not compile."
            }
            Kind::Makes => {
                "That what the call is given is alive, that results have a place, and that what is made holds, by `Arc` or by \
                 the order of fields, whatever it stands on. Null is an error, and so never a pointer that is kept."
            }
            Kind::Uses => {
                "That the object is alive (its owner is borrowed), that all it leads the library to is alive, that arguments \
                 live during the call and are as long as they say, and that at most one thread is in a call on an id."
            }
            Kind::Ends => {
                "That it was made by the matching call, is ended once (its owner is consumed, or is being dropped), that nothing \
                 refers to it any more, and that the call has nothing to wait for. What cannot be ended is leaked, not used."
            }
            Kind::Looks => {
                "That the object is alive, and that nobody writes to the field meanwhile: the libraries do so only in calls that \
                 take the owner by `&mut`."
            }
            Kind::Memory => {
                "That so many bytes are there, initialised where they are read, that nobody writes to them meanwhile, or all do \
                 by atomics, and that they are freed once, by whoever allocated them. What a device or a provider may write to is \
                 never behind a reference."
            }
            Kind::Values => {
                "That zeros, or whatever bits are there, are a value of the type: integers, arrays of them, raw pointers."
            }
            Kind::Descriptors => "That it is open for as long as it is borrowed, and is not −1.",
            Kind::Promises => "What they ask for is promised in the next list.",
            Kind::Kept => "What the function asks for.",
            Kind::Errno => "That it is there: each thread has its own.",
        }
    }
}

/// Unions of the bindings, by the fields that are of them.
const UNIONS: [&str; 4] = ["dgid", "dst_addr_union", "param", "src_addr_union"];

/// Our own fields, by which the libraries' objects are reached.
const OWN_FIELDS: [&str; 3] = ["channel", "inner", "raw"];

/// In a few words, what is done there.
pub(super) fn what(place: &Place, promising: &[&str]) -> String {
    match place.form {
        Form::Impl | Form::Function => return String::new(),
        Form::Block => {}
    }
    let seen = Seen::of(&place.tokens);
    let mut names: Vec<String> = seen.foreign(promising).map(str::to_owned).collect();
    if names.is_empty() {
        let own = |name: &&String| promising.contains(&name.as_str());
        names = seen.calls.iter().filter(own).cloned().collect();
    }
    if names.is_empty() {
        let by_address = |name: &&String| BY_ADDRESS.contains(&name.as_str());
        names = seen.calls.iter().filter(by_address).cloned().collect();
    }
    if names.is_empty() {
        names = seen.fields.into_iter().filter(|name| !OWN_FIELDS.contains(&name.as_str())).collect();
    }
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// What occurs in a block.
#[derive(Debug, Default)]
struct Seen {
    /// The functions of C libraries that are called by path.
    libraries: BTreeSet<String>,
    /// The last names of all that is called.
    calls: BTreeSet<String>,
    /// What comes after a dot and is not called.
    fields: BTreeSet<String>,
    /// A pointer is followed.
    follows: bool,
    errno: bool,
}

impl Seen {
    fn of(tokens: &TokenStream) -> Self {
        let mut seen = Seen::default();
        seen.walk(tokens.clone());
        seen
    }

    fn walk(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mark = |at: usize, wanted: char| matches!(tokens.get(at), Some(TokenTree::Punct(mark)) if mark.as_char() == wanted);
        for (at, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Ident(name) => {
                    let name = name.to_string();
                    let turbofish = mark(at + 1, ':') && mark(at + 2, ':') && mark(at + 3, '<');
                    let called = turbofish || parenthesis(tokens.get(at + 1)).is_some();
                    let by_path = at >= 3 && mark(at - 1, ':') && mark(at - 2, ':');
                    let of_library = by_path
                        && matches!(&tokens[at - 3], TokenTree::Ident(first) if first == "ffi" || first == "libc");
                    if name == "__errno_location" {
                        self.errno = true;
                    } else if called && of_library {
                        self.libraries.insert(name);
                    } else if called {
                        self.calls.insert(name);
                    } else if at >= 1 && mark(at - 1, '.') {
                        self.fields.insert(name);
                    }
                }
                // `*pointer`, which is not `&raw mut *x` of a type, nor a product: nothing is multiplied here.
                TokenTree::Punct(star) if star.as_char() == '*' => {
                    let of_type =
                        matches!(tokens.get(at + 1), Some(TokenTree::Ident(word)) if word == "mut" || word == "const");
                    self.follows |= !of_type;
                }
                TokenTree::Group(group) => {
                    // A function that is a field: `(object.field)(arguments)`.
                    if let (Some(callee), true) = (parenthesis(Some(token)), parenthesis(tokens.get(at + 1)).is_some())
                        && let Some(TokenTree::Ident(field)) = callee.into_iter().last()
                    {
                        self.calls.insert(field.to_string());
                    }
                    self.walk(group.stream());
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
    }

    fn foreign<'a>(&'a self, promising: &'a [&str]) -> impl Iterator<Item = &'a str> {
        let provided = |name: &&String| PROVIDERS.contains(&name.as_str()) && !promising.contains(&name.as_str());
        self.libraries.iter().chain(self.calls.iter().filter(provided)).map(String::as_str)
    }
}

fn parenthesis(token: Option<&TokenTree>) -> Option<TokenStream> {
    match token {
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis => Some(group.stream()),
        _ => None,
    }
}
