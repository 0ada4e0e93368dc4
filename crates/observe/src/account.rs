//! Bookkeeping that keeps a child's bytes from being counted twice.
//!
//! When a process waits for a child, the kernel (`wait_task_zombie`) adds the child's I/O counters
//! to its own. We have already counted what we saw of the child, so the parent owes us that much:
//! it is taken off the parent's next difference, which then holds only what was new. This also
//! recovers what the child did between our last look and its end. A child that nobody waits for
//! (`SIGCHLD` ignored) is never added: a debt that no difference covers lapses. A parent that
//! waits for some children and not for others may be misjudged by the bytes of those.
//!
//! Units: as in [`ProcessIo`]. No I/O here.

use std::collections::HashMap;

use justitia_cgroup::ProcessIo;

/// Samples for which a debt stands: the one in which the child was missed, and the next, for a
/// parent that was read before it waited.
const STANDS: u8 = 2;

/// `a - b`, never below zero.
pub(crate) fn difference(a: ProcessIo, b: ProcessIo) -> ProcessIo {
    ProcessIo {
        rchar: a.rchar.saturating_sub(b.rchar),
        wchar: a.wchar.saturating_sub(b.wchar),
        syscr: a.syscr.saturating_sub(b.syscr),
        syscw: a.syscw.saturating_sub(b.syscw),
    }
}

/// Whether all of `part` may be within `whole`. Four counters at once rarely agree by chance.
fn covers(whole: ProcessIo, part: ProcessIo) -> bool {
    whole.rchar >= part.rchar
        && whole.wchar >= part.wchar
        && whole.syscr >= part.syscr
        && whole.syscw >= part.syscw
}

#[derive(Debug, Clone, Copy)]
struct Debt {
    parent: u32,
    io: ProcessIo,
    left: u8,
}

/// What parents owe.
#[derive(Debug, Default)]
pub(crate) struct Debts(Vec<Debt>);

impl Debts {
    /// A process ended whose counters we last saw at `io`. What it owed itself its parent owes
    /// now: the kernel hands everything up.
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

    /// Who owes something.
    pub(crate) fn debtors(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().map(|debt| debt.parent)
    }

    /// Takes the debts off this sample's differences. A debtor that is not there is not ours and
    /// owes nothing; one that was not read this time (`None`) owes on.
    pub(crate) fn settle(&mut self, deltas: &mut HashMap<u32, Option<ProcessIo>>) {
        // Large ones first: a small one that nobody will pay must not break a large one's change.
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

    /// What is left of a difference of process 1.
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
    fn a_debtor_that_was_not_read_owes_on() {
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
