//! Disks with knobs of their scheduler or of io.cost: finds them, holds them open and reads them.
//!
//! The files of disks are short, so they are read every tick. udev's is read once. A disk that vanished or changed its
//! scheduler is dropped. A disk that cannot be read stays, with unknown values, and affects nothing else.

use std::collections::BTreeMap;

use justitia_cgroup::{disk_name, Buffer, Error, Fs, Group};
use justitia_policy::cost::CostModel;
use justitia_policy::knob::{BlockDevice, Knob};
use justitia_policy::snapshot::GroupId;
use rustix::io::Errno;

use crate::config::{DiskSettings, IoCost};
use crate::status::Problem;
use crate::tracked::Observation;

/// The disks that are watched.
#[derive(Debug, Default)]
pub(crate) struct Disks {
    watched: Vec<Disk>,
    listed: Vec<String>,
    /// Whether disks are watched for io.cost, and their models.
    pub(crate) settings: DiskSettings,
    buffer: Buffer,
}

#[derive(Debug)]
struct Disk {
    group: Group,
    seen: BlockDevice,
    /// The model that udev knows.
    known_model: Option<CostModel>,
    /// udev knows the disk, and was asked.
    asked_udev: bool,
}

impl Disks {
    pub(crate) fn observe(&mut self, fs: &Fs, observation: &mut Observation) {
        self.listed.clear();
        fs.block_devices(self.settings.iocost == IoCost::All, &mut self.listed);
        let wanted = self.settings.iocost != IoCost::None;
        self.listed
            .retain(|path| wanted || Knob::of_disk(path).all(|knob| !knob.is_cost()));
        for path in &self.listed {
            if self.watched.iter().any(|disk| disk.seen.path == *path) {
                continue;
            }
            match fs.open(path) {
                Ok(group) => self.watched.push(Disk::new(group)),
                // The list may be some seconds old.
                Err(error) if error.is_gone() => {}
                Err(error) => observation.problems.push(Problem::of(path, &error)),
            }
        }
        self.watched.retain_mut(|disk| {
            let models = &self.settings.models;
            let listed = self.listed.contains(&disk.seen.path);
            let stays = listed && disk.read(models, &mut self.buffer, observation);
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

    /// The last values of this disk.
    pub(crate) fn seen(&self, id: GroupId) -> Option<&BlockDevice> {
        let found = self.watched.iter().find(|disk| disk.seen.id == id);
        found.map(|disk| &disk.seen)
    }

    pub(crate) fn seen_mut(&mut self, id: GroupId) -> Option<&mut BlockDevice> {
        let found = self.watched.iter_mut().find(|disk| disk.seen.id == id);
        found.map(|disk| &mut disk.seen)
    }
}

impl Disk {
    fn new(group: Group) -> Disk {
        let seen = BlockDevice::new(group.id(), group.path());
        Disk {
            group,
            seen,
            known_model: None,
            asked_udev: false,
        }
    }

    /// Reads its knobs; `false`: it is gone.
    fn read(
        &mut self,
        models: &BTreeMap<String, CostModel>,
        buffer: &mut Buffer,
        observation: &mut Observation,
    ) -> bool {
        self.seen.forget_values();
        let mut read = false;
        let path = self.seen.path.clone();
        for knob in Knob::of_disk(&path) {
            let error = match self.group.read_knob(knob) {
                Ok(Some(value)) => {
                    self.seen.set(knob, value);
                    read = true;
                    continue;
                }
                Ok(None) => Error::from_errno(&path, knob.file_name(), Errno::NOENT),
                Err(error) if error.is_gone() => return false,
                Err(error) => error,
            };
            let problem = Problem::of(&self.seen.path, &error);
            observation.problems.push(problem);
        }
        if read {
            observation.knobs_read.push(self.seen.id);
        }
        if let (true, Some(name)) = (self.seen.cost_qos.is_some(), disk_name(&path)) {
            // A value that cannot be read is unknown. Reading the knobs reported the problem.
            self.seen.counters = self.group.disk_counters(buffer).ok().flatten();
            let cost = self.group.cost(buffer).ok().flatten();
            self.seen.vrate = cost.map(|(vrate, _)| vrate);
            self.seen.cost_used_us = cost.and_then(|(_, used_us)| used_us);
            if !self.asked_udev {
                let known = self.group.known_model(buffer);
                self.asked_udev = known.is_ok();
                self.known_model = known.ok().flatten();
            }
            self.seen.given_model = models.get(name).copied().or(self.known_model);
        }
        true
    }
}
