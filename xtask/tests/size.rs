//! Limits on the size of crates (`xtask/budgets.txt`), files, functions and pages. `cargo test -p xtask --test size --
//! --nocapture` prints the sizes beside them.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test; its output is for documents")]

#[path = "repository/files.rs"]
mod files;

use std::collections::BTreeMap;

use crate::files::{committed, read, texts};

/// In lines.
const FILE: usize = 450;

/// In lines, from that of `fn` to that of the closing brace.
const FUNCTION: usize = 120;

/// Of code and pictures on each README.md and in docs/.
const COLUMNS: usize = 90;

/// Lines: of product code, and of all.
type Lines = [usize; 2];

/// The rows of `xtask/budgets.txt`: the folder of a crate, or `goal`, with the budgets.
fn budgets() -> BTreeMap<&'static str, Lines> {
    let rows = include_str!("../budgets.txt").lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let row = |line: &'static str| {
        let words: Vec<_> = line.split(' ').collect();
        let [folder, product, all] = words[..] else { panic!("not three words: {line}") };
        (folder, [product, all].map(|number| number.parse().unwrap()))
    };
    rows.map(row).collect()
}

/// The lines of a file of a crate. Tests are in folders and files of their own, or in a module at the end of a file.
fn lines(path: &str, text: &str, is_product: bool) -> Lines {
    let is_test = path.contains("/tests/") || path.ends_with("tests.rs") || path.contains("/benches/");
    let code = text.find("#[cfg(test)]\nmod tests {").map_or(text, |end| &text[..end]).lines().count();
    [if is_product && !is_test { code } else { 0 }, text.lines().count()]
}

#[test]
fn no_crate_is_larger_than_its_budget() {
    let mut budgets = budgets();
    let [goal, mut sum, mut most] = [budgets.remove("goal").unwrap(), [0; 2], [0; 2]];
    let mut sizes: BTreeMap<_, _> = budgets.keys().map(|&folder| (folder, [0; 2])).collect();
    for (path, text) in texts(&["*.rs"]) {
        // A crate may be in the folder of another one.
        let is_in = |folder: &&&str| path.strip_prefix(**folder).is_some_and(|rest| rest.starts_with('/'));
        let folder = budgets.keys().filter(is_in).max_by_key(|folder| folder.len());
        let folder = folder.unwrap_or_else(|| panic!("{path}: its crate has no row in xtask/budgets.txt"));
        let lines = lines(&path, &text, budgets[folder][0] > 0);
        let size: &mut Lines = sizes.get_mut(folder).unwrap();
        *size = [size[0] + lines[0], size[1] + lines[1]];
    }
    let mut above = Vec::new();
    for (folder, budget) in budgets {
        let size = sizes[folder];
        println!("{folder:22} product {:6} of {:6}    all {:6} of {:6}", size[0], budget[0], size[1], budget[1]);
        for kind in 0..2 {
            sum[kind] += size[kind];
            most[kind] += budget[kind];
        }
        if size[0] > budget[0] || size[1] > budget[1] {
            above.push(format!("{folder}: {size:?}, at most {budget:?}"));
        }
        assert!(size[1] > 0, "{folder} has a budget and no Rust");
    }
    println!(
        "product {} lines of {}, the goal is {}; all {} of {}, the goal is {}",
        sum[0], most[0], goal[0], sum[1], most[1], goal[1]
    );
    assert!(
        above.is_empty(),
        "more lines, of product code or of all, than xtask/budgets.txt has; a commit that raises it says why: {above:#?}"
    );
}

#[test]
fn tests_are_no_product_code() {
    let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n}\n";
    let of = |path, is_product| lines(path, text, is_product);
    assert_eq!([of("a/src/b.rs", true), of("a/src/b.rs", false)], [[1, 4], [0, 4]]);
    assert_eq!(["a/tests/b.rs", "a/src/b_tests.rs"].map(|path| of(path, true)), [[0, 4]; 2]);
}

/// The functions of a formatted file that have more than one line: the first line, and the number of lines.
fn functions(text: &str) -> Vec<(&str, usize)> {
    let lines: Vec<_> = text.lines().collect();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let is_start = |at: &usize| {
        let mut words = lines[*at].split_whitespace();
        let is_qualifier =
            |word: &&str| word.starts_with("pub") || ["const", "async", "unsafe", "extern", "\"C\""].contains(word);
        words.find(|word| !is_qualifier(word)) == Some("fn")
    };
    // The next line of the same indent that is not part of the signature ends the function.
    let length = |at: usize| {
        let is_next =
            |line: &&str| !line.is_empty() && indent(line) <= indent(lines[at]) && !line.trim_start().starts_with(')');
        let is_next = |line: &&str| is_next(line) && !["where", "{"].contains(&line.trim());
        let end = lines[at + 1..].iter().position(is_next)?;
        lines[at + 1 + end].trim_start().starts_with('}').then_some(end + 2)
    };
    let starts = (0..lines.len()).filter(is_start);
    starts.filter_map(|at| Some((lines[at], length(at)?))).filter(|(line, _)| !line.ends_with('}')).collect()
}

#[test]
fn files_and_functions_are_not_longer_than_the_limits() {
    let (mut file, mut function) = ((0, String::new()), (0, String::new()));
    for (path, text) in texts(&["*.rs"]) {
        for (line, lines) in functions(&text) {
            function = function.max((lines, format!("{path}: {line}")));
        }
        file = file.max((text.lines().count(), path));
    }
    println!("longest file: {file:?}; longest function: {function:?}");
    assert!(file.0 <= FILE, "{file:?}");
    assert!(function.0 <= FUNCTION, "{function:?}");
    assert!(function.0 > FUNCTION / 2, "functions are not found");
}

#[test]
fn a_function_ends_at_its_own_brace() {
    let text = "impl A {\n    pub(crate) const fn f(\n        a: u8,\n    ) -> u8 {\n        {\n        }\n    }\n\n    \
                fn g() {}\n    fn h();\n    fn i()\n    where\n        A: B,\n    {\n    }\n}\nfn j() {\n}\n";
    let found: Vec<_> = functions(text).into_iter().map(|(line, lines)| (line.trim(), lines)).collect();
    assert_eq!(found, [("pub(crate) const fn f(", 6), ("fn i()", 5), ("fn j() {", 2)]);
}

/// The pages that a reader is to finish, and the most words that each may have.
const PAGES: [(&str, usize); 4] = [
    ("README.md", 700),
    ("ARCHITECTURE.md", 1200),
    ("docs/verification.md", 1200),
    ("docs/generated/performance.md", 1500),
];

/// As wc(1) counts them.
#[test]
fn a_page_has_at_most_its_words() {
    for (page, most) in PAGES {
        // Not the lines of tables.
        let is_word = |text: &&str| text.contains(char::is_alphanumeric);
        let words = read(page).split_whitespace().filter(is_word).count();
        assert!((100..=most).contains(&words), "{words} words in {page}, {most} at most");
    }
}

/// What a program has written is shown as it is: recordings, the steps of one in docs/trace.md, and a demo.
#[test]
fn code_on_each_readme_and_in_docs_has_at_most_90_columns() {
    let (mut blocks, of_output) = (0, ["docs/trace.md", "programs/ticker/README.md"]);
    for page in committed(&["*README.md", "docs/*.md"]).iter().filter(|page| !page.contains("/generated/")) {
        for block in read(page).split("\n```").skip(1).step_by(2) {
            let is_output =
                block.starts_with("jsonl") || block.starts_with("text") && of_output.contains(&page.as_str());
            let wide = block.lines().find(|line| line.chars().count() > COLUMNS && !is_output);
            assert_eq!(wide, None, "more than {COLUMNS} columns in {page}");
            blocks += 1;
        }
    }
    assert!(blocks > 20, "{blocks} blocks of code");
}
