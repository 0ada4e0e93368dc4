//! The listening socket: a TCP port or a Unix socket.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use justitia_report::feed::Listen;
use rustix::io::retry_on_intr;
use rustix::net::sockopt::set_tcp_nodelay;
use rustix::net::{accept_with, recv, send, shutdown, RecvFlags, SendFlags, Shutdown, SocketFlags};

/// Mode of a Unix socket: its owner and its group may connect.
const MODE: u32 = 0o660;

/// A listening socket. Dropping it removes a Unix socket's path.
#[derive(Debug)]
pub struct Listener {
    at: Listen,
    socket: OwnedFd,
}

impl Listener {
    /// Binds the address. A stale Unix socket there is replaced.
    pub fn bind(listen: &Listen) -> io::Result<Listener> {
        match listen {
            Listen::Tcp(address) => TcpListener::bind(address)?.try_into(),
            Listen::Unix(path) => {
                let listener = match UnixListener::bind(path) {
                    Err(error) if error.kind() == ErrorKind::AddrInUse && is_left(path) => {
                        fs::remove_file(path)?;
                        UnixListener::bind(path)
                    }
                    bound => bound,
                }?;
                listener.set_nonblocking(true)?;
                // Until here the mode is what the umask leaves, which admits nobody whom MODE excludes.
                fs::set_permissions(path, fs::Permissions::from_mode(MODE))?;
                Ok(Listener {
                    at: listen.clone(),
                    socket: listener.into(),
                })
            }
        }
    }

    pub fn at(&self) -> &Listen {
        &self.at
    }

    /// The next client. `WouldBlock`: none is waiting.
    pub(crate) fn accept(&self) -> io::Result<Socket> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = retry_on_intr(|| accept_with(&self.socket, flags))?;
        // Nagle's algorithm would delay answers. A Unix socket has no such option.
        let _ = set_tcp_nodelay(&socket, true);
        Ok(Socket(socket))
    }
}

/// True if the path is a stale socket.
fn is_left(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let refused = |error: io::Error| error.kind() == ErrorKind::ConnectionRefused;
    is_socket && UnixStream::connect(path).is_err_and(refused)
}

impl TryFrom<TcpListener> for Listener {
    type Error = io::Error;

    fn try_from(listener: TcpListener) -> io::Result<Listener> {
        listener.set_nonblocking(true)?;
        Ok(Listener {
            at: Listen::Tcp(listener.local_addr()?),
            socket: listener.into(),
        })
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listen::Unix(path) = &self.at {
            // In a directory of root's the removal fails; the next listener replaces the stale socket.
            let _ = fs::remove_file(path);
        }
    }
}

/// A client's stream, non-blocking.
#[derive(Debug)]
pub(crate) struct Socket(OwnedFd);

impl Socket {
    /// The next unread byte, without consuming it; `None`: the client has closed its end.
    pub(crate) fn peek(&self) -> io::Result<Option<u8>> {
        let mut byte = [0];
        let (count, _) = recv(self, &mut byte, RecvFlags::PEEK)?;
        Ok((count > 0).then_some(byte[0]))
    }

    pub(crate) fn end(&self) -> io::Result<()> {
        Ok(shutdown(self, Shutdown::Write)?)
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (count, _) = recv(&*self, buffer, RecvFlags::empty())?;
        Ok(count)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(&*self, bytes, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(path: &Path) -> Listen {
        Listen::Unix(path.to_owned())
    }

    #[test]
    fn a_unix_socket_is_for_its_owner_and_group_and_vanishes_with_the_page() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("page.sock");
        let listener = Listener::bind(&at(&path)).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, MODE);
        drop(listener);
        assert!(!path.exists());
    }

    #[test]
    fn a_unix_socket_that_was_left_is_taken_over_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("page.sock");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let taken = Listener::bind(&at(&path)).unwrap();
        let in_use = |path: &Path| Listener::bind(&at(path)).unwrap_err().kind();
        assert_eq!(in_use(&path), ErrorKind::AddrInUse);
        UnixStream::connect(&path).unwrap();
        drop(taken);
        fs::write(&path, "a file").unwrap();
        assert_eq!(in_use(&path), ErrorKind::AddrInUse);
        assert_eq!(fs::read(&path).unwrap(), b"a file");
    }
}
