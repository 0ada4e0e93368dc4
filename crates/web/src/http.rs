//! The needed subset of HTTP/1.1: GET and HEAD, one request per connection.
//!
//! Every answer closes its connection and forbids caching, framing and loading anything from elsewhere. It
//! has no CORS headers, so scripts of other sites cannot read it. Against sites that resolve their own name
//! to this address (DNS rebinding), the `Host` of a request must be an address, or a name that no other site
//! can assign.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::exposition::Format;

/// Longest head of a request, bytes.
pub const LONGEST_HEAD: usize = 8 << 10;
const HEADERS: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The method is HEAD.
    pub head_only: bool,
    /// Without the query.
    pub path: String,
    /// The text after `?`; empty without a query.
    pub query: String,
    /// The format of metrics that its `Accept` header selects.
    pub format: Format,
}

/// The result of parsing the bytes so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parsed {
    /// The head is incomplete.
    Partial,
    /// A request that may be answered.
    Request(Request),
    /// A request that is refused with this status.
    Refused(Status),
}

/// The status of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Ok,
    BadRequest,
    /// The `Host` is none of ours.
    ForeignHost,
    NotFound,
    /// The method is neither GET nor HEAD.
    NotAllowed,
    /// The head is too long.
    TooLarge,
    /// The request waited too long for its turn.
    TooMany,
    /// The agent's loop is stalled, or there is no report yet.
    Stalled,
    /// A request without TLS where it is required.
    NoTls,
}

impl Status {
    fn line(self) -> &'static str {
        match self {
            Status::Ok => "200 OK",
            Status::BadRequest | Status::NoTls => "400 Bad Request",
            Status::ForeignHost => "403 Forbidden",
            Status::NotFound => "404 Not Found",
            Status::NotAllowed => "405 Method Not Allowed",
            Status::TooLarge => "431 Request Header Fields Too Large",
            Status::TooMany => "429 Too Many Requests",
            Status::Stalled => "503 Service Unavailable",
        }
    }

    /// The body of an answer without content.
    pub(super) fn explanation(self) -> &'static str {
        match self {
            Status::Ok => "ok\n",
            Status::BadRequest => "request not understood; this server speaks HTTP/1.1\n",
            Status::ForeignHost => {
                "this host name is not known here; use an IP address or localhost\n"
            }
            Status::NotFound => {
                "not found; use one of: / /metrics /api/status /api/history /healthz\n"
            }
            Status::NotAllowed => "only GET and HEAD; nothing can be changed here\n",
            Status::TooLarge => "the request's header is longer than 8 KiB\n",
            Status::TooMany => "too many clients at once; try again\n",
            Status::Stalled => "stalled\n",
            Status::NoTls => "this port speaks TLS; use https://\n",
        }
    }
}

/// The names that a `Host` header may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// Address of the server; `None`: every name is accepted.
    listen: Option<IpAddr>,
    host_name: Option<String>,
}

impl Names {
    /// The names of a server at this address, on a machine of this name. The machine's name counts only if
    /// the server can be reached from other machines.
    pub fn new(listen: SocketAddr, host_name: Option<String>) -> Names {
        let listen = listen.ip();
        Names {
            listen: Some(listen),
            host_name: host_name.filter(|name| !listen.is_loopback() && !name.is_empty()),
        }
    }

    /// Accepts every name, for servers that DNS rebinding cannot reach: a Unix socket, or a server with TLS,
    /// whose certificate is valid only for its own names.
    pub fn any() -> Names {
        Names {
            listen: None,
            host_name: None,
        }
    }

    /// True if the value of a `Host` header is one of ours. The port is ignored: a tunnel has another one.
    fn accept(&self, host: &str) -> bool {
        let Some(listen) = self.listen else {
            return true;
        };
        let split = match host.strip_prefix('[') {
            Some(rest) => rest.split_once(']'),
            None => Some(host.split_at(host.find(':').unwrap_or(host.len()))),
        };
        let Some((name, port)) = split else {
            return false;
        };
        if !port.is_empty() && !is_port(port) {
            return false;
        }
        if let Ok(address) = name.parse::<IpAddr>() {
            // DNS cannot redirect an address. A server on the unspecified address accepts all of them.
            return address.is_loopback() || address == listen || listen.is_unspecified();
        }
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        is("localhost") || self.host_name.as_deref().is_some_and(is)
    }
}

fn is_port(text: &str) -> bool {
    text.strip_prefix(':')
        .is_some_and(|port| port.parse::<u16>().is_ok())
}

/// Parses the bytes received so far.
pub fn parse(bytes: &[u8], names: &Names) -> Parsed {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if bytes.len() < LONGEST_HEAD => return Parsed::Partial,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Parsed::Refused(Status::TooLarge);
        }
        Err(_) => return Parsed::Refused(Status::BadRequest),
    }
    let values = |name: &'static str| {
        let headers = request.headers.iter();
        let named = headers.filter(move |header| header.name.eq_ignore_ascii_case(name));
        named.map(|header| std::str::from_utf8(header.value).ok())
    };
    let mut hosts = values("host");
    match (hosts.next().flatten(), hosts.next()) {
        (Some(host), None) if names.accept(host.trim()) => {}
        (Some(_), None) => return Parsed::Refused(Status::ForeignHost),
        _ => return Parsed::Refused(Status::BadRequest),
    }
    let accept = values("accept").next().flatten().unwrap_or_default();
    let head_only = match request.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Parsed::Refused(Status::NotAllowed),
    };
    let target = request.path.unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    Parsed::Request(Request {
        head_only,
        path: path.to_owned(),
        query: query.to_owned(),
        format: Format::accepted(accept),
    })
}

/// Bytes to send: of this answer, of the program, or shared with answers to other clients.
pub(super) type Piece = Box<dyn AsRef<[u8]> + Send>;

/// The content of an answer.
pub(super) enum Body {
    Whole(Piece),
    /// Generated while it is sent. The end of the connection ends it.
    Pieces(Box<super::exposition::Scrape>),
}

pub(super) struct Answer {
    pub(super) status: Status,
    pub(super) content_type: &'static str,
    pub(super) body: Body,
}

pub(super) const TEXT: &str = "text/plain; charset=utf-8";

impl Answer {
    /// A status with its explanation.
    pub(super) fn status(status: Status) -> Answer {
        Answer::text(status, status.explanation())
    }

    /// A status with another text.
    pub(super) fn text(status: Status, text: impl AsRef<[u8]> + Send + 'static) -> Answer {
        Answer {
            status,
            ..Answer::ok(TEXT, text)
        }
    }

    /// A document of this media type.
    pub(super) fn ok(
        content_type: &'static str,
        document: impl AsRef<[u8]> + Send + 'static,
    ) -> Answer {
        Answer {
            status: Status::Ok,
            content_type,
            body: Body::Whole(Box::new(document)),
        }
    }

    /// The head, including the empty line after it.
    pub(super) fn head(&self) -> String {
        let allow = match self.status {
            Status::NotAllowed => "Allow: GET, HEAD\r\n",
            Status::TooMany => "Retry-After: 1\r\n",
            _ => "",
        };
        let length = self.body.length();
        let length = length.map_or_else(String::new, |n| format!("Content-Length: {n}\r\n"));
        format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\n{length}{allow}{FIXED}\r\n",
            self.status.line(),
            self.content_type,
        )
    }
}

impl Body {
    /// `None`: not known before it is sent.
    pub(super) fn length(&self) -> Option<usize> {
        match self {
            Body::Whole(piece) => Some((**piece).as_ref().len()),
            Body::Pieces(_) => None,
        }
    }
}

/// Headers of every answer.
const FIXED: &str = "Connection: close\r\n\
    Cache-Control: no-store\r\n\
    Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'\r\n\
    Cross-Origin-Opener-Policy: same-origin\r\n\
    Cross-Origin-Resource-Policy: same-origin\r\n\
    Referrer-Policy: no-referrer\r\n\
    X-Content-Type-Options: nosniff\r\n\
    X-Frame-Options: DENY\r\n";

/// The address at which a browser on this machine reaches a server that listens at `listen`.
pub(super) fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

#[cfg(test)]
mod tests;
