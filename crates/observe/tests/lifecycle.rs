//! The observer over time: attaching and detaching, groups that come and go, the group that each event counts
//! for, reclaim, and files that several groups use.

mod common;

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{advise, assert_within_a_point, host, leave, observer, Eye, Scratch, Stops, TestFile};
use justitia_cgroup::{module_has, Group};
use justitia_observe::bpf::{probe, Answer, Counters, Coverage, Observer, Tier};
use justitia_observe::{TrafficSource, Watched};
use rustix::thread::{capabilities, set_capabilities, CapabilitySet};

/// Features of all of Debian's 6.1, 6.12 and 7.2. A probe that does not see them is wrong.
const ON_EVERY_STOCK_KERNEL: &str =
    "btf bpf tracing fentry filemap_read generic_perform_write page_cache_sync_ra \
    page_cache_async_ra filemap_fault mm_filemap_add_to_page_cache \
    mm_filemap_delete_from_page_cache mm_vmscan_direct_reclaim_begin \
    mm_vmscan_direct_reclaim_end mm_vmscan_memcg_reclaim_begin \
    mm_vmscan_memcg_reclaim_end";

/// Time within which a look at shared files ends, on an emulated machine, too.
const LONG: Duration = Duration::from_secs(60);

/// Number of times that the observer is opened and dropped under load; the lab asks for fewer on
/// kernels where once is enough.
fn rounds() -> u32 {
    std::env::var("JUSTITIA_TEST_ROUNDS").map_or(100, |text| text.parse().unwrap())
}

/// BPF programs and maps in the kernel.
fn in_kernel() -> (usize, usize) {
    (
        libbpf_rs::query::ProgInfoIter::default().count(),
        libbpf_rs::query::MapInfoIter::default().count(),
    )
}

/// Waits for objects that the kernel frees after a grace period.
fn settle(at_most: (usize, usize)) -> (usize, usize) {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let now = in_kernel();
        if (now.0 <= at_most.0 && now.1 <= at_most.1) || Instant::now() > deadline {
            return now;
        }
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn this_kernel_has_what_it_claims_and_takes_every_program() {
    let coverage = probe();
    for feature in &coverage.features {
        println!(
            "{}: {:?} ({})",
            feature.name, feature.answer, feature.needed_for
        );
        assert!(
            feature.answer != Answer::Unknown,
            "root on a stock kernel can tell: {}",
            feature.name
        );
    }
    println!("missing: {:?}", coverage.summary());
    for name in ON_EVERY_STOCK_KERNEL.split(' ') {
        assert_eq!(coverage.answer(name), Answer::Yes, "{name}");
    }
    let over_high = [
        "__mem_cgroup_handle_over_high",
        "mem_cgroup_handle_over_high",
    ];
    assert!(over_high
        .iter()
        .any(|name| coverage.answer(name) == Answer::Yes));
    let before = in_kernel();
    let observer = observer();
    let (programs, maps) = in_kernel();
    println!("{} programs, {} maps", programs - before.0, maps - before.1);
    assert!(
        programs >= before.0 + observer.attached(),
        "the verifier took them all"
    );
    assert!(observer.attached() >= 18, "{}", observer.attached());
    let begun = Instant::now();
    drop(observer);
    println!("detached in {:?}", begun.elapsed());
    let after = settle(before);
    assert!(
        after.0 <= before.0 && after.1 <= before.1,
        "nothing stays: {before:?}, {after:?}"
    );
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn no_function_of_a_module_counts_as_found_without_the_capability_to_search_modules() {
    let _ = Command::new("modprobe").arg("netfs").status();
    let functions = [
        ("btrfs", "btrfs_buffered_write"),
        ("fuse", "fuse_perform_write"),
        ("netfs", "netfs_perform_write"),
    ];
    let loaded = functions
        .iter()
        .filter(|(module, name)| module_has(module, name));
    let loaded: Vec<&str> = loaded.map(|(_, name)| *name).collect();
    println!("functions of loaded modules: {loaded:?}");
    let answers = |coverage: &Coverage| -> Vec<Answer> {
        loaded.iter().map(|name| coverage.answer(name)).collect()
    };
    assert_eq!(answers(&probe()), vec![Answer::Yes; loaded.len()]);
    let fewer = || {
        let mut sets = capabilities(None).unwrap();
        sets.effective.remove(CapabilitySet::SYS_ADMIN);
        set_capabilities(None, sets).unwrap();
        let mut coverage = probe();
        assert!(Observer::open(host(), &mut coverage, || ()).is_ok());
        coverage
    };
    let coverage = thread::spawn(fewer).join().unwrap();
    assert_eq!(answers(&coverage), vec![Answer::No; loaded.len()]);
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn programs_that_the_kernel_does_not_load_are_left_out() {
    // A kernel has one of the two functions that end in `mem_cgroup_handle_over_high`.
    let mut coverage = probe();
    let before = coverage.clone();
    for feature in &mut coverage.features {
        feature.answer = Answer::Yes;
    }
    let observer = Observer::open(host(), &mut coverage, || ()).unwrap();
    assert_eq!(observer.tier(), Tier::Fentry);
    assert_eq!(coverage, before, "what is refused is absent");
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn attaching_and_detaching_under_load_leaves_nothing_behind() {
    let scratch = Scratch::new("attach");
    scratch.enter();
    let dir = TestFile::dir();
    let file = TestFile::cold(dir.path(), "file", 4 << 20);
    file.warm(0..file.bytes);
    let before = in_kernel();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let load = scope.spawn(|| {
            let handle = file.open();
            let mut buffer = vec![0; 1 << 16];
            let mut rounds = 0u64;
            while !stop.load(Ordering::Relaxed) {
                for at in (0..file.bytes).step_by(1 << 16) {
                    handle.read_exact_at(&mut buffer, at).unwrap();
                }
                // Misses, too: the cold path's programs come and go as well.
                advise(&handle, libc::POSIX_FADV_DONTNEED);
                rounds += 1;
            }
            rounds
        });
        let stops = Stops(&stop);
        let begun = Instant::now();
        for _ in 0..rounds() {
            let mut eye = Eye::fresh(vec![scratch.group()]);
            let id = eye.groups[0].id();
            let deadline = Instant::now() + Duration::from_secs(5);
            while eye.counters(id).read_bytes == 0 {
                assert!(Instant::now() < deadline, "attached and blind");
                thread::sleep(Duration::from_millis(1));
            }
        }
        println!("{} rounds in {:?}", rounds(), begun.elapsed());
        drop(stops);
        assert!(load.join().unwrap() > 0);
    });
    let after = settle(before);
    assert!(
        after.0 <= before.0 && after.1 <= before.1,
        "nothing stays: {before:?}, {after:?}"
    );
}

/// Reads this many bytes from the start of the file.
fn read(file: &File, bytes: usize) {
    let mut buffer = vec![0; bytes];
    file.read_exact_at(&mut buffer, 0).unwrap();
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn a_thousand_groups_that_come_and_go_are_told_apart_and_leak_nothing() {
    const STANDING: usize = 1000;
    const PER_TICK: usize = 50;
    const TICKS: usize = 10;
    let parent = Scratch::new("churn");
    let dir = TestFile::dir();
    let file = TestFile::cold(dir.path(), "file", 1 << 20);
    file.warm(0..file.bytes);
    let handle = file.open();
    let make = |name: &str| Scratch::at(&format!("{}/{name}", parent.path));
    let mut standing: Vec<Scratch> = (0..STANDING).map(|i| make(&format!("s{i}"))).collect();
    let groups: Vec<Group> = standing.iter().map(Scratch::group).collect();
    let mut eye = Eye::on(groups);
    let settled = eye.observer.map_entries();
    println!("{STANDING} groups: {settled:?}");
    assert_eq!(settled["watched"], STANDING);

    let mut expected = vec![0u64; STANDING];
    for tick in 0..TICKS {
        let begun = Instant::now();
        let made: Vec<Scratch> = (0..PER_TICK).map(|i| make(&format!("c{i}"))).collect();
        eye.groups.extend(made.iter().map(Scratch::group));
        eye.look();
        // Each reads a different amount, so that a mix-up shows.
        for (i, scratch) in made.iter().enumerate() {
            scratch.enter();
            read(&handle, 4096 * (1 + i) + tick);
        }
        for i in (tick..STANDING).step_by(97) {
            standing[i].enter();
            read(&handle, 4096 + i);
            expected[i] += 4096 + i as u64;
        }
        leave();
        eye.look();
        for (i, group) in eye.groups[STANDING..].iter().enumerate() {
            let counted = eye.observer.counters(group.id()).expect("watched");
            assert_eq!(
                counted.read_bytes,
                (4096 * (1 + i) + tick) as u64,
                "{}",
                group.path()
            );
        }
        for (group, expected) in eye.groups.iter().zip(&expected) {
            let counted = eye.observer.counters(group.id()).expect("watched");
            assert_eq!(counted.read_bytes, *expected, "{}", group.path());
        }
        let gone = eye.groups.split_off(STANDING);
        drop(made);
        eye.look();
        for group in gone {
            assert_eq!(eye.observer.counters(group.id()), None, "forgotten");
        }
        println!("tick {tick}: {PER_TICK} groups in {:?}", begun.elapsed());
    }
    let after = eye.observer.map_entries();
    println!("after {} groups: {after:?}", TICKS * PER_TICK);
    assert_eq!(
        after["watched"], STANDING,
        "exactly the groups that are watched"
    );
    // These two maps evict their least recently used entries by themselves.
    assert!(
        after["resolved"] <= 8192 && after["prefetched"] <= 8192,
        "{after:?}"
    );
    assert_eq!(eye.observer.missed_events(), Some(0));

    eye.groups.clear();
    standing.clear();
    eye.look();
    assert_eq!(eye.observer.map_entries()["watched"], 0);
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn a_group_made_again_under_its_path_starts_from_nothing() {
    let dir = TestFile::dir();
    let file = TestFile::cold(dir.path(), "file", 1 << 20);
    let handle = file.open();
    let parent = Scratch::new("again");
    let path = format!("{}/x", parent.path);
    let first = Scratch::at(&path);
    let mut eye = Eye::on(vec![first.group()]);
    let old = eye.groups[0].id();
    first.enter();
    read(&handle, 1 << 20);
    assert_eq!(eye.counters(old).read_bytes, 1 << 20);
    drop(first);

    let second = Scratch::at(&path);
    eye.groups = vec![second.group()];
    let new = eye.groups[0].id();
    assert_ne!(old, new);
    assert_eq!(eye.counters(new), Counters::default());
    second.enter();
    read(&handle, 65_536);
    assert_eq!(eye.counters(new).read_bytes, 65_536);
    assert_eq!(eye.observer.counters(old), None);
    // Pages that the first group left behind do not count for the second.
    leave();
    file.cool();
    assert_eq!(eye.counters(new).evicted, 0);
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn the_nearest_watched_group_is_counted_and_the_root_is_nobody() {
    let dir = TestFile::dir();
    let file = TestFile::cold(dir.path(), "file", 1 << 20);
    let handle = file.open();
    let outer = Scratch::new("outer");
    let inner = Scratch::at(&format!("{}/inner", outer.path));
    let deep = Scratch::at(&format!("{}/deep", inner.path));
    let mut eye = Eye::on(vec![outer.group(), inner.group()]);
    let ids = [eye.groups[0].id(), eye.groups[1].id()];
    for (scratch, bytes) in [(&outer, 100), (&inner, 20), (&deep, 3)] {
        scratch.enter();
        read(&handle, bytes);
    }
    leave();
    read(&handle, 1000);
    let bytes = ids.map(|id| eye.counters(id).read_bytes);
    assert_eq!(bytes, [100, 23]);
    let traffic: Vec<Option<u64>> = eye.look().iter().map(|s| s.traffic.read_bytes).collect();
    assert_eq!(traffic, [Some(100), Some(23)]);

    // The inner group is no longer watched: what is below it counts for the outer one from now on.
    eye.groups.truncate(1);
    eye.look();
    deep.enter();
    read(&handle, 5000);
    assert_eq!(eye.counters(ids[0]).read_bytes, 5100);
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn however_deep_a_tenant_nests_its_cgroups_its_group_is_counted() {
    let dir = TestFile::dir();
    let file = TestFile::cold(dir.path(), "file", 1 << 20);
    let handle = file.open();
    let tenant = Scratch::new("tenant");
    let mut eye = Eye::on(vec![tenant.group()]);
    let id = eye.groups[0].id();
    let mut nested: Vec<Scratch> = Vec::new();
    for depth in 1..=300 {
        let above = nested.last().map_or(&tenant.path, |last| &last.path);
        nested.push(Scratch::at(&format!("{above}/d")));
        if [23, 24, 30, 100, 300].contains(&depth) {
            let before = eye.counters(id).read_bytes;
            nested.last().expect("one was made").enter();
            read(&handle, 4096);
            leave();
            assert_eq!(
                eye.counters(id).read_bytes,
                before + 4096,
                "{depth} levels deep"
            );
        }
    }
    // The deepest first.
    while nested.pop().is_some() {}
    assert_eq!(eye.look()[0].traffic.read_bytes, Some(5 * 4096));
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn reclaimed_pages_and_the_time_of_reclaim_are_counted() {
    let scratch = Scratch::new("reclaim");
    let id = scratch.group().id();
    // The observer comes before we enter: its maps are charged to the cgroup that makes them, and cannot be
    // reclaimed.
    let mut eye = Eye::on(vec![scratch.group()]);
    scratch.enter();
    let dir = TestFile::dir();
    let file = TestFile::cold(dir.path(), "file", 16 << 20);
    let work = || {
        file.warm(0..file.bytes);
        for _ in 0..20 {
            let _ = std::fs::write(scratch.dir.join("memory.reclaim"), "16M");
            if file.resident_pages() < file.pages() / 2 {
                break;
            }
        }
    };
    let counted = eye.during(id, work);
    let lost = file.pages() - file.resident_pages();
    println!("{lost} pages lost, {counted:?}");
    assert!(lost > file.pages() / 2, "{lost}");
    // Other files of the group may have lost pages too.
    assert!(counted.evicted >= lost, "{lost}: {counted:?}");
    assert!(counted.evicted <= lost + 4096, "{lost}: {counted:?}");
    assert!(counted.reclaim_us > 0, "{counted:?}");

    // Dropping pages on request is not reclaim.
    file.warm(0..file.bytes);
    let counted = eye.during(id, || file.cool());
    assert!(counted.evicted <= 16, "{counted:?}");

    // A group above memory.high waits. Here it waits for its own page cache to be reclaimed; other memory
    // cannot be, and it would wait for ever.
    scratch.set("memory.high", "8M");
    let counted = eye.during(id, || file.warm(0..file.bytes));
    scratch.set("memory.high", "max");
    println!("above memory.high: {counted:?}");
    assert!(counted.reclaim_us + counted.throttled_us > 0, "{counted:?}");
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn a_file_that_two_groups_use_is_known_with_its_payer() {
    let dir = TestFile::dir();
    let file = TestFile::cold(dir.path(), "file", 8 << 20);
    // Not a TestFile, because those are mapped, and a process that maps a file uses it.
    let private = dir.path().join("private");
    std::fs::write(&private, vec![1; 8 << 20]).unwrap();
    let (payer, user) = (Scratch::new("payer"), Scratch::new("user"));
    let mut eye = Eye::fresh(vec![payer.group(), user.group()]);
    let ids = [eye.groups[0].id(), eye.groups[1].id()];
    let mut text = Vec::new();
    payer.enter();
    file.open().read_to_end(&mut text).unwrap();
    File::open(&private)
        .unwrap()
        .read_to_end(&mut text)
        .unwrap();
    user.enter();
    let handle = file.open();
    let mut buffer = vec![0; 1 << 20];
    let deadline = Instant::now() + Duration::from_secs(20);
    let found = loop {
        handle.read_exact_at(&mut buffer, 0).unwrap();
        eye.observer.look_for_shared_files(LONG);
        let shared = eye.observer.shared();
        let of_both = |users: &[_]| ids.iter().all(|id| users.contains(id));
        if let Some(found) = shared.into_iter().flatten().find(|f| of_both(&f.users)) {
            break found;
        }
        assert!(Instant::now() < deadline, "nobody saw that it is shared");
        thread::sleep(Duration::from_millis(500));
    };
    let held = |id| {
        let of_id = found.held.iter().filter(|(group, _)| *group == id);
        of_id.map(|(_, bytes)| bytes.0).sum::<u64>()
    };
    println!("{found:?}");
    assert_within_a_point("held by the payer", held(ids[0]), file.bytes, file.bytes);
    assert_eq!(held(ids[1]), 0);
    eye.look();
    let with_private = eye.observer.shared().expect("it has looked");
    assert_eq!(
        with_private.len(),
        1,
        "a private file is not shared: {with_private:?}"
    );

    // After the drop, the kernel charges the file to the group that reads it.
    file.cool();
    text.clear();
    file.open().read_to_end(&mut text).unwrap();
    eye.observer.look_for_shared_files(LONG);
    let shared = eye.observer.shared().expect("it has looked");
    let found = shared.iter().find(|f| !f.held.is_empty());
    println!("charged anew: {found:?}");
    let found = found.expect("still shared");
    let of_user: u64 = found
        .held
        .iter()
        .filter(|h| h.0 == ids[1])
        .map(|h| h.1 .0)
        .sum();
    assert_within_a_point("held by the user", of_user, file.bytes, file.bytes);
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn a_payer_that_left_before_the_observer_came_still_pays() {
    let dir = TestFile::dir();
    let path = dir.path().join("file");
    let (payer, user) = (Scratch::new("early"), Scratch::new("late"));
    payer.enter();
    std::fs::write(&path, vec![1; 4 << 20]).unwrap();
    user.enter();
    let _handle = File::open(&path).unwrap();
    let mut eye = Eye::fresh(vec![payer.group(), user.group()]);
    eye.observer.look_for_shared_files(LONG);
    let (payer, user) = (eye.groups[0].id(), eye.groups[1].id());
    let shared = eye.observer.shared().expect("it has looked");
    println!("{shared:?}");
    let of_user = shared.iter().find(|file| file.users == [user]);
    let held = &of_user.expect("its only user is told").held;
    assert_eq!(held.len(), 1, "{held:?}");
    assert_eq!(held[0].0, payer);
    assert_within_a_point("held by the payer", held[0].1 .0, 4 << 20, 4 << 20);
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn a_group_that_is_not_active_keeps_its_counters() {
    let scratch = Scratch::new("quiet");
    let dir = TestFile::dir();
    let file = TestFile::cold(dir.path(), "file", 1 << 20);
    scratch.enter();
    let mut eye = Eye::on(vec![scratch.group()]);
    read(&file.open(), 12_345);
    let seen = eye.look();
    let watched = [Watched {
        group: &eye.groups[0],
        active: false,
    }];
    let mut samples = Vec::new();
    eye.observer.sample(&watched, &mut samples);
    assert_eq!(samples, seen);
}
