//! A simulated disk, seen second by second.

use super::*;

const ID: GroupId = GroupId(3 << 62);

struct Bench {
    disk: BlockDevice,
    memos: BTreeMap<GroupId, DiskMemo>,
    contention: Contention,
    /// BFQ schedules the disk.
    bfq: Option<BlockDevice>,
    may: bool,
    out: bool,
}

impl Bench {
    fn new() -> Bench {
        Bench {
            disk: BlockDevice {
                cost_qos: Some(CostQos::default()),
                cost_model: Some(CostModel::default()),
                counters: Some(DiskCounters::default()),
                ..BlockDevice::new(ID, "cost:sda")
            },
            memos: BTreeMap::new(),
            contention: Contention::Writers,
            bfq: None,
            may: true,
            out: false,
        }
    }

    /// Lets `seconds` pass in which this many requests of `size` bytes complete per second, half of them
    /// reads. Returns the writes, which a perfect agent carries out.
    fn pass(&mut self, seconds: u32, requests: u64, size: u64, busy_ms: u64) -> Vec<Write> {
        let mut all = Vec::new();
        for _ in 0..seconds {
            let counters = self.disk.counters.as_mut().unwrap();
            counters.reads += requests / 2;
            counters.writes += requests / 2;
            counters.read_bytes += requests / 2 * size;
            counters.write_bytes += requests / 2 * size;
            counters.busy_ms += busy_ms;
            let disks: Vec<BlockDevice> = self.bfq.iter().chain([&self.disk]).cloned().collect();
            let (may, out) = (self.may, self.out);
            let (memos, writes) = serve(&self.memos, &disks, self.contention, may, out, 1.0);
            self.memos = memos;
            for write in &writes {
                assert_eq!(write.group, ID);
                self.disk.set(write.knob, write.value);
            }
            all.extend(writes);
        }
        all
    }

    fn model(&self) -> CostModel {
        self.disk.cost_model.unwrap()
    }
}

/// Within five percent.
fn near(value: u64, wanted: f64) -> bool {
    (value as f64 / wanted - 1.0).abs() < 0.05
}

#[test]
fn a_saturated_disk_gets_a_model_of_its_throughput_once() {
    let mut bench = Bench::new();
    let writes = bench.pass(60, 320, 131_072, 1000);
    let knobs: Vec<Knob> = writes.iter().map(|write| write.knob).collect();
    assert_eq!(
        knobs,
        [Knob::IoCostModel, Knob::IoCostQos],
        "the model first"
    );
    let (model, qos) = (bench.model(), bench.disk.cost_qos.unwrap());
    assert!(near(model.rbps, 320.0 * 131_072.0), "{model}");
    assert_eq!(model.rbps, model.wbps);
    assert!(qos.enable && qos.user && qos.min < 10_000 && qos.max > 10_000);
}

#[test]
fn nothing_is_written_in_a_lull_of_a_disk_that_is_not_saturated_or_after_too_little() {
    let mut bench = Bench::new();
    assert_eq!(bench.pass(60, 320, 131_072, 700), [], "not saturated");
    bench.contention = Contention::None;
    assert_eq!(bench.pass(60, 320, 131_072, 1000), [], "nobody contends");
    let mut bench = Bench::new();
    assert_eq!(
        bench.pass(3, 320, 131_072, 1000),
        [],
        "two seconds were seen"
    );
    let mut unknown = Bench::new();
    unknown.disk.cost_qos = None;
    assert_eq!(unknown.pass(60, 320, 131_072, 1000), []);
}

#[test]
fn while_io_cost_is_suspended_it_is_off_and_its_model_is_kept() {
    let mut bench = Bench::new();
    bench.pass(10, 320, 131_072, 1000);
    let on = bench.disk.cost_qos.unwrap();
    bench.out = true;
    let writes = bench.pass(10, 320, 131_072, 1000);
    let off = CostQos {
        enable: false,
        ..on
    };
    assert_eq!(writes.len(), 1, "{writes:?}");
    assert_eq!(bench.disk.cost_qos, Some(off));
    let mut new = Bench::new();
    new.out = true;
    assert_eq!(new.pass(60, 320, 131_072, 1000), []);
    bench.out = false;
    bench.pass(1, 320, 131_072, 1000);
    assert_eq!(bench.disk.cost_qos, Some(on));
}

#[test]
fn a_disk_that_is_busy_but_never_saturated_serves_nobody_unless_bfq_does() {
    let mut bench = Bench::new();
    bench.pass(5, 320, 131_072, 700);
    let serves = |bench: &Bench| {
        let disks: Vec<BlockDevice> = bench.bfq.iter().chain([&bench.disk]).cloned().collect();
        any_may_serve(&bench.memos, &disks)
    };
    assert!(serves(&bench), "it may be saturated soon");
    bench.pass(10, 320, 131_072, 700);
    assert!(!serves(&bench));
    bench.bfq = Some(BlockDevice {
        low_latency: Some(false),
        ..BlockDevice::new(GroupId(1), "block:sda")
    });
    assert!(serves(&bench), "BFQ serves it");
    bench.bfq = None;
    bench.pass(10, 320, 131_072, 1000);
    assert!(bench.disk.cost_qos.unwrap().enable && serves(&bench));
}

#[test]
fn a_disk_that_somebody_else_configured_is_left_alone() {
    let on = CostQos {
        enable: true,
        ..CostQos::default()
    };
    let user = CostModel {
        user: true,
        ..CostModel::default()
    };
    let others: [fn(&mut BlockDevice, CostQos, CostModel); 3] = [
        |disk, on, _| disk.cost_qos = Some(on),
        |disk, _, user| disk.cost_model = Some(user),
        |disk, _, _| disk.foreign = true,
    ];
    for other in others {
        let mut bench = Bench::new();
        other(&mut bench.disk, on, user);
        assert_eq!(bench.pass(60, 320, 131_072, 1000), []);
    }
}

/// A disk that learned from large and then from small requests: one takes 5 us plus 2 us for its 4 KiB.
fn full_of_small_requests() -> Bench {
    let mut bench = Bench::new();
    bench.contention = Contention::None;
    bench.pass(30, 16_000, 131_072, 1000);
    bench.pass(30, 143_000, 4096, 1000);
    bench.contention = Contention::Writers;
    bench.pass(1, 143_000, 4096, 1000);
    bench
}

#[test]
fn small_requests_show_the_time_that_each_request_takes() {
    let bench = full_of_small_requests();
    let model = bench.model();
    assert!(near(model.rbps, 16_000.0 * 131_072.0), "{model}");
    assert!(near(model.rrandiops, 143_000.0), "{model}");
}

#[test]
fn a_wrong_model_is_corrected_seldom_and_one_that_is_about_right_is_not() {
    let mut bench = Bench::new();
    bench.pass(10, 320, 131_072, 1000);
    let first = bench.model();
    assert_eq!(bench.pass(60, 380, 131_072, 1000), [], "a fifth more");
    let writes = bench.pass(60, 1280, 131_072, 1000);
    assert!((2..=8).contains(&writes.len()), "{writes:?}");
    assert!(bench.model().rbps > 3 * first.rbps);
}

/// Lets `seconds` pass in which one group that nobody contends with reads as fast as the disk and io.cost let it.
/// Returns the bytes that it reads in the last of them.
fn scan(bench: &mut Bench, seconds: u32, disk_bps: f64) -> f64 {
    const SIZE: f64 = 131_072.0;
    let mut bytes = 0.0;
    bench.contention = Contention::None;
    for _ in 0..seconds {
        let model = bench.model();
        let page_s = PAGE / model.rbps as f64;
        let request_s = 1.0 / model.rrandiops as f64 - page_s + SIZE / PAGE * page_s;
        let requests = (4.0 / request_s).min(disk_bps / SIZE).floor();
        bytes = requests * SIZE;
        // The disk is in time, so the kernel is at its highest speed, and stays there.
        bench.disk.vrate = Some(FASTEST);
        let used_us = (requests * request_s / 4.0 * 1e6) as u64;
        *bench.disk.cost_used_us.get_or_insert(0) += used_us;
        bench.pass(
            1,
            requests as u64,
            SIZE as u64,
            (bytes / disk_bps * 1000.0) as u64,
        );
    }
    bytes
}

/// A name, small requests per second and their size, the bandwidth of the disk.
const SEEN_BY_SMALL_REQUESTS: [(&str, u64, u64, f64); 3] = [
    ("seeks of a rotational disk", 150, 8192, 150e6),
    ("two readers with a request each", 20_000, 4096, 3e9),
    ("synchronous writes to a flash disk", 400, 16_384, 500e6),
];

#[test]
fn a_model_learned_from_small_requests_does_not_slow_a_scan_down_by_night() {
    for (what, requests, size, disk_bps) in SEEN_BY_SMALL_REQUESTS {
        let mut bench = Bench::new();
        bench.pass(60, requests, size, 1000);
        let model = bench.model();
        assert!(near(model.rrandiops, requests as f64), "{what}: {model}");
        let bytes = scan(&mut bench, 5, disk_bps);
        assert!(
            bytes > 0.98 * disk_bps,
            "{what}: {bytes}, {}",
            bench.model()
        );
        let enough = bench.model();
        scan(&mut bench, 15, disk_bps);
        assert_eq!(bench.model(), enough, "{what}: it is doubled no further");
    }
}

#[test]
fn small_requests_say_nothing_of_the_time_per_byte() {
    for (what, requests, size, disk_bps) in SEEN_BY_SMALL_REQUESTS {
        let mut bench = Bench::new();
        bench.pass(60, requests, size, 1000);
        assert!(bench.model().rbps as f64 > disk_bps, "{what}");
        bench.pass(60, disk_bps as u64 / 131_072, 131_072, 1000);
        assert!(
            near(bench.model().rbps, disk_bps),
            "{what}: {}",
            bench.model()
        );
    }
}

#[test]
fn requests_a_little_larger_than_small_ones_do_not_count_twice() {
    let mut bench = Bench::new();
    bench.pass(60, 56, 16_384, 1000);
    bench.pass(60, 56, 16_800, 1000);
    let model = bench.model();
    let bytes_s = (16_800.0 - PAGE) / model.rbps as f64;
    let second = 56.0 * (bytes_s + 1.0 / model.rrandiops as f64);
    assert!(second < 1.05, "{second} s for what took one: {model}");
}

#[test]
fn a_disk_that_never_serves_small_or_large_requests_gets_a_model_of_its_throughput() {
    let mut bench = Bench::new();
    bench.pass(10, 1000, 32_768, 1000);
    assert!(near(bench.model().rbps, 32_768_000.0), "{}", bench.model());
}

/// A disk with a given model of a hundredth of its speed, after a scan.
fn far_too_slow_a_model() -> (Bench, CostModel) {
    let mut bench = Bench::new();
    let text =
        "ctrl=user rbps=4000000 rseqiops=900 rrandiops=900 wbps=4000000 wseqiops=900 wrandiops=900";
    let given = CostModel::parse(text).expect("a model");
    bench.disk.given_model = Some(given);
    bench.pass(1, 0, 0, 0);
    let bytes = scan(&mut bench, 10, 400e6);
    assert!(bytes > 390e6, "{bytes}");
    (bench, given)
}

#[test]
fn a_given_model_that_is_far_too_slow_is_doubled_and_returns_once_the_disk_is_slower_than_it() {
    let (mut bench, given) = far_too_slow_a_model();
    assert!(bench.model().rbps >= 25 * given.rbps);
    let target = |bench: &Bench| bench.disk.cost_qos.unwrap().rlat_us;
    let in_time = target(&bench);
    bench.contention = Contention::Writers;
    bench.disk.vrate = Some(SLOWEST);
    assert_eq!(
        bench.pass(20, 4, 131_072, 300),
        [],
        "whether it is too fast is not seen"
    );
    bench.pass(30, 30, 131_072, 1000);
    assert_eq!((bench.model(), target(&bench)), (given, in_time));
}

#[test]
fn a_model_is_not_doubled_while_groups_leave_what_io_cost_grants_or_that_is_unknown() {
    for used in [Some(0.3), None] {
        let mut bench = Bench::new();
        bench.pass(20, 320, 131_072, 1000);
        let model = bench.model();
        bench.disk.vrate = Some(FASTEST);
        for second in 1..=20 {
            bench.disk.cost_used_us = used.map(|used| (used * f64::from(second) * 1e6) as u64);
            bench.pass(1, 320, 131_072, 1000);
        }
        assert_eq!(bench.model(), model, "{used:?}");
    }
}

#[test]
fn a_model_that_is_given_needs_no_learning() {
    let mut bench = Bench::new();
    let given = CostModel::parse(
        "ctrl=user rbps=1000 rseqiops=20 rrandiops=10 wbps=900 wseqiops=20 wrandiops=10",
    );
    bench.disk.given_model = given;
    assert_eq!(bench.pass(1, 0, 0, 0).len(), 2);
    assert_eq!(Some(bench.model()), given);
    assert_eq!(
        bench.pass(60, 320, 131_072, 1000),
        [],
        "whatever it delivers"
    );
}

#[test]
fn a_disk_that_is_full_of_small_requests_is_not_taken_for_one_that_io_cost_slows_down() {
    let mut bench = full_of_small_requests();
    bench.disk.vrate = Some(6000);
    assert_eq!(bench.pass(30, 143_000, 4096, 1000), [], "585 of 2,097 MB/s");
    assert_ne!(bench.pass(30, 100_000, 4096, 1000), [], "slower");
}

#[test]
fn a_disk_that_io_cost_makes_slower_gets_more_time_at_once_and_one_that_is_slower_by_itself_does_not(
) {
    for (vrate, changes) in [(6000, true), (10_500, false)] {
        let mut bench = Bench::new();
        bench.pass(20, 320, 131_072, 1000);
        let strict = bench.disk.cost_qos.unwrap();
        bench.disk.vrate = Some(vrate);
        let writes = bench.pass(9, 200, 131_072, 1000);
        let relaxed = bench.disk.cost_qos.unwrap();
        assert_eq!(!writes.is_empty(), changes, "{writes:?}");
        assert!(writes.iter().all(|write| write.knob == Knob::IoCostQos));
        assert_eq!(relaxed.wlat_us > strict.wlat_us, changes);
        assert!(f64::from(relaxed.wlat_us) <= LATENCY_US.1);
    }
}

#[test]
fn a_disk_in_light_use_keeps_its_latency_target_whatever_the_vrate() {
    for (used, relaxes) in [(0.4, false), (0.95, true)] {
        let mut bench = Bench::new();
        bench.pass(20, 320, 131_072, 1000);
        bench.disk.vrate = Some(7000);
        let mut writes = Vec::new();
        for second in 1..=30 {
            bench.disk.cost_used_us = Some((f64::from(second) * used * 1e6) as u64);
            writes.extend(bench.pass(1, 100, 131_072, 900));
        }
        assert_eq!(!writes.is_empty(), relaxes, "{writes:?}");
    }
}

#[test]
fn a_disk_that_io_cost_keeps_idle_whatever_its_latency_ends_at_the_speed_of_its_model() {
    let mut bench = Bench::new();
    bench.pass(20, 320, 131_072, 1000);
    assert_eq!(bench.disk.cost_qos.unwrap().min, SLOWEST);
    bench.disk.vrate = Some(SLOWEST);
    bench.pass(20, 100, 131_072, 400);
    assert_eq!(bench.disk.cost_qos.unwrap().min, 10_000);
}

#[test]
fn a_disk_with_a_given_model_that_learned_nothing_gets_more_time_too() {
    let mut bench = Bench::new();
    bench.disk.given_model = Some(CostModel {
        user: true,
        rbps: 41_943_040,
        rseqiops: 10_000,
        rrandiops: 10_000,
        wbps: 41_943_040,
        wseqiops: 10_000,
        wrandiops: 10_000,
    });
    bench.pass(1, 0, 0, 0);
    bench.disk.vrate = Some(SLOWEST);
    bench.pass(20, 100, 131_072, 400);
    assert_eq!(bench.disk.cost_qos.unwrap().min, 10_000);
}

/// The scheduler's side of the bench's disk.
fn bfq() -> BlockDevice {
    BlockDevice {
        low_latency: Some(true),
        ..BlockDevice::new(GroupId(1 << 63), "block:sda")
    }
}

#[test]
fn a_disk_is_left_to_bfq_while_io_cost_is_off_for_it() {
    let mut bench = Bench::new();
    let left = |bench: &Bench| any_is_left_to_bfq(&[bfq(), bench.disk.clone()]);
    assert!(left(&bench));
    bench.pass(9, 320, 131_072, 1000);
    assert!(!left(&bench));
    bench.disk.path = "cost:sdb".to_owned();
    assert!(left(&bench), "it is on for another disk");
}

#[test]
fn the_doubt_about_a_disk_that_is_never_saturated_outlasts_a_lull() {
    let mut bench = Bench::new();
    bench.pass(20, 320, 131_072, 700);
    assert!(!any_may_serve(&bench.memos, &[bench.disk.clone()]));
    bench.contention = Contention::None;
    bench.pass(10, 4, 4096, 10);
    bench.contention = Contention::Writers;
    bench.pass(1, 320, 131_072, 700);
    assert!(!any_may_serve(&bench.memos, &[bench.disk.clone()]));
}

#[test]
fn a_disk_that_cannot_be_read_for_a_second_stays_ours() {
    let mut bench = Bench::new();
    bench.pass(10, 320, 131_072, 1000);
    let on = bench.disk.cost_qos.take();
    bench.pass(1, 320, 131_072, 1000);
    bench.disk.cost_qos = on;
    bench.pass(1, 320, 131_072, 1000);
    assert_eq!(served(&bench.memos), 1);
    let writes = bench.pass(60, 320, 131_072, 1000);
    assert_eq!(writes, [], "two seconds in one are no higher capacity");
}

#[test]
fn a_disk_that_was_given_back_is_no_longer_ours() {
    let mut bench = Bench::new();
    bench.pass(10, 320, 131_072, 1000);
    bench.may = false;
    bench.pass(1, 320, 131_072, 1000);
    bench.may = true;
    let theirs = CostQos {
        enable: true,
        user: true,
        min: 5000,
        ..CostQos::default()
    };
    bench.disk.cost_qos = Some(theirs);
    assert_eq!(bench.pass(60, 320, 131_072, 1000), []);

    let mut bench = Bench::new();
    bench.pass(10, 320, 131_072, 1000);
    bench.disk.cost_qos = Some(CostQos::default());
    bench.disk.foreign = true;
    assert_eq!(bench.pass(11, 320, 131_072, 1000), []);
    assert!(!any_may_serve(&bench.memos, &[bench.disk.clone()]));
}

#[test]
fn an_idle_disk_is_not_the_one_for_which_groups_contend() {
    let mut bench = Bench::new();
    let may_serve = |bench: &Bench, disks: &[BlockDevice]| any_may_serve(&bench.memos, disks);
    assert!(!may_serve(&bench, &[]), "no disk");
    assert!(may_serve(&bench, &[bench.disk.clone()]), "not known yet");
    bench.pass(10, 4, 4096, 10);
    assert!(may_serve(&bench, &[bench.disk.clone()]), "a pause");
    bench.pass(1, 4, 4096, 10);
    assert!(!may_serve(&bench, &[bench.disk.clone()]));
    assert!(!may_serve(&bench, &[bfq(), bench.disk.clone()]));
    bench.pass(1, 320, 131_072, 1000);
    assert!(may_serve(&bench, &[bfq(), bench.disk.clone()]));
    let mut bench = Bench::new();
    bench.contention = Contention::None;
    bench.pass(60, 4, 4096, 10);
    assert!(
        may_serve(&bench, &[bench.disk.clone()]),
        "nobody contended for it"
    );
    assert!(may_serve(&bench, &[bfq()]), "rotational, without counters");
}

#[test]
fn beside_bfq_it_is_switched_on_for_writers_and_stays_for_readers() {
    let mut bench = Bench::new();
    (bench.bfq, bench.contention) = (Some(bfq()), Contention::Readers);
    assert_eq!(bench.pass(20, 320, 131_072, 1000), [], "readers");
    bench.contention = Contention::Writers;
    assert_ne!(bench.pass(1, 320, 131_072, 1000), [], "writers");
    bench.contention = Contention::Readers;
    bench.disk.cost_qos.as_mut().unwrap().enable = false;
    assert_ne!(
        bench.pass(1, 320, 131_072, 1000),
        [],
        "it was on, and somebody switched it off"
    );
}
