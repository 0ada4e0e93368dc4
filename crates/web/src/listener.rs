//! The listening socket: a TCP port or a Unix socket.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use justitia_report::feed::Listen;
use rustix::io::{ioctl_fionbio, retry_on_intr};
use rustix::net::{accept_with, SocketFlags};

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
        let (at, socket) = match listen {
            Listen::Tcp(address) => {
                let listener = TcpListener::bind(address)?;
                (Listen::Tcp(listener.local_addr()?), listener.into())
            }
            Listen::Unix(path) => {
                let listener = match UnixListener::bind(path) {
                    Err(error) if error.kind() == ErrorKind::AddrInUse && is_left(path) => {
                        fs::remove_file(path)?;
                        UnixListener::bind(path)
                    }
                    bound => bound,
                }?;
                // Until here the mode is what the umask leaves, which admits nobody whom MODE excludes.
                fs::set_permissions(path, fs::Permissions::from_mode(MODE))?;
                (listen.clone(), OwnedFd::from(listener))
            }
        };
        ioctl_fionbio(&socket, true)?;
        Ok(Listener { at, socket })
    }

    pub fn at(&self) -> &Listen {
        &self.at
    }

    /// The next client's stream, non-blocking. `WouldBlock`: none is waiting. A client of a Unix socket is a
    /// `TcpStream` too: the calls that the server makes are the same for all stream sockets.
    pub(crate) fn accept(&self) -> io::Result<TcpStream> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = TcpStream::from(retry_on_intr(|| accept_with(&self.socket, flags))?);
        // Nagle's algorithm would delay answers. A Unix socket has no such option.
        let _ = socket.set_nodelay(true);
        Ok(socket)
    }
}

/// True if the path is a stale socket.
fn is_left(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let refused = |error: io::Error| error.kind() == ErrorKind::ConnectionRefused;
    is_socket && UnixStream::connect(path).is_err_and(refused)
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
