//! The gate device by system calls.

use std::os::fd::OwnedFd;

use justitia_policy::snapshot::GroupId;
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{ioctl, opcode, Getter, NoArg, Opcode, Setter, Updater};

use super::abi::{Config, Device, Group, Info, List, Member, VERSION};
use super::{GateDevice, GateError, PATH};

const TYPE: u8 = b'J';
pub(super) const INFO: Opcode = opcode::read::<Info>(TYPE, 1);
pub(super) const DEVICES: Opcode = opcode::read_write::<List>(TYPE, 2);
pub(super) const MEMBERS: Opcode = opcode::read_write::<List>(TYPE, 3);
pub(super) const GET_CONFIG: Opcode = opcode::read::<Config>(TYPE, 4);
pub(super) const SET_CONFIG: Opcode = opcode::write::<Config>(TYPE, 5);
pub(super) const SET_GROUP: Opcode = opcode::write::<Group>(TYPE, 6);
pub(super) const ENABLE: Opcode = opcode::write::<u32>(TYPE, 7);
pub(super) const HEARTBEAT: Opcode = opcode::none(TYPE, 8);

/// Records of a list that are requested first; the module returns how many there are.
const FIRST_GUESS: usize = 64;
/// The most records that one call may request.
const MOST: usize = 65_536;

/// Opens the gate to read it (any number of processes) or to hold it.
pub fn open(hold: bool) -> Result<Box<dyn GateDevice>, GateError> {
    let access = if hold { OFlags::RDWR } else { OFlags::RDONLY };
    let fd = fs::open(PATH, access | OFlags::CLOEXEC, Mode::empty()).map_err(GateError::opening)?;
    let gate = RealGate { fd };
    if gate.info()?.version != VERSION {
        return Err(GateError::Version);
    }
    Ok(Box::new(gate))
}

struct RealGate {
    fd: OwnedFd,
}

/// The error of a request that the module refused.
fn refused(what: &'static str) -> impl Fn(Errno) -> GateError {
    move |errno| GateError::Refused { what, errno }
}

impl RealGate {
    /// Reads the whole list. A list that grew meanwhile is read again.
    fn list<const REQUEST: Opcode, T: Copy + Default>(
        &self,
        what: &'static str,
        out: &mut Vec<T>,
    ) -> Result<(), GateError> {
        let mut room = FIRST_GUESS;
        loop {
            let mut records = vec![T::default(); room];
            let mut list = List {
                buffer: records.as_mut_ptr() as u64,
                capacity: room as u32,
                count: 0,
            };
            // SAFETY: the request takes a `justitia_list`; its buffer is `records`, which lives
            // through the call and has room for `capacity` records of the type that the request
            // fills in: plain integers in the layout of abi.h (a test compares them).
            let done = unsafe { ioctl(&self.fd, Updater::<REQUEST, List>::new(&mut list)) };
            done.map_err(refused(what))?;
            let count = list.count as usize;
            if count <= room || room == MOST {
                out.extend_from_slice(&records[..count.min(room)]);
                return Ok(());
            }
            room = (count + count / 4).min(MOST);
        }
    }
}

impl GateDevice for RealGate {
    fn info(&self) -> Result<Info, GateError> {
        // SAFETY: the request fills in a `justitia_info`, which `Info` is.
        let info = unsafe { ioctl(&self.fd, Getter::<INFO, Info>::new()) };
        info.map_err(|errno| match errno {
            // The request number contains the size of the record.
            Errno::NOTTY => GateError::Version,
            errno => refused("tell its state")(errno),
        })
    }

    fn devices(&self, out: &mut Vec<Device>) -> Result<(), GateError> {
        self.list::<DEVICES, Device>("list its devices", out)
    }

    fn members(&self, out: &mut Vec<Member>) -> Result<(), GateError> {
        self.list::<MEMBERS, Member>("list its groups", out)
    }

    fn config(&self) -> Result<Config, GateError> {
        // SAFETY: the request fills in a `justitia_config`, which `Config` is.
        let config = unsafe { ioctl(&self.fd, Getter::<GET_CONFIG, Config>::new()) };
        config.map_err(refused("tell its settings"))
    }

    fn set_config(&self, config: &Config) -> Result<(), GateError> {
        // SAFETY: the request reads a `justitia_config`, which `Config` is.
        let done = unsafe { ioctl(&self.fd, Setter::<SET_CONFIG, Config>::new(*config)) };
        done.map_err(refused("take these settings"))
    }

    fn feed(&self, group: GroupId, weight: Option<u32>) -> Result<(), GateError> {
        let record = Group {
            cgroup_id: group.0,
            weight: weight.unwrap_or(0),
            reserved: 0,
        };
        // SAFETY: the request reads a `justitia_group`, which `Group` is.
        let done = unsafe { ioctl(&self.fd, Setter::<SET_GROUP, Group>::new(record)) };
        match done {
            Err(Errno::NOENT) if weight.is_none() => Ok(()),
            done => done.map_err(refused("take a weight")),
        }
    }

    fn enable(&self, on: bool) -> Result<(), GateError> {
        // SAFETY: the request reads an integer of 32 bits.
        let done = unsafe { ioctl(&self.fd, Setter::<ENABLE, u32>::new(u32::from(on))) };
        done.map_err(refused("be enabled or disabled"))
    }

    fn beat(&self) -> Result<(), GateError> {
        // SAFETY: the request has no argument.
        let done = unsafe { ioctl(&self.fd, NoArg::<HEARTBEAT>::new()) };
        done.map_err(refused("take a heartbeat"))
    }
}
