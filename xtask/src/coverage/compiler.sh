#!/bin/sh
# What cargo calls instead of the compiler, for the crates of this workspace only: so nothing else is built again.
rustc=$1
shift
exec "$rustc" "$@" -C instrument-coverage
