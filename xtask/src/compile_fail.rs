//! Checks that the `compile_fail` examples of cmid-verbs do not compile.

use std::path::PathBuf;

use anyhow::{Result, ensure};

use crate::context::Context;

/// The minimum number of such examples. Without it the check would pass if they were removed or not run.
const AT_LEAST: usize = 10;

/// Checks that none of them compiles, each with the error code that it names. Only an unstable rustdoc checks the
/// code. Uses a target folder of its own, because the variable forces a complete rebuild.
pub(crate) fn check(context: &mut Context) -> Result<()> {
    let target = target(context);
    let arguments = ["test", "--doc", "--package", "cmid-verbs"];
    let variables = [("RUSTC_BOOTSTRAP", "1".as_ref()), ("CARGO_TARGET_DIR", target.as_os_str())];
    let said = context.cargo_tells(&arguments, &variables)?;
    let looked_at = refused(&said);
    ensure!(looked_at >= AT_LEAST, "{looked_at} examples do not compile, {AT_LEAST} at least should be there");
    Ok(())
}

/// The target folder of builds with unstable options: their variable forces a rebuild of build scripts and macros.
pub(crate) fn target(context: &Context) -> PathBuf {
    context.target().join("unstable")
}

/// Counts the examples that did not compile, in the output of the tests.
fn refused(said: &str) -> usize {
    said.lines().filter(|line| line.starts_with("test ") && line.ends_with(" - compile fail ... ok")).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_examples_that_do_not_compile_count() {
        let said = "running 3 tests\n\
                    test verbs/src/data/mr.rs - data::mr::Mr (line 62) - compile fail ... ok\n\
                    test verbs/src/data/mr.rs - data::mr::Mr (line 73) - compile fail ... FAILED\n\
                    test verbs/src/lib.rs - (line 8) - compile ... ok\n\n\
                    test result: ok. 2 passed; 1 failed\n";
        assert_eq!(refused(said), 1);
        assert_eq!(refused("running 0 tests\n"), 0);
    }
}
