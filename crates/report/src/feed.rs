//! What the agent tells `justitia-web`: one [`Frame`] a step, each a line of JSON.
//!
//! ```text
//! {"listen":"127.0.0.1:9619","own":{..},"report":{..}}
//! ```
//!
//! One way: the agent reads nothing of it. `listen` is there because the agent reads the configuration, and the
//! web process can open no file; it follows a change at the next step.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::own::Own;

/// Name of the socket in the agent's state directory.
pub const SOCKET: &str = "status.sock";

/// Where the page is unless told otherwise: this machine only.
pub const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9619);

/// What is told of one step.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Frame<R> {
    /// Where the live page and the metrics are to be; `None`: nowhere.
    pub listen: Option<SocketAddr>,
    /// What the agent's process costs.
    pub own: Own,
    /// The report.
    pub report: R,
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_needs_a_number_and_a_port() {
        assert_eq!(parse_listen("off"), Ok(None));
        let address = parse_listen("[::1]:80").unwrap().unwrap();
        assert_eq!(address.to_string(), "[::1]:80");
        for wrong in [
            "",
            "on",
            "localhost:80",
            "127.0.0.1",
            ":80",
            "127.0.0.1:99999",
            "OFF",
        ] {
            let (cause, remedy) = parse_listen(wrong).unwrap_err();
            assert!(
                cause.contains(wrong) && remedy.contains("127.0.0.1:9619"),
                "{cause}; {remedy}"
            );
        }
    }

    #[test]
    fn the_default_is_this_machine_only() {
        assert!(DEFAULT_LISTEN.ip().is_loopback());
        assert_eq!(DEFAULT_LISTEN.port(), 9619);
    }
}
