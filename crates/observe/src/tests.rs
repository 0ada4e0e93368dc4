//! Promises of a traffic source, on a fake host.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use justitia_cgroup::fake::Fault;
use justitia_cgroup::{CgroupFs, Device, FakeFs, Fs, Group};
use proptest::prelude::*;
use rustix::io::Errno;

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const DISK: Device = Device { major: 8, minor: 0 };
const MAPPED: Device = Device {
    major: 253,
    minor: 0,
};

/// A fake host with watched groups.
struct Host {
    fs: Arc<FakeFs>,
    groups: Vec<Group>,
    source: ProcIo,
}

fn watched(groups: &[Group], active: impl Fn(&Group) -> bool) -> Vec<Watched<'_>> {
    let watched = groups.iter().map(|group| Watched {
        group,
        active: active(group),
    });
    watched.collect()
}

impl Host {
    fn new(paths: &[&str]) -> Host {
        let fs = FakeFs::new();
        for path in paths {
            fs.mkdir(path);
        }
        let groups = paths.iter().map(|path| fs.open(path).unwrap()).collect();
        let source = ProcIo::new(Arc::clone(&fs) as Fs);
        Host { fs, groups, source }
    }

    /// One sample, a second later.
    fn sample(&mut self) -> Vec<Traffic> {
        self.sample_of(|_| true)
    }

    fn sample_of(&mut self, active: impl Fn(&Group) -> bool) -> Vec<Traffic> {
        self.fs.advance(SECOND);
        let watched = watched(&self.groups, active);
        let mut out = Vec::new();
        self.source.sample(&watched, &mut out);
        out.iter().map(|sample| sample.traffic).collect()
    }

    fn read_and_written(&mut self) -> (Option<u64>, Option<u64>) {
        let traffic = self.sample()[0];
        (traffic.read_bytes, traffic.write_bytes)
    }
}

#[test]
fn a_list_is_the_same_only_with_the_same_groups_in_the_same_order() {
    let host = Host::new(&["/a", "/b", "/c"]);
    let watched = watched(&host.groups, |_| true);
    let ids: Vec<GroupId> = host.groups.iter().map(Group::id).collect();
    assert!(is_list_of(&ids, &watched));
    assert!(is_list_of(&[], &[]));
    assert!(!is_list_of(&ids[..2], &watched), "one came");
    assert!(!is_list_of(&ids, &watched[..2]), "one left");
    let turned = [ids[1], ids[0], ids[2]];
    assert!(!is_list_of(&turned, &watched), "another order");
}

#[test]
fn traffic_is_the_sum_over_processes_since_the_first_look() {
    let mut host = Host::new(&["/a"]);
    for pid in [10, 11] {
        host.fs.spawn(pid, "/a");
        host.fs.process_io(pid, 1000, 1000);
    }
    assert_eq!(host.read_and_written(), (Some(0), Some(0)));
    host.fs.process_io(10, 1500, 1000);
    host.fs.process_io(11, 1000, 1007);
    assert_eq!(host.read_and_written(), (Some(500), Some(7)));
}

#[test]
fn a_process_that_started_since_counts_from_its_start() {
    let mut host = Host::new(&["/a"]);
    host.sample();
    host.fs.spawn(10, "/a");
    host.fs.process_io(10, 0, 300);
    assert_eq!(host.read_and_written().1, Some(300));
}

#[test]
fn an_exit_never_makes_traffic_jump_backwards() {
    let mut host = Host::new(&["/a"]);
    host.fs.spawn(10, "/a");
    host.sample();
    host.fs.process_io(10, 0, 5000);
    assert_eq!(host.read_and_written().1, Some(5000));
    host.fs.exit(10);
    assert_eq!(host.read_and_written().1, Some(5000));
}

#[test]
fn a_recycled_pid_is_a_new_process() {
    let mut host = Host::new(&["/a"]);
    host.fs.spawn(10, "/a");
    host.sample();
    host.fs.process_io(10, 0, 5000);
    host.sample();
    host.fs.exit(10);
    host.fs.spawn(10, "/a");
    host.fs.process_io(10, 0, 40);
    assert_eq!(host.read_and_written().1, Some(5040));
}

#[test]
fn a_child_that_was_waited_for_is_counted_once_to_its_last_byte() {
    let mut host = Host::new(&["/a"]);
    host.fs.spawn(10, "/a");
    host.fs.spawn_child(11, "/a", 10);
    host.sample();
    host.fs.process_io(11, 0, 1 << 20);
    assert_eq!(host.read_and_written().1, Some(1 << 20));
    // It writes on, ends, and its parent waits, all between two looks.
    host.fs.process_io(11, 0, 3 << 20);
    host.fs.reap(11);
    assert_eq!(host.read_and_written().1, Some(3 << 20));
    assert_eq!(host.read_and_written().1, Some(3 << 20));
}

#[test]
fn a_moved_process_is_not_counted_twice() {
    let mut host = Host::new(&["/a", "/b"]);
    host.fs.spawn(10, "/a");
    host.sample();
    host.fs.process_io(10, 0, 1000);
    host.sample();
    host.fs.move_process(10, "/b");
    host.fs.process_io(10, 0, 1500);
    let traffic = host.sample();
    assert_eq!(traffic[0].write_bytes, Some(1000));
    assert_eq!(traffic[1].write_bytes, Some(500));
}

#[test]
fn unlisted_groups_count_for_the_group_above_and_listed_ones_do_not() {
    let mut host = Host::new(&["/a", "/a/listed"]);
    host.fs.mkdir("/a/inner/deep");
    host.sample();
    host.fs.spawn(10, "/a/inner/deep");
    host.fs.process_io(10, 0, 100);
    host.fs.spawn(11, "/a/listed");
    host.fs.process_io(11, 0, 7);
    let traffic = host.sample();
    assert_eq!(traffic[0].write_bytes, Some(100));
    assert_eq!(traffic[1].write_bytes, Some(7));
}

#[test]
fn a_process_that_refuses_makes_the_group_unknown_and_loses_nothing() {
    let mut host = Host::new(&["/a", "/b"]);
    host.fs.spawn(10, "/a");
    host.sample();
    host.fs.deny_process(10, true);
    host.fs.process_io(10, 0, 1000);
    let traffic = host.sample();
    assert_eq!(traffic[0].write_bytes, None);
    assert_eq!(traffic[1].write_bytes, Some(0), "the other is known");
    host.fs.deny_process(10, false);
    assert_eq!(host.read_and_written().1, Some(1000));
}

#[test]
fn an_unreadable_list_of_processes_is_unknown() {
    let mut host = Host::new(&["/a"]);
    host.sample();
    let fault = Fault::Errno(Errno::ACCESS);
    host.fs.inject("/a", "cgroup.procs", fault);
    assert_eq!(host.read_and_written(), (None, None));
}

#[test]
fn a_quiet_group_is_not_read_and_catches_up_later() {
    let mut host = Host::new(&["/a"]);
    host.fs.spawn(10, "/a");
    host.sample();
    host.fs.process_io(10, 0, 1000);
    host.fs.spawn(11, "/a");
    host.fs.process_io(11, 0, 50);
    let traffic = host.sample_of(|_| false);
    assert_eq!(traffic[0].write_bytes, Some(0));
    assert_eq!(host.read_and_written().1, Some(1050));
}

#[test]
fn a_group_never_looked_at_is_unknown() {
    let mut host = Host::new(&["/a"]);
    let traffic = host.sample_of(|_| false);
    assert_eq!(traffic[0], Traffic::default());
}

#[test]
fn missed_bytes_are_those_of_disks_and_not_of_what_is_stacked_on_them() {
    let mut host = Host::new(&["/a"]);
    host.fs.set_stacked(MAPPED);
    host.sample();
    host.fs.update("/a", |group| {
        group.io = BTreeMap::from([(DISK, (500, 9)), (MAPPED, (500, 9))]);
    });
    assert_eq!(host.sample()[0].missed_bytes, Some(500));
}

#[test]
fn a_group_that_shows_only_stacked_devices_counts_the_largest() {
    let mut host = Host::new(&["/a"]);
    host.fs.set_stacked(MAPPED);
    host.sample();
    host.fs
        .update("/a", |group| group.io = BTreeMap::from([(MAPPED, (70, 0))]));
    assert_eq!(host.sample()[0].missed_bytes, Some(70));
}

#[test]
fn missed_bytes_of_a_listed_group_are_not_its_parents() {
    let mut host = Host::new(&["/a", "/a/b"]);
    host.sample();
    host.fs
        .update("/a", |group| group.io = BTreeMap::from([(DISK, (100, 0))]));
    host.fs
        .update("/a/b", |group| group.io = BTreeMap::from([(DISK, (60, 0))]));
    let traffic = host.sample();
    assert_eq!(traffic[0].missed_bytes, Some(40));
    assert_eq!(traffic[1].missed_bytes, Some(60));
}

#[test]
fn without_the_io_controller_misses_are_unknown() {
    let mut host = Host::new(&["/a"]);
    host.fs.inject("/a", "io.stat", Fault::Absent);
    assert_eq!(host.sample()[0].missed_bytes, None);
}

#[test]
fn a_forgotten_group_starts_anew() {
    let mut host = Host::new(&["/a", "/b"]);
    host.fs.spawn(10, "/a");
    host.sample();
    host.fs.process_io(10, 0, 100);
    host.sample();
    let a = host.groups.remove(0);
    host.sample();
    host.groups.insert(0, a);
    assert_eq!(host.read_and_written().1, Some(0));
}

/// Events of a process.
#[derive(Debug, Clone)]
enum Happens {
    Write(u64),
    End,
    Spawn,
    Move(bool),
    Refuse(bool),
    /// The second group is quiet, or not.
    Rest(bool),
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        (0u64..1 << 24).prop_map(Happens::Write),
        Just(Happens::End),
        Just(Happens::Spawn),
        any::<bool>().prop_map(Happens::Move),
        any::<bool>().prop_map(Happens::Refuse),
        any::<bool>().prop_map(Happens::Rest),
    ]
}

#[test]
fn a_child_that_was_waited_for_while_its_parent_could_not_be_read_is_counted_once() {
    let mut host = Host::new(&["/a"]);
    host.fs.spawn(2, "/a");
    host.sample();
    host.fs.spawn_child(4, "/a", 2);
    host.sample();
    host.fs.process_io(4, 0, 1);
    host.sample();
    host.fs.process_io(2, 0, 1);
    host.sample();
    host.fs.deny_process(2, true);
    host.sample();
    host.fs.reap(4);
    host.sample();
    // It writes nothing itself: its counters are its own byte and the child's.
    host.fs.process_io(2, 0, 2);
    host.sample();
    host.fs.deny_process(2, false);
    assert_eq!(host.read_and_written().1, Some(2));
}

/// A process of `/a` with a child and a grandchild in `/b`, which have written.
fn family() -> Host {
    let mut host = Host::new(&["/a", "/b"]);
    host.fs.spawn(10, "/a");
    host.fs.spawn_child(11, "/b", 10);
    host.fs.spawn_child(12, "/b", 11);
    host.sample();
    host.fs.process_io(11, 0, 1000);
    host.fs.process_io(12, 0, 500);
    host.sample();
    host
}

#[test]
fn a_child_in_a_quiet_group_that_was_waited_for_is_counted_once() {
    let mut host = family();
    host.fs.reap(12);
    host.fs.reap(11);
    let traffic = host.sample_of(|group| group.path() == "/a");
    assert_eq!(traffic[0].write_bytes, Some(0));
    assert_eq!(host.sample()[1].write_bytes, Some(1500));
}

#[test]
fn a_child_in_a_group_that_left_the_list_is_counted_once() {
    let mut host = family();
    host.fs.reap(12);
    host.fs.reap(11);
    host.groups.pop();
    assert_eq!(host.read_and_written().1, Some(0));
}

#[test]
fn a_child_that_is_a_zombie_when_its_group_leaves_the_list_is_counted_once() {
    let mut host = family();
    host.groups.pop();
    host.sample();
    host.fs.reap(12);
    host.fs.reap(11);
    assert_eq!(host.read_and_written().1, Some(0));
}

#[test]
fn a_process_that_is_listed_twice_loses_nothing() {
    let mut host = Host::new(&["/a", "/b"]);
    for group in ["/a", "/b"] {
        host.fs.spawn(10, group);
    }
    host.sample();
    host.fs.process_io(10, 0, 1000);
    let written = host.sample().into_iter().map(|traffic| traffic.write_bytes);
    assert_eq!(written.map(Option::unwrap).sum::<u64>(), 1000);
}

#[test]
fn a_process_outside_of_our_pid_namespace_makes_the_group_unknown() {
    let mut host = Host::new(&["/a", "/b", "/b/unlisted"]);
    host.groups.pop();
    for group in ["/a", "/a", "/b/unlisted"] {
        host.fs.spawn(0, group);
    }
    assert_eq!(
        host.sample(),
        [Traffic {
            missed_bytes: Some(0),
            ..Traffic::default()
        }; 2]
    );
}

#[test]
fn a_group_with_any_number_of_cgroups_below_it_is_unknown_and_others_are_counted() {
    let mut host = Host::new(&["/a", "/b"]);
    for n in 0..1500 {
        host.fs.mkdir(&format!("/a/x{n}"));
    }
    host.fs.spawn(2, "/b");
    host.sample();
    host.fs.process_io(2, 0, 7);
    let sample = host.sample().into_iter();
    let written: Vec<_> = sample.map(|traffic| traffic.write_bytes).collect();
    assert_eq!(written, [None, Some(7)]);
    assert_eq!(host.fs.reads("/a/x1400").len(), 0, "it is not looked at");
}

proptest! {
    #[test]
    fn known_counters_never_go_backwards_and_never_exceed_what_was_written(
        waits: bool,
        script in proptest::collection::vec((2u32..6, happens()), 1..60),
    ) {
        let mut host = Host::new(&["/a", "/b"]);
        host.fs.spawn(2, "/a");
        let mut written: BTreeMap<u32, u64> = BTreeMap::from([(2, 0)]);
        let mut truth = 0u64;
        let mut last = [0u64; 2];
        let mut rests = false;
        host.sample();
        for (pid, event) in script {
            let lives = written.contains_key(&pid);
            match event {
                Happens::Write(bytes) if lives => {
                    let total = written.get_mut(&pid).unwrap();
                    *total += bytes;
                    truth += bytes;
                    host.fs.process_io(pid, 0, *total);
                }
                Happens::End if lives && pid != 2 => {
                    let total = written.remove(&pid).unwrap();
                    if waits {
                        host.fs.reap(pid);
                        *written.get_mut(&2).unwrap() += total;
                    } else {
                        host.fs.exit(pid);
                    }
                }
                Happens::Spawn if !lives => {
                    host.fs.spawn_child(pid, "/a", 2);
                    written.insert(pid, 0);
                }
                Happens::Move(to_b) if lives => {
                    host.fs.move_process(pid, if to_b { "/b" } else { "/a" });
                }
                Happens::Refuse(denied) if lives => host.fs.deny_process(pid, denied),
                Happens::Rest(quiet) => rests = quiet,
                _ => {}
            }
            let traffic = host.sample_of(|group| !rests || group.path() == "/a");
            for (last, traffic) in last.iter_mut().zip(&traffic) {
                if let Some(now) = traffic.write_bytes {
                    prop_assert!(now >= *last);
                    *last = now;
                }
            }
            prop_assert!(last.iter().sum::<u64>() <= truth, "{last:?} of {truth}");
        }
    }
}

/// On this machine's own kernel: an ordinary directory stands for the cgroup.
#[test]
fn a_real_shell_and_the_child_it_waits_for_are_counted_once() {
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};

    const WRITTEN: u64 = 50 << 20;
    let inner = "echo $$; read a; dd if=/dev/zero of=/dev/null bs=1M count=50; echo done; read b";
    let outer = format!("sh -c '{inner}'; echo reaped; read c");
    let mut shell = Command::new("sh")
        .args(["-c", &outer])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut say = shell.stdin.take().unwrap();
    let mut lines = BufReader::new(shell.stdout.take().unwrap()).lines();
    let mut hear = || lines.next().unwrap().unwrap();

    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("shell");
    std::fs::create_dir(&dir).unwrap();
    let list = |pids: &[String]| std::fs::write(dir.join("cgroup.procs"), pids.join("\n")).unwrap();
    list(&[shell.id().to_string(), hear()]);
    let fs: Fs = Arc::new(justitia_cgroup::RealFs::on_directory(root.path()).unwrap());
    let group = fs.open("/shell").unwrap();
    let mut source = ProcIo::new(Arc::clone(&fs));
    let mut sample = || {
        let watched = Watched {
            group: &group,
            active: true,
        };
        let mut out = Vec::new();
        source.sample(&[watched], &mut out);
        out[0].traffic.write_bytes.unwrap()
    };
    let about = |bytes: u64| (WRITTEN..WRITTEN + (1 << 20)).contains(&bytes);

    assert_eq!(sample(), 0);
    writeln!(say, "go").unwrap();
    assert_eq!(hear(), "done");
    let alive = sample();
    assert!(about(alive), "{alive} while the child lives");
    writeln!(say, "end").unwrap();
    assert_eq!(hear(), "reaped");
    list(&[shell.id().to_string()]);
    for _ in 0..3 {
        let waited_for = sample();
        assert!(about(waited_for), "{waited_for} after it was waited for");
    }
    drop(say);
    shell.wait().unwrap();
}
