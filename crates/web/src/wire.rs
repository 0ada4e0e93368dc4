//! A client's stream, in plain text or with TLS 1.2 or later. Never blocks.
//!
//! The handshake counts as part of the request: it has the same deadline, and a client that does not finish
//! it loses its place like a silent one. In addition to the request, TLS buffers at most one incomplete
//! record of 16 KiB and [`UNSENT`] bytes of the answer.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use justitia_report::feed;
use rustix::net::sockopt::set_socket_linger;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, Stream};

/// Limit of TLS's buffer of unsent bytes.
const UNSENT: usize = 32 << 10;
/// Content type of a handshake record, the first byte that a TLS client sends (RFC 8446, 5.1).
const HANDSHAKE: u8 = 22;

/// The server's TLS configuration from the certificate and key that the agent read. The error is a text for
/// the operator.
pub(crate) fn configuration(told: &feed::Tls) -> Result<Arc<ServerConfig>, String> {
    let (certificate, key) = match told {
        feed::Tls::Unreadable(cause) => return Err(cause.clone()),
        feed::Tls::Pem { certificate, key } => (certificate, key),
    };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect();
    let chain = chain.map_err(|error| format!("the certificate is not PEM: {error}"))?;
    if chain.is_empty() {
        return Err("the certificate's file holds no certificate".to_owned());
    }
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes());
    let key =
        key.map_err(|error| format!("the key's file holds no key without a passphrase: {error}"))?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key));
    let mut config =
        config.map_err(|error| format!("certificate and key do not match: {error}"))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

#[derive(Debug)]
pub(super) struct Wire {
    socket: TcpStream,
    tls: Option<Box<ServerConnection>>,
    /// No byte was read yet.
    fresh: bool,
}

impl Wire {
    pub(super) fn new(socket: TcpStream, tls: Option<Arc<ServerConfig>>) -> io::Result<Wire> {
        let connect = |config| {
            let mut tls = ServerConnection::new(config).map_err(io::Error::other)?;
            tls.set_buffer_limit(Some(UNSENT));
            Ok::<_, io::Error>(Box::new(tls))
        };
        Ok(Wire {
            socket,
            tls: tls.map(connect).transpose()?,
            fresh: true,
        })
    }

    /// True if the handshake has to write before it can read on.
    pub(super) fn wants_write(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// The number of bytes; zero: the client has closed its end. `None`: it does not speak TLS where it is required.
    /// The stream is in plain text from then on, for the answer.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        if self.fresh && self.tls.is_some() {
            let mut first = [HANDSHAKE];
            self.socket.peek(&mut first)?;
            if first != [HANDSHAKE] {
                self.tls = None;
                return Ok(None);
            }
            self.fresh = false;
        }
        let count = match &mut self.tls {
            None => self.socket.read(buffer),
            Some(tls) => Stream::new(&mut **tls, &mut self.socket).read(buffer),
        };
        count.map(Some)
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.socket.write(bytes),
            Some(tls) => Stream::new(&mut **tls, &mut self.socket).write(bytes),
        }
    }

    /// Closes the sending side. After `WouldBlock` the caller calls it again.
    pub(super) fn end(&mut self) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            while tls.wants_write() {
                match tls.write_tls(&mut self.socket) {
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    written => written.map(drop)?,
                }
            }
        }
        self.socket.shutdown(Shutdown::Write)
    }

    /// Lets the connection be reset when it is closed. On a Unix socket this has no effect.
    pub(super) fn cut(&self) {
        let _ = set_socket_linger(&self.socket, Some(Duration::ZERO));
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
