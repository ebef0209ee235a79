//! What a chain of errors prints (`{:#}` of anyhow): each text once. The text of an error contains that of its part, so an
//! error has no source of its own. An error of the application is passed on as it is (`transparent`).

use crate::files::texts;

/// The source files of the product crates.
const PRODUCT: [&str; 5] = ["proto/src/*.rs", "verbs/src/*.rs", "sim/src/*.rs", "trace/src/*.rs", "io-*/src/*.rs"];

/// The definitions of error types in a file: from the derive to the closing brace.
fn derived(text: &str) -> impl Iterator<Item = &str> {
    text.split("thiserror::Error").skip(1).map(|rest| rest.split("\n}\n").next().unwrap_or(rest))
}

#[test]
fn the_text_of_an_error_contains_that_of_its_part_and_is_not_printed_twice() {
    let mut seen = 0;
    for (path, text) in texts(&PRODUCT) {
        for definition in derived(&text) {
            seen += 1;
            let named =
                definition.lines().any(|line| line.trim_start().trim_start_matches("pub ").starts_with("source:"));
            assert!(!named, "{path}: thiserror takes a field of this name for the source");
            assert!(!definition.contains("#[source]") && !definition.contains("#[from]"), "{path}");
        }
        for error in text.split("Error for ").skip(1) {
            // An empty body, or one without a source; or that of an error that is passed on as it is.
            let body = error.split("\n}").next().unwrap_or(error);
            assert!(!body.contains("fn source(") || body.contains("self.error.source()\n"), "{path}: it has a source");
        }
    }
    assert!(seen > 20, "{seen} error types");
}
