#!/usr/bin/env bash
# Writes generated.rs from the headers of rdma-core 44 (Debian 12: libibverbs-dev, librdmacm-dev, libclang-dev), with
# bindgen 0.73 (`cargo install bindgen-cli --version 0.73.2 --locked`). With --check it compares instead.
#
# The functions, types and flags are those that ../ffi.rs imports. The representation of enums is that of rdma-sys.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

imports=$(sed -n '/pub(crate) use bindings::{/,/^};/p' ../ffi.rs | grep -oE '\b(ibv|rdma|verbs)_[a-z0-9_]+\b' | sort -u)
# Structures with unions are written by hand, in mod.rs. Those of the system are those of the crate libc.
by_hand=$(grep -oE '^pub struct (ibv|rdma)_[a-z_]+|^pub union ibv_[a-z_]+' mod.rs | awk '{print $3}')
flags='ibv_(access|rereg_mr|send|wc)_flags|ibv_qp_create_send_ops_flags|ibv_qp_(attr|init_attr)_mask|rdma_cm_join_mc_attr_mask|rdma_cm_mc_join_flags'
flags="$flags|ibv_srq_attr_mask|ibv_srq_init_attr_mask|ibv_cq_attr_mask|ibv_device_cap_flags"
modules='ibv_(node_type|transport_type|atomic_cap|wc_status|wc_opcode|mw_type|qp_type|qp_state|mig_state|mtu|wr_opcode|port_state|srq_type)'
modules="$modules|rdma_cm_event_type|rdma_port_space"

arguments=(
    --rust-target 1.85 --rust-edition 2024 --use-core --no-doc-comments --no-derive-debug --no-prepend-enum-name
    --default-non-copy-union-style manually_drop
    --bitfield-enum "$flags" --constified-enum-module "$modules" --rustified-enum ibv_event_type
    --blocklist-type 'pthread_.*|sockaddr.*|in6?_addr|sa_family_t|socklen_t|timespec|in_.*|_?_?u?int.*_t|ssize_t|size_t'
    # Behind pointers that cmid does not use.
    --opaque-type 'ibv_(flow|ops|wq|rwq|tm|values|counter|poll_cq|cq_init|parent|td|xrcd|alloc_dm|device_attr_ex|.*esp).*'
)
for name in $imports; do arguments+=(--allowlist-item "$name"); done
for name in $by_hand; do arguments+=(--blocklist-type "$name"); done

new=$(mktemp)
trap 'rm -f "$new"' EXIT
printf '#include <infiniband/verbs.h>\n#include <rdma/rdma_cma.h>\n' >"$new.h"
bindgen "${arguments[@]}" "$new.h" --output "$new"
rm "$new.h"
if [ "${1-}" = --check ]; then
    diff generated.rs "$new"
else
    cp "$new" generated.rs
fi
