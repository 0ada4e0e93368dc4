//! The service manager's readiness protocol (`sd_notify(3)`): a datagram to `$NOTIFY_SOCKET`.
//!
//! Paths and abstract addresses (`@name`) both occur. Without the variable every call does
//! nothing: the agent also runs where there is no service manager.

use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The connection to the service manager, if there is one.
#[derive(Debug)]
pub struct Notifier {
    socket: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl Notifier {
    /// From `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID`.
    pub fn from_env() -> Notifier {
        let watchdog_is_for_us =
            std::env::var("WATCHDOG_PID").map_or(true, |pid| pid.parse() == Ok(std::process::id()));
        let watchdog = std::env::var("WATCHDOG_USEC")
            .ok()
            .and_then(|usec| usec.parse().ok())
            .filter(|&usec: &u64| usec > 0 && watchdog_is_for_us)
            .map(Duration::from_micros);
        Notifier::to(std::env::var_os("NOTIFY_SOCKET"), watchdog)
    }

    /// To an address in the variable's notation.
    pub fn to(address: Option<OsString>, watchdog: Option<Duration>) -> Notifier {
        let socket = address.filter(|a| !a.is_empty()).and_then(|address| {
            let address = parse(address.as_bytes()).ok()?;
            let socket = UnixDatagram::unbound().ok()?;
            socket.set_nonblocking(true).ok()?;
            Some((socket, address))
        });
        Notifier { socket, watchdog }
    }

    /// The service is up.
    pub fn ready(&self) {
        self.send("READY=1\nSTATUS=managing\n");
    }

    /// It begins to stop.
    pub fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=ending\n");
    }

    /// It is alive.
    pub fn alive(&self) {
        if self.watchdog.is_some() {
            self.send("WATCHDOG=1\n");
        }
    }

    /// Longest interval between two calls of [`Notifier::alive`]: half of systemd's watchdog time. `None`:
    /// systemd watches nothing.
    pub fn period(&self) -> Option<Duration> {
        self.watchdog.map(|watchdog| watchdog / 2)
    }

    fn send(&self, message: &str) {
        if let Some((socket, address)) = &self.socket {
            // A manager that does not listen must not stop the agent.
            let _ = socket.send_to_addr(message.as_bytes(), address);
        }
    }
}

fn parse(address: &[u8]) -> io::Result<SocketAddr> {
    match address.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(address)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive(socket: &UnixDatagram) -> String {
        socket
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        let mut buffer = [0; 256];
        let n = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..n]).into_owned()
    }

    #[test]
    fn a_manager_at_a_path_gets_ready_and_alive() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let notifier = Notifier::to(Some(path.into()), Some(Duration::from_secs(10)));
        notifier.ready();
        assert!(receive(&manager).starts_with("READY=1\n"));
        notifier.alive();
        assert_eq!(receive(&manager), "WATCHDOG=1\n");
        assert_eq!(notifier.period(), Some(Duration::from_secs(5)));
    }

    #[test]
    fn a_manager_at_an_abstract_address_gets_stopping() {
        let name = format!("justitia-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        Notifier::to(Some(format!("@{name}").into()), None).stopping();
        assert!(receive(&manager).starts_with("STOPPING=1\n"));
    }

    #[test]
    fn without_a_manager_nothing_happens() {
        let notifier = Notifier::to(None, None);
        notifier.ready();
        notifier.alive();
        assert_eq!(notifier.period(), None);
    }
}
