//! The QPs of a program with many connections.

use cmid_proto::IdKey;
use cmid_verbs::Qp;

/// QPs by id: the lower half of an id's key is a small index.
#[derive(Default)]
pub(crate) struct Qps(Vec<Option<Qp>>);

impl Qps {
    pub(crate) fn put(&mut self, id: IdKey, qp: Qp) {
        let at = index(id);
        if self.0.len() <= at {
            self.0.resize_with(at + 1, || None);
        }
        self.0[at] = Some(qp);
    }

    pub(crate) fn take(&mut self, id: IdKey) -> Option<Qp> {
        self.0.get_mut(index(id))?.take()
    }
}

fn index(id: IdKey) -> usize {
    id.slot()
}
