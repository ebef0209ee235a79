//! The example `handshake`, linked statically: it manages connections without librdmacm, libibverbs and rdma-sys.

use std::process::Command;

use crate::checks::{dependencies, without_pkg_config};
use crate::context::{Context, output};
use crate::tools::add_target;
use anyhow::{Result, ensure};

const PROGRAM: &str = "handshake";
const TARGET: &str = "x86_64-unknown-linux-musl";

/// Builds it for musl, without headers of rdma-core, and checks that it loads no library.
pub(crate) fn build(context: &Context) -> Result<()> {
    ensure!(!dependencies(context, &[PROGRAM])?.contains("rdma-sys"), "{PROGRAM} depends on rdma-sys");
    add_target(context, TARGET)?;
    without_pkg_config(context, &["build", "--release", "--package", PROGRAM, "--target", TARGET])?;
    let program = context.target().join(TARGET).join("release").join(PROGRAM);
    let headers = output(Command::new("readelf").args(["--wide", "--dynamic", "--program-headers"]).arg(&program))?;
    let wanted = wants(&headers);
    ensure!(wanted.is_empty(), "{} is not static:\n{}", program.display(), wanted.join("\n"));
    Ok(())
}

/// The lines of readelf that name a library or a program interpreter.
fn wants(headers: &str) -> Vec<&str> {
    headers.lines().filter(|line| line.contains("(NEEDED)") || line.trim_start().starts_with("INTERP")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dynamic_programs_are_recognized() {
        let this = std::env::current_exe().unwrap();
        let headers = output(Command::new("readelf").args(["--wide", "--dynamic", "--program-headers"]).arg(this));
        let headers = headers.unwrap();
        let wanted = wants(&headers);
        assert!(wanted.iter().any(|line| line.contains("libc.so")), "{headers}");
        assert!(wanted.iter().any(|line| line.contains("INTERP")), "{headers}");
    }
}
