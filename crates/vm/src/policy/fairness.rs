//! Fairness: the page cache each machine may hold, and who gives when memory is short. Units: bytes.
//!
//! Half of free memory and page cache is divided among the machines, in equal parts or by weight; the other
//! half is for everybody. A machine's part is its low watermark: page cache below it is not taken for others.
//! Memory is short when less is free than a reserve. Then the least recently used machine above its watermark
//! gives, down to its watermark, then the next one. The division is work-conserving: machines may hold more
//! than their watermarks, and return the excess only when memory is short.
//!
//! The kernel still reclaims by its own rules when memory runs out. The reserve makes this policy act before
//! the kernel does.

use justitia_policy::units::{Bytes, Weight};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    /// The default weight unless the operator gave another.
    pub weight: Weight,
    /// Page cache of its images; its part of shared ones.
    pub held: Bytes,
    /// Time of its last request, on any monotonic clock.
    pub used_at: u64,
}

/// Memory of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    pub free: Bytes,
    /// Page cache, the machines' included.
    pub cache: Bytes,
    /// Free memory below which kswapd reclaims ([`justitia_policy::snapshot::Host::high_watermark`]).
    pub high_watermark: Bytes,
}

/// The machines' low watermarks, in the order of `machines`.
pub fn watermarks(memory: &Memory, machines: &[Machine]) -> Vec<Bytes> {
    let pool = (memory.free + memory.cache).scale(0.5);
    let all: f64 = machines.iter().map(|machine| machine.weight.as_f64()).sum();
    machines
        .iter()
        .map(|machine| pool.scale(machine.weight.as_f64() / all).page_aligned())
        .collect()
}

/// Memory to keep free: twice the kernel's high watermark, or twice the bytes that the machines fetch between
/// two rounds (`intake`), whichever is larger; at most a quarter of free memory and page cache.
pub fn reserve(memory: &Memory, intake: Bytes) -> Bytes {
    let wanted = (memory.high_watermark.scale(2.0)).max(intake.scale(2.0));
    wanted.min((memory.free + memory.cache).scale(0.25))
}

/// Bytes that each machine gives now, in the order of `machines`.
pub fn give(machines: &[Machine], watermarks: &[Bytes], free: Bytes, reserve: Bytes) -> Vec<Bytes> {
    let mut gives = vec![Bytes::ZERO; machines.len()];
    let mut short = reserve - free;
    let mut order: Vec<usize> = (0..machines.len()).collect();
    order.sort_by_key(|&at| (machines[at].used_at, at));
    for at in order {
        let lent = machines[at].held - watermarks.get(at).copied().unwrap_or_default();
        gives[at] = lent.min(short);
        short = short - gives[at];
    }
    gives
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn machine(weight: u32, held: u64, used_at: u64) -> Machine {
        Machine {
            weight: Weight::new(weight).unwrap(),
            held: Bytes(held),
            used_at,
        }
    }

    #[test]
    fn four_machines_have_an_eighth_each() {
        let memory = Memory {
            free: Bytes::mib(200),
            cache: Bytes::mib(600),
            high_watermark: Bytes::mib(10),
        };
        let four = [machine(100, 0, 0); 4];
        assert_eq!(watermarks(&memory, &four), [Bytes::mib(100); 4]);
        let weighted = [machine(100, 0, 0), machine(300, 0, 0)];
        let expected = [Bytes::mib(100), Bytes::mib(300)];
        assert_eq!(watermarks(&memory, &weighted), expected);
    }

    #[test]
    fn the_machine_used_longest_ago_gives_first_and_only_what_is_above_its_watermark() {
        let machines = [
            machine(100, 500, 9),
            machine(100, 300, 5),
            machine(100, 50, 1),
        ];
        let marks = [Bytes(100); 3];
        let gives = |short| give(&machines, &marks, Bytes(0), Bytes(short));
        assert_eq!(gives(150), [0, 150, 0].map(Bytes));
        assert_eq!(gives(350), [150, 200, 0].map(Bytes));
        assert_eq!(gives(5000), [400, 200, 0].map(Bytes));
    }

    prop_compose! {
        fn machines()(list in proptest::collection::vec((1u32..1000, 0u64..1 << 40, 0u64..9), 0..12))
            -> Vec<Machine> {
            list.into_iter().map(|(weight, held, used)| machine(weight, held, used)).collect()
        }
    }

    proptest! {
        #[test]
        fn nobody_is_taken_below_its_watermark_and_nothing_is_taken_without_need(
            machines in machines(), free in 0u64..1 << 40, cache in 0u64..1 << 42,
            intake in 0u64..1 << 34,
        ) {
            let memory = Memory { free: Bytes(free), cache: Bytes(cache), high_watermark: Bytes::mib(50) };
            let marks = watermarks(&memory, &machines);
            let reserve = reserve(&memory, Bytes(intake));
            let gives = give(&machines, &marks, memory.free, reserve);
            for ((machine, mark), gives) in machines.iter().zip(&marks).zip(&gives) {
                prop_assert!(*gives == Bytes::ZERO || machine.held - *gives >= *mark);
            }
            let given: u64 = gives.iter().map(|gives| gives.0).sum();
            prop_assert!(given <= (reserve - memory.free).0);
            let half = (memory.free + memory.cache).scale(0.5);
            prop_assert!(marks.iter().copied().sum::<Bytes>() <= half);
            // If the reserve is not reached, no machine keeps anything above its watermark.
            if Bytes(given) < reserve - memory.free {
                for ((machine, mark), gives) in machines.iter().zip(&marks).zip(&gives) {
                    prop_assert!(machine.held - *gives <= *mark || machine.held <= *mark);
                }
            }
        }
    }
}
