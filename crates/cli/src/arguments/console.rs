//! `spindle console`.

use std::net::SocketAddr;

use clap::Args;

use super::values::parse_socket;

/// `spindle console`.
#[derive(Debug, Args)]
pub struct ConsoleArguments {
    /// The group; the only one that is open where none is named
    pub group: Option<String>,
    /// Where to listen: an address of the loopback interface; port 0 for any that is free
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0", value_parser = parse_socket)]
    pub listen: SocketAddr,
    /// Print a second address, whose token may change disks
    #[arg(long)]
    pub operate: bool,
}
