use proptest::prelude::*;

use super::*;
use crate::decision::Memo;
use crate::snapshot::Group;
use crate::tests::testing::{self, group};

const MAX_LOSS: f64 = 0.03;

/// Groups with simulated traffic, scaled by the cost of the decisions in force.
struct Bench {
    groups: Vec<Group>,
    watch: Watch,
    seed: u64,
    /// Bytes per second of each leaf.
    rates: Vec<f64>,
    noise: f64,
    costs: BTreeMap<Watched, f64>,
    decided: BTreeSet<Watched>,
}

impl Bench {
    fn new(costs: &[(Watched, f64)], noise: f64, seed: u64) -> Bench {
        Bench {
            groups: (1..=4).map(|id| group(id, None, "/g")).collect(),
            watch: Watch::default(),
            seed,
            rates: vec![10e6; 4],
            noise,
            costs: costs.iter().copied().collect(),
            decided: costs.iter().map(|cost| cost.0).collect(),
        }
    }

    /// A sample of an almost normal distribution, deviation 1.
    fn random(&mut self) -> f64 {
        let mut uniform = || {
            self.seed = self
                .seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(99);
            (self.seed >> 11) as f64 / (1u64 << 53) as f64
        };
        (0..12).map(|_| uniform()).sum::<f64>() - 6.0
    }

    /// Simulates one second.
    fn second(&mut self) {
        let in_force = self.costs.iter().filter(|(&d, _)| !self.watch.lifts(d));
        let left: f64 = in_force.map(|(_, cost)| 1.0 - cost).product();
        let speed = left * (self.random() * self.noise).exp();
        let rates: Vec<f64> = self.rates.iter().map(|rate| rate * speed).collect();
        self.look(&rates);
        self.watch.note(&self.decided.clone());
    }

    /// The same, with a group that is limited. `served`: a disk serves by weight.
    fn limited_second(&mut self, served: bool) {
        self.second();
        let light = testing::of_groups(vec![group(1, None, "/limited")]);
        let mut limited = Member::all(&light, Memo::new);
        limited[0].decision.high = Some((Limit::Bytes(Bytes::ZERO), Reason::AtEntitlement));
        self.watch.limits(&mut limited, served);
    }

    fn look(&mut self, rates: &[f64]) {
        let snapshot = testing::snapshot(1000, self.groups.clone());
        let mut members = Member::all(&snapshot, Memo::new);
        let leaves = members.iter_mut().filter(|member| member.leaf);
        for (member, &rate) in leaves.zip(rates) {
            member.memo.rates.read_per_s = Some(0.0);
            member.memo.rates.written_per_s = Some(rate);
            member.memo.rates.missed_per_s = Some(0.0);
        }
        self.watch.look(&members, MAX_LOSS, 1.0);
    }

    fn withdrawn(&self) -> bool {
        let findings = self.watch.findings();
        findings
            .iter()
            .any(|finding| finding.phase == Phase::Withdrawn)
    }

    /// Seconds until a kind is withdrawn; `None`: not within `most`.
    fn until_withdrawn(&mut self, most: usize) -> Option<usize> {
        (0..most).find(|_| {
            self.second();
            self.withdrawn()
        })
    }
}

const ALL: [Watched; 3] = [Watched::Limits, Watched::Gains, Watched::IoCost];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn no_two_kinds_are_suspended_at_once_and_each_has_its_turn(
        seed in any::<u64>(),
        costs in prop::array::uniform3(-0.2..0.2f64),
    ) {
        let costs: Vec<_> = ALL.into_iter().zip(costs).collect();
        let mut bench = Bench::new(&costs, 0.05, seed);
        let mut suspended = BTreeSet::new();
        for _ in 0..3600 {
            bench.second();
            let findings = bench.watch.findings();
            let suspended_now: Vec<_> = findings.iter().filter(|f| f.phase == Phase::Suspended).collect();
            prop_assert!(suspended_now.len() <= 1, "{suspended_now:?}");
            suspended.extend(suspended_now.iter().map(|finding| finding.decision));
        }
        prop_assert_eq!(suspended.len(), 3, "each has its turn");
    }

    #[test]
    fn a_decision_that_costs_a_tenth_is_withdrawn_within_half_an_hour(seed in any::<u64>()) {
        let mut bench = Bench::new(&[(Watched::Limits, 0.1)], 0.05, seed);
        let after = bench.until_withdrawn(1800);
        prop_assert!(after.is_some(), "{:?}", bench.watch.findings());
    }

    #[test]
    fn verdicts_depend_on_ratios_only(seed in any::<u64>(), scale in 1e-3..1e3f64) {
        let run = |scale: f64| {
            let mut bench = Bench::new(&[(Watched::Limits, 0.08)], 0.05, seed);
            for rate in &mut bench.rates {
                *rate *= scale;
            }
            let withdrawn = bench.until_withdrawn(1200);
            let findings = bench.watch.findings();
            (withdrawn, findings[0].comparisons, findings[0].loss)
        };
        let (a, b) = (run(1.0), run(scale));
        prop_assert_eq!((a.0, a.1), (b.0, b.1));
        if let (Some(a), Some(b)) = (a.2, b.2) {
            prop_assert!((a.mean - b.mean).abs() < 1e-9);
        }
    }
}

#[test]
fn a_harmless_decision_is_withdrawn_in_fewer_than_one_of_fifty_hours() {
    // Seconds deviate by a tenth, as the fileserver's do, which makes a comparison deviate by about 4 %.
    let hours = 400;
    let withdrawn = (0..hours).filter(|&seed| {
        let mut bench = Bench::new(&[(Watched::Limits, 0.0)], 0.1, seed * 7919 + 1);
        bench.until_withdrawn(3600).is_some()
    });
    let withdrawn = withdrawn.count() as u64;
    assert!(withdrawn * 50 < hours, "{withdrawn}");
}

#[test]
fn a_decision_comes_back_and_stays_when_its_harm_has_ended() {
    let mut bench = Bench::new(&[(Watched::Limits, 0.15)], 0.02, 3);
    assert!(bench.until_withdrawn(600).is_some());
    bench.costs.insert(Watched::Limits, 0.0);
    let back = (0..400).position(|_| {
        bench.second();
        !bench.withdrawn()
    });
    assert!(back.is_some());
    assert_eq!(bench.until_withdrawn(7200), None);
}

#[test]
fn each_further_withdrawal_lasts_twice_as_long() {
    let mut bench = Bench::new(&[(Watched::Limits, 0.15)], 0.02, 3);
    let mut away = Vec::new();
    for _ in 0..6 {
        assert!(bench.until_withdrawn(600).is_some());
        away.push(
            (0..5000)
                .take_while(|_| {
                    bench.second();
                    bench.withdrawn()
                })
                .count(),
        );
    }
    let expected = [300, 600, 1200, 2400, 3600, 3600];
    for (away, expected) in away.iter().zip(expected) {
        assert!(away.abs_diff(expected) <= 1, "{away} for {expected}");
    }
}

#[test]
fn a_host_without_decisions_or_with_changing_groups_compares_nothing() {
    let mut idle = Bench::new(&[], 0.05, 1);
    idle.costs.insert(Watched::Limits, 0.2);
    let mut restless = Bench::new(&[(Watched::Limits, 0.2)], 0.05, 1);
    for second in 0..3600 {
        idle.second();
        assert!(!idle.watch.suspends());
        if second % 5 == 0 {
            restless.groups[3] = group(100 + second, None, "/new");
        }
        restless.second();
        assert!(!restless.watch.suspends());
        assert!(!restless.withdrawn());
    }
    assert!(idle.watch.findings().is_empty());
}

#[test]
fn doubted_limits_stay_withdrawn_where_nothing_can_be_compared_and_return_when_it_can_be() {
    for served in [false, true] {
        let mut bench = Bench::new(&[(Watched::Limits, 0.0)], 0.02, 1);
        // No disk serves by weight. Every five seconds a group comes and another goes.
        let withdrawn = (0..4000).map(|second| {
            if second % 5 == 0 {
                bench.groups[3] = group(100 + second, None, "/new");
            }
            bench.limited_second(false);
            bench.withdrawn()
        });
        let withdrawn: Vec<bool> = withdrawn.collect();
        let away = withdrawn.split(|withdrawn| !withdrawn).map(<[bool]>::len);
        let away: Vec<usize> = away.filter(|&seconds| seconds > 0).collect();
        for (away, expected) in away.iter().zip([300, 600, 1200]) {
            assert!(away.abs_diff(expected) <= 1, "{away} for {expected}");
        }
        assert!(
            away.len() == 4 && away.iter().sum::<usize>() > 3900,
            "{away:?}"
        );
        // The groups stay the same from now on, or a disk serves by weight.
        bench.limited_second(served);
        assert_eq!(bench.withdrawn(), !served);
        (0..3600).for_each(|_| bench.limited_second(served));
        let finding = bench.watch.findings()[0];
        assert!(finding.comparisons > 0 && !bench.withdrawn(), "{finding:?}");
    }
}

#[test]
fn suspensions_take_less_than_a_tenth_of_the_first_hour_and_a_thirtieth_of_the_second() {
    let mut bench = Bench::new(&[(Watched::Limits, 0.0)], 0.02, 5);
    let mut suspended = |seconds: usize| {
        (0..seconds)
            .filter(|_| {
                bench.second();
                bench.watch.suspends()
            })
            .count()
    };
    assert_eq!(suspended(120), 0);
    assert!(suspended(3480) < 360);
    assert!(suspended(3600) < 120);
}

#[test]
fn pages_that_only_became_dirty_do_not_count_as_traffic_of_a_suspension() {
    let mut bench = Bench::new(&[(Watched::Limits, 0.0)], 0.0, 1);
    for _ in 0..600 {
        // Each suspension makes a burst of dirty pages, which are written after it.
        let dirty = if bench.watch.suspends() {
            Bytes::mib(60)
        } else {
            Bytes::ZERO
        };
        let before = bench.groups[0].memory.file_dirty.unwrap();
        let burst = dirty.as_f64() - before.as_f64();
        bench.groups[0].memory.file_dirty = Some(dirty);
        let rates: Vec<f64> = (0..4)
            .map(|i| 40e6 + if i == 0 { burst } else { 0.0 })
            .collect();
        bench.look(&rates);
        bench.watch.note(&bench.decided.clone());
    }
    let finding = bench.watch.findings()[0];
    assert!(finding.comparisons >= 2);
    assert!(finding.loss.unwrap().most.abs() < 0.01, "{finding:?}");
}

#[test]
fn groups_that_a_tenant_makes_and_removes_hide_no_loss() {
    let mut bench = Bench::new(&[(Watched::Limits, 0.15)], 0.02, 1);
    bench.groups.push(group(10, None, "/t"));
    bench.rates.push(10e6);
    for id in 0..900 {
        bench.groups.truncate(5);
        bench.groups.push(Group {
            delegated: true,
            ..group(100 + id, Some(10), "/t/new")
        });
        bench.second();
    }
    assert!(bench.watch.findings()[0].comparisons > 4);
}

#[test]
fn a_tenant_whose_only_group_comes_and_goes_hides_no_loss() {
    let mut bench = Bench::new(&[(Watched::Limits, 0.15)], 0.02, 1);
    let tenant = Group {
        weight: None,
        ..group(10, None, "/t")
    };
    for id in 0..900 {
        bench.groups.truncate(4);
        bench.rates.truncate(4);
        if id % 20 > 0 {
            bench.groups.push(tenant.clone());
            bench.groups.push(Group {
                delegated: true,
                ..group(100 + id / 20, Some(10), "/t/new")
            });
            bench.rates.push(10e6);
        }
        bench.second();
    }
    assert!(bench.watch.findings()[0].comparisons > 4);
}

#[test]
fn a_tenant_whose_job_ends_with_dirty_pages_hides_no_loss() {
    let mut bench = Bench::new(&[(Watched::Limits, 0.15)], 0.02, 1);
    let tenants = |id, path| Group {
        delegated: true,
        ..group(id, Some(10), path)
    };
    bench.groups.push(group(10, None, "/t"));
    bench.groups.push(tenants(11, "/t/shell"));
    bench.rates.extend([10e6, 0.0]);
    let mut job = tenants(12, "/t/job");
    job.memory.file_dirty = Some(Bytes::mib(2000));
    let withdrawn = (0..900).any(|_| {
        bench.groups.truncate(6);
        // The job ends in the middle of each window in force.
        let in_force = bench
            .watch
            .comparison
            .as_ref()
            .filter(|c| !c.is_suspended());
        let window = in_force.and_then(|comparison| comparison.now.as_ref());
        if window.is_none_or(|window| window.seconds < 4.0) {
            bench.groups.push(job.clone());
        }
        bench.second();
        bench.withdrawn()
    });
    assert!(withdrawn, "{:?}", bench.watch.findings());
}

/// Whether limits are withdrawn with three tenants of one group each. The first tenant doubles its traffic while
/// limits are suspended.
fn with_a_tenant_that_works_harder_while_limits_are_suspended(delegated: bool) -> bool {
    let mut bench = Bench::new(&[(Watched::Limits, 0.0)], 0.01, 9);
    bench.groups.clear();
    for tenant in [10, 20, 30] {
        bench.groups.push(group(tenant, None, "/t"));
        bench.groups.push(Group {
            delegated,
            ..group(tenant + 1, Some(tenant), "/t/g")
        });
    }
    (0..1800).any(|_| {
        let faster = if bench.watch.suspends() { 2.0 } else { 1.0 };
        let noise = (bench.random() * 0.01).exp();
        bench.look(&[40e6 * faster * noise, 40e6, 40e6]);
        bench.watch.note(&bench.decided.clone());
        bench.withdrawn()
    })
}

#[test]
fn no_tenant_withdraws_a_decision_by_working_harder_while_it_is_suspended() {
    assert!(!with_a_tenant_that_works_harder_while_limits_are_suspended(
        true
    ));
    assert!(
        with_a_tenant_that_works_harder_while_limits_are_suspended(false),
        "groups that root made count"
    );
}

#[test]
fn the_mean_of_comparisons_has_students_interval() {
    let pair = |ln_loss| Pair {
        ago_s: 0.0,
        ln_loss,
    };
    let mut trial = Trial {
        pairs: vec![pair(0.1)],
        ..Trial::default()
    };
    assert_eq!(trial.loss(), None);
    trial.pairs = [0.08, 0.10, 0.12, 0.14].map(pair).to_vec();
    // Mean 0.11, error 0.02582 / 2, t 3.182.
    let loss = trial.loss().unwrap();
    assert!((loss.mean - 0.104_166).abs() < 1e-5, "{loss:?}");
    assert!(
        (loss.least - (1.0 - (-0.068_923f64).exp())).abs() < 1e-4,
        "{loss:?}"
    );
}

#[test]
fn gains_are_no_decision_where_no_disk_serves_by_weight() {
    let snapshot = testing::of_groups(vec![group(1, None, "/g")]);
    let mut members = Member::all(&snapshot, Memo::new);
    members[0].decision.participant = true;
    assert!(!gains(&members, true), "a gain of 1 moves nothing");
    members[0].decision.gain = 0.5;
    assert!(gains(&members, true) && !gains(&members, false));
}
