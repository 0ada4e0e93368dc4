//! Tests which pages of a machine's images an image cache keeps and drops.
//!
//! The tests call `tick` themselves. For events that take time (writeback, a block that becomes quiet) they
//! poll, with a timeout generous enough for a slow machine.

mod common;

use std::fs::File;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::{contents, image, random, scratch, warm, with_one_image, Machine, PAGE};
use justitia_cgroup::Processes;
use justitia_vm::policy::Replacement;
use justitia_vm::report::{ImageReport, MachineReport};
use justitia_vm::{ImageCache, Settings, Sight};

const PAGES: u64 = 4096;
const PATIENCE: Duration = Duration::from_secs(120);

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest (the program that other tests start)"]
fn the_program_of_a_machine() {
    common::be_a_machine();
}

fn image_cache(replacement: Replacement) -> ImageCache {
    let settings = Settings {
        replacement,
        ..Settings::default()
    };
    ImageCache::start(Processes::host(), settings).unwrap()
}

/// The report on one machine. Machines of other tests, and real ones, may run too.
fn told(image_cache: &ImageCache, machine: &Machine) -> MachineReport {
    let report = image_cache.report();
    let mut machines = report.machines.into_iter();
    machines.find(|told| told.pid == machine.pid()).unwrap()
}

fn first_image(image_cache: &ImageCache, machine: &Machine) -> ImageReport {
    told(image_cache, machine).images.remove(0)
}

/// Cached pages among `from..to` of a file.
fn cached(path: &Path, from: u64, to: u64) -> u64 {
    let file = File::open(path).unwrap();
    let seen = Sight::Mincore.resident(&file, from * PAGE, (to - from) * PAGE);
    seen.unwrap().cached
}

/// Makes rounds until the condition `is_so` holds.
fn until(image_cache: &mut ImageCache, what: &str, mut is_so: impl FnMut(&ImageCache) -> bool) {
    let began = Instant::now();
    loop {
        image_cache.tick().unwrap();
        if is_so(image_cache) {
            return;
        }
        assert!(
            began.elapsed() < PATIENCE,
            "{what}: {:#?}",
            image_cache.report()
        );
        sleep(Duration::from_millis(50));
    }
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn a_page_stays_from_its_second_request_on_and_goes_after_its_first() {
    let (_dir, path, mut machine) = with_one_image(PAGES);
    let mut image_cache = image_cache(Replacement::Justitia);
    warm(&path, 0, 2048);
    machine.read_through(0..2048);
    assert!(cached(&path, 0, 2048) > 0);
    until(&mut image_cache, "the first request is not kept", |_| {
        cached(&path, 0, PAGES) == 0
    });
    warm(&path, 0, 1024);
    machine.read_through(0..1024);
    until(
        &mut image_cache,
        "readahead beyond it goes when all is quiet",
        |_| cached(&path, 1024, PAGES) == 0,
    );
    assert_eq!(cached(&path, 0, 1024), 1024, "the second request is kept");
    let image = first_image(&image_cache, &machine);
    assert_eq!(image.requested_bytes, Some(3072 * PAGE));
    assert_eq!(image.second_bytes, Some(1024 * PAGE));
    assert!(image.dropped_bytes >= Some(2048 * PAGE), "{image:?}");
    assert_eq!(image.lost_bytes, Some(0));
    assert!(image.counter_bytes < Some(PAGES * PAGE / 1000));
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn a_policy_holds_from_the_round_after_it_was_switched() {
    let (_dir, path, mut machine) = with_one_image(PAGES);
    let mut image_cache = image_cache(Replacement::Default);
    warm(&path, 0, 1024);
    machine.read_through(0..1024);
    for _ in 0..5 {
        image_cache.tick().unwrap();
    }
    assert_eq!(
        cached(&path, 0, 1024),
        1024,
        "the kernel's own policy drops nothing"
    );
    image_cache.switch(Replacement::Justitia);
    // Only requested pages are asserted: readahead from before the switch is not known to be unwanted.
    until(&mut image_cache, "what was asked for once goes", |_| {
        cached(&path, 0, 1024) == 0
    });
    image_cache.switch(Replacement::Lfu);
    image_cache.tick().unwrap();
    machine.read_through(1024..2048);
    for _ in 0..5 {
        image_cache.tick().unwrap();
    }
    assert_eq!(cached(&path, 1024, 2048), 1024, "everything is kept");
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn a_written_page_is_never_lost_and_goes_once_it_is_clean() {
    let dir = scratch();
    let path = image(dir.path(), "disk", PAGES);
    let mut truth = contents(&path);
    common::cool(&File::open(&path).unwrap());
    let mut machine = Machine::start(dir.path(), &[&path]);
    let mut image_cache = image_cache(Replacement::Justitia);
    let mut state = 7u64;
    for round in 0..400u64 {
        let from = random(&mut state) % (PAGES - 32);
        let to = from + 1 + state % 32;
        machine.write(0, from, to, round as u8);
        truth[(from * PAGE) as usize..(to * PAGE) as usize].fill(round as u8);
        if state % 3 == 0 {
            machine.read(0, from, to);
        }
        image_cache.tick().unwrap();
        if round % 100 == 99 {
            File::open(&path).unwrap().sync_all().unwrap();
        }
    }
    // The machine is killed while pages are dropped. The data that it wrote is in the page cache or on the
    // disk, because the host's kernel took the writes and runs on.
    machine.kill();
    for _ in 0..3 {
        image_cache.tick().unwrap();
    }
    assert!(contents(&path) == truth, "the image is as it was written");
    common::cool(&File::open(&path).unwrap());
    assert!(contents(&path) == truth, "and so on the disk");
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn a_page_of_a_shared_image_is_kept_when_another_machine_asks_for_it() {
    let dir = scratch();
    let shared = image(dir.path(), "base", PAGES);
    let mut first = Machine::start(dir.path(), &[&shared]);
    let mut second = Machine::start(dir.path(), &[&shared]);
    let mut image_cache = image_cache(Replacement::Justitia);
    warm(&shared, 0, 128);
    first.read(0, 0, 128);
    until(&mut image_cache, "the first request goes", |_| {
        cached(&shared, 0, 128) == 0
    });
    warm(&shared, 0, 128);
    second.read(0, 0, 128);
    until(&mut image_cache, "readahead goes", |_| {
        cached(&shared, 128, PAGES) == 0
    });
    assert_eq!(cached(&shared, 0, 128), 128);
    let (one, two) = (told(&image_cache, &first), told(&image_cache, &second));
    assert_eq!(
        (one.second_bytes, two.second_bytes),
        (Some(0), Some(128 * PAGE))
    );
    assert_eq!(two.images[0].machines, 2);
    until(
        &mut image_cache,
        "each is charged its part",
        |image_cache| {
            let (one, two) = (told(image_cache, &first), told(image_cache, &second));
            one.cached_bytes == two.cached_bytes && one.cached_bytes == Some(64 * PAGE)
        },
    );
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn a_machine_that_ends_is_forgotten_and_one_that_starts_is_found() {
    let dir = scratch();
    let path = image(dir.path(), "disk", 64);
    let mut image_cache = image_cache(Replacement::Justitia);
    let machine = Machine::start(dir.path(), &[&path]);
    let pid = machine.pid();
    let is_there = move |image_cache: &ImageCache| {
        let report = image_cache.report();
        report.machines.iter().any(|machine| machine.pid == pid)
    };
    until(&mut image_cache, "it is found", is_there);
    machine.kill();
    until(&mut image_cache, "it is forgotten", |image_cache| {
        !is_there(image_cache)
    });
}

/// Two machines request more than the memory holds. One has read its part and is idle, the other goes on
/// reading.
#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest (of 1 GiB: it fills the memory)"]
fn when_memory_is_short_the_machine_used_longest_ago_gives_down_to_its_watermark() {
    let dir = scratch();
    let mut image_cache = image_cache(Replacement::Lfu);
    let report = image_cache.report();
    let there = report.free_bytes.unwrap() + report.cache_bytes.unwrap();
    assert!(
        there < 2 << 30,
        "this fills the host's memory: run it in a guest of 1 GiB"
    );
    let pages = there / 2 / PAGE;
    let paths = ["idle", "busy"].map(|name| image(dir.path(), name, pages));
    let mut machines = paths.map(|path| Machine::start(dir.path(), &[&path]));
    until(&mut image_cache, "both are found", |image_cache| {
        image_cache.report().machines.len() >= 2
    });
    for machine in &mut machines {
        for from in (0..pages - 64).step_by(64) {
            machine.read(0, from, from + 64);
            if from % 1024 == 0 {
                image_cache.tick().unwrap();
            }
        }
    }
    let [idle, busy] = machines
        .each_ref()
        .map(|machine| told(&image_cache, machine));
    assert!(idle.evicted_bytes > Some(0), "it gave: {idle:#?}");
    assert!(
        idle.evicted_bytes > busy.evicted_bytes,
        "it gave first: {idle:#?} {busy:#?}"
    );
    // The kernel may have reclaimed more than the image cache evicted; only the latter stops at the
    // watermark.
    let given = idle.evicted_bytes.unwrap();
    let above = (pages * PAGE).saturating_sub(idle.low_watermark_bytes.unwrap());
    assert!(given <= above + (64 << 20), "{given} of {above}: {idle:#?}");
}
