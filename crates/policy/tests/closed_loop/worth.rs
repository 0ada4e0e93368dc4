//! Lending in the closed loop: a reader whose set fits, and a neighbor that scans.

use justitia_policy::config::Mode;
use justitia_policy::units::{Bytes, Limit};
use justitia_policy::Config;

use super::model::{Load, PageCacheHost};
use super::{observe, Rig};

/// Chunks of the reader's file; the host has 9600 chunks of memory.
const SET: u64 = 6400;
const SCANNED: u64 = 16000;

/// Returns the reader's bandwidth beside a scan over its bandwidth alone, the scan's bandwidth (bytes per
/// second), and the reader's protection at the end.
fn beside_a_scan(config: Config, weights: [u32; 2], learns: bool) -> (f64, f64, Bytes) {
    let mut rig = Rig::new(config);
    let reader = rig.host.add(weights[0], Load::Read { chunks: SET });
    let learn_reader = |host: &mut PageCacheHost| {
        host.learn(reader, &[(SET / 10, 0.55), (SET, 1.0)], 200e6);
    };
    rig.run(40);
    if learns {
        learn_reader(&mut rig.host);
    }
    rig.run(10);
    let alone = rig.rates(5)[0];
    let scan = rig.host.add(weights[1], Load::Scan { chunks: SCANNED });
    rig.run(15);
    if learns {
        let cliff = [(SCANNED - 1, 0.0), (SCANNED, 1.0)];
        rig.host.learn(scan, &cliff, 40e6);
    }
    rig.run(60);
    let late = rig.rates(20);
    let low = rig.host.snapshot().groups[0].knobs.low;
    let low = low.and_then(Limit::bytes).unwrap_or_default();
    (late[0] / alone, late[1], low)
}

#[test]
fn a_reader_whose_set_fits_is_as_fast_beside_a_scan_as_alone() {
    for weights in [[100, 100], [100, 800]] {
        let (before, conventional, _) = beside_a_scan(observe(), weights, false);
        assert!(before < 0.6, "the model must show the problem: {before}");
        let (kept, scan, low) = beside_a_scan(Config::default(), weights, true);
        assert!(kept >= 0.95, "{weights:?}: {kept}, {before} before");
        assert!(scan >= 0.97 * conventional, "{scan} of {conventional}");
        assert!(low >= Bytes(SET << 16), "{low}");
    }
}

#[test]
fn without_curves_and_in_other_modes_memory_is_divided_as_before() {
    let weights = [100, 100];
    let paper = Config::in_mode(Mode::Justitia);
    let without = beside_a_scan(paper, weights, false);
    assert_eq!(beside_a_scan(paper, weights, true), without);
    let (kept, ..) = beside_a_scan(Config::default(), weights, false);
    assert!(kept < 0.9, "{kept}");
}
