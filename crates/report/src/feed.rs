//! What the agent tells `justitia-web`: one [`Frame`] a step, each a line of JSON.
//!
//! ```text
//! {"listen":"127.0.0.1:9619","own":{..},"report":{..}}
//! ```
//!
//! One way: the agent reads nothing of it. `listen` and `tls` are there because the agent reads the configuration
//! and may read the key, and the web process can open no file; it follows a change at the next step.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::own::Own;

/// Name of the socket in the agent's state directory.
pub const SOCKET: &str = "status.sock";

/// Where the page is unless told otherwise: this machine only.
pub const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9619);

/// What a Unix socket's address begins with.
const UNIX: &str = "unix:";
/// Longest path of a Unix socket, bytes (`unix(7)`).
const LONGEST_PATH: usize = 107;

/// Where the page is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Listen {
    /// A TCP port.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Tcp(address) => address.fmt(f),
            Listen::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Listen, String> {
        match text.strip_prefix(UNIX) {
            Some(path) if path.starts_with('/') && path.len() <= LONGEST_PATH => {
                Ok(Listen::Unix(path.into()))
            }
            Some(_) => Err(format!(
                "listen {text} is not the path of a Unix socket: it begins with / and has at most {LONGEST_PATH} bytes"
            )),
            None => text
                .parse()
                .map(Listen::Tcp)
                .map_err(|_| format!("listen {text} is not an IP address with a port")),
        }
    }
}

impl TryFrom<String> for Listen {
    type Error = String;

    fn try_from(text: String) -> Result<Listen, String> {
        text.parse()
    }
}

impl From<Listen> for String {
    fn from(listen: Listen) -> String {
        listen.to_string()
    }
}

/// What the page's TLS is made of.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tls {
    /// PEM, as it was read.
    Pem {
        /// The certificate and those between it and an authority.
        certificate: String,
        /// Its key.
        key: String,
    },
    /// Why it could not be read.
    Unreadable(String),
}

/// A key does not show.
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls(..)")
    }
}

/// What is told of one step.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Frame<R> {
    /// Where the live page and the metrics are to be; `None`: nowhere.
    pub listen: Option<Listen>,
    /// TLS of a TCP port; `None`: without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// What the agent's process costs.
    pub own: Own,
    /// The report.
    pub report: R,
}

/// Where to listen: an address with a port, a Unix socket, or `off`. Errors as cause and remedy.
pub fn parse_listen(text: &str) -> Result<Option<Listen>, (String, String)> {
    if text == "off" {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|cause| {
        (
            cause,
            format!(
                "use for example {DEFAULT_LISTEN}, [::1]:9619 or unix:/run/justitia-web/page.sock; off for no metrics and no page"
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
            "unix:",
            "unix:page.sock",
        ] {
            let (cause, remedy) = parse_listen(wrong).unwrap_err();
            assert!(
                cause.contains(wrong) && remedy.contains("127.0.0.1:9619"),
                "{cause}; {remedy}"
            );
        }
    }

    #[test]
    fn a_unix_socket_is_its_path() {
        let listen = parse_listen("unix:/run/page.sock").unwrap().unwrap();
        assert_eq!(listen, Listen::Unix("/run/page.sock".into()));
        let json = serde_json::to_string(&listen).unwrap();
        assert_eq!(json, "\"unix:/run/page.sock\"");
        assert_eq!(serde_json::from_str::<Listen>(&json).unwrap(), listen);
        assert!(parse_listen(&format!("unix:/{}", "x".repeat(LONGEST_PATH))).is_err());
    }

    #[test]
    fn a_key_does_not_show() {
        let tls = Tls::Pem {
            certificate: "hush".into(),
            key: "hush".into(),
        };
        assert!(!format!("{tls:?}").contains("hush"));
    }

    #[test]
    fn the_default_is_this_machine_only() {
        assert!(DEFAULT_LISTEN.ip().is_loopback());
        assert_eq!(DEFAULT_LISTEN.port(), 9619);
    }
}
