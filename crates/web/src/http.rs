//! HTTP/1.1 as far as it is needed: requests that read, one for each connection.
//!
//! Every answer closes its connection, forbids to be kept, to be framed or to load anything from
//! elsewhere, and says nothing about other origins, so that scripts of other sites cannot read it.
//! Against sites that point their own name at this address (DNS rebinding) a request must name us
//! by an address or a name that nobody else can give out.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use super::exposition::Format;

/// Longest head of a request.
pub const LONGEST_HEAD: usize = 8 << 10;
const HEADERS: usize = 64;

/// A request for a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Only the head is asked for.
    pub head_only: bool,
    /// Without the query.
    pub path: String,
    /// What comes after `?`, if anything.
    pub query: String,
    /// The format of metrics that it accepts.
    pub format: Format,
}

/// What became of the bytes so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parsed {
    /// There must be more.
    Partial,
    /// A request that may be answered.
    Request(Request),
    /// One that may not: what to answer instead.
    Refused(Status),
}

/// Answers that are not a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Here it is.
    Ok,
    /// Not understood.
    BadRequest,
    /// The `Host` is none of ours.
    ForeignHost,
    /// No such path.
    NotFound,
    /// Only GET and HEAD.
    NotAllowed,
    /// The head is too long.
    TooLarge,
    /// More is asked than is answered in this time.
    TooMany,
    /// The agent's loop is stuck.
    Stalled,
    /// Asked without TLS where it is spoken.
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

    /// What to tell whoever asked.
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

/// Which names a request may give us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// `None`: every name is one of ours.
    listen: Option<IpAddr>,
    host_name: Option<String>,
}

impl Names {
    /// Of a server at this address, on a machine of this name. The machine's name counts only when
    /// the server can be reached from other machines.
    pub fn new(listen: SocketAddr, host_name: Option<String>) -> Names {
        let listen = listen.ip();
        Names {
            listen: Some(listen),
            host_name: host_name.filter(|name| !listen.is_loopback() && !name.is_empty()),
        }
    }

    /// Of a server that a name cannot lead to: a Unix socket, or one whose certificate is for its own names.
    pub fn any() -> Names {
        Names {
            listen: None,
            host_name: None,
        }
    }

    /// Whether the value of a `Host` header is one of ours. The port is not looked at: a tunnel
    /// has another one.
    fn accept(&self, host: &str) -> bool {
        let Some(listen) = self.listen else {
            return true;
        };
        let name = match host.strip_prefix('[') {
            Some(rest) => match rest.split_once(']') {
                Some((name, port)) if port.is_empty() || is_port(port) => name,
                _ => return false,
            },
            None => match host.find(':') {
                Some(colon) if is_port(&host[colon..]) => &host[..colon],
                Some(_) => return false,
                None => host,
            },
        };
        if let Ok(address) = name.parse::<IpAddr>() {
            // An address cannot be pointed elsewhere. Who listens everywhere has them all.
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

/// Looks at the bytes received so far.
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
    let mut hosts = request
        .headers
        .iter()
        .filter(|header| header.name.eq_ignore_ascii_case("host"));
    let host = hosts
        .next()
        .and_then(|header| std::str::from_utf8(header.value).ok());
    match (host, hosts.next()) {
        (Some(host), None) if names.accept(host.trim()) => {}
        (Some(_), None) => return Parsed::Refused(Status::ForeignHost),
        _ => return Parsed::Refused(Status::BadRequest),
    }
    let accepts = |header: &&httparse::Header<'_>| header.name.eq_ignore_ascii_case("accept");
    let accept = request.headers.iter().find(accepts);
    let accept = accept.map_or("", |header| std::str::from_utf8(header.value).unwrap_or(""));
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

/// An answer's content.
#[derive(Debug)]
pub(super) enum Body {
    /// All of it.
    Whole(Cow<'static, [u8]>),
    /// All of it, which others are sent as well.
    Shared(Arc<[u8]>),
    /// Made while it is sent; its end is the end of the connection.
    Pieces(Box<super::exposition::Scrape>),
}

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    /// How it went.
    pub(super) status: Status,
    /// The media type.
    pub(super) content_type: &'static str,
    /// The content.
    pub(super) body: Body,
}

/// Plain text.
pub(super) const TEXT: &str = "text/plain; charset=utf-8";

impl Answer {
    /// A status with its explanation.
    pub(super) fn status(status: Status) -> Answer {
        Answer::text(status, status.explanation())
    }

    /// A status with other words.
    pub(super) fn text(status: Status, text: impl Into<Cow<'static, str>>) -> Answer {
        let bytes = match text.into() {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        };
        Answer {
            status,
            content_type: TEXT,
            body: Body::Whole(bytes),
        }
    }

    /// Content of this type.
    pub(super) fn ok(content_type: &'static str, bytes: impl Into<Cow<'static, [u8]>>) -> Answer {
        Answer {
            status: Status::Ok,
            content_type,
            body: Body::Whole(bytes.into()),
        }
    }

    /// The head, with the empty line after it.
    pub(super) fn head(&self) -> String {
        let allow = match self.status {
            Status::NotAllowed => "Allow: GET, HEAD\r\n",
            Status::TooMany => "Retry-After: 1\r\n",
            _ => "",
        };
        let length = match &self.body {
            Body::Whole(bytes) => Some(bytes.len()),
            Body::Shared(bytes) => Some(bytes.len()),
            Body::Pieces(_) => None,
        };
        let length = length.map_or_else(String::new, |n| format!("Content-Length: {n}\r\n"));
        format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\n{length}{allow}{FIXED}\r\n",
            self.status.line(),
            self.content_type,
        )
    }
}

/// What every answer says.
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

/// An address a browser on this machine can use for a server that listens at this one.
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
