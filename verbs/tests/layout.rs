//! Compares the numbers in this workspace with rdma-core's headers, by a C program.

use std::fmt::Write as _;
use std::mem::{offset_of, size_of};
use std::process::Command;

use cmid_proto::datapath::WcOpcode;
use cmid_proto::{CmEvent, ConnParam, Errno, PortSpace};
use cmid_verbs::{Access, Completion, GRH_LEN, QpState, WcStatus};

#[path = "../src/macros.rs"]
mod macros;
#[allow(unsafe_code, reason = "it declares the functions of C")]
#[path = "../src/prebuilt/mod.rs"]
mod prebuilt;

/// The size of a structure, and the offsets of its fields by their names in C.
macro_rules! layout {
    ($kind:ident $name:ident { $($field:literal = $($path:ident).+),* }) => {{
        let c = concat!(stringify!($kind), " ", stringify!($name));
        vec![
            (format!("sizeof({c})"), size_of::<$name>() as i64),
            $( (format!("offsetof({c}, {})", $field), offset_of!($name, $($path).+) as i64), )*
        ]
    }};
}

/// The structures that a set of bindings defines by hand, because of their unions: size, and offsets by their names in
/// C.
macro_rules! by_hand {
    ($bindings:ident) => {{
        use $bindings::{
            ibv_ah_attr, ibv_async_event, ibv_gid, ibv_global_route, ibv_mw_bind_info, ibv_send_wr, ibv_wc, rdma_addr,
            rdma_cm_event, rdma_ib_addr, rdma_ud_param,
        };
        [
            layout!(union ibv_gid { "raw" = raw, "global.interface_id" = global.interface_id }),
            layout!(struct ibv_global_route {
                "dgid" = dgid, "flow_label" = flow_label, "sgid_index" = sgid_index, "hop_limit" = hop_limit,
                "traffic_class" = traffic_class
            }),
            layout!(struct ibv_ah_attr {
                "grh" = grh, "dlid" = dlid, "sl" = sl, "src_path_bits" = src_path_bits, "static_rate" = static_rate,
                "is_global" = is_global, "port_num" = port_num
            }),
            layout!(struct ibv_async_event { "element" = element, "event_type" = event_type }),
            layout!(struct ibv_wc {
                "wr_id" = wr_id, "status" = status, "opcode" = opcode, "vendor_err" = vendor_err, "byte_len" = byte_len,
                "imm_data" = imm_data_invalidated_rkey_union, "qp_num" = qp_num, "src_qp" = src_qp,
                "wc_flags" = wc_flags, "pkey_index" = pkey_index, "slid" = slid, "sl" = sl,
                "dlid_path_bits" = dlid_path_bits
            }),
            layout!(struct ibv_mw_bind_info {
                "mr" = mr, "addr" = addr, "length" = length, "mw_access_flags" = mw_access_flags
            }),
            layout!(struct ibv_send_wr {
                "wr_id" = wr_id, "next" = next, "sg_list" = sg_list, "num_sge" = num_sge, "opcode" = opcode,
                "send_flags" = send_flags, "imm_data" = imm_data_invalidated_rkey_union,
                "wr.rdma.remote_addr" = wr.rdma.remote_addr, "wr.rdma.rkey" = wr.rdma.rkey,
                "wr.atomic.remote_addr" = wr.atomic.remote_addr, "wr.atomic.compare_add" = wr.atomic.compare_add,
                "wr.atomic.swap" = wr.atomic.swap, "wr.atomic.rkey" = wr.atomic.rkey, "wr.ud.ah" = wr.ud.ah,
                "wr.ud.remote_qpn" = wr.ud.remote_qpn, "wr.ud.remote_qkey" = wr.ud.remote_qkey,
                "qp_type.xrc.remote_srqn" = qp_type.xrc.remote_srqn, "bind_mw.mw" = bind_mw_tso_union.bind_mw.mw,
                "bind_mw.rkey" = bind_mw_tso_union.bind_mw.rkey, "bind_mw.bind_info" = bind_mw_tso_union.bind_mw.bind_info
            }),
            layout!(struct rdma_ib_addr { "sgid" = sgid, "dgid" = dgid, "pkey" = pkey }),
            layout!(struct rdma_addr { "src_addr" = src_addr_union, "dst_addr" = dst_addr_union, "addr" = addr }),
            layout!(struct rdma_ud_param {
                "private_data" = private_data, "private_data_len" = private_data_len, "ah_attr" = ah_attr,
                "qp_num" = qp_num, "qkey" = qkey
            }),
            layout!(struct rdma_cm_event {
                "id" = id, "listen_id" = listen_id, "event" = event, "status" = status, "param.conn" = param.conn,
                "param.ud" = param.ud
            }),
        ]
        .concat()
    }};
}

#[test]
fn numbers_are_those_of_the_headers() {
    let mut expected = events();
    expected.extend(verbs());
    expected.extend(errnos());
    expected.extend(anonymous());
    expected.extend(by_hand!(rdma_sys));
    expected.extend(by_hand!(prebuilt));
    expected.extend(generated());

    let mut lines = String::new();
    for (c, _) in &expected {
        writeln!(lines, r#"    printf("%lld\n", (long long)({c}));"#).unwrap();
    }
    let said: Vec<i64> = run(&lines).lines().map(|line| line.parse().unwrap()).collect();

    assert_eq!(said.len(), expected.len());
    for ((c, ours), theirs) in expected.iter().zip(said) {
        assert_eq!(*ours, theirs, "{c}");
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

fn verbs() -> Vec<(String, i64)> {
    let place = |name: &str, offset: usize| (format!("offsetof(struct ibv_wc, {name})"), offset as i64);
    let number = |name: &str, number: u32| (name.to_string(), i64::from(number));
    vec![
        number("IBV_ACCESS_LOCAL_WRITE", Access::LOCAL_WRITE.bits()),
        number("IBV_ACCESS_REMOTE_WRITE", Access::REMOTE_WRITE.bits()),
        number("IBV_ACCESS_REMOTE_READ", Access::REMOTE_READ.bits()),
        number("IBV_WC_SUCCESS", WcStatus::SUCCESS.0),
        number("IBV_WC_LOC_LEN_ERR", WcStatus::LOC_LEN_ERR.0),
        number("IBV_WC_LOC_PROT_ERR", WcStatus::LOC_PROT_ERR.0),
        number("IBV_WC_WR_FLUSH_ERR", WcStatus::WR_FLUSH_ERR.0),
        number("IBV_WC_REM_ACCESS_ERR", WcStatus::REM_ACCESS_ERR.0),
        number("IBV_WC_RETRY_EXC_ERR", WcStatus::RETRY_EXC_ERR.0),
        number("IBV_WC_RNR_RETRY_EXC_ERR", WcStatus::RNR_RETRY_EXC_ERR.0),
        number("IBV_WC_SEND", WcOpcode::SEND.0),
        number("IBV_WC_RDMA_WRITE", WcOpcode::RDMA_WRITE.0),
        number("IBV_WC_RDMA_READ", WcOpcode::RDMA_READ.0),
        number("IBV_WC_RECV", WcOpcode::RECV.0),
        number("IBV_QPS_RESET", QpState::RESET.0),
        number("IBV_QPS_INIT", QpState::INIT.0),
        number("IBV_QPS_RTR", QpState::RTR.0),
        number("IBV_QPS_RTS", QpState::RTS.0),
        number("IBV_QPS_SQD", QpState::SQD.0),
        number("IBV_QPS_SQE", QpState::SQE.0),
        number("IBV_QPS_ERR", QpState::ERR.0),
        ("sizeof(struct ibv_wc)".into(), size_of::<Completion>() as i64),
        place("wr_id", offset_of!(Completion, wr_id)),
        place("status", offset_of!(Completion, status)),
        place("opcode", offset_of!(Completion, opcode)),
        place("byte_len", offset_of!(Completion, byte_len)),
        place("qp_num", offset_of!(Completion, qp_num)),
        place("src_qp", offset_of!(Completion, src_qp)),
        ("sizeof(struct ibv_grh)".into(), GRH_LEN as i64),
    ]
}

fn anonymous() -> Vec<(String, i64)> {
    [
        ("RDMA_OPTION_ID", macros::RDMA_OPTION_ID),
        ("RDMA_OPTION_ID_TOS", macros::RDMA_OPTION_ID_TOS),
        ("RDMA_OPTION_ID_REUSEADDR", macros::RDMA_OPTION_ID_REUSEADDR),
        ("RDMA_OPTION_ID_AFONLY", macros::RDMA_OPTION_ID_AFONLY),
        ("RDMA_OPTION_ID_ACK_TIMEOUT", macros::RDMA_OPTION_ID_ACK_TIMEOUT),
        ("RAI_PASSIVE", macros::RAI_PASSIVE),
        ("RAI_NUMERICHOST", macros::RAI_NUMERICHOST),
        ("RAI_NOROUTE", macros::RAI_NOROUTE),
        ("RAI_FAMILY", macros::RAI_FAMILY),
        ("EAI_SYSTEM", macros::EAI_SYSTEM),
    ]
    .map(|(name, number)| (name.to_string(), i64::from(number)))
    .into()
}

/// Reads the sizes, offsets and constants of enums from `src/prebuilt/generated.rs`. The compiler compares the sizes
/// and offsets there with the Rust types.
fn generated() -> Vec<(String, i64)> {
    let text = include_str!("../src/prebuilt/generated.rs").replace("\"]\n        [", "\"][");
    let mut list: Vec<_> = text.lines().filter_map(|line| layout_line(line).or_else(|| constant_line(line))).collect();
    let [sizes, offsets, constants] =
        ["sizeof", "offsetof", "IBV_"].map(|kind| list.iter().filter(|(c, _)| c.starts_with(kind)).count());
    assert!(sizes > 20 && offsets > 200 && constants > 150, "{sizes} sizes, {offsets} offsets, {constants} constants");
    // The structure grows at its start, so offsets of operations are counted from its end.
    let size = list.iter().find(|(c, _)| c == "sizeof(struct verbs_context)").map(|(_, size)| *size);
    let size = size.expect("the size of verbs_context");
    list.retain(|(c, _)| c != "sizeof(struct verbs_context)");
    for (c, number) in list.iter_mut().filter(|(c, _)| c.starts_with("offsetof(struct verbs_context")) {
        (*c, *number) = (format!("sizeof(struct verbs_context) - {c}"), size - *number);
    }
    list
}

/// Names the structures that cmid uses.
const IMPORTS: &str = include_str!("../src/ffi.rs");

/// A size or an offset: `["Size of NAME"][… - 8usize];`, `["Offset of field: NAME::FIELD"][… - 8usize];`.
fn layout_line(line: &str) -> Option<(String, i64)> {
    let (what, rest) = line.trim().strip_prefix("[\"")?.split_once("\"][")?;
    let number = rest.rsplit_once(" - ")?.1.strip_suffix("usize];")?.parse().ok()?;
    let of_c = |name: &str| name.starts_with("ibv_") || name.starts_with("rdma_") || name.starts_with("verbs_");
    let c = if let Some(name) = what.strip_prefix("Size of ") {
        // Newer headers append fields to other structures, and to ibv_qp_ex. The libraries allocate those.
        let is_ours = of_c(name) && name != "ibv_qp_ex" && IMPORTS.contains(&format!(" {name},"));
        is_ours.then(|| format!("sizeof(struct {name})"))
    } else {
        let (name, field) = what.strip_prefix("Offset of field: ")?.split_once("::")?;
        let field = field.strip_suffix('_').unwrap_or(field);
        let named = of_c(name) && !field.starts_with('_');
        named.then(|| format!("offsetof(struct {name}, {field})"))
    };
    c.filter(|c| !c.contains("__bindgen")).map(|c| (c, number))
}

/// A constant of an enum: `pub const NAME: TYPE = 1;`, `pub const NAME: TYPE = TYPE(1);`, `NAME = 1,`.
fn constant_line(line: &str) -> Option<(String, i64)> {
    let (name, value) = line.trim().trim_end_matches([';', ',']).split_once(" = ")?;
    let name = name.strip_prefix("pub const ").unwrap_or(name).split(':').next()?;
    let digits = value.split_once('(').map_or(value, |(_, digits)| digits.trim_end_matches(')'));
    let of_c = name.starts_with("IBV_") || name.starts_with("RDMA_");
    Some((name.to_owned(), digits.parse().ok()?)).filter(|_| of_c)
}

fn errnos() -> Vec<(String, i64)> {
    (1..200).filter_map(|number| Errno(number).symbol().map(|symbol| (symbol.to_string(), i64::from(number)))).collect()
}

/// Compiles and runs a C program with these lines in its `main`.
fn run(lines: &str) -> String {
    let source = format!(
        "#include <errno.h>\n#include <stddef.h>\n#include <stdio.h>\n#include <netdb.h>\n#include <infiniband/verbs.h>\n\
         #include <rdma/rdma_cma.h>\nint main(void) {{\n{lines}    return 0;\n}}\n"
    );
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (file, program) = (folder.join("layout.c"), folder.join("layout"));
    std::fs::write(&file, source).expect("a folder for temporary files");

    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let compiler = cc::Build::new().target(&target).host(&target).opt_level(0).cargo_metadata(false).get_compiler();
    let compiled = compiler.to_command().arg(&file).arg("-o").arg(&program).status().expect("a C compiler");
    assert!(compiled.success(), "{} does not compile", file.display());

    let output = Command::new(&program).output().expect("the program runs");
    assert!(output.status.success());
    String::from_utf8(output.stdout).expect("digits")
}
