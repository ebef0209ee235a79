//! The feature `serde`: the form of a core's inputs.

use cmid_proto::{
    Acks, CmEvent, CmOption, ConnParam, Errno, IdKey, Limits, PortSpace, RawEvent, RejectReason, Request, Time,
};
use serde_json::{Value, from_str, from_value, json, to_value};

fn is(request: Request<'_>, expected: Value) {
    assert_eq!(to_value(request).unwrap(), expected);
    assert_eq!(to_value(from_value::<Request<'_>>(expected.clone()).unwrap()).unwrap(), expected);
}

#[test]
fn requests_have_the_names_of_their_fields_and_no_private_data() {
    let [here, there] = ["10.0.0.1:1", "10.0.0.2:2"].map(|addr| addr.parse().unwrap());
    is(Request::ResolveRoute, json!("resolve_route"));
    is(Request::ResolveAddr { src: None, dst: there }, json!({"resolve_addr": {"dst": "10.0.0.2:2"}}));
    let both = json!({"resolve_addr": {"src": "10.0.0.1:1", "dst": "10.0.0.2:2"}});
    is(Request::ResolveAddr { src: Some(here), dst: there }, both);
    is(Request::Migrate { to: None }, json!({"migrate": {}}));
    is(Request::Migrate { to: "ch3".parse().ok() }, json!({"migrate": {"to": "ch3"}}));
    is(Request::SetOption { option: CmOption::Tos(4) }, json!({"set_option": {"option": {"tos": 4}}}));
    let secret = Request::Reject { reason: RejectReason::Consumer, private_data: b"secret" };
    is(secret, json!({"reject": {"reason": "consumer"}}));
    let json = json!({"reject": {"reason": "consumer"}});
    assert_eq!(from_value::<Request<'_>>(json).unwrap().private_data(), b"");
    from_value::<Request<'_>>(json!({"migrate": {"on": "ch3"}})).unwrap_err();
}

#[test]
fn what_an_event_does_not_have_is_left_out() {
    let id: IdKey = "s3/id1.2".parse().unwrap();
    let mut raw = RawEvent { private_data: &b"secret"[..], ..RawEvent::new(id, CmEvent::Unknown(99)) };
    assert_eq!(to_value(raw).unwrap(), json!({"id": "s3/id1.2", "kind": "UNKNOWN(99)"}));
    (raw.listener, raw.status, raw.group) = ("s3/id0".parse().ok(), -5, "s3/grp0".parse().ok());
    raw.param.0 = ConnParam { srq: true, ..ConnParam::default() };
    let text = serde_json::to_string(&raw).unwrap();
    assert_eq!(from_str::<RawEvent<&[u8]>>(&text).unwrap(), raw.map_private_data(|_| &b""[..]));
}

#[test]
fn keys_errnos_and_names_are_text() {
    assert_eq!(to_value((Errno::EIO, Errno(4000), Time(7))).unwrap(), json!(["EIO", "errno 4000", 7]));
    assert_eq!(to_value((PortSpace::Ipoib, Acks::OnDelivery)).unwrap(), json!(["IPOIB", "on_delivery"]));
    let wrong = from_str::<IdKey>("\"ch0\"").unwrap_err().to_string();
    assert!(wrong.starts_with("\"ch0\": it is not a key that begins with id"), "{wrong}");
    let wrong = from_str::<IdKey>("1").unwrap_err().to_string();
    assert!(wrong.starts_with("invalid type: integer `1`, expected a text"), "{wrong}");
    for limits in [Limits::LARGE, Limits { core: Some(3), ..Limits::SINGLE }] {
        let value = to_value(limits).unwrap();
        assert_eq!(value.get("core").is_some(), limits.core.is_some());
        assert_eq!(from_value::<Limits>(value).unwrap(), limits);
    }
}
