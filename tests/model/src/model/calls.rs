//! The effects of calls in the kernel and librdmacm.
//!
//! Panics on calls that the core must never make: calls that crash the library, break a connection, delay a later
//! destroy for more than a minute, or lose requests.

use cmid_proto::{Call, CmEvent, Errno, IdKey, Outcome};

use super::kernel::{File, Id, Kernel, Membership, No, Phase};

impl Kernel {
    /// Executes a call of an id. `refused` is an errno of an external failure, for calls where one is possible.
    pub(crate) fn call(
        &mut self,
        no: No,
        call: &Call,
        from_to: Option<(File, File)>,
        refused: Option<Errno>,
    ) -> Outcome {
        if let Call::Destroy { .. } = call {
            self.destroy(no);
            return Ok(());
        }
        if self.id(no).removed {
            // The record of a membership is removed nevertheless.
            match call {
                Call::Leave { .. } => self.leave(no, call),
                Call::Migrate { .. } if self.moves_removed => {
                    refused.map_or(Ok(()), Err)?;
                    self.migrate(no, from_to);
                    return Ok(());
                }
                _ => {}
            }
            return Err(Errno::ENXIO);
        }
        self.judge(no, call, refused)?;
        self.carry_out(no, call, from_to);
        Ok(())
    }

    /// Whether the kernel accepts the call. A refused call changes little.
    fn judge(&mut self, no: No, call: &Call, refused: Option<Errno>) -> Outcome {
        let stage = self.id(no).stage;
        let legal = match call {
            Call::Bind { .. } => stage == Phase::Idle,
            Call::ResolveAddr { src, .. } => {
                assert!(src.is_none() || stage == Phase::Idle, "{call:?}: the kernel would ignore the source");
                matches!(stage, Phase::Idle | Phase::Bound)
            }
            Call::Listen { .. } => matches!(stage, Phase::Idle | Phase::Bound),
            Call::ResolveRoute { .. } => self.with_device(no, call) && stage == Phase::AddrResolved,
            Call::Connect { .. } => self.with_device(no, call) && stage == Phase::RouteResolved,
            Call::Accept { .. } => {
                // The core itself destroys what is requested of one that leaves.
                let listens = |other: &Id| other.stage == Phase::Listen && !other.removed && !other.leaving;
                let shares = |other: &Id| listens(other) && other.file == self.id(no).file;
                assert!(
                    !self.ids.values().any(shares),
                    "{call:?} on the channel of a listener: requests delay its events"
                );
                self.with_device(no, call)
                    && self.is_no_hazard(no, call)
                    && matches!(stage, Phase::ReqRcvd | Phase::SidrRcvd)
            }
            Call::Reject { .. } => {
                self.is_no_hazard(no, call) && matches!(stage, Phase::ReqRcvd | Phase::SidrRcvd | Phase::RepRcvd)
            }
            Call::Establish { .. } => {
                assert!(!matches!(stage, Phase::ReqRcvd | Phase::SidrRcvd), "{call:?} breaks the connection");
                self.is_no_hazard(no, call) && stage == Phase::RepRcvd
            }
            Call::Notify { .. } => {
                if stage == Phase::Established {
                    return Err(Errno::EISCONN);
                }
                stage == Phase::RepSent
            }
            Call::Join { .. } => {
                self.with_device(no, call)
                    && self.id(no).datagram
                    && matches!(stage, Phase::Bound | Phase::AddrResolved)
            }
            Call::Migrate { .. } => {
                assert!(stage != Phase::Listen, "{call:?}: no kernel can migrate a listener without losing requests");
                true
            }
            Call::Disconnect { .. } | Call::Leave { .. } | Call::SetOption { .. } | Call::SetEce { .. } => true,
            Call::OpenChannel { .. } | Call::CloseChannel { .. } | Call::CreateId { .. } | Call::Destroy { .. } => {
                unreachable!("not judged here")
            }
        };
        // What crosses with an unread event of the peer.
        let may_cross = matches!(
            call,
            Call::Accept { .. }
                | Call::Reject { .. }
                | Call::Establish { .. }
                | Call::Notify { .. }
                | Call::Bind { .. }
                | Call::Listen { .. }
        );
        assert!(legal || may_cross, "{call:?} in {stage:?}");
        let verdict = if legal { refused.map_or(Ok(()), Err) } else { Err(Errno::EINVAL) };
        if let Err(errno) = verdict {
            self.refuse(no, call, errno);
        }
        verdict
    }

    fn with_device(&self, no: No, call: &Call) -> bool {
        assert!(self.id(no).verbs, "{call:?}: librdmacm would follow a null pointer");
        true
    }

    fn is_no_hazard(&self, no: No, call: &Call) -> bool {
        let own_message_is_out = matches!(self.id(no).stage, Phase::ReqSent | Phase::RepSent);
        assert!(!own_message_is_out, "{call:?}: a later destroy would take 70 seconds");
        true
    }

    /// The effects of a refused call.
    fn refuse(&mut self, no: No, call: &Call, errno: Errno) {
        let id = self.id_mut(no);
        let binds = matches!(call, Call::Bind { .. } | Call::ResolveAddr { .. } | Call::Listen { .. });
        if matches!(call, Call::Accept { .. } | Call::Reject { .. } | Call::Establish { .. }) {
            id.stage = Phase::Over;
        } else if binds && id.stage == Phase::Idle && matches!(errno, Errno::ENETUNREACH | Errno::ENOMEM) {
            // The address was the first step, and a later one has failed.
            (id.stage, id.bound_unseen) = (Phase::Bound, true);
        } else if matches!(call, Call::Leave { .. }) {
            self.leave(no, call);
        }
    }

    fn carry_out(&mut self, no: No, call: &Call, from_to: Option<(File, File)>) {
        let id = self.id_mut(no);
        match *call {
            Call::Bind { addr, .. } => {
                id.stage = Phase::Bound;
                let of_a_device = !addr.ip().is_unspecified() && !addr.ip().is_loopback();
                (id.device, id.verbs) = (of_a_device, of_a_device);
            }
            Call::ResolveAddr { .. } => (id.stage, id.bound_unseen) = (Phase::AddrQuery, false),
            Call::ResolveRoute { .. } => (id.stage, id.watched) = (Phase::RouteQuery, true),
            Call::Listen { .. } => id.stage = Phase::Listen,
            Call::Connect { .. } => id.stage = if id.datagram { Phase::SidrSent } else { Phase::ReqSent },
            Call::Accept { .. } => {
                id.stage = if id.datagram { Phase::Over } else { Phase::RepSent };
                id.deaf = false;
            }
            Call::Reject { .. } => id.stage = Phase::Over,
            Call::Establish { .. } => id.stage = Phase::Established,
            Call::Disconnect { .. } => match id.stage {
                Phase::Established => id.stage = Phase::DreqSent,
                Phase::DreqRcvd => id.stage = Phase::TimeWait,
                // No effect.
                _ => {}
            },
            Call::Notify { .. } => {
                id.stage = Phase::Established;
                self.report(no, CmEvent::Established, 0);
            }
            Call::Join { group, .. } => id.groups.push(Membership { key: group, joining: true, lost: false }),
            Call::Leave { .. } => self.leave(no, call),
            Call::Migrate { .. } => self.migrate(no, from_to),
            Call::SetOption { .. }
            | Call::SetEce { .. }
            | Call::OpenChannel { .. }
            | Call::CloseChannel { .. }
            | Call::CreateId { .. }
            | Call::Destroy { .. } => {}
        }
    }

    /// `ucma_migrate_id`: moves unread events to the end of the other channel, without a wakeup.
    fn migrate(&mut self, no: No, from_to: Option<(File, File)>) {
        let (from, to) = from_to.expect("the two channels of a migration");
        assert_eq!(self.id(no).file, from, "a migration from where the id is not");
        let moved = self.take_unread(no, None);
        self.id_mut(no).file = to;
        self.files.get_mut(&to).expect("a migration to a channel that is open").extend(moved);
    }

    fn leave(&mut self, no: No, call: &Call) {
        let &Call::Leave { group, .. } = call else { return };
        assert!(self.id(no).groups.iter().any(|it| it.key == group), "{call:?}: no such membership");
        self.id_mut(no).groups.retain(|it| it.key != group);
        self.take_unread(no, Some(group));
    }

    /// `rdma_create_id`.
    pub(crate) fn create(&mut self, key: IdKey, file: File, datagram: bool) -> No {
        self.insert(Id { key: Some(key), ..Id::new(file, datagram) })
    }

    /// `rdma_destroy_event_channel`; no id may be on the channel.
    pub(crate) fn close(&mut self, file: File) {
        assert!(self.ids.values().all(|id| id.file != file), "a channel is closed under an id");
        self.files.remove(&file);
    }
}
