//! `/dev/justitia`, the gate of the optional kernel module. The gate decides in which order writers wait for
//! pages of the page cache. `kmod/abi.h` defines the interface, `docs/gate.md` describes it.
//!
//! [`GateDevice`] is the gate of a host, real or fake. The process that holds it open for writing controls
//! it. When that handle is dropped, by `kill -9` too, the gate opens and forgets every weight. Units: pages
//! of the kernel's page size in the records, as the module counts them.

mod abi;
mod real;
#[cfg(test)]
mod tests;

use justitia_policy::snapshot::GroupId;
use rustix::io::Errno;

use crate::error::plain;

pub use abi::{Config, Device, Info, Member, LENGTHS, VERSION, WEIGHT_MAX};
pub use real::open;

/// Path of the device.
pub const PATH: &str = "/dev/justitia";

/// The order in which writers wait. The discriminants are the module's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum Order {
    /// In order of arrival.
    Fifo = 0,
    /// The paper's: the heaviest first, and a waiter that is passed over gains.
    Aging = 1,
    /// Shares in the ratio of the weights.
    #[default]
    Stride = 2,
}

impl Order {
    /// All of them.
    pub const ALL: [Order; 3] = [Order::Fifo, Order::Aging, Order::Stride];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Order::Fifo => "fifo",
            Order::Aging => "aging",
            Order::Stride => "stride",
        }
    }

    /// The order with this number. `None`: the order of a newer module.
    pub fn of(number: u32) -> Option<Order> {
        Order::ALL.into_iter().find(|order| *order as u32 == number)
    }
}

/// State of the gate: closed, or the reason why it is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Writers wait for their turn.
    Closed,
    /// Nobody enabled it.
    Disabled,
    /// Its holder sent no heartbeat in time.
    NoHeartbeat,
    /// The kernel's dirty thresholds are not known.
    NoThresholds,
    /// Open for a reason of a newer module.
    Other(u32),
}

impl State {
    /// In one word.
    pub fn word(self) -> &'static str {
        match self {
            State::Closed => "closed",
            State::Disabled => "disabled",
            State::NoHeartbeat => "no-heartbeat",
            State::NoThresholds => "no-thresholds",
            State::Other(_) => "open",
        }
    }
}

/// Reason why the device could not be opened, or why it refused a request. Each error is one line of cause
/// and one of remedy ([`GateError::remedy`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GateError {
    /// The module is not loaded.
    #[error("the kernel module justitia is not loaded: there is no {PATH}")]
    Absent,
    /// Only root may open it.
    #[error("no permission for {PATH} ({0})")]
    Denied(Errno),
    /// Another process holds it.
    #[error("another process holds {PATH}")]
    Held,
    /// The module speaks another version.
    #[error("the kernel module speaks another version of {PATH} than this program, which speaks {VERSION}")]
    Version,
    /// It refused a request.
    #[error("{PATH} refused to {what} ({})", plain(errno))]
    Refused {
        /// The request.
        what: &'static str,
        /// The kernel's error number.
        errno: Errno,
    },
}

impl GateError {
    /// The remedy, in one line.
    pub fn remedy(&self) -> &'static str {
        match self {
            GateError::Absent => {
                "load it: modprobe justitia; docs/gate.md says how it is built for this kernel"
            }
            // systemd ignores DeviceAllow= for a device that does not exist yet when it starts the unit.
            GateError::Denied(_) => {
                "run it as root, with CAP_SYS_RESOURCE; under systemd install justitia-gate.conf, and restart \
                 justitia after modprobe"
            }
            GateError::Held => "end that process: fuser /dev/justitia names it",
            GateError::Version => "install the module and the program of one version",
            GateError::Refused { .. } => "see what the kernel's log says about justitia: dmesg",
        }
    }

    fn opening(errno: Errno) -> GateError {
        match errno {
            Errno::NOENT | Errno::NODEV | Errno::NXIO => GateError::Absent,
            Errno::ACCESS | Errno::PERM | Errno::ROFS => GateError::Denied(errno),
            Errno::BUSY => GateError::Held,
            errno => GateError::Refused {
                what: "open",
                errno,
            },
        }
    }
}

/// An open gate device. Methods that change something need it opened to hold.
pub trait GateDevice: Send + Sync {
    /// Its state, the thresholds and the counters.
    fn info(&self) -> Result<Info, GateError>;

    /// Appends the backing devices it knows.
    fn devices(&self, out: &mut Vec<Device>) -> Result<(), GateError>;

    /// Appends the counters of each group at each device.
    fn members(&self, out: &mut Vec<Member>) -> Result<(), GateError>;

    /// Its settings.
    fn config(&self) -> Result<Config, GateError>;

    /// Changes all settings, or none.
    fn set_config(&self, config: &Config) -> Result<(), GateError>;

    /// Gives a group a weight, 1 to [`WEIGHT_MAX`]. `None` removes the group; it is no error if the group is
    /// absent.
    fn feed(&self, group: GroupId, weight: Option<u32>) -> Result<(), GateError>;

    /// Closes the gate (`on`), or opens it for everybody.
    fn enable(&self, on: bool) -> Result<(), GateError>;

    /// Sends a heartbeat.
    fn beat(&self) -> Result<(), GateError>;
}
