//! Compares the types, numbers and signatures in this workspace with rdma-core's headers, by the C compiler.

use std::mem::{offset_of, size_of};

use cmid_proto::datapath::{WcFlags, WcOpcode};
use cmid_proto::memory::Changes;
use cmid_proto::{CmEvent, ConnParam, Errno, PortSpace};
use cmid_verbs::{Access, Completion, GRH_LEN, QpState, WcStatus};

use bindings::{CONSTANTS, Field, Ibverbs, Rdmacm, STRUCTURES, Structure};

#[allow(unsafe_code, reason = "it calls C, and this test does not")]
#[path = "../src/bindings/mod.rs"]
mod bindings;
mod compiler;
#[path = "../src/macros.rs"]
mod macros;

const HEADERS: [&str; 6] = ["errno.h", "netdb.h", "stddef.h", "stdint.h", "infiniband/verbs.h", "rdma/rdma_cma.h"];

#[test]
fn numbers_are_those_of_the_headers() {
    let own = CONSTANTS.iter().map(|(name, number)| (name.to_string(), *number));
    let numbers = [events(), verbs(), errnos(), anonymous(), own.collect()].concat();
    compile("numbers.c", numbers.into_iter().map(|(c, number)| format!("(long long)({c}) == {number}LL")));
}

#[test]
fn types_of_the_bindings_are_those_of_the_headers() {
    compile("types.c", STRUCTURES.iter().flat_map(layout));
}

#[test]
fn results_that_may_grow_have_room() {
    let of = |name: &str| STRUCTURES.iter().find(|of| of.name == name).expect("a structure").size + macros::RESULT_ROOM;
    let fits = |name| format!("sizeof({name}) <= {}", of(name));
    compile("room.c", ["struct ibv_port_attr", "struct ibv_device_attr_ex"].into_iter().map(fits));
}

/// The conditions of C for a structure.
fn layout(structure: &'static Structure) -> impl Iterator<Item = String> {
    let c = structure.of_c.first().unwrap_or(&structure.name);
    let whole = (structure.extent == "whole").then(|| format!("sizeof({c}) == {}", structure.size));
    let fields = structure.fields.iter().filter_map(move |field| {
        let name = *field.of_c.first().unwrap_or(&field.name);
        let place = match structure.extent {
            "end" => format!("sizeof({c}) - offsetof({c}, {name}) == {}", structure.size - field.offset),
            _ => format!("offsetof({c}, {name}) == {}", field.offset),
        };
        let member = format!("(({c} *)0)->{name}");
        let all = format!("{place} && sizeof({member}) == {} && {}", field.size, is_of_type(&member, field));
        (!name.is_empty()).then_some(all)
    });
    whole.into_iter().chain(fields)
}

/// Whether a field with a function has the type of the function.
fn is_of_type(member: &str, field: &Field) -> String {
    // The compiler breaks long lines.
    let ty = field.ty.split_whitespace().collect::<Vec<_>>().join(" ");
    let Some(function) = ty.strip_prefix("Option<unsafe extern \"C\" fn(") else { return "1".into() };
    let (arguments, returned) = function.rsplit_once(')').expect("arguments");
    let returned = returned.trim_end_matches('>').trim_start_matches(" -> ");
    compatible(member, "(*)", &arguments.split(", ").collect::<Vec<_>>(), returned)
}

#[test]
fn functions_of_the_bindings_are_those_of_the_headers() {
    let all = Ibverbs::SIGNATURES.iter().chain(Rdmacm::SIGNATURES);
    compile("functions.c", all.map(|(name, arguments, returned)| compatible(name, "", arguments, returned)));
}

/// A condition of C: the expression has the type of this function, or, with `(*)`, of a pointer to it.
fn compatible(expression: &str, pointer: &str, arguments: &[&str], returned: &str) -> String {
    let arguments: Vec<_> = arguments.iter().map(|argument| c_type(argument)).collect();
    let arguments = if arguments.is_empty() { "void".into() } else { arguments.join(", ") };
    let function = format!("{} {pointer}({arguments})", c_type(returned));
    // The headers of the kernel have a type of their own for 64 bits.
    let of_kernel = function.replace("uint64_t", "unsigned long long");
    let is = |function: &str| format!("__builtin_types_compatible_p(__typeof__({expression}), {function})");
    format!("({} || {})", is(&function), is(&of_kernel))
}

/// The type of C for a type of the bindings.
fn c_type(rust: &str) -> String {
    if let Some(target) = rust.strip_prefix("*mut ") {
        return format!("{} *", c_type(target));
    }
    if let Some(target) = rust.strip_prefix("*const ") {
        return format!("const {} *", c_type(target));
    }
    let same = match rust {
        "" | "c_void" => "void",
        "c_char" => "char",
        "c_int" => "int",
        "c_uint" => "unsigned int",
        "usize" => "size_t",
        "isize" => "ssize_t",
        "_compat_ibv_port_attr" => "struct _compat_ibv_port_attr",
        "u8" => "uint8_t",
        "u16" => "uint16_t",
        "u32" => "uint32_t",
        "u64" => "uint64_t",
        "sockaddr" => "struct sockaddr",
        "ibv_event_type" => "enum ibv_event_type",
        _ => "",
    };
    if !same.is_empty() {
        return same.into();
    }
    if let Some(name) = rust.strip_suffix("::Type") {
        return format!("enum {name}");
    }
    let mut names = STRUCTURES.iter().map(|structure| structure.name);
    names.find(|name| name.ends_with(&format!(" {rust}"))).unwrap_or_else(|| panic!("the type of C for {rust}")).into()
}

/// Asserts that structures of rdma-sys have the layout of those in the bindings of this crate.
#[cfg(feature = "rdma-sys")]
macro_rules! same_layout {
    ($($name:ident { $($($path:ident).+),+ })+) => {$(
        assert_eq!(size_of::<rdma_sys::$name>(), size_of::<bindings::$name>(), stringify!($name));
        $( assert_eq!(
            offset_of!(rdma_sys::$name, $($path).+),
            offset_of!(bindings::$name, $($path).+),
            concat!(stringify!($name), " ", stringify!($($path).+)),
        ); )+
    )+};
}

/// rdma-sys generates the others.
#[cfg(feature = "rdma-sys")]
#[test]
fn types_that_rdma_sys_defines_by_hand_are_those_of_the_bindings() {
    same_layout! {
        ibv_gid { raw, global.interface_id }
        ibv_global_route { dgid, flow_label, sgid_index, hop_limit, traffic_class }
        ibv_ah_attr { grh, dlid, sl, src_path_bits, static_rate, is_global, port_num }
        ibv_async_event { element, event_type }
        ibv_wc {
            wr_id, status, opcode, vendor_err, byte_len, imm_data_invalidated_rkey_union, qp_num, src_qp, wc_flags, pkey_index,
            slid, sl, dlid_path_bits
        }
        ibv_mw_bind_info { mr, addr, length, mw_access_flags }
        ibv_send_wr {
            wr_id, next, sg_list, num_sge, opcode, send_flags, imm_data_invalidated_rkey_union, wr.rdma.remote_addr, wr.rdma.rkey,
            wr.atomic.remote_addr, wr.atomic.compare_add, wr.atomic.swap, wr.atomic.rkey, wr.ud.ah, wr.ud.remote_qpn,
            wr.ud.remote_qkey, qp_type.xrc.remote_srqn, bind_mw_tso_union.bind_mw.mw, bind_mw_tso_union.bind_mw.rkey,
            bind_mw_tso_union.bind_mw.bind_info
        }
        rdma_ib_addr { sgid, dgid, pkey }
        rdma_addr { src_addr_union, dst_addr_union, addr }
        rdma_ud_param { private_data, private_data_len, ah_attr, qp_num, qkey }
        rdma_cm_event { id, listen_id, event, status, param.conn, param.ud }
    }
}

fn events() -> Vec<(String, i64)> {
    // The headers of rdma-core before 60 end with TIMEWAIT_EXIT. The event codes are compared by name.
    let known = (0..=15).map(|code| {
        let kind = CmEvent::from_code(code);
        (format!("RDMA_CM_EVENT_{}", kind.name()), i64::from(kind.code()))
    });
    let mut list: Vec<_> = known.collect();
    list.push(("RDMA_PS_TCP".into(), PortSpace::Tcp.code().into()));
    list.push(("RDMA_PS_IB".into(), PortSpace::Ib.code().into()));
    list.push(("RDMA_PS_UDP".into(), PortSpace::Udp.code().into()));
    list.push(("RDMA_PS_IPOIB".into(), PortSpace::Ipoib.code().into()));
    list.push(("RDMA_MAX_RESP_RES".into(), ConnParam::DEVICE_MAX.into()));
    list.push(("RDMA_MAX_INIT_DEPTH".into(), ConnParam::DEVICE_MAX.into()));
    list
}

/// The numbers of libibverbs that this workspace has: C's name is Rust's after a prefix.
macro_rules! numbers {
    ($($prefix:literal: $ty:ident, $number:expr => [$($name:ident)+])+) => {
        [$($( (concat!($prefix, stringify!($name)).to_string(), i64::from(($number)($ty::$name))), )+)+]
    };
}

fn verbs() -> Vec<(String, i64)> {
    let numbers = numbers! {
        "IBV_ACCESS_": Access, |flags: Access| flags.bits() => [
            LOCAL_WRITE REMOTE_WRITE REMOTE_READ REMOTE_ATOMIC MW_BIND ON_DEMAND HUGETLB RELAXED_ORDERING
        ]
        "IBV_REREG_MR_CHANGE_": Changes, |flags: Changes| flags.bits() => [TRANSLATION PD ACCESS]
        "IBV_WC_": WcStatus, |code: WcStatus| code.0 => [
            SUCCESS LOC_LEN_ERR LOC_QP_OP_ERR LOC_EEC_OP_ERR LOC_PROT_ERR WR_FLUSH_ERR MW_BIND_ERR BAD_RESP_ERR LOC_ACCESS_ERR
            REM_INV_REQ_ERR REM_ACCESS_ERR REM_OP_ERR RETRY_EXC_ERR RNR_RETRY_EXC_ERR REM_ABORT_ERR FATAL_ERR RESP_TIMEOUT_ERR
            GENERAL_ERR
        ]
        "IBV_WC_": WcOpcode, |code: WcOpcode| code.0 => [
            SEND RDMA_WRITE RDMA_READ COMP_SWAP FETCH_ADD BIND_MW LOCAL_INV RECV RECV_RDMA_WITH_IMM
        ]
        "IBV_WC_": WcFlags, |flags: WcFlags| flags.bits() => [GRH WITH_IMM IP_CSUM_OK WITH_INV]
        "IBV_QPS_": QpState, |code: QpState| code.0 => [RESET INIT RTR RTS SQD SQE ERR]
    };
    let place = |name: &str, offset: usize| (format!("offsetof(struct ibv_wc, {name})"), offset as i64);
    let places = [
        ("sizeof(struct ibv_wc)".into(), size_of::<Completion>() as i64),
        place("wr_id", offset_of!(Completion, wr_id)),
        place("status", offset_of!(Completion, status)),
        place("opcode", offset_of!(Completion, opcode)),
        place("byte_len", offset_of!(Completion, byte_len)),
        place("qp_num", offset_of!(Completion, qp_num)),
        place("src_qp", offset_of!(Completion, src_qp)),
        ("sizeof(struct ibv_grh)".into(), GRH_LEN as i64),
    ];
    [&numbers[..], &places].concat()
}

fn anonymous() -> Vec<(String, i64)> {
    [
        ("RDMA_OPTION_ID", macros::RDMA_OPTION_ID),
        ("RDMA_OPTION_ID_TOS", macros::RDMA_OPTION_ID_TOS),
        ("RDMA_OPTION_ID_REUSEADDR", macros::RDMA_OPTION_ID_REUSEADDR),
        ("RDMA_OPTION_ID_AFONLY", macros::RDMA_OPTION_ID_AFONLY),
        ("RDMA_OPTION_ID_ACK_TIMEOUT", macros::RDMA_OPTION_ID_ACK_TIMEOUT),
    ]
    .map(|(name, number)| (name.to_string(), i64::from(number)))
    .into()
}

fn errnos() -> Vec<(String, i64)> {
    (1..200).filter_map(|number| Errno(number).symbol().map(|symbol| (symbol.to_string(), i64::from(number)))).collect()
}

fn compile(name: &str, conditions: impl Iterator<Item = String>) {
    compiler::assert_all(name, &HEADERS, conditions);
}
