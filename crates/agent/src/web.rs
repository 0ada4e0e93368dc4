//! Metrics, and a live page, over HTTP on a loopback port.
//!
//! ```text
//! the agent's loop -> Board -> web thread -> / /metrics /api/status /api/history /healthz
//!                                   |
//!                                   +-- history: the last ten minutes
//! ```
//!
//! [`describe`] is the one description of everything that is told: the metrics, `justitia status
//! --fields` and `docs/metrics.md` come from it.
//!
//! Invariants: the agent's loop never waits for anybody who looks; nothing can be changed here;
//! memory is bounded whatever clients do and however many groups there are; the page loads nothing
//! from elsewhere and no other site can read it. Left out on purpose: TLS, authentication and
//! compression; who needs them puts a proxy in front.

mod connection;
pub mod describe;
mod fields;
mod history;
// Public for the fuzz target.
#[doc(hidden)]
pub mod http;
pub mod openmetrics;
pub mod own;
mod server;
mod site;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::error::plain;
use crate::log::Log;
use crate::socket::Board;

pub use http::DEFAULT_LISTEN;
pub use server::Server;

/// Where to listen: an address with a port, or `off`. Errors as cause and remedy.
pub fn parse_listen(text: &str) -> Result<Option<SocketAddr>, (String, String)> {
    if text == "off" {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        (
            format!("listen {text} is not an IP address with a port"),
            format!(
                "use for example {DEFAULT_LISTEN} or [::1]:9619; off for no metrics and no page"
            ),
        )
    })
}

/// Starts serving, if there is an address. What stands in the way is told and no reason to stop:
/// the agent's work is another.
pub fn start(listen: Option<SocketAddr>, board: Arc<Board>, log: &Log) -> Option<Server> {
    let listen = listen?;
    match Server::start(listen, board) {
        Ok(server) => {
            let address = http::reachable(server.address());
            log.info(format_args!("live page and metrics at http://{address}/"));
            Some(server)
        }
        Err(error) => {
            let remedy = match error.kind() {
                ErrorKind::AddrInUse => "stop what listens there, or choose another port with listen = \"127.0.0.1:PORT\" or --listen",
                ErrorKind::AddrNotAvailable => "choose an address of this machine with listen = \"ADDRESS:PORT\" or --listen",
                ErrorKind::PermissionDenied => "choose a port above 1023 with listen = \"127.0.0.1:PORT\" or --listen; under systemd see RestrictAddressFamilies",
                _ => "choose another address with listen or --listen, or off",
            };
            log.warn(format_args!(
                "no live page and no metrics: cannot listen at {listen}: {}; {remedy}",
                plain(&error)
            ));
            None
        }
    }
}

#[cfg(test)]
use crate::status::{Problem, Reading, Reclaimed, Tick};
#[cfg(test)]
pub(crate) mod example;

#[cfg(test)]
#[path = "web/web_tests.rs"]
mod tests;
