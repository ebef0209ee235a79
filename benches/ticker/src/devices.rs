//! The devices to measure on, by the arguments of the program.

use std::net::IpAddr;

use anyhow::Result;
use clap::{Args, ValueEnum};
use cmid_epoll::proto::datapath::DataPath;
use cmid_epoll::sim::{Clock, Config, Fabric};

/// Where to measure.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct On {
    /// The device
    #[arg(long, value_enum, default_value_t = DeviceName::Sim)]
    pub(crate) device: DeviceName,
    /// The address of the feed and the exchange
    #[arg(long, default_value = "10.99.0.1")]
    pub(crate) venue: IpAddr,
    /// The address of the trader
    #[arg(long, default_value = "10.99.0.2")]
    pub(crate) local: IpAddr,
    /// Ticks in each round of each trader
    #[arg(long, default_value_t = 400)]
    pub(crate) ticks: u64,
    /// Run the venue on the first CPU and the trader on the second
    #[arg(long)]
    pub(crate) pin: bool,
    /// Yield after each poll, to the other thread and to the kernel's workers on the same CPU
    #[arg(long)]
    pub(crate) yields: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DeviceName {
    /// The simulated fabric.
    Sim,
    /// The RDMA devices of this machine.
    Verbs,
}

impl On {
    /// What a thread does after each poll.
    pub(crate) fn after_poll(&self) {
        if self.yields {
            std::thread::yield_now();
        }
    }
}

impl DeviceName {
    pub(crate) fn name(self) -> &'static str {
        match self {
            DeviceName::Sim => "sim",
            DeviceName::Verbs => "verbs",
        }
    }
}

/// What runs on devices: those of the venue, and of the trader.
pub(crate) trait OnDevices {
    type Output;

    fn run<D: DataPath + 'static>(
        self,
        on: &On,
        venue: &(dyn Fn() -> Result<D> + Sync),
        local: &(dyn Fn() -> Result<D> + Sync),
    ) -> Result<Self::Output>;
}

pub(crate) fn on_devices<A: OnDevices>(on: &On, action: A) -> Result<A::Output> {
    match on.device {
        DeviceName::Sim => {
            let fabric = Fabric::new(Config { clock: Clock::Real, ..Config::default() });
            let [venue, local] = [on.venue, on.local].map(|address| fabric.host(&[address]));
            action.run(on, &|| Ok(venue.device()), &|| Ok(local.device()))
        }
        #[cfg(feature = "verbs")]
        DeviceName::Verbs => {
            use anyhow::Context as _;
            let open = || cmid_epoll::verbs::Verbs::open().context("no RDMA device");
            action.run(on, &open, &open)
        }
        #[cfg(not(feature = "verbs"))]
        DeviceName::Verbs => anyhow::bail!("built without the feature `verbs`"),
    }
}
