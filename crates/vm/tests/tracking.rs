//! Compares the counts of the BPF programs with the requests that were made.

mod common;

use std::fs::File;

use common::{image, random, scratch, warm, with_one_image, Machine, PAGE};
use justitia_cgroup::Processes;
use justitia_vm::policy::pages::{count, fresh, PAGES_PER_BLOCK, PAGES_PER_WORD};
use justitia_vm::track::{Book, Tier, Tracker};
use justitia_vm::Image;

const PAGES: u64 = 1000;

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest (the program that other tests start)"]
fn the_program_of_a_machine() {
    common::be_a_machine();
}

fn open(path: &std::path::Path, pid: u32) -> Image {
    let host = Processes::host();
    let name = path.display().to_string();
    let open = host.open_files(pid).unwrap();
    let open = open.into_iter().find(|open| open.path == name).unwrap();
    Image::open(&host, pid, &open).unwrap().unwrap()
}

fn counts(book: &Book) -> Vec<u8> {
    let blocks = (0..book.blocks()).map(|block| book.block(block));
    let pages = blocks.flat_map(|block| (0..PAGES_PER_BLOCK).map(move |page| count(&block, page)));
    pages.take(PAGES as usize).collect()
}

/// Requests `from..to` of all sizes and places. None ends where the previous one ended: the tracepoint tier
/// would miss it.
fn requests() -> Vec<(u64, u64)> {
    let mut state = 12345u64;
    let mut random = |below: u64| random(&mut state) % below;
    let mut requests: Vec<(u64, u64)> = vec![(0, 300), (0, 1), (PAGES - 1, PAGES)];
    while requests.len() < 60 {
        let from = random(PAGES);
        let to = (from + 1 + random(200)).min(PAGES);
        if requests.last().is_some_and(|last| last.1 != to) {
            requests.push((from, to));
        }
    }
    requests
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn each_page_has_as_many_requests_as_were_made_up_to_seven() {
    let dir = scratch();
    let mut tiers = Vec::new();
    for tier in [Tier::Function, Tier::Tracepoint] {
        let Ok(mut tracker) = Tracker::with(tier) else {
            continue;
        };
        tiers.push(tier);
        let path = image(dir.path(), "disk", PAGES);
        let mut machine = Machine::start(dir.path(), &[&path]);
        let image = open(&path, machine.pid());
        let book = tracker.register(image.key, PAGES, None).unwrap();
        tracker.add_machine(machine.pid()).unwrap();
        let cold = image.resident().unwrap().cached;
        if tier == Tier::Tracepoint {
            warm(&path, 0, PAGES);
        }
        let mut truth = vec![0u8; PAGES as usize];
        let (mut requested, mut again) = (0, 0);
        for (from, to) in requests() {
            machine.read(0, from, to);
            for page in &mut truth[from as usize..to as usize] {
                requested += 1;
                again += u64::from(*page > 0);
                *page = (*page + 1).min(7);
            }
        }
        assert_eq!(counts(&book), truth, "{tier}");
        let told = tracker.image(image.key).unwrap();
        assert_eq!(
            (told.requested_pages, told.again_pages, told.lost_pages),
            (requested, again, 0),
            "{tier}"
        );
        // No page was reclaimed meanwhile, so each was fetched once.
        let warm = image.resident().unwrap().cached;
        assert_eq!(cold + told.fetched_pages(), warm, "{tier}");
        let mine = tracker.machine(machine.pid()).unwrap();
        assert_eq!(
            (mine.requested_pages, mine.again_pages),
            (requested, again),
            "{tier}"
        );
        let mut used = Vec::new();
        book.take_used(&mut used);
        assert_eq!(used, [0, 1, 2, 3], "{tier}");
        used.clear();
        book.take_used(&mut used);
        assert!(used.is_empty(), "{tier}");
    }
    eprintln!("tiers: {tiers:?}");
    assert!(!tiers.is_empty(), "{:?}", Tracker::open().err());
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn a_written_page_is_used_but_neither_requested_nor_fetched() {
    let (_dir, path, mut machine) = with_one_image(PAGES);
    let image = open(&path, machine.pid());
    let mut tracker = Tracker::open().unwrap();
    let book = tracker.register(image.key, PAGES, None).unwrap();
    tracker.add_machine(machine.pid()).unwrap();
    for byte in 0..3 {
        machine.write(0, 100, 200, byte);
    }
    assert!(counts(&book).iter().all(|&count| count == 0));
    let used = (0..book.blocks()).flat_map(|block| book.block(block).map(fresh));
    let used: Vec<bool> = used
        .flat_map(|word| (0..PAGES_PER_WORD).map(move |page| word >> (4 * page) & 1 == 1))
        .collect();
    let others = used.iter().filter(|&&used| used).count();
    // A large folio is dirtied as a whole, so pages around the written range may be fresh.
    assert!(used[100..200].iter().all(|&used| used) && others < 400);
    assert!(book.times(0).1 > 0, "it says when");
    let told = tracker.image(image.key).unwrap();
    assert_eq!((told.requested_pages, told.again_pages), (0, 0));
    assert!(
        told.fetched_pages() <= 2,
        "whole pages need not be read: {told:?}"
    );
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn other_processes_give_no_counts_and_a_forgotten_image_is_not_tracked() {
    let (_dir, path, mut machine) = with_one_image(PAGES);
    let image = open(&path, machine.pid());
    let mut tracker = Tracker::open().unwrap();
    let book = tracker.register(image.key, PAGES, None).unwrap();
    warm(&path, 0, PAGES);
    let foreign = tracker.image(image.key).unwrap().foreign_pages;
    machine.read(0, 0, 64);
    let told = tracker.image(image.key).unwrap();
    assert_eq!(
        (told.requested_pages, told.foreign_pages),
        (0, foreign + 64)
    );
    tracker.add_machine(machine.pid()).unwrap();
    machine.read(0, 0, 32);
    // A backup: this process is not a machine.
    std::io::copy(&mut File::open(&path).unwrap(), &mut std::io::sink()).unwrap();
    let counted = counts(&book);
    assert!(counted[..32].iter().all(|&count| count == 1), "{counted:?}");
    assert!(counted[32..].iter().all(|&count| count == 0), "{counted:?}");
    tracker.forget(image.key);
    machine.read(0, 0, 32);
    assert!(tracker.image(image.key).is_none());
    assert_eq!(counts(&book)[0], 1);
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn an_image_that_grows_keeps_its_counts() {
    let dir = scratch();
    let path = image(dir.path(), "disk", 2 * PAGES);
    let mut machine = Machine::start(dir.path(), &[&path]);
    let image = open(&path, machine.pid());
    let mut tracker = Tracker::open().unwrap();
    tracker.add_machine(machine.pid()).unwrap();
    let small = tracker.register(image.key, PAGES, None).unwrap();
    warm(&path, 0, 2 * PAGES);
    machine.read(0, 10, 20);
    machine.read(0, 1500, 1600);
    assert_eq!(
        tracker.image(image.key).unwrap().lost_pages,
        100,
        "beyond its end"
    );
    let large = tracker
        .register(image.key, 2 * PAGES, Some(&small))
        .unwrap();
    drop(small);
    machine.read(0, 10, 15);
    machine.read(0, 1500, 1600);
    let block = large.block(0);
    assert_eq!((count(&block, 10), count(&block, 19)), (2, 1));
    assert_eq!(count(&large.block(1500 / 256), 1500 % 256), 1);
    let told = tracker.image(image.key).unwrap();
    assert_eq!(
        (told.requested_pages, told.lost_pages),
        (10 + 100 + 5 + 100, 100)
    );
    assert_eq!(PAGE, rustix::param::page_size() as u64);
}
