//! The properties in the module's header.

use proptest::prelude::*;

use super::*;
use crate::decision::Memo;
use crate::rates::Rates;
use crate::snapshot::{Group, GroupId, Memory};
use crate::tests::testing::{self, group};
use crate::units::{Limit, Weight};
use crate::worth::{Point, SLACK};

const TOTAL: Bytes = Bytes::mib(900);

fn curve(points: &[(u64, f64)], asked_per_s: f64) -> Option<Curve> {
    let point = |&(mib, hit_ratio): &(u64, f64)| Point {
        cache: Bytes::mib(mib),
        hit_ratio,
    };
    Curve::new(points.iter().map(point).collect(), asked_per_s)
}

/// Reads its whole set again and again in one order: no read hits until all of it fits.
fn looping(set: u64, asked_per_s: f64) -> Option<Curve> {
    curve(&[(set - 1, 0.0), (set, 1.0)], asked_per_s)
}

/// Reads its set at random.
fn random(set: u64, asked_per_s: f64) -> Option<Curve> {
    let tenth = |i: u64| (set * i / 10, i as f64 / 10.0);
    curve(&(1..=10).map(tenth).collect::<Vec<_>>(), asked_per_s)
}

fn scan() -> Option<Curve> {
    looping(2000, 40e6)
}

fn reader(id: u64, weight: u32, worth: Option<Curve>) -> Group {
    Group {
        weight: Weight::new(weight).ok(),
        worth,
        ..group(id, None, &format!("/{id}"))
    }
}

/// Computes entitlements second by second.
#[derive(Default)]
struct Lab {
    memos: Vec<Option<Lent>>,
    no_curve_s: Vec<f64>,
    /// The part of each group's reads that missed of late. Empty: unknown.
    missed: Vec<f64>,
    settles_s: f64,
    /// Seconds since the last step; at least one.
    elapsed_s: f64,
}

impl Lab {
    fn second(&mut self, groups: &[Group], demand: impl Fn(usize) -> Option<Bytes>) -> Vec<Bytes> {
        let snapshot = testing::snapshot(900, groups.to_vec());
        let mut members = Member::all(&snapshot, Memo::new);
        super::super::measure(&mut members, &snapshot.host, Bytes::ZERO);
        self.memos.resize(groups.len(), None);
        self.no_curve_s.resize(groups.len(), 0.0);
        for (i, member) in members.iter_mut().enumerate() {
            member.memo.demand = demand(i);
            member.memo.lent = self.memos[i];
            member.memo.no_curve_s = self.no_curve_s[i];
            let rates = Rates {
                read_per_s: Some(1e8),
                missed_per_s: self.missed.get(i).map(|part| part * 1e8),
                ..Rates::default()
            };
            let activity = &mut member.memo.activity;
            *activity = activity.after(&rates, 0.1, 1.0);
        }
        let today = divide(TOTAL, &members, |m| m.memo.demand);
        let lent = lend(
            &mut members,
            TOTAL,
            &today,
            &mut self.settles_s,
            self.elapsed_s.max(1.0),
        );
        self.memos = members.iter().map(|m| m.memo.lent).collect();
        self.no_curve_s = members.iter().map(|m| m.memo.no_curve_s).collect();
        lent.unwrap_or(today)
    }

    fn seconds(&mut self, seconds: usize, groups: &[Group]) -> Vec<Bytes> {
        for _ in 1..seconds {
            self.second(groups, |_| None);
        }
        self.second(groups, |_| None)
    }
}

fn settled(groups: &[Group]) -> Vec<Bytes> {
    Lab::default().seconds(40, groups)
}

fn mib(bytes: Bytes) -> u64 {
    bytes.0 >> 20
}

#[test]
fn a_reader_whose_set_fits_keeps_it_beside_a_scan_whatever_the_weights() {
    for scans in [100, 800] {
        let groups = [reader(1, 100, random(600, 480e6)), reader(2, scans, scan())];
        let got = settled(&groups);
        assert!((600..=650).contains(&mib(got[0])), "{got:?}");
        assert!(mib(got[1]) <= 30, "{got:?}");
    }
}

#[test]
fn a_cliff_is_bought_as_a_whole_or_not_at_all() {
    // The first set is 1.3 times its share. The neighbor's set fits its share in one case, and does not in
    // the other.
    let fits = [
        reader(1, 100, looping(585, 40e6)),
        reader(2, 100, random(200, 100e6)),
    ];
    let got = settled(&fits);
    assert!(mib(got[0]) >= 585 && mib(got[1]) >= 198, "{got:?}");
    let not = [
        reader(1, 100, looping(585, 40e6)),
        reader(2, 100, random(440, 100e6)),
    ];
    let got = settled(&not);
    assert!(mib(got[0]) <= 30 && mib(got[1]) >= 434, "{got:?}");
}

#[test]
fn of_two_cliffs_the_one_that_saves_more_is_bought() {
    let groups = [
        reader(1, 100, looping(700, 40e6)),
        reader(2, 100, looping(720, 90e6)),
    ];
    let got = settled(&groups);
    assert!(mib(got[1]) >= 720 && mib(got[0]) <= 30, "{got:?}");
}

#[test]
fn a_reader_that_asks_a_thousand_times_as_often_gains_no_more_than_its_weight() {
    let one = |id, asked| reader(id, 100, random(700, asked));
    let groups = [one(1, 40e9), one(2, 40e6), reader(3, 100, scan())];
    let got = settled(&groups);
    assert!(mib(got[1]) >= 420 && mib(got[0]) <= 460, "{got:?}");
}

#[test]
fn groups_that_write_or_are_unknown_at_their_share_keep_todays_entitlement() {
    let unknown = [None, curve(&[(200, 0.4)], 40e6), random(600, 0.0)];
    for worth in unknown {
        let groups = [reader(1, 100, worth.clone()), reader(2, 100, scan())];
        let got = settled(&groups);
        assert!(got[0] >= Bytes::mib(450), "{worth:?}: {got:?}");
    }
    let mut lab = Lab::default();
    let without = [reader(1, 100, None), reader(2, 300, None)];
    assert_eq!(lab.seconds(3, &without), [Bytes::mib(225), Bytes::mib(675)]);
    assert_eq!(lab.memos, [None, None]);
}

#[test]
fn without_curves_as_after_a_restart_loans_stay_for_a_while() {
    let mut lab = Lab::default();
    let groups = [
        reader(1, 100, random(300, 480e6)),
        reader(2, 100, random(700, 40e6)),
    ];
    let before = lab.seconds(40, &groups);
    assert!(before[1] > Bytes::mib(550), "{before:?}");
    let unread = groups.clone().map(|group| Group {
        worth: None,
        ..group
    });
    assert_eq!(lab.seconds(30, &unread), before);
    assert_eq!(lab.seconds(1, &groups), before);
    assert_eq!(lab.seconds(70, &unread), [Bytes::mib(450); 2]);
}

#[test]
fn a_loan_without_a_curve_ends_as_soon_as_a_newcomers_share_leaves_no_room_for_it() {
    for (weight, stays) in [(1, true), (800, false)] {
        let mut lab = Lab::default();
        let mut groups = vec![
            reader(1, 100, random(300, 480e6)),
            reader(2, 100, random(700, 40e6)),
        ];
        lab.seconds(40, &groups);
        let loans = lab.memos.clone();
        for group in &mut groups {
            group.worth = None;
        }
        groups.push(reader(3, weight, None));
        let got = lab.seconds(1, &groups);
        let share = TOTAL.scale(f64::from(weight) / f64::from(weight + 200));
        assert!(got[2] + Bytes(1) >= share, "{got:?} {share}");
        let rest = if stays { loans } else { vec![None; 2] };
        assert_eq!(lab.memos[..2], rest);
    }
}

/// Groups below a slice that the operator limits at `mib`, with the slice first.
fn below_a_limit(mib: u64, readers: impl IntoIterator<Item = Group>) -> Vec<Group> {
    let mut slice = group(9, None, "/slice");
    slice.weight = None;
    slice.memory.current = Some(Bytes::mib(mib));
    slice.memory.file = Some(Bytes::mib(mib));
    slice.knobs.max = Some(Limit::Bytes(Bytes::mib(mib)));
    let below = |reader| Group {
        parent: Some(GroupId(9)),
        ..reader
    };
    let readers = readers.into_iter().map(below);
    [slice].into_iter().chain(readers).collect()
}

#[test]
fn readers_below_a_limit_borrow_no_more_than_it_leaves_them() {
    let mut groups = below_a_limit(200, [1, 2].map(|id| reader(id, 100, random(400, 480e6))));
    groups.extend([reader(3, 100, scan()), reader(4, 100, random(800, 40e6))]);
    let (mut lab, mut got) = (Lab::default(), Vec::new());
    for _ in 0..40 {
        got = lab.second(&groups, |i| (i < 3).then_some(Bytes::mib(200)));
    }
    assert!(mib(got[1] + got[2]) <= 200, "{got:?}");
    assert!(mib(got[4]) >= 600, "{got:?}");
}

#[test]
fn readers_below_a_limit_borrow_what_others_below_it_lend() {
    let both = [1, 2].map(|id| reader(id, 100, random(300, 480e6)));
    for borrowers in [&both[..1], &both] {
        let readers = [reader(3, 100, scan())]
            .into_iter()
            .chain(borrowers.to_vec());
        let mut groups = below_a_limit(400, readers);
        groups.push(reader(4, 100, None));
        let mut lab = Lab::default();
        for _ in 0..40 {
            let outside = groups.len() - 1;
            let demands = |i| if i == outside { 100 } else { 400 };
            lab.second(&groups, |i| Some(Bytes::mib(demands(i))));
        }
        let lent = lab.memos.iter().flatten();
        let sizes: Vec<u64> = lent.map(|lent| mib(lent.size)).collect();
        assert!(sizes.iter().sum::<u64>() <= 400, "{sizes:?}");
        // Of its share the scan keeps only the room for readahead.
        let each = 300.min(360 / borrowers.len() as u64);
        assert!(
            sizes[0] <= 30 && sizes[1..].iter().all(|&size| size + 10 >= each),
            "{sizes:?}"
        );
    }
}

#[test]
fn a_newcomer_has_its_entitlement_at_once() {
    let mut lab = Lab::default();
    let mut groups = vec![reader(1, 100, random(800, 480e6)), reader(2, 100, scan())];
    lab.seconds(40, &groups);
    groups.push(reader(3, 100, None));
    assert!(lab.seconds(1, &groups)[2] >= Bytes::mib(300));
}

#[test]
fn a_scan_lends_its_share_at_once_and_another_reader_slowly() {
    let beside = |curve| {
        let groups = [reader(1, 100, random(800, 1e8)), reader(2, 100, curve)];
        // It also hits pages that others hold.
        let mut lab = Lab {
            missed: vec![0.5, 0.3],
            ..Lab::default()
        };
        let first = lab.second(&groups, |_| None);
        let later = (0..30).map(|_| lab.second(&groups, |_| None)).last();
        (mib(first[1]), mib(later.unwrap()[1]))
    };
    // The reads of a scan that are not whole pages hit in any case.
    let in_parts = curve(&[(1, 0.2), (2000, 0.2)], 40e6);
    for scans in [scan(), in_parts] {
        let (first, later) = beside(scans);
        assert!(first < 30 && later < 30, "{first} and then {later}");
    }
    // These miss less than their curve says, 0.3: one would miss more with 12 MiB, the other hits mostly.
    for keeps in [[(200, 0.5), (2000, 0.5)], [(1, 0.6), (2000, 0.6)]] {
        let (first, later) = beside(curve(&keeps, 1e8));
        assert!(first > 380 && later > 380, "{first} and then {later}");
    }
    let (first, later) = beside(curve(&[(200, 0.8), (2000, 0.8)], 1e8));
    assert!(first > 380 && later < 230, "{first} and then {later}");
}

#[test]
fn mapped_pages_are_needed_whatever_the_curve_of_reads() {
    let mut groups = [reader(1, 100, scan()), reader(2, 100, random(800, 40e6))];
    groups[0].memory.file_mapped = Some(Bytes::mib(100));
    assert!(settled(&groups)[0] >= Bytes::mib(100));
}

#[test]
fn shared_memory_that_is_mapped_keeps_no_page_cache_from_being_lent() {
    let mut groups = [reader(1, 100, scan()), reader(2, 100, random(800, 40e6))];
    let all = Bytes::mib(8192);
    groups[0].memory.file_mapped = Some(Memory::mapped_file(all, Bytes::mib(450), all));
    let got = settled(&groups);
    assert!(mib(got[0]) <= 50 && mib(got[1]) >= 800, "{got:?}");
}

#[test]
fn lent_memory_stays_until_another_division_clearly_saves() {
    let mut lab = Lab::default();
    let groups = |a, b| {
        [
            reader(1, 100, looping(700, a)),
            reader(2, 100, looping(720, b)),
        ]
    };
    let mut holders = Vec::new();
    // The two groups take turns every second in asking for a little more.
    for second in 0..300 {
        let wave = if second % 2 == 0 { 1.0 } else { -1.0 };
        let got = lab.second(&groups(40e6 + wave * 1e6, 40e6), |_| None);
        holders.push(got[0] > got[1]);
    }
    let changes = holders[30..]
        .windows(2)
        .filter(|pair| pair[0] != pair[1])
        .count();
    assert_eq!(changes, 0);
    // A group that asks for ten times as much gets the memory, and keeps it until the move has paid back.
    let other = |first: bool| {
        if first {
            groups(4e6, 40e6)
        } else {
            groups(40e6, 4e6)
        }
    };
    let first = *holders.last().unwrap();
    let got = lab.second(&other(first), |_| None);
    assert_eq!(got[0] > got[1], !first, "{got:?}");
    let back = (0..200).position(|_| {
        let got = lab.second(&other(!first), |_| None);
        (got[0] > got[1]) == first
    });
    assert!(back.is_some_and(|seconds| seconds >= 100), "{back:?}");
}

#[test]
fn free_memory_that_comes_and_goes_moves_nothing_else() {
    let mut lab = Lab::default();
    let groups = [
        reader(1, 100, looping(500, 40e6)),
        reader(2, 100, random(700, 40e6)),
        reader(3, 100, None),
    ];
    let mut seen: Vec<Vec<Bytes>> = Vec::new();
    for second in 0..200u64 {
        // A group without a curve takes a little more or less.
        let wants = Bytes::mib(100 + second * 7 % 11);
        seen.push(lab.second(&groups, |i| (i == 2).then_some(wants)));
    }
    for i in 0..2 {
        let late = seen[60..].iter().map(|got| mib(got[i]));
        let (low, high) = late.fold((u64::MAX, 0), |(low, high), now| {
            (low.min(now), high.max(now))
        });
        assert!(high - low <= 40, "group {i} between {low} and {high} MiB");
    }
}

#[test]
fn a_reader_that_misses_less_than_its_curve_says_keeps_its_share() {
    let flat = curve(&[(200, 0.98), (2000, 0.98)], 1e8);
    let groups = [reader(1, 100, flat), reader(2, 100, random(2000, 1e8))];
    let share = |missed: f64| {
        let mut lab = Lab {
            missed: vec![missed, 0.5],
            ..Lab::default()
        };
        lab.seconds(40, &groups)[0]
    };
    let half = TOTAL.scale(0.5);
    assert!(share(0.02) < half.scale(0.6), "{}", share(0.02));
    assert_eq!(share(0.007), half);
}

/// Curves of any shape, built from the bytes and hits that each step adds.
fn curves(concave: bool) -> impl Strategy<Value = Option<Curve>> {
    let steps = prop::collection::vec((1u64..300, 0.0f64..1.0), 1..8);
    let made = (steps, 1e5f64..1e9).prop_map(move |(mut steps, asked)| {
        let all: f64 = steps.iter().map(|step| step.1).sum::<f64>().max(1.0);
        if concave {
            steps.sort_by(|a, b| (b.1 / b.0 as f64).total_cmp(&(a.1 / a.0 as f64)));
        }
        let (mut size, mut hits) = (0, 0.0);
        let points: Vec<(u64, f64)> = steps
            .iter()
            .map(|(bytes, more)| {
                size += bytes;
                hits += more / all;
                (size, hits)
            })
            .collect();
        curve(&points, asked).expect("points")
    });
    prop::option::weighted(0.8, made)
}

fn groups(concave: bool) -> impl Strategy<Value = Vec<Group>> {
    let one = (1u32..1000, curves(concave), 0u64..50);
    prop::collection::vec(one, 2..6).prop_map(|made| {
        let each = made.into_iter().enumerate();
        each.map(|(i, (weight, worth, mapped))| {
            let mut group = reader(i as u64 + 1, weight, worth);
            group.memory.file_mapped = Some(Bytes::mib(mapped));
            group
        })
        .collect()
    })
}

/// True if the group's curve decides its share.
fn known(group: &Group, fair: Bytes) -> bool {
    group.worth.as_ref().is_some_and(|curve| curve.tells(fair))
}

/// True if `size` has no more misses than `due`, or so few more that they count as equal.
fn as_good(curve: &Curve, size: Bytes, due: Bytes) -> bool {
    let misses = |size| 1.0 - curve.at_least(size);
    misses(size) <= misses(due) * (1.0 + SLACK) + 0.001
}

fn plain(groups: &[Group], demands: &[Option<u64>]) -> Vec<Bytes> {
    let nodes: Vec<water::Node> = groups
        .iter()
        .zip(demands)
        .map(|(group, demand)| water::Node {
            parent: None,
            weight: group.weight.map(|weight| u64::from(weight.get())),
            floor: Bytes::ZERO,
            demand: demand.map(Bytes::mib),
        })
        .collect();
    water::divide(TOTAL, &nodes)
}

proptest! {
    #[test]
    fn nobody_hits_less_than_with_its_share_and_no_more_is_given_than_there_is(
        groups in groups(false),
        demands in prop::collection::vec(prop::option::weighted(0.3, 0u64..900), 6),
        seconds in 1usize..30,
    ) {
        let mut lab = Lab::default();
        let mut got = Vec::new();
        for _ in 0..seconds {
            got = lab.second(&groups, |i| demands[i].map(Bytes::mib));
        }
        prop_assert!(got.iter().copied().sum::<Bytes>() <= TOTAL);
        let today = plain(&groups, &demands);
        let plain = plain(&groups, &[None; 6]);
        for (i, group) in groups.iter().enumerate() {
            let fair = plain[i].min(today[i]);
            if known(group, fair) {
                let curve = group.worth.as_ref().unwrap();
                prop_assert!(as_good(curve, got[i], fair), "{i}: {} < {fair}", got[i]);
                let most = demands[i].map_or(TOTAL, Bytes::mib);
                prop_assert!(got[i] <= most, "{i}: more than it demands");
            } else {
                prop_assert!(got[i] >= today[i], "{i}: {} < {}", got[i], today[i]);
            }
        }
    }

    #[test]
    fn nothing_is_left_that_a_reader_could_use(groups in groups(true)) {
        let got = settled(&groups);
        let left = TOTAL - got.iter().copied().sum();
        let fair = plain(&groups, &[None; 6]);
        for (i, group) in groups.iter().enumerate().filter(|(i, group)| known(group, fair[*i])) {
            let curve = group.worth.as_ref().unwrap();
            let more = curve.at_least(got[i] + (left - TOTAL.scale(STEADY))) - curve.at_least(got[i]);
            let least = 1.0 - curve.at_least(curve.known());
            prop_assert!(more <= least * SLACK + 0.001, "{i}: {more} more with {left}");
        }
    }

    #[test]
    fn others_have_what_their_weight_gives_them_however_fast_one_asks(
        mut groups in groups(true), faster in 1.0f64..1e4,
    ) {
        let curve = groups[0].worth.take();
        groups[0].worth = curve.and_then(|c| Curve::new(c.points().to_vec(), c.asked_per_s() * faster));
        let fair = plain(&groups, &[None; 6]);
        // In 100 seconds needs fall at once, and all memory is divided anew.
        let mut lab = Lab { elapsed_s: 100.0, ..Lab::default() };
        let got = lab.second(&groups, |_| None);
        let lent = |i: usize| lab.memos[i].map(|lent| lent.need);
        let held: Bytes = (0..groups.len()).map(|i| lent(i).unwrap_or(fair[i])).sum();
        let surplus = TOTAL - held - TOTAL.scale(STEADY);
        let weight: f64 = groups.iter().map(|g| g.weight.unwrap().as_f64()).sum();
        for (i, group) in groups.iter().enumerate().skip(1) {
            let (Some(need), Some(curve)) = (lent(i), group.worth.as_ref()) else { continue };
            let part = surplus.scale(group.weight.unwrap().as_f64() / weight);
            prop_assert!(as_good(curve, got[i], need + part), "{i}: {} < {need} + {part}", got[i]);
        }
    }

    #[test]
    fn more_weight_never_hits_less(groups in groups(true), more in 1u32..9000) {
        let before = settled(&groups);
        let mut heavier = groups.clone();
        heavier[0].weight = Weight::new(groups[0].weight.unwrap().get() + more).ok();
        let fair = plain(&heavier, &[None; 6]);
        if known(&groups[0], fair[0]) {
            let curve = groups[0].worth.as_ref().unwrap();
            let after = settled(&heavier);
            prop_assert!(as_good(curve, after[0], before[0]), "{} < {}", after[0], before[0]);
        }
    }

    #[test]
    fn nobody_stands_on_the_way_up_a_cliff(sets in prop::collection::vec(30u64..1500, 2..6)) {
        let groups: Vec<Group> = sets
            .iter()
            .enumerate()
            .map(|(i, &set)| reader(i as u64 + 1, 100, looping(set, 40e6)))
            .collect();
        let mut lab = Lab::default();
        lab.seconds(40, &groups);
        for (set, lent) in sets.iter().zip(lab.memos) {
            let lent = lent.expect("its curve is known");
            let whole = lent.size >= Bytes::mib(*set).scale(0.98);
            prop_assert!(whole || lent.size == lent.need, "{set} MiB: {lent:?}");
        }
    }
}
