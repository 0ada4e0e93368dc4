//! Bookkeeping that keeps a child's bytes from being counted twice.
//!
//! When a process waits for a child, the kernel (`wait_task_zombie`) adds the child's I/O counters to those
//! of the parent. We have already counted part of the child's I/O. That part is the parent's debt: it is
//! subtracted from the parent's next difference, which then holds only new bytes. This also recovers what the
//! child did between the last look and its end. The kernel never adds the counters of a child that nobody
//! waits for (`SIGCHLD` ignored), so a debt that no difference covers lapses. If a parent waits for only some
//! of its children, its traffic may be wrong by the bytes of the others.
//!
//! Units: as in [`ProcessIo`]. No I/O here.

use std::collections::HashMap;

use justitia_cgroup::ProcessIo;

/// Samples for which a debt stands: the one in which the child was found missing, and the next, for a parent
/// that was read before it waited.
const STANDS: u8 = 2;

fn each(a: ProcessIo, b: ProcessIo, of: fn(u64, u64) -> u64) -> ProcessIo {
    ProcessIo {
        rchar: of(a.rchar, b.rchar),
        wchar: of(a.wchar, b.wchar),
        syscr: of(a.syscr, b.syscr),
        syscw: of(a.syscw, b.syscw),
    }
}

/// `a - b`, never below zero.
pub(crate) fn difference(a: ProcessIo, b: ProcessIo) -> ProcessIo {
    each(a, b, u64::saturating_sub)
}

/// `a + b`.
pub(crate) fn sum(a: ProcessIo, b: ProcessIo) -> ProcessIo {
    each(a, b, u64::saturating_add)
}

/// True if `whole` may include `part`. Four counters at once rarely agree by chance.
fn covers(whole: ProcessIo, part: ProcessIo) -> bool {
    difference(part, whole) == ProcessIo::default()
}

#[derive(Debug, Clone, Copy)]
struct Debt {
    parent: u32,
    io: ProcessIo,
    left: u8,
}

/// Bytes that parents owe.
#[derive(Debug, Default)]
pub(crate) struct Debts(Vec<Debt>);

impl Debts {
    /// A process ended, and we last saw its counters at `io`. Its own debts pass to its parent, because the
    /// kernel hands all counters up.
    pub(crate) fn ended(&mut self, pid: u32, parent: u32, io: ProcessIo) {
        for debt in &mut self.0 {
            if debt.parent == pid {
                debt.parent = parent;
            }
        }
        if io != ProcessIo::default() {
            self.0.push(Debt {
                parent,
                io,
                left: STANDS,
            });
        }
    }

    /// Parents that owe something.
    pub(crate) fn debtors(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().map(|debt| debt.parent)
    }

    /// Subtracts the debts from this sample's differences. A debtor without an entry belongs to no watched
    /// group, and its debt is dropped. A debtor that was not read this time (`None`) keeps its debt.
    pub(crate) fn settle(&mut self, deltas: &mut HashMap<u32, Option<ProcessIo>>) {
        // Large debts first: a small debt that is never paid must not reduce a difference that covers a large
        // one.
        self.0
            .sort_by_key(|debt| std::cmp::Reverse(debt.io.rchar.saturating_add(debt.io.wchar)));
        self.0.retain_mut(|debt| {
            let Some(delta) = deltas.get_mut(&debt.parent) else {
                return false;
            };
            let Some(delta) = delta else {
                return true;
            };
            if covers(*delta, debt.io) {
                *delta = difference(*delta, debt.io);
                return false;
            }
            debt.left -= 1;
            debt.left > 0
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn io(n: u64) -> ProcessIo {
        ProcessIo {
            rchar: n,
            wchar: n,
            syscr: n,
            syscw: n,
        }
    }

    /// The rest of a difference of process 1 after debts are paid.
    fn left(debts: &mut Debts, delta: u64) -> ProcessIo {
        let mut deltas = HashMap::from([(1, Some(io(delta)))]);
        debts.settle(&mut deltas);
        deltas[&1].unwrap()
    }

    #[test]
    fn a_debt_is_paid_once() {
        let mut debts = Debts::default();
        debts.ended(2, 1, io(10));
        assert_eq!(left(&mut debts, 15), io(5));
        assert_eq!(left(&mut debts, 15), io(15));
    }

    #[test]
    fn a_debt_that_nothing_covers_lapses() {
        let mut debts = Debts::default();
        debts.ended(2, 1, io(10));
        for _ in 0..2 {
            assert_eq!(left(&mut debts, 3), io(3));
        }
        assert_eq!(left(&mut debts, 100), io(100));
    }

    #[test]
    fn a_debtor_that_was_not_read_keeps_its_debt() {
        let mut debts = Debts::default();
        debts.ended(2, 1, io(10));
        for _ in 0..5 {
            debts.settle(&mut HashMap::from([(1, None)]));
        }
        assert_eq!(left(&mut debts, 15), io(5));
    }

    #[test]
    fn a_grandchilds_debt_is_handed_up() {
        let mut debts = Debts::default();
        debts.ended(3, 2, io(7));
        debts.ended(2, 1, io(10));
        assert_eq!(left(&mut debts, 20), io(3));
    }

    #[test]
    fn a_parent_that_is_not_ours_owes_nothing() {
        let mut debts = Debts::default();
        debts.ended(2, 1, io(10));
        debts.settle(&mut HashMap::new());
        assert_eq!(left(&mut debts, 20), io(20));
    }
}
