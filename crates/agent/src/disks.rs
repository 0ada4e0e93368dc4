//! Disks whose scheduler has knobs of ours: found, held open, read.
//!
//! There are few of them and one short file each: they are read every tick. A disk that vanished
//! or changed its scheduler is dropped; one that cannot be read stays, with unknowns, and its
//! problem concerns nobody else.

use justitia_cgroup::{Error, Fs, Group};
use justitia_policy::plan::{Knob, Value};
use justitia_policy::snapshot::{BlockDevice, GroupId};

use crate::observe::Observation;
use crate::status::Problem;

const KNOB: Knob = Knob::BfqLowLatency;

/// The disks that are watched.
#[derive(Debug, Default)]
pub(crate) struct Disks {
    watched: Vec<Disk>,
    listed: Vec<String>,
}

#[derive(Debug)]
struct Disk {
    group: Group,
    seen: BlockDevice,
}

impl Disks {
    /// One look at them.
    pub(crate) fn observe(&mut self, fs: &Fs, observation: &mut Observation) {
        self.listed.clear();
        fs.block_devices(&mut self.listed);
        for path in &self.listed {
            if self.watched.iter().any(|disk| disk.seen.path == *path) {
                continue;
            }
            match fs.open(path) {
                Ok(group) => self.watched.push(Disk::new(group)),
                // The list is some seconds old.
                Err(error) if error.is_gone() => {}
                Err(error) => observation.problems.push(Problem::of(path, &error)),
            }
        }
        self.watched.retain_mut(|disk| {
            let stays = self.listed.contains(&disk.seen.path) && disk.read(observation);
            if !stays {
                observation.change.left.push(disk.seen.path.clone());
            }
            stays
        });
        let seen = self.watched.iter().map(|disk| disk.seen.clone());
        observation.snapshot.devices.extend(seen);
    }

    /// The open directory of this disk's scheduler.
    pub(crate) fn group(&self, id: GroupId) -> Option<&Group> {
        let found = self.watched.iter().find(|disk| disk.seen.id == id);
        found.map(|disk| &disk.group)
    }

    /// What its knob was seen to hold.
    pub(crate) fn knob(&self, id: GroupId, knob: Knob) -> Option<Value> {
        let low_latency = self.seen(id)?.low_latency.filter(|_| knob == KNOB);
        low_latency.map(Value::Switch)
    }

    /// What was last seen of this disk.
    pub(crate) fn seen(&self, id: GroupId) -> Option<&BlockDevice> {
        let found = self.watched.iter().find(|disk| disk.seen.id == id);
        found.map(|disk| &disk.seen)
    }

    /// The same, to note what is known of it.
    pub(crate) fn seen_mut(&mut self, id: GroupId) -> Option<&mut BlockDevice> {
        let found = self.watched.iter_mut().find(|disk| disk.seen.id == id);
        found.map(|disk| &mut disk.seen)
    }
}

impl Disk {
    fn new(group: Group) -> Disk {
        let seen = BlockDevice {
            id: group.id(),
            path: group.path().to_owned(),
            low_latency: None,
            foreign: false,
        };
        Disk { group, seen }
    }

    /// Reads its knob; `false`: it is gone.
    fn read(&mut self, observation: &mut Observation) -> bool {
        self.seen.low_latency = None;
        let error = match self.group.read_knob(KNOB) {
            Ok(Some(Value::Switch(on))) => {
                self.seen.low_latency = Some(on);
                observation.knobs_read.push(self.seen.id);
                return true;
            }
            Ok(_) => Error::Absent {
                path: self.seen.path.clone(),
                file: KNOB.file_name(),
            },
            Err(error) if error.is_gone() => return false,
            Err(error) => error,
        };
        let problem = Problem::of(&self.seen.path, &error);
        observation.problems.push(problem);
        true
    }
}
