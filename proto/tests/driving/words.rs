//! The texts and errnos of errors, and small shared types.

use std::hash::{BuildHasher, RandomState};

use cmid_proto::memory::{self, Code, MemoryStep, MrState, PdState, Valid};
use cmid_proto::{
    Acks, ChannelKey, CmEvent, Core, Errno, Error, ErrorWith, Failure, FailureCause, Fault, Flow, GroupKey, IdKey,
    Limits, PortSpace, PrivateData, RawEvent, RefuseReason, Refused, RequestKind, State, Target,
};

use cmid_proto::handshake::HandshakeError;

use crate::device::addr;

fn refused(reason: RefuseReason) -> Refused {
    let id = IdKey::from_parts(0, 0, 1).unwrap();
    Refused::Request { id, request: RequestKind::Connect, state: State::Bound, reason }
}

#[test]
fn every_refusal_has_the_errno_that_the_library_or_the_kernel_would_set() {
    let channel = ChannelKey::from_parts(0, 3, 1).unwrap();
    let group = GroupKey::from_parts(0, 0, 1).unwrap();
    let invalid = [
        RefuseReason::WrongState,
        RefuseReason::NoDevice,
        RefuseReason::Stalls,
        RefuseReason::Breaks,
        RefuseReason::NoQp,
        RefuseReason::HasQp,
        RefuseReason::NumberSent,
        RefuseReason::PrivateDataTooLong { len: 57, max: 56 },
        RefuseReason::BadAddress,
        RefuseReason::OnLoopback,
        RefuseReason::IsBound,
        RefuseReason::NoGroup(addr(1)),
        RefuseReason::MappedAddress,
        RefuseReason::AlreadySync,
        RefuseReason::NotSync,
        RefuseReason::AlreadySent,
        RefuseReason::TooLarge { field: "qp_num", value: 1 << 24, max: (1 << 24) - 1 },
        RefuseReason::NotDatagram,
        RefuseReason::NoDatagrams,
        RefuseReason::NotForDatagrams,
        RefuseReason::NoVendor,
        RefuseReason::IsOver,
    ];
    let busy = [
        RefuseReason::Busy(RequestKind::Bind),
        RefuseReason::OwesAcks,
        RefuseReason::SharesChannel,
        RefuseReason::HasGroups,
    ];
    let others = [
        (RefuseReason::DeviceGone, Errno::ENXIO),
        (RefuseReason::NotConnected, Errno::ENOTCONN),
        (RefuseReason::IsConnected, Errno::EISCONN),
        (RefuseReason::AlreadyMember(addr(1)), Errno::EADDRINUSE),
        (RefuseReason::NoSuchGroup(group), Errno::EADDRNOTAVAIL),
        (RefuseReason::NoSuchChannel(channel), Errno::EBADF),
        (RefuseReason::TooLate, Errno::ETIMEDOUT),
        (RefuseReason::NoChannelLeft, Errno::ENOMEM),
        (RefuseReason::NoGroupLeft, Errno::ENOMEM),
    ];
    let all =
        invalid.map(|reason| (reason, Errno::EINVAL)).into_iter().chain(busy.map(|reason| (reason, Errno::EBUSY)));
    for (reason, errno) in all.chain(others) {
        assert_eq!(Error::from(refused(reason)).errno(), errno, "{reason}");
    }
    let id = IdKey::from_parts(0, 0, 1).unwrap();
    let rest = [
        (Refused::NoSuchId { id, request: RequestKind::Bind }, Errno::ENOENT),
        (Refused::NoSuchChannel { channel }, Errno::EBADF),
        (Refused::ChannelInUse { channel }, Errno::EBUSY),
        (Refused::NothingOwed { owner: id }, Errno::EINVAL),
        (Refused::Full("ids"), Errno::ENOMEM),
    ];
    for (refused, errno) in rest {
        assert_eq!(refused.errno(), errno, "{refused}");
    }
}

#[test]
fn failures_have_the_errno_of_the_device_and_faults_its_or_eio() {
    let (id, channel) = (IdKey::from_parts(0, 5, 2).unwrap(), ChannelKey::from_parts(0, 0, 1).unwrap());
    let failure =
        Failure { call: "connect", target: Target::Id(id), state: State::Connecting, errno: Errno(4711), cause: None };
    assert_eq!(
        (Error::from(failure).errno(), failure.to_string().as_str()),
        (Errno(4711), "connect on id5.2 while connecting: errno 4711")
    );
    // Not in errno(3); a join of an IPv6 group on RoCE returns it.
    assert_eq!(Errno(524).to_string(), "ENOTSUPP");
    let faults = [
        (
            Fault::Event { id, state: State::Idle, event: CmEvent::Unknown(77) },
            Errno::EIO,
            "UNKNOWN(77) on id5.2 while idle",
        ),
        (Fault::WrongChild { id }, Errno::EIO, "a connection request under the wrong key id5.2"),
        (Fault::NoSuchChannel { channel }, Errno::EIO, "an event on channel ch0, which does not exist"),
        (
            Fault::Leak { call: "destroy", target: Target::Id(id), errno: Errno::EINTR },
            Errno::EINTR,
            "destroy on id5.2 failed: EINTR",
        ),
        (
            Fault::Leak { call: "destroy_event_channel", target: Target::Channel(channel), errno: Errno::EIO },
            Errno::EIO,
            "destroy_event_channel on ch0 failed: EIO",
        ),
        (Fault::Read { channel, errno: Errno::EBADF }, Errno::EBADF, "reading channel ch0 failed: EBADF"),
    ];
    for (fault, errno, text) in faults {
        assert_eq!((Error::from(fault).errno(), fault.to_string().as_str()), (errno, text));
    }
}

#[test]
fn every_refusal_of_memory_has_its_errno() {
    use memory::MemoryReason;
    let invalid = [
        MemoryReason::OnlyDeregister,
        MemoryReason::Gone,
        MemoryReason::NothingToChange,
        MemoryReason::Empty,
        MemoryReason::OtherDevice,
        MemoryReason::UnknownRights(1 << 15),
        MemoryReason::RemoteWithoutLocalWrite,
    ];
    let busy = [
        MemoryReason::Busy,
        MemoryReason::InFlight,
        MemoryReason::WindowBound,
        MemoryReason::InDoubt,
        MemoryReason::InUse(2),
    ];
    let all =
        invalid.map(|reason| (reason, Errno::EINVAL)).into_iter().chain(busy.map(|reason| (reason, Errno::EBUSY)));
    let all = all.chain([(MemoryReason::DeviceGone, Errno::EIO), (MemoryReason::OtherProcess, Errno::EACCES)]);
    for (reason, errno) in all {
        let refused = memory::MemoryRefused {
            request: memory::MemoryRequest::Reregister,
            target: memory::MemoryTarget::Mr(None),
            reason,
        };
        assert_eq!(memory::MemoryError::from(refused).errno(), errno, "{reason}");
        assert_eq!(refused.to_string(), format!("re-register an MR: {reason}"));
    }
}

#[test]
fn errors_of_memory_say_the_step_the_code_and_what_is_left() {
    let failure = |step| memory::MemoryFailure { step, errno: Errno::ENOMEM, valid: Valid::Neither };
    let steps = [
        (MemoryStep::Reregister(Code::Cmd), "ibv_rereg_mr: ERR_CMD, "),
        (MemoryStep::RegisterAnew, "registering anew, ibv_reg_mr: "),
        (MemoryStep::DeregisterOld, "registered anew, ibv_dereg_mr of the old one: "),
        (MemoryStep::Deregister, "ibv_dereg_mr: "),
    ];
    for (step, text) in steps {
        let error = memory::MemoryError::from(failure(step));
        assert_eq!(error.to_string(), format!("{text}ENOMEM; the MR can only be deregistered"));
        assert_eq!(error.errno(), Errno::ENOMEM);
    }
    let valid = [Valid::Old, Valid::New].map(|valid| valid.to_string());
    assert_eq!(valid, ["the old registration is valid", "the new registration is valid"]);
    let fault = |target| memory::MemoryFault { outcome: memory::MemoryRequest::Register, target };
    assert_eq!(
        fault(memory::MemoryTarget::Mr(Some(MrState::Gone))).to_string(),
        "an outcome of register for an MR while gone"
    );
    assert_eq!(
        fault(memory::MemoryTarget::Pd(PdState::Live)).to_string(),
        "an outcome of register for a PD while live"
    );
    let others = [
        (memory::MemoryError::from(fault(memory::MemoryTarget::Pd(PdState::Live))), Errno::EIO),
        (memory::MemoryError::register(Errno::EFAULT, 8, None), Errno::EFAULT),
        (memory::MemoryError::Dealloc(Errno::EBUSY), Errno::EBUSY),
    ];
    for (error, errno) in others {
        assert_eq!(error.errno(), errno, "{error}");
    }
}

/// The limit that a registration is above, with its size; and that unmapped memory is not the only one that cannot be
/// pinned.
#[test]
fn a_registration_that_fails_names_its_cause() {
    let text = |errno, limit| memory::MemoryError::register(errno, 1 << 20, limit).to_string();
    let limit = "ibv_reg_mr: ENOMEM: 1048576 bytes, with a limit on locked memory (RLIMIT_MEMLOCK) of 65536 bytes";
    assert_eq!(text(Errno::ENOMEM, Some(65536)), limit);
    assert_eq!(text(Errno::ENOMEM, None), "ibv_reg_mr: ENOMEM");
    let pinned =
        "ibv_reg_mr: EFAULT: its pages cannot be pinned: they are not mapped, or are read-only, or belong to a file";
    assert_eq!(text(Errno::EFAULT, Some(65536)), pinned);
    assert_eq!(text(Errno::EOPNOTSUPP, Some(65536)), "ibv_reg_mr: EOPNOTSUPP");
}

#[test]
fn codes_are_what_the_library_returns() {
    let names = ["done", "ERR_INPUT", "ERR_DONT_FORK_NEW", "ERR_DO_FORK_OLD", "ERR_CMD", "ERR_CMD_AND_DO_FORK_NEW"];
    for (at, (code, name)) in Code::ALL.into_iter().zip(names).enumerate() {
        assert_eq!((code.as_raw(), code.to_string().as_str()), (-(at as i32), name));
        assert_eq!(Code::from_raw(code.as_raw()), code);
    }
    assert_eq!((Code::from_raw(-6).as_raw(), Code::from_raw(-6).to_string().as_str()), (-6, "the undocumented -6"));
}

#[test]
fn cores_that_are_equal_hash_alike_and_others_do_not() {
    let hasher = RandomState::new();
    let mut core = Core::new(Limits::default());
    let (channel, begun) = core.open_channel(Acks::OnDelivery).unwrap();
    assert!(matches!(begun.end(Ok(())), Flow::Done(Ok(_))));
    let (id, begun) = core.create_id(Some(channel), PortSpace::Tcp).unwrap();
    assert!(matches!(begun.end(Ok(())), Flow::Done(Ok(_))));
    let before = core.clone();
    let data = |first| RawEvent {
        private_data: if first { &[1][..] } else { &[2] },
        ..RawEvent::new(id, CmEvent::AddrChange)
    };
    core.handle_event(channel, data(true)).unwrap();
    let mut other = before.clone();
    other.handle_event(channel, data(false)).unwrap();
    let same = core.clone();
    assert_eq!((&core, hasher.hash_one(&core)), (&same, hasher.hash_one(&same)));
    for differs in [&before, &other] {
        assert_ne!(&core, differs);
        assert_ne!(hasher.hash_one(&core), hasher.hash_one(differs));
    }
}

#[test]
fn private_data_is_its_bytes() {
    let hasher = RandomState::new();
    let [one, same, other] = [&[1, 2][..], &[1, 2], &[1, 2, 0]].map(PrivateData::copy_of);
    assert_eq!((&one, hasher.hash_one(&one)), (&same, hasher.hash_one(&same)));
    assert_ne!(one, other);
    assert_eq!((&*other, format!("{other:?}").as_str()), (&[1, 2, 0][..], "3 bytes"));
}

#[test]
fn numbers_of_errors_have_their_names() {
    let named = [(Errno::EPERM, "EPERM"), (Errno::ETIMEDOUT, "ETIMEDOUT"), (Errno::ECANCELED, "ECANCELED")];
    for (errno, name) in named {
        assert_eq!((errno.symbol(), format!("{errno:?}").as_str()), (Some(name), name));
    }
    assert_eq!((Errno(0).symbol(), Errno(-3).to_string().as_str()), (None, "errno -3"));
}

/// What `{:#}` of anyhow prints: an error and its sources.
fn chain(error: &dyn std::error::Error) -> Vec<String> {
    std::iter::successors(Some(error), |error| error.source()).map(ToString::to_string).collect()
}

/// A value without a text and a `Debug` form.
struct Blank;

/// A `main` that returns an error prints its `Debug` form, and a chain of errors prints each source.
#[test]
fn an_error_prints_itself_once_and_in_words() {
    use cmid_proto::datapath::{
        BatchError, CreateCall, CreateError, DrainError, ModifyError, ModifyReason, PostCall, PostError, PostReason,
        Unpolled, WcStatus,
    };

    let id = IdKey::from_parts(0, 5, 2).unwrap();
    let created = CreateError::new(CreateCall::CreateCq, Errno::ENOMEM.into());
    let (target, state, errno) = (Target::Id(id), State::Bound, Errno::ENOMEM);
    let failure = Failure { call: "create_qp", target, state, errno, cause: Some(FailureCause::Create(created)) };
    let post = PostError::new(PostCall::Recv, 3, PostReason::HasSrq);
    let memory = memory::MemoryFailure { step: MemoryStep::Deregister, errno: Errno::EIO, valid: Valid::Neither };
    let kept = memory::MemoryRefused {
        request: memory::MemoryRequest::Deregister,
        target: memory::MemoryTarget::Mr(None),
        reason: memory::MemoryReason::WindowBound,
    };
    let fault = Fault::WrongChild { id };
    let errors: Vec<Box<dyn std::error::Error>> = vec![
        Box::new(refused(RefuseReason::WrongState)),
        Box::new(Error::from(refused(RefuseReason::HasQp))),
        Box::new(failure),
        Box::new(Error::from(failure)),
        Box::new(fault),
        Box::new(Error::from(fault)),
        Box::new(Error::from(Refused::NothingOwed { owner: id })),
        Box::new(HandshakeError::from(Error::from(refused(RefuseReason::WrongState)))),
        Box::new(HandshakeError::from(Error::from(failure))),
        Box::new(HandshakeError::from(Error::from(fault))),
        Box::new(created),
        Box::new(CreateError::from(memory::MemoryError::register(Errno::ENOMEM, 4096, Some(1)))),
        Box::new(CreateError::from(ModifyError { num: 9, reason: ModifyReason::Device(Errno::EIO) })),
        Box::new(memory),
        Box::new(memory::MemoryError::from(memory)),
        Box::new(memory::MemoryError::from(kept)),
        Box::new(post),
        Box::new(BatchError { posted: 3, error: post }),
        Box::new(ErrorWith::<_, PostError>::new(Blank, post)),
        Box::new(DrainError::TimedOut(Unpolled::default())),
    ];
    for error in &errors {
        assert_eq!(chain(&**error), [error.to_string()], "the text has that of the part");
        assert_eq!(format!("{error:?}"), error.to_string());
    }
    let error = HandshakeError::from(Error::from(failure));
    let text = error.to_string();
    assert_eq!(chain(&std::io::Error::from(error)), [text]);
    let cause = FailureCause::LoopbackPeer;
    assert_eq!(
        (format!("{cause:?}"), format!("{:?}", WcStatus::REM_ACCESS_ERR)),
        (cause.to_string(), "remote access error".into())
    );
    assert_eq!(format!("{:?}", RefuseReason::WrongState), "not in this state");
    // An error of the application keeps its own chain.
    let own = std::io::Error::other("7 of 9".parse::<u8>().unwrap_err());
    let passed = HandshakeError::Attach(Box::new(own));
    assert_eq!(chain(&passed), ["invalid digit found in string"]);
    let held = ErrorWith::<_, HandshakeError>::new(Blank, passed);
    assert_eq!((chain(&held), format!("{held:?}")), (chain(&held.error), format!("{:?}", held.error)));
}
