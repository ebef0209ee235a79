#!/bin/sh
# rustdoc for the tests: it also checks the error codes that `compile_fail` examples name, which is unstable. Only rustdoc gets
# the variable, because it would make cargo build everything again.
RUSTC_BOOTSTRAP=1 exec rustdoc "$@"
