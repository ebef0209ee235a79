//! A QP with its PD and CQs in one call.

use core::fmt;

use super::{Caps, CreateError, DataPath, QpAttrs, QueuePair, SharedReceiveQueue};
use crate::drive::{Attaching, Drive, Observer, Poller};
use crate::error::Error;
use crate::key::IdKey;

/// A QP, its PD and its CQ. `C` is what [`QpBuilder::cq`] was called with: a CQ, or two CQs `(sends, receives)`.
pub struct QpParts<D: DataPath, C = <D as DataPath>::Cq> {
    /// The QP.
    pub qp: D::Qp,
    /// Its PD.
    pub pd: D::Pd,
    /// The CQ of its sends and receives.
    pub cq: C,
}

impl<D: DataPath, C> fmt::Debug for QpParts<D, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QpParts(QP {})", self.qp.num())
    }
}

impl<D: DataPath> QpParts<D> {
    /// Creates a QP with a PD and a CQ of its own and with [`Caps::default`]. It is the closure of a
    /// [`Drive::attach_qp`], or of a connect or accept, that has no wishes.
    ///
    /// # Errors
    /// As [`QpBuilder::attach`].
    pub fn attach(device: &mut D, attaching: Attaching<'_>) -> Result<Self, CreateError> {
        device.qp(attaching).attach()
    }
}

/// What a QP is created with. Without a wish it has a PD of its own, and a CQ of its own that its completions fit in.
/// [`Drive::qp`] begins one, and [`DataPath::qp`] in the closure of a connect or accept; `attach` creates the QP.
///
/// ```
/// use cmid_proto::datapath::{Caps, CreateError, DataPath, QpParts};
/// use cmid_proto::{Drive, Error, IdKey};
///
/// /// `id` has a device: it is bound, or its address is resolved.
/// fn attach<D: DataPath>(drive: &mut Drive<D>, id: IdKey) -> Result<QpParts<D>, Error> {
///     drive.qp(id).caps(Caps { max_send_wr: 64, ..Caps::default() }).attach()
/// }
///
/// /// As many QPs as ids, with one PD and one CQ.
/// fn attach_all<D: DataPath>(drive: &mut Drive<D>, ids: &[IdKey], pd: &D::Pd, cq: &D::Cq) -> Result<Vec<D::Qp>, Error> {
///     ids.iter().map(|id| Ok(drive.qp(*id).pd(pd).cq(cq).attach()?.qp)).collect()
/// }
/// ```
#[doc(alias("ibv_qp_init_attr", "QueuePairBuilder", "rdma_create_qp"))]
#[must_use = "`attach` creates the QP"]
pub struct QpBuilder<'a, T, D: DataPath, C = Fitting> {
    /// Where the QP is created: a drive and an id, or a device and its permission.
    target: T,
    pd: Option<&'a D::Pd>,
    srq: Option<&'a D::Srq>,
    cqs: C,
    caps: Caps,
    attrs: QpAttrs,
}

impl<T, D: DataPath, C> fmt::Debug for QpBuilder<'_, T, D, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QpBuilder").field("caps", &self.caps).field("attrs", &self.attrs).finish_non_exhaustive()
    }
}

impl<'a, T, D: DataPath> QpBuilder<'a, T, D> {
    pub(super) fn new(target: T) -> Self {
        QpBuilder { target, pd: None, srq: None, cqs: Fitting, caps: Caps::default(), attrs: QpAttrs::default() }
    }
}

impl<'a, T, D: DataPath, C> QpBuilder<'a, T, D, C> {
    /// Selects a PD, instead of a new one.
    pub fn pd(self, pd: &'a D::Pd) -> Self {
        QpBuilder { pd: Some(pd), ..self }
    }

    /// Selects the CQs: the depth of a new one, a reference to one that exists, or a pair of either, for sends and for
    /// receives. Without it one is created with a depth of all work requests of [`QpBuilder::caps`].
    pub fn cq<N: Cqs<D>>(self, cqs: N) -> QpBuilder<'a, T, D, N> {
        let QpBuilder { target, pd, srq, caps, attrs, cqs: _ } = self;
        QpBuilder { target, pd, srq, cqs, caps, attrs }
    }

    /// Takes the receives from an SRQ, of the PD that is selected: see [`DataPath::create_qp_with_srq`].
    pub fn srq(self, srq: &'a D::Srq) -> Self {
        QpBuilder { srq: Some(srq), ..self }
    }

    /// Selects the capacities, instead of [`Caps::default`].
    pub fn caps(self, caps: Caps) -> Self {
        QpBuilder { caps, ..self }
    }

    /// Selects how long the connection waits: see [`QueuePair::modify`].
    pub fn attrs(self, attrs: QpAttrs) -> Self {
        QpBuilder { attrs, ..self }
    }

    /// The builder without its target.
    fn split(self) -> (T, QpBuilder<'a, (), D, C>) {
        let QpBuilder { target, pd, srq, cqs, caps, attrs } = self;
        (target, QpBuilder { target: (), pd, srq, cqs, caps, attrs })
    }
}

impl<D: DataPath, C: Cqs<D>> QpBuilder<'_, (), D, C> {
    fn create(self, device: &mut D, attaching: Attaching<'_>) -> Result<QpParts<D, C::Made>, CreateError> {
        let QpBuilder { pd, srq, cqs, caps, attrs, .. } = self;
        let nic = device.device_of(attaching.id())?;
        let pd = pd.map_or_else(|| device.alloc_pd_on(&nic), |pd| Ok(pd.clone()))?;
        let receives = srq.map_or(caps.max_recv_wr, |srq| SharedReceiveQueue::caps(srq).max_wr);
        let made = cqs.make(device, &nic, (caps.max_send_wr, receives))?;
        let (send_cq, recv_cq) = C::queues(&made);
        let mut qp = match srq {
            None => device.create_qp(attaching, &pd, send_cq, recv_cq, caps)?,
            Some(srq) => device.create_qp_with_srq(attaching, &pd, send_cq, recv_cq, srq, caps)?,
        };
        if attrs != QpAttrs::default() {
            qp.modify(attrs)?;
        }
        Ok(QpParts { qp, pd, cq: made })
    }
}

impl<D: DataPath, C: Cqs<D>> QpBuilder<'_, (&mut D, Attaching<'_>), D, C> {
    /// Creates the QP, in the closure of [`Drive::attach_qp`].
    ///
    /// # Errors
    /// As [`DataPath::alloc_pd`], [`DataPath::create_cq`], [`DataPath::create_qp`] and
    /// [`DataPath::create_qp_with_srq`]. [`CreateReason::Modify`](super::CreateReason::Modify) if the QP cannot have the
    /// attributes.
    pub fn attach(self) -> Result<QpParts<D, C::Made>, CreateError> {
        let ((device, attaching), builder) = self.split();
        builder.create(device, attaching)
    }
}

impl<D: DataPath, C: Cqs<D>, P: Poller<D>, O: Observer> QpBuilder<'_, (&mut Drive<D, P, O>, IdKey), D, C> {
    /// Creates the QP and attaches it to the id.
    ///
    /// # Errors
    /// As [`Drive::attach_qp`], whose [`FailureCause::Create`](crate::FailureCause::Create) is that of the PD, the CQ or
    /// the QP.
    pub fn attach(self) -> Result<QpParts<D, C::Made>, Error> {
        let ((drive, id), builder) = self.split();
        drive.attach_qp(id, |device, attaching| builder.create(device, attaching))
    }
}

impl<D: DataPath, P: Poller<D>, O: Observer> Drive<D, P, O> {
    /// Begins a QP for an id, which has a device: it is bound to an address, its address is resolved, or it is that of
    /// a connection request.
    #[doc(alias("rdma_create_qp", "ibv_create_qp"))]
    pub fn qp(&mut self, id: IdKey) -> QpBuilder<'_, (&mut Self, IdKey), D> {
        QpBuilder::new((self, id))
    }
}

/// The CQs of a new QP: see [`QpBuilder::cq`].
pub trait Cqs<D: DataPath> {
    /// What [`QpParts::cq`] is.
    type Made;

    /// Creates the CQs that do not exist. `most` is the number of work requests that sends and receives may have.
    ///
    /// # Errors
    /// As [`DataPath::create_cq`].
    fn make(self, device: &mut D, nic: &D::Nic, most: (u32, u32)) -> Result<Self::Made, CreateError>;

    /// Returns the CQs of sends and of receives.
    fn queues(made: &Self::Made) -> (&D::Cq, &D::Cq);
}

/// One new CQ that all completions of the QP fit in.
#[derive(Clone, Copy, Debug)]
pub struct Fitting;

impl<D: DataPath> Cqs<D> for Fitting {
    type Made = D::Cq;

    fn make(self, device: &mut D, nic: &D::Nic, (sends, receives): (u32, u32)) -> Result<D::Cq, CreateError> {
        device.create_cq_on(nic, sends.saturating_add(receives))
    }

    fn queues(made: &D::Cq) -> (&D::Cq, &D::Cq) {
        (made, made)
    }
}

/// One new CQ of this depth.
impl<D: DataPath> Cqs<D> for u32 {
    type Made = D::Cq;

    fn make(self, device: &mut D, nic: &D::Nic, _: (u32, u32)) -> Result<D::Cq, CreateError> {
        device.create_cq_on(nic, self)
    }

    fn queues(made: &D::Cq) -> (&D::Cq, &D::Cq) {
        (made, made)
    }
}

/// Two new CQs of these depths, for sends and for receives.
impl<D: DataPath> Cqs<D> for (u32, u32) {
    type Made = (D::Cq, D::Cq);

    fn make(self, device: &mut D, nic: &D::Nic, _: (u32, u32)) -> Result<Self::Made, CreateError> {
        Ok((device.create_cq_on(nic, self.0)?, device.create_cq_on(nic, self.1)?))
    }

    fn queues((sends, receives): &Self::Made) -> (&D::Cq, &D::Cq) {
        (sends, receives)
    }
}

/// One CQ that exists.
impl<'a, D: DataPath> Cqs<D> for &'a D::Cq {
    type Made = &'a D::Cq;

    fn make(self, _: &mut D, _: &D::Nic, _: (u32, u32)) -> Result<Self, CreateError> {
        Ok(self)
    }

    fn queues<'m>(made: &'m &'a D::Cq) -> (&'m D::Cq, &'m D::Cq) {
        (made, made)
    }
}

/// Two CQs that exist, for sends and for receives.
impl<'a, D: DataPath> Cqs<D> for (&'a D::Cq, &'a D::Cq) {
    type Made = Self;

    fn make(self, _: &mut D, _: &D::Nic, _: (u32, u32)) -> Result<Self, CreateError> {
        Ok(self)
    }

    fn queues((sends, receives): &Self) -> (&D::Cq, &D::Cq) {
        (sends, receives)
    }
}
