//! The resources of the server on each device.

use cmid_proto::datapath::{Access, DataPath, MemoryRegion, ProtectionDomain};
use cmid_proto::{Errno, IdKey};

use crate::limits::SIZE;

/// The PD and the MR on a device. They live as long as the server, which keeps the device open.
pub(crate) struct Stock<D: DataPath> {
    nic: D::Nic,
    pub(crate) mr: D::Mr,
    // Dropped after the MR.
    pub(crate) pd: D::Pd,
}

/// The PD and the MR of each device that had a connection request.
pub(crate) struct Stocks<D: DataPath> {
    stocks: Vec<Stock<D>>,
    /// Returns the name of a device.
    name: fn(&D::Nic) -> String,
}

impl<D: DataPath> Stocks<D> {
    pub(crate) fn new(name: fn(&D::Nic) -> String) -> Self {
        Stocks { stocks: Vec::new(), name }
    }

    /// Returns the number of devices.
    pub(crate) fn len(&self) -> usize {
        self.stocks.len()
    }

    /// Returns the PD and the MR on the device of an id. The first id on a device creates them.
    pub(crate) fn of(&mut self, device: &mut D, id: IdKey) -> Result<&Stock<D>, Errno> {
        let nic = device.device_of(id)?;
        let at = match self.stocks.iter().position(|stock| stock.nic == nic) {
            Some(at) => at,
            None => {
                let stock = self.open(device, nic)?;
                self.stocks.push(stock);
                self.stocks.len() - 1
            }
        };
        self.stocks.get(at).ok_or(Errno::ENODEV)
    }

    /// Allocates the PD on a device, and registers memory that contains the name of the device.
    fn open(&self, device: &mut D, nic: D::Nic) -> Result<Stock<D>, Errno> {
        let pd = device.alloc_pd_on(&nic)?;
        let mut bytes = (self.name)(&nic).into_bytes();
        bytes.resize(SIZE, 0);
        let mr = pd.register(bytes, Access::LOCAL_WRITE | Access::REMOTE_READ).map_err(|(_, error)| error.errno())?;
        println!("server: memory on {} is registered, rkey {:#x}", (self.name)(&nic), mr.rkey());
        Ok(Stock { nic, mr, pd })
    }
}
