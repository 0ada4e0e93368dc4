//! The feed from the agent to `justitia-web`: one [`Frame`] per step, each a line of JSON.
//!
//! ```text
//! {"listen":"127.0.0.1:9619","own":{..},"report":{..}}
//! ```
//!
//! The feed is one-way: the agent reads nothing from the connection. `listen` and `tls` are in the frame
//! because the agent can read the configuration and the key, and the web process can open no file. The web
//! process follows a change at the next step.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::own::Own;

/// Name of the socket in the agent's state directory.
pub const SOCKET: &str = "status.sock";

/// The default address of the page: loopback only.
pub const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9619);

/// Prefix of a Unix socket's address.
const UNIX: &str = "unix:";
/// Longest path of a Unix socket, bytes (`unix(7)`).
const LONGEST_PATH: usize = 107;

/// The address of the page, in text `ADDRESS:PORT` or `unix:PATH`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Listen {
    Tcp(SocketAddr),
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

/// Certificate and key of the page's TLS.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tls {
    /// The files' contents in PEM.
    Pem {
        /// The certificate chain: the certificate first, then the intermediate ones.
        certificate: String,
        key: String,
    },
    /// The reason why a file could not be read.
    Unreadable(String),
}

/// Hides the key.
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls(..)")
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Frame<R> {
    /// Address of the live page and the metrics; `None`: neither is served.
    pub listen: Option<Listen>,
    /// TLS of a TCP port; `None`: plain HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    pub own: Own,
    pub report: R,
}

/// Parses an address with a port, `unix:PATH`, or `off` (`None`). Errors are cause and remedy.
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
