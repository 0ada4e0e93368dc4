//! Reads the host's own files, once.

use justitia_policy::cost::DiskCounters;
use rustix::io::Errno;

use super::{HostFiles, Known, Unread};
use crate::parse::host::{diskstats, lru_gen, scheduler, swaps, Scheduler, Swap};
use crate::parse::memory::{meminfo, MemInfo};
use crate::parse::mountinfo::{mounts, whole_cgroup2, FsMount};
use crate::parse::{disk, io, psi, single};
use crate::{Buffer, Device, File};

const BLOCK: &str = "/sys/block";
const VM: &str = "/proc/sys/vm";
const LRU_GEN: &str = "/sys/kernel/mm/lru_gen";
/// Major numbers of floppy and CD drives. A CD drive has a size even without a medium.
const MEDIA_DRIVES: [u32; 2] = [2, 11];

/// A disk: a block device that is not made of other ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// `nvme0n1`.
    pub name: String,
    /// Its number.
    pub device: Known<Device>,
    /// The I/O scheduler of its queue, or of its paths: one that has not BFQ, if there is one.
    pub scheduler: Known<Scheduler>,
    /// Its paths, if it is one of NVMe multipath: `nvme0c0n1`. The disk itself has no scheduler, whatever its file
    /// says, and the kernel hides the paths.
    pub paths: Vec<String>,
    /// True if the disk reports that it spins.
    pub rotational: Known<bool>,
}

/// A volume whose driver writes to its disks in one kernel thread for all groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// `dm-0`.
    pub name: String,
    /// `dm-crypt`, `raid5`.
    pub driver: String,
}

/// The contents of the host's files. Sysctls are as their files hold them.
#[derive(Debug, Clone)]
pub struct HostFacts {
    /// The kernel's release; shown, never compared.
    pub release: Known<String>,
    /// `/proc/meminfo`.
    pub memory: Known<MemInfo>,
    /// Swap devices and files.
    pub swaps: Known<Vec<Swap>>,
    /// `vm.swappiness`.
    pub swappiness: Known<u64>,
    /// `vm.dirty_ratio`, percent; 0: `dirty_bytes` counts.
    pub dirty_ratio: Known<u64>,
    /// `vm.dirty_bytes`; 0: `dirty_ratio` counts.
    pub dirty_bytes: Known<u64>,
    /// The bits of the multi-generational LRU; `None`: the kernel has none.
    pub lru_gen: Known<Option<u64>>,
    /// `lru_gen/min_ttl_ms`.
    pub lru_gen_min_ttl_ms: Known<Option<u64>>,
    /// True if pressure stall information is counted.
    pub psi: Known<bool>,
    /// True if the kernel describes its types (BTF).
    pub btf: Known<bool>,
    /// Controllers of the cgroup2 mount; `None`: there is no such mount.
    pub controllers: Known<Option<Vec<String>>>,
    /// All mounts.
    pub mounts: Known<Vec<FsMount>>,
    /// Disks that have a size, without floppy and CD drives.
    pub disks: Known<Vec<Disk>>,
    /// Volumes that write in one thread for all groups.
    pub volumes: Known<Vec<Volume>>,
}

impl HostFacts {
    /// Reads each file once.
    pub fn read(files: &dyn HostFiles) -> HostFacts {
        let reader = &mut Reader {
            files,
            buffer: Buffer::new(),
        };
        let mounts = reader.parsed("/proc/self/mountinfo", |text| Some(mounts(text)));
        HostFacts {
            release: reader.parsed("/proc/sys/kernel/osrelease", |text| {
                Some(String::from_utf8_lossy(text).trim().to_owned())
            }),
            memory: reader.parsed("/proc/meminfo", |text| Some(meminfo(text))),
            // A kernel without swap has no such file.
            swaps: reader
                .maybe("/proc/swaps", |text| Some(swaps(text)))
                .map(Option::unwrap_or_default),
            swappiness: reader.parsed(&format!("{VM}/swappiness"), single),
            dirty_ratio: reader.parsed(&format!("{VM}/dirty_ratio"), single),
            dirty_bytes: reader.parsed(&format!("{VM}/dirty_bytes"), single),
            lru_gen: reader.maybe(&format!("{LRU_GEN}/enabled"), lru_gen),
            lru_gen_min_ttl_ms: reader.maybe(&format!("{LRU_GEN}/min_ttl_ms"), single),
            psi: reader.psi(),
            btf: reader.exists("/sys/kernel/btf/vmlinux"),
            controllers: reader.controllers(&mounts),
            mounts,
            disks: reader.disks(),
            volumes: reader.volumes(),
        }
    }

    /// I/O counters of the disks since boot; read twice for a rate.
    pub fn disk_counters(files: &dyn HostFiles) -> Known<Vec<(Device, DiskCounters)>> {
        let mut reader = Reader {
            files,
            buffer: Buffer::new(),
        };
        reader.parsed("/proc/diskstats", |text| Some(diskstats(text)))
    }

    /// Mount of cgroup2. Among several mounts, the first that shows the hierarchy's root.
    pub fn cgroup2(&self) -> Known<Option<&FsMount>> {
        match &self.mounts {
            Ok(mounts) => Ok(whole_cgroup2(mounts)),
            Err(unread) => Err(unread.clone()),
        }
    }
}

struct Reader<'a> {
    files: &'a dyn HostFiles,
    buffer: Buffer,
}

impl Reader<'_> {
    fn parsed<T>(&mut self, path: &str, parse: impl FnOnce(&[u8]) -> Option<T>) -> Known<T> {
        let value = self.maybe(path, parse)?;
        value.ok_or_else(|| Unread::from_errno(path, Errno::NOENT))
    }

    fn maybe<T>(&mut self, path: &str, parse: impl FnOnce(&[u8]) -> Option<T>) -> Known<Option<T>> {
        match self.files.read(path, &mut self.buffer) {
            Ok(()) => parse(self.buffer.bytes())
                .map(Some)
                .ok_or_else(|| Unread::malformed(path)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(Unread::from_errno(path, errno)),
        }
    }

    fn exists(&self, path: &str) -> Known<bool> {
        self.files
            .exists(path)
            .map_err(|errno| Unread::from_errno(path, errno))
    }

    /// If PSI is compiled in and switched off, the file exists but reads fail.
    fn psi(&mut self) -> Known<bool> {
        let path = "/proc/pressure/memory";
        match self.files.read(path, &mut self.buffer) {
            Ok(()) if psi::totals(self.buffer.bytes()).some_us.is_some() => Ok(true),
            Ok(()) => Err(Unread::malformed(path)),
            Err(Errno::NOENT | Errno::OPNOTSUPP) => Ok(false),
            Err(errno) => Err(Unread::from_errno(path, errno)),
        }
    }

    fn controllers(&mut self, mounts: &Known<Vec<FsMount>>) -> Known<Option<Vec<String>>> {
        let mounts = mounts.as_ref().map_err(Clone::clone)?;
        let Some(mount) = whole_cgroup2(mounts) else {
            return Ok(None);
        };
        let path = format!("{}/{}", mount.mount_point, File::CgroupControllers.name());
        self.parsed(&path, |text| {
            let text = String::from_utf8_lossy(text);
            Some(Some(text.split_whitespace().map(str::to_owned).collect()))
        })
    }

    fn block_devices(&mut self) -> Known<Vec<String>> {
        match self.files.list(BLOCK) {
            Err(Errno::NOENT) => Ok(Vec::new()),
            names => names.map_err(|errno| Unread::from_errno(BLOCK, errno)),
        }
    }

    fn volumes(&mut self) -> Known<Vec<Volume>> {
        let mut volumes = Vec::new();
        for name in self.block_devices()? {
            let crypt = self.maybe(&format!("{BLOCK}/{name}/dm/uuid"), |uuid| {
                Some(disk::is_crypt(uuid).then(|| "dm-crypt".to_owned()))
            })?;
            let raid = self.maybe(&format!("{BLOCK}/{name}/md/level"), |level| {
                let name = || String::from_utf8_lossy(level.trim_ascii()).into_owned();
                Some(disk::is_parity_raid(level).then(name))
            })?;
            let driver = crypt.flatten().or(raid.flatten());
            volumes.extend(driver.map(|driver| Volume { name, driver }));
        }
        Ok(volumes)
    }

    fn disks(&mut self) -> Known<Vec<Disk>> {
        let mut disks = Vec::new();
        let (mut names, mut paths) = (Vec::new(), Vec::new());
        for name in self.block_devices()? {
            let hidden = self.parsed(&format!("{BLOCK}/{name}/hidden"), single) == Ok(1);
            if hidden { &mut paths } else { &mut names }.push(name);
        }
        for name in names {
            let dir = format!("{BLOCK}/{name}");
            // Loop, zram, device mapper and RAID have no hardware behind them.
            if !self.exists(&format!("{dir}/device"))? {
                continue;
            }
            if self.parsed(&format!("{dir}/size"), single) == Ok(0) {
                continue;
            }
            let device = self.parsed(&format!("{dir}/dev"), |text| io::device(text.trim_ascii()));
            if matches!(&device, Ok(device) if MEDIA_DRIVES.contains(&device.major)) {
                continue;
            }
            let of_disk = |path: &&String| disk_of_path(path).as_ref() == Some(&name);
            let paths: Vec<String> = paths.iter().filter(of_disk).cloned().collect();
            let queues = if paths.is_empty() {
                std::slice::from_ref(&name)
            } else {
                &paths[..]
            };
            let mut schedulers = queues
                .iter()
                .map(|queue| self.parsed(&format!("{BLOCK}/{queue}/queue/scheduler"), scheduler))
                .collect::<Vec<_>>();
            schedulers.sort_by_key(|known| matches!(known, Ok(known) if known.active == "bfq"));
            disks.push(Disk {
                device,
                scheduler: schedulers.swap_remove(0),
                paths,
                rotational: self
                    .parsed(&format!("{dir}/queue/rotational"), single)
                    .map(|number| number != 0),
                name,
            });
        }
        Ok(disks)
    }
}

/// The disk that this is a path of: `nvme0n1` of `nvme0c3n1` (`drivers/nvme/host/multipath.c`).
fn disk_of_path(path: &str) -> Option<String> {
    let (subsystem, rest) = path.strip_prefix("nvme")?.split_once('c')?;
    let (_, namespace) = rest.split_once('n')?;
    Some(format!("nvme{subsystem}n{namespace}"))
}

#[cfg(test)]
mod tests {
    use super::super::FakeHost;
    use super::*;

    fn host() -> FakeHost {
        let host = FakeHost::new();
        host.set(
            "/proc/self/mountinfo",
            "31 23 0:28 / /cg rw - cgroup2 none rw\n40 1 8:1 / / rw - ext4 /dev/sda1 rw\n",
        );
        host.set("/cg/cgroup.controllers", "cpu memory\n");
        host.set("/proc/meminfo", "MemTotal: 1000 kB\nSwapTotal: 8 kB\n");
        host.set("/sys/block/sda/device/model", "x\n");
        host.set("/sys/block/sda/size", "100\n");
        host.set("/sys/block/sda/dev", "8:0\n");
        host.set("/sys/block/sda/queue/scheduler", "[none] bfq\n");
        host.set("/sys/block/loop0/size", "100\n");
        host
    }

    #[test]
    fn a_disk_has_hardware_behind_it() {
        let facts = HostFacts::read(&host());
        let disks = facts.disks.unwrap();
        assert_eq!(disks.len(), 1);
        assert_eq!(disks[0].name, "sda");
        assert_eq!(disks[0].scheduler.as_ref().unwrap().active, "none");
        assert!(disks[0].rotational.is_err(), "unknown is not false");
    }

    #[test]
    fn a_disk_of_nvme_multipath_has_the_scheduler_of_its_paths_and_they_are_no_disks() {
        let host = host();
        for (file, text) in [
            ("nvme0n1/device/model", "x\n"),
            ("nvme0n1/size", "100\n"),
            ("nvme0n1/dev", "259:1\n"),
            ("nvme0n1/hidden", "0\n"),
            ("nvme0n1/queue/scheduler", "none\n"),
            ("nvme0c0n1/device/model", "x\n"),
            ("nvme0c0n1/hidden", "1\n"),
            ("nvme0c0n1/queue/scheduler", "none [bfq]\n"),
            ("nvme0c1n1/device/model", "x\n"),
            ("nvme0c1n1/hidden", "1\n"),
            ("nvme0c1n1/queue/scheduler", "[none] bfq\n"),
        ] {
            host.set(&format!("/sys/block/{file}"), text);
        }
        let named = || {
            let disks = HostFacts::read(&host).disks.unwrap();
            let of = |disk: Disk| (disk.name, disk.scheduler.unwrap().active, disk.paths.len());
            disks.into_iter().map(of).collect::<Vec<_>>()
        };
        let disk = |active: &str| ("nvme0n1".to_owned(), active.to_owned(), 2);
        let sda = ("sda".to_owned(), "none".to_owned(), 0);
        assert_eq!(named(), [disk("none"), sda.clone()]);
        host.set("/sys/block/nvme0c1n1/queue/scheduler", "none [bfq]\n");
        assert_eq!(named(), [disk("bfq"), sda]);
    }

    #[test]
    fn volumes_that_write_from_threads_are_named_with_their_driver() {
        let host = host();
        host.set("/sys/block/dm-0/dm/uuid", "CRYPT-LUKS2-1\n");
        host.set("/sys/block/dm-1/dm/uuid", "LVM-1\n");
        host.set("/sys/block/md0/md/level", "raid5\n");
        host.set("/sys/block/md1/md/level", "raid1\n");
        let volumes = HostFacts::read(&host).volumes.unwrap();
        let named: Vec<_> = volumes
            .iter()
            .map(|v| (v.name.as_str(), v.driver.as_str()))
            .collect();
        assert_eq!(named, [("dm-0", "dm-crypt"), ("md0", "raid5")]);
        host.refuse("/sys/block/md1/md/level", Errno::ACCESS);
        assert!(HostFacts::read(&host).volumes.is_err());
    }

    #[test]
    fn a_file_that_cannot_be_read_has_its_cause_and_a_missing_one_is_no_error() {
        let host = host();
        host.refuse("/sys/kernel/mm/lru_gen/enabled", Errno::ACCESS);
        host.refuse("/proc/pressure/memory", Errno::OPNOTSUPP);
        let facts = HostFacts::read(&host);
        let unread = facts.lru_gen.unwrap_err();
        assert_eq!(
            unread.to_string(),
            "/sys/kernel/mm/lru_gen/enabled: permission denied"
        );
        assert_eq!(facts.lru_gen_min_ttl_ms, Ok(None));
        assert_eq!(facts.psi, Ok(false));
        assert!(facts.swappiness.is_err());
        assert_eq!(facts.swaps, Ok(Vec::new()));
        let controllers = facts.controllers.unwrap().unwrap();
        assert_eq!(controllers, ["cpu", "memory"]);
    }
}
