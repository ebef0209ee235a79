//! What may only fall: the public names of the core, and attributes that tell the compiler how to inline.

use crate::files::{read, texts};

/// `#[inline]` in `proto/src` and `verbs/src`.
const INLINE: usize = 37;
/// Public methods of `Core`.
const METHODS: usize = 42;
/// Names at the root of `proto`.
const NAMES: usize = 55;

/// What may be on the left of a pipe in a script: `sh` loses its failure. They pass text on, or are asked until an answer
/// comes; and `tar` finds what `dpkg-deb` has not finished.
const PIPED: &str =
    "[ apt-config cat date dd dmesg dpkg-deb echo find grep head ldd ls od printf rdma sed sort ss tail tar tc tr";

fn falls(what: &str, found: usize, most: usize) {
    println!("{what}: {found}, at most {most}");
    assert!(found > 0, "{what} are not found");
    assert!(found <= most, "{what}: {found}, more than {most}");
}

#[test]
fn the_compiler_decides_what_it_inlines() {
    let texts = texts(&["proto/src/*.rs", "verbs/src/*.rs"]).into_iter();
    falls("inlining attributes", texts.map(|(_, text)| text.matches("#[inline").count()).sum(), INLINE);
}

#[test]
fn the_public_names_of_the_core_are_few() {
    let methods = |text: &str| {
        let of_core = text.split("\nimpl ").filter(|block| block.starts_with("Core {"));
        of_core.map(|block| block.matches("\n    pub fn ").count()).sum::<usize>()
    };
    falls(
        "public methods of Core",
        texts(&["proto/src/machine/*.rs"]).iter().map(|(_, text)| methods(text)).sum(),
        METHODS,
    );
    let root = read("proto/src/lib.rs");
    let exports = root.split("pub use ").skip(1).map(|rest| rest.split(';').next().unwrap_or_default());
    falls("names at the root", exports.map(|list| list.matches(',').count() + 1).sum(), NAMES);
}

/// A `main` that returns an error prints its Debug form, which is its text (`debug_in_words`).
#[test]
fn no_error_of_the_core_derives_debug() {
    let texts: String = texts(&["proto/src/*.rs"]).into_iter().map(|(_, text)| text).collect();
    let derives = texts.lines().filter(|line| line.starts_with("#[derive(") && line.contains("thiserror::Error"));
    let (derived, in_words): (Vec<_>, Vec<_>) = derives.partition(|line| line.contains("Debug"));
    assert!(derived.is_empty() && in_words.len() > 20, "{derived:?}, {in_words:?}");
}

/// The commands on the left of the pipes of a script, by their first words.
fn piped(script: &str) -> Vec<String> {
    let code = script.replace("\\\n", " ").replace("|\n", "| ").replace("$((", "");
    let mut found = Vec::new();
    for line in code.lines().filter(|line| !["#", "case "].iter().any(|word| line.trim_start().starts_with(word))) {
        for (at, _) in line.match_indices(" | ") {
            let begins = ["$(", "; ", "& ", "| ", "{ ", "if ", "until ", "while "];
            let begin = begins.iter().filter_map(|mark| Some(line[..at].rfind(mark)? + mark.len())).max();
            let first = line[begin.unwrap_or(0)..at].split_whitespace().find(|word| *word != "!").unwrap_or_default();
            // A bar in a text, or between the patterns of a case.
            let is_text = line[..at].matches('"').count() % 2 == 1
                || (first.starts_with(['"', '\'']) && !first.starts_with("\"$"));
            found.extend((!is_text).then(|| first.to_owned()));
        }
    }
    found
}

#[test]
fn no_script_loses_the_failure_of_a_program() {
    let scripts = texts(&["tests/*.sh", "xtask/*.sh"]).into_iter();
    let scripts: Vec<_> = scripts.map(|(path, text)| (path, piped(&text))).collect();
    assert!(scripts.iter().map(|(_, found)| found.len()).sum::<usize>() > 20, "the pipes are not found");
    for (path, found) in scripts {
        let lost: Vec<_> = found.iter().filter(|first| !PIPED.split(' ').any(|name| name == *first)).collect();
        assert!(lost.is_empty(), "{path}: a pipe loses the failure of {lost:?}: write to a file");
    }
    let script = "a \"b | c\"\nif ! d $((1 + e)) |\n  \"$f\" \\\n g | h; fi\n{ i; } | j\n'' | *) ;;\n";
    assert_eq!(piped(script), ["d", "\"$f\"", "}"]);
}
