//! Asks the C compiler what rdma-core's headers say, and compares it with the numbers that this workspace wrote down.

use std::fmt::Write as _;
use std::mem::{offset_of, size_of};
use std::process::Command;

use cmid_proto::datapath::WcOpcode;
use cmid_proto::{CmEvent, ConnParam, Errno, PortSpace};
use cmid_verbs::{Access, Completion, GRH_LEN, QpState, WcStatus};

#[path = "../src/macros.rs"]
mod macros;

#[test]
fn numbers_are_those_of_the_headers() {
    let mut expected = events();
    expected.extend(verbs());
    expected.extend(errnos());
    expected.extend(anonymous());
    expected.extend(handwritten());

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
    // The headers of rdma-core before 60 stop at TIMEWAIT_EXIT; the event codes are asked for by name.
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

/// Structures that the bindings have by hand, not from the headers: size, and where the fields are that this crate
/// uses.
fn handwritten() -> Vec<(String, i64)> {
    use rdma_sys::{ibv_ah_attr, ibv_gid, ibv_global_route, ibv_send_wr, rdma_cm_event, rdma_ud_param, ud_t};

    macro_rules! layout {
        ($($c:literal = $rust:ident { $($field:literal = $($path:ident).+),* })+) => {
            vec![$(
                (format!("sizeof({})", $c), size_of::<$rust>() as i64),
                $( (format!("offsetof({}, {})", $c, $field), offset_of!($rust, $($path).+) as i64), )*
            )+]
        };
    }
    let mut list = layout! {
        "union ibv_gid" = ibv_gid {}
        "struct ibv_global_route" = ibv_global_route {
            "dgid" = dgid, "flow_label" = flow_label, "sgid_index" = sgid_index, "hop_limit" = hop_limit,
            "traffic_class" = traffic_class
        }
        "struct ibv_ah_attr" = ibv_ah_attr {
            "grh" = grh, "dlid" = dlid, "sl" = sl, "src_path_bits" = src_path_bits, "static_rate" = static_rate,
            "is_global" = is_global, "port_num" = port_num
        }
        "struct rdma_ud_param" = rdma_ud_param {
            "private_data" = private_data, "private_data_len" = private_data_len, "ah_attr" = ah_attr,
            "qp_num" = qp_num, "qkey" = qkey
        }
        "struct rdma_cm_event" = rdma_cm_event {
            "id" = id, "listen_id" = listen_id, "event" = event, "status" = status, "param" = param
        }
        "struct ibv_send_wr" = ibv_send_wr {
            "wr_id" = wr_id, "next" = next, "sg_list" = sg_list, "num_sge" = num_sge, "opcode" = opcode,
            "send_flags" = send_flags, "wr" = wr
        }
    };
    let wr = offset_of!(ibv_send_wr, wr);
    for (c, offset) in [
        ("wr.ud.ah", offset_of!(ud_t, ah)),
        ("wr.ud.remote_qpn", offset_of!(ud_t, remote_qpn)),
        ("wr.ud.remote_qkey", offset_of!(ud_t, remote_qkey)),
        ("wr.rdma.remote_addr", offset_of!(rdma_sys::rdma_t, remote_addr)),
        ("wr.rdma.rkey", offset_of!(rdma_sys::rdma_t, rkey)),
    ] {
        list.push((format!("offsetof(struct ibv_send_wr, {c})"), (wr + offset) as i64));
    }
    list
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
