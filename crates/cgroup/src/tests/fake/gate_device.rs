//! A gate in memory: the requests of its holder, and whether it is held. Nobody waits at it, and tests set
//! its counters.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use justitia_policy::snapshot::GroupId;
use rustix::io::Errno;

use crate::gate::{
    Config, Device, GateDevice, GateError, Info, Member, Order, VERSION, WEIGHT_MAX,
};

/// The state of the fake module, shared by all its handles.
#[derive(Debug, Clone, Default)]
pub struct FakeGate {
    state: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    held: bool,
    enabled: bool,
    refuses: bool,
    refused_group: Option<GroupId>,
    config: Config,
    weights: BTreeMap<GroupId, u32>,
    told: Vec<(GroupId, Option<u32>)>,
    heartbeats: u64,
    device: Device,
}

impl FakeGate {
    /// A module that was loaded just now.
    pub fn loaded() -> FakeGate {
        let gate = FakeGate::default();
        gate.lock().config = Config {
            order: Order::Stride as u32,
            aging: 100,
            lag_pages: 1024,
            setpoint_permille: 500,
            batch_pages: 32,
            timeout_ms: 2000,
            heartbeat_ms: 5000,
            reserved: 0,
        };
        gate
    }

    /// True if somebody holds it.
    pub fn is_held(&self) -> bool {
        self.lock().held
    }

    /// True if it is closed.
    pub fn is_closed(&self) -> bool {
        self.lock().enabled
    }

    /// The weights it has.
    pub fn weights(&self) -> BTreeMap<GroupId, u32> {
        self.lock().weights.clone()
    }

    /// All weights that it was sent so far, in order.
    pub fn told(&self) -> Vec<(GroupId, Option<u32>)> {
        self.lock().told.clone()
    }

    /// Its settings.
    pub fn settings(&self) -> Config {
        self.lock().config
    }

    /// Heartbeats so far.
    pub fn heartbeats(&self) -> u64 {
        self.lock().heartbeats
    }

    /// Refuses every change from now on, or stops refusing.
    pub fn refuse(&self, refuses: bool) {
        self.lock().refuses = refuses;
    }

    /// Refuses this group's weight from now on. `None`: refuses no group's.
    pub fn refuse_group(&self, group: Option<GroupId>) {
        self.lock().refused_group = group;
    }

    /// Sets the record of its only device.
    pub fn count(&self, device: Device) {
        self.lock().device = device;
    }

    pub(super) fn open(&self, hold: bool) -> Result<Box<dyn GateDevice>, GateError> {
        let mut inner = self.lock();
        if hold && std::mem::replace(&mut inner.held, true) {
            return Err(GateError::Held);
        }
        let gate = self.clone();
        Ok(Box::new(Handle { gate, hold }))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Handle {
    gate: FakeGate,
    hold: bool,
}

impl Handle {
    fn change(&self, what: &'static str) -> Result<MutexGuard<'_, Inner>, GateError> {
        let inner = self.gate.lock();
        let errno = match (self.hold, inner.refuses) {
            (false, _) => Errno::BADF,
            (true, true) => Errno::NOSPC,
            (true, false) => return Ok(inner),
        };
        Err(GateError::Refused { what, errno })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.hold {
            let mut inner = self.gate.lock();
            inner.held = false;
            inner.enabled = false;
            inner.weights.clear();
        }
    }
}

impl GateDevice for Handle {
    fn info(&self) -> Result<Info, GateError> {
        let inner = self.gate.lock();
        Ok(Info {
            version: VERSION,
            open_reason: u32::from(!inner.enabled),
            groups: inner.weights.len() as u32,
            devices: 1,
            background_pages: 1000,
            freerun_pages: 3000,
            setpoint_pages: 2000,
            heartbeats: inner.heartbeats,
            ..Info::default()
        })
    }

    fn devices(&self, out: &mut Vec<Device>) -> Result<(), GateError> {
        out.push(self.gate.lock().device);
        Ok(())
    }

    fn members(&self, out: &mut Vec<Member>) -> Result<(), GateError> {
        let inner = self.gate.lock();
        out.extend(inner.weights.iter().map(|(id, &weight)| Member {
            cgroup_id: id.0,
            bdi_id: inner.device.bdi_id,
            weight,
            ..Member::default()
        }));
        Ok(())
    }

    fn config(&self) -> Result<Config, GateError> {
        Ok(self.gate.lock().config)
    }

    fn set_config(&self, config: &Config) -> Result<(), GateError> {
        self.change("take these settings")?.config = *config;
        Ok(())
    }

    fn feed(&self, group: GroupId, weight: Option<u32>) -> Result<(), GateError> {
        let mut inner = self.change("take a weight")?;
        if inner.refused_group == Some(group) {
            return Err(GateError::Refused {
                what: "take a weight",
                errno: Errno::NOSPC,
            });
        }
        inner.told.push((group, weight));
        match weight {
            Some(weight) if (1..=WEIGHT_MAX).contains(&weight) => {
                inner.weights.insert(group, weight);
            }
            Some(_) => {
                return Err(GateError::Refused {
                    what: "take a weight",
                    errno: Errno::INVAL,
                })
            }
            None => {
                inner.weights.remove(&group);
            }
        }
        Ok(())
    }

    fn enable(&self, on: bool) -> Result<(), GateError> {
        self.change("be enabled or disabled")?.enabled = on;
        Ok(())
    }

    fn beat(&self) -> Result<(), GateError> {
        self.change("take a heartbeat")?.heartbeats += 1;
        Ok(())
    }
}
