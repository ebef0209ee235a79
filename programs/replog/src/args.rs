//! The command line.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};

/// A replicated log for a storage engine.
#[derive(Debug, Parser)]
#[command(version)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Shows a failover of three replicas on the simulated fabric
    Demo,
    /// Runs a replica
    Serve(Serve),
    /// Kills and pauses three replicas of this machine at random moments while clients append, and checks the log
    Torture {
        #[command(flatten)]
        local: Local,
        /// Replicas on other machines, by their addresses for clients, in the order of their numbers. An operator,
        /// which is a program that reads this program's output, cuts their power and links
        #[arg(long)]
        operated: Vec<SocketAddr>,
        /// The transport between replicas
        #[arg(long, value_enum, default_value_t = Transport::Rdma)]
        transport: Transport,
        /// The number of kills and pauses
        #[arg(long, default_value_t = 10)]
        rounds: u32,
        /// The seed of the random moments
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Measures appends on three replicas of this machine, over RDMA and over TCP
    Bench {
        #[command(flatten)]
        local: Local,
        /// The time of each measurement, in seconds
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=86_400))]
        seconds: u64,
    },
    /// Prints the events of simulated worlds. The bytes of each file are the faults of a world, as in the fuzz target
    /// `world`
    World {
        /// The files
        #[arg(required = true)]
        inputs: Vec<PathBuf>,
    },
    /// Appends a record and prints its index
    Append {
        #[command(flatten)]
        replicas: Replicas,
        /// The record
        text: String,
        /// The time limit in seconds
        #[arg(long, default_value_t = 30)]
        limit: u64,
    },
    /// Prints a record of the first of the given replicas
    Read {
        #[command(flatten)]
        replicas: Replicas,
        /// The index of the record
        index: u64,
    },
    /// Prints the state of each replica
    Status {
        #[command(flatten)]
        replicas: Replicas,
    },
}

/// The addresses of the replicas for clients.
#[derive(Debug, ClapArgs)]
pub(crate) struct Replicas {
    /// The addresses of the replicas for clients, in the order of their numbers; once for each replica
    #[arg(long, required = true)]
    pub(crate) client: Vec<SocketAddr>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Serve {
    /// The number of this replica, from 0 on
    #[arg(long)]
    pub(crate) id: usize,
    /// The addresses of all replicas, in the order of their numbers; once for each replica
    #[arg(long, required = true)]
    pub(crate) replica: Vec<SocketAddr>,
    /// The TCP address for clients
    #[arg(long)]
    pub(crate) client: SocketAddr,
    /// The folder of the log; created if it is missing
    #[arg(long)]
    pub(crate) folder: PathBuf,
    /// The transport between replicas
    #[arg(long, value_enum, default_value_t = Transport::Rdma)]
    pub(crate) transport: Transport,
    /// The election timeout in milliseconds: a replica starts an election after one to two timeouts without a message
    /// of a leader
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pub(crate) election_timeout: u64,
    /// Ends with the program that has started it
    #[arg(long, hide = true)]
    pub(crate) with_parent: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Transport {
    /// RDMA writes; needs the feature `verbs`
    Rdma,
    /// TCP, for comparison
    Tcp,
}

/// Replicas on this machine.
#[derive(Debug, ClapArgs)]
pub(crate) struct Local {
    /// The address of all replicas; an address of an RDMA device, unless they use TCP
    #[arg(long, default_value = "10.99.0.1")]
    pub(crate) address: IpAddr,
    /// The election timeout of the replicas in milliseconds
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pub(crate) election_timeout: u64,
}
