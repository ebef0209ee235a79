//! Finds what is unsafe in a source file, and the argument beside it.
//!
//! It goes by tokens, so nothing that is a comment or a text is taken for code, and what stands inside a macro is found too.

use std::path::{Path, PathBuf};
use std::str::FromStr as _;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// What kind of thing is unsafe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Block,
    Impl,
    Function,
}

/// Something unsafe.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) file: PathBuf,
    pub(super) form: Form,
    /// The function that a block is in, the function itself, or the trait and the type.
    pub(super) name: String,
    pub(super) in_test: bool,
    /// What is in the block.
    pub(super) tokens: TokenStream,
    pub(super) argument: String,
}

/// Everything unsafe in a file, in its order.
pub(super) fn scan(file: &Path, text: &str) -> Result<Vec<Place>> {
    let tokens = TokenStream::from_str(text).map_err(|error| anyhow!("no Rust: {error}"))?;
    let mut scan = Scan { file, lines: text.lines().collect(), found: Vec::new() };
    scan.walk(tokens, &Inside::default())?;
    Ok(scan.found)
}

/// Where the walk is.
#[derive(Clone, Debug, Default)]
struct Inside {
    function: String,
    test: bool,
}

struct Scan<'a> {
    file: &'a Path,
    lines: Vec<&'a str>,
    found: Vec<Place>,
}

impl Scan<'_> {
    fn walk(&mut self, tokens: TokenStream, inside: &Inside) -> Result<()> {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        // What is said of the item to come.
        let mut next = inside.clone();
        for (at, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Ident(word) if word == "unsafe" => {
                    let line = word.span().start().line;
                    self.unsafe_word(&tokens[at + 1..], line, &next).with_context(|| format!("line {line}: unsafe"))?;
                }
                TokenTree::Ident(word) if word == "fn" => {
                    if let Some(TokenTree::Ident(name)) = tokens.get(at + 1) {
                        next.function = name.to_string();
                    }
                }
                TokenTree::Punct(mark) if mark.as_char() == ';' => next = inside.clone(),
                TokenTree::Group(group) => {
                    next.test |= is_test(group);
                    self.walk(group.stream(), &next)?;
                    if group.delimiter() == Delimiter::Brace {
                        next = inside.clone();
                    }
                }
                TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
        Ok(())
    }

    /// The word was found; `rest` follows it.
    fn unsafe_word(&mut self, rest: &[TokenTree], line: usize, inside: &Inside) -> Result<()> {
        let (form, name, tokens, argument) = match rest.first() {
            Some(TokenTree::Group(block)) if block.delimiter() == Delimiter::Brace => {
                (Form::Block, inside.function.clone(), block.stream(), self.comment_above(line)?)
            }
            Some(TokenTree::Ident(word)) if word == "impl" => {
                let header = rest[1..].iter().take_while(|token| !matches!(token, TokenTree::Group(_)));
                let header = header.map(ToString::to_string).collect::<Vec<_>>().join(" ");
                (Form::Impl, header, TokenStream::new(), self.comment_above(line)?)
            }
            // An attribute, `unsafe(no_mangle)`: the function says what it is in the place of.
            Some(TokenTree::Group(attribute)) if attribute.delimiter() == Delimiter::Parenthesis => return Ok(()),
            Some(TokenTree::Ident(_)) => {
                let after = rest.iter().position(|token| matches!(token, TokenTree::Ident(word) if word == "fn"));
                match after.and_then(|at| rest.get(at + 1)) {
                    // The type of a function.
                    Some(TokenTree::Group(_)) => return Ok(()),
                    Some(TokenTree::Ident(name)) => {
                        (Form::Function, name.to_string(), TokenStream::new(), self.promise_above(line)?)
                    }
                    _ => bail!("of what?"),
                }
            }
            _ => bail!("of what?"),
        };
        self.found.push(Place { file: self.file.to_owned(), form, name, in_test: inside.test, tokens, argument });
        Ok(())
    }

    fn line(&self, number: usize) -> &str {
        number.checked_sub(1).and_then(|index| self.lines.get(index)).map_or("", |line| line.trim())
    }

    /// The comment over the statement or the item that this line belongs to.
    fn comment_above(&self, line: usize) -> Result<String> {
        let mut last = line - 1;
        while !self.line(last).starts_with("//") {
            let between = self.line(last);
            ensure!(!between.is_empty() && !between.contains("unsafe"), "it has no argument");
            last -= 1;
        }
        let first = (1..=last).rev().take_while(|&number| self.line(number).starts_with("//")).last().unwrap_or(last);
        let comment = self.joined(first, last, "//");
        let argument = comment.split_once("SAFETY: ").context("the comment above it is no argument")?.1;
        ensure!(!argument.starts_with("as above"), "its argument is in another comment: \"{argument}\"");
        Ok(argument.to_owned())
    }

    /// What a function asks of its callers.
    fn promise_above(&self, line: usize) -> Result<String> {
        let first = (1..line)
            .rev()
            .take_while(|&number| self.line(number).starts_with("///") || self.line(number).starts_with("#["))
            .last()
            .context("it has no documentation")?;
        let comment = self.joined(first, line - 1, "///");
        Ok(comment.split_once("# Safety ").context("it does not say what it asks of its callers")?.1.to_owned())
    }

    fn joined(&self, first: usize, last: usize, mark: &str) -> String {
        let lines = (first..=last).filter_map(|number| self.line(number).strip_prefix(mark)).map(str::trim);
        lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
    }
}

/// Whether it is an attribute by which something is compiled for tests only.
fn is_test(group: &Group) -> bool {
    group.delimiter() == Delimiter::Bracket && matches!(group.to_string().as_str(), "[cfg (test)]" | "[cfg(test)]")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Result<Vec<(Form, String, bool, String)>> {
        let places = scan(Path::new("x.rs"), text)?;
        Ok(places.into_iter().map(|place| (place.form, place.name, place.in_test, place.argument)).collect())
    }

    #[test]
    fn everything_unsafe_is_found_with_its_argument() {
        let text = "type F = unsafe extern \"C\" fn(u8);\n\
                    // SAFETY: it is\n// alone.\nunsafe impl Send for X<'_> {}\n\
                    /// Does.\n///\n/// # Safety\n/// Ask first.\nunsafe fn f() {}\n\
                    fn g() {\n    let s = \"unsafe { }\"; // unsafe {}\n    // SAFETY: asked.\n    let x =\n        unsafe { f() };\n}\n\
                    #[cfg(test)]\nmod tests {\n    fn h() {\n        // SAFETY: b.\n        m!(unsafe { f() });\n    }\n}\n";
        let of = |form, name: &str, test, argument: &str| (form, name.to_owned(), test, argument.to_owned());
        assert_eq!(
            found(text).unwrap(),
            [
                of(Form::Impl, "Send for X < ' _ >", false, "it is alone."),
                of(Form::Function, "f", false, "Ask first."),
                of(Form::Block, "g", false, "asked."),
                of(Form::Block, "h", true, "b."),
            ]
        );
    }

    #[test]
    fn what_is_not_argued_is_an_error() {
        for text in [
            "fn f() {\n    unsafe { g() };\n}",
            "fn f() {\n    // It is.\n    unsafe { g() };\n}",
            "fn f() {\n    // SAFETY: it is.\n    unsafe { g() };\n    unsafe { g() };\n}",
            "fn f() {\n    // SAFETY: it is.\n    let x = 1;\n\n    unsafe { g() };\n}",
            "fn f() {\n    // SAFETY: as above.\n    unsafe { g() };\n}",
            "/// Does.\nunsafe fn f() {}",
        ] {
            assert!(found(text).is_err(), "{text}");
        }
    }
}
