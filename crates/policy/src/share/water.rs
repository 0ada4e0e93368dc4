//! Weighted water-filling over a hierarchy: how many bytes each group is entitled to.
//!
//! Each node of a tree has a weight among its siblings, a floor that it must not fall below, and a cap: its
//! demand, beyond which it and all below it have no use for more. Water rises in all siblings at a level
//! proportional to their weights: `allocation_i(level) = clamp(level * weight_i, floor_i, cap_i)`. The level
//! is the one at which all bytes are handed out, or every node has what it demands.
//!
//! Properties, each held by a test:
//! - *conservation*: the allocations sum to `min(total, sum of caps)`, to the byte;
//! - *work-conserving*: no bytes are left while a node wants more;
//! - *monotone*: more weight never gives a node less;
//! - *scale-invariant*: only the ratio of weights matters;
//! - *floors*: kept if all floors fit; otherwise cut in proportion.
//!
//! Arithmetic is exact (128-bit integers); the bytes that do not divide evenly go to the largest
//! remainders. With no floors and no caps this is the paper's equation 1.

use crate::units::Bytes;

/// A node of the hierarchy. Children come after their parent in the slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Node {
    /// Index of the parent in the same slice, smaller than this node's own; `None` at the top.
    pub parent: Option<usize>,
    /// Weight among its siblings. `None`: the sum of its children's weights. Zero: it gets only its floor.
    pub weight: Option<u64>,
    /// It must not get less than this, if the floors fit at all. Leaves only; an inner node's
    /// floor is the sum of its children's.
    pub floor: Bytes,
    /// It has no use for more than this; `None` is unbounded. An inner node's bounds the sum of its children.
    pub demand: Option<Bytes>,
}

impl Node {
    /// A node at the top, without a floor.
    pub(crate) fn flat(weight: u64, demand: Bytes) -> Node {
        Node {
            parent: None,
            weight: Some(weight),
            floor: Bytes::ZERO,
            demand: Some(demand),
        }
    }

    /// Index of its siblings: 0 at the top, else one more than the parent's index.
    fn place(&self) -> usize {
        self.parent.map_or(0, |parent| parent + 1)
    }
}

/// A node among its siblings, with the sums of what is below it.
#[derive(Debug, Clone, Copy, Default)]
struct Subtree {
    weight: u128,
    floor: u128,
    cap: u128,
}

/// More than any sum of byte counts, small enough to multiply by a sum of weights.
const UNBOUNDED: u128 = 1 << 80;

/// Divides `total` among the leaves; inner nodes get the sum of their children. Shape: one
/// allocation for each node, in order. Panics if a parent does not precede its child.
pub(crate) fn divide(total: Bytes, nodes: &[Node]) -> Vec<Bytes> {
    let subtrees = subtrees_of(nodes);
    // The nodes by place, each place's siblings in order.
    let mut ends = vec![0; nodes.len() + 1];
    for node in nodes {
        ends[node.place()] += 1;
    }
    let mut before = 0;
    for end in &mut ends {
        (*end, before) = (before, before + *end);
    }
    let mut by_place = vec![0; nodes.len()];
    for (i, node) in nodes.iter().enumerate() {
        let end = &mut ends[node.place()];
        by_place[*end] = i;
        *end += 1;
    }
    let mut allocation = vec![0u128; nodes.len()];
    let mut begin = 0;
    for (place, &end) in ends.iter().enumerate() {
        let whole = match place.checked_sub(1) {
            None => u128::from(total.0),
            Some(parent) => allocation[parent],
        };
        if begin < end {
            fill_siblings(whole, &by_place[begin..end], &subtrees, &mut allocation);
        }
        begin = end;
    }
    let bytes = allocation.into_iter().map(|bytes| Bytes(bytes as u64));
    bytes.collect()
}

/// Each node's share of the total weight down the hierarchy, 0 to 1; no floors, no caps.
pub(crate) fn proportions(nodes: &[Node]) -> Vec<f64> {
    let subtrees = subtrees_of(nodes);
    let mut siblings = vec![0; nodes.len() + 1];
    for (node, subtree) in nodes.iter().zip(&subtrees) {
        siblings[node.place()] += subtree.weight;
    }
    let mut share = vec![0.0; nodes.len()];
    for (i, node) in nodes.iter().enumerate() {
        let whole = node.parent.map_or(1.0, |parent| share[parent]);
        let all = siblings[node.place()];
        if all > 0 {
            share[i] = whole * subtrees[i].weight as f64 / all as f64;
        }
    }
    share
}

/// Sums floors, caps and missing weights from the leaves up.
fn subtrees_of(nodes: &[Node]) -> Vec<Subtree> {
    let mut below: Vec<Option<Subtree>> = vec![None; nodes.len()];
    let mut subtrees = vec![Subtree::default(); nodes.len()];
    for (i, node) in nodes.iter().enumerate().rev() {
        let leaf = Subtree {
            weight: 0,
            floor: u128::from(node.floor.0),
            cap: UNBOUNDED,
        };
        let mut subtree = below[i].unwrap_or(leaf);
        let demand = node.demand.map_or(UNBOUNDED, |most| u128::from(most.0));
        subtree.cap = subtree.cap.min(demand.max(subtree.floor));
        subtree.weight = node.weight.map_or(subtree.weight, u128::from);
        if let Some(parent) = node.parent {
            assert!(parent < i, "node {i} comes before its parent {parent}");
            let sum = below[parent].get_or_insert_default();
            sum.weight += subtree.weight;
            sum.floor += subtree.floor;
            sum.cap += subtree.cap;
        }
        subtrees[i] = subtree;
    }
    subtrees
}

fn fill_siblings(total: u128, siblings: &[usize], subtrees: &[Subtree], allocation: &mut [u128]) {
    let most = |i: usize| match subtrees[i].weight {
        0 => subtrees[i].floor,
        _ => subtrees[i].cap,
    };
    // Usual on a host that is not full, and no level has to be searched for.
    if siblings.iter().map(|&i| most(i)).sum::<u128>() <= total {
        for &i in siblings {
            allocation[i] = most(i);
        }
        return;
    }
    let floors: u128 = siblings.iter().map(|&i| subtrees[i].floor).sum();
    if floors >= total {
        let parts: Vec<(usize, u128)> = siblings.iter().map(|&i| (i, subtrees[i].floor)).collect();
        split(total, &parts, allocation);
        return;
    }
    let (fixed, rising) = rising_at_level(total, siblings, subtrees, allocation);
    let rising = siblings.iter().zip(rising).filter(|(_, rises)| *rises);
    let parts: Vec<(usize, u128)> = rising.map(|(&i, _)| (i, subtrees[i].weight)).collect();
    split(total.saturating_sub(fixed), &parts, allocation);
}

/// Finds the segment between two breakpoints of the water level in which `total`, which is more than the
/// floors, is reached. Sets the allocations of the nodes at their floor or cap there. Returns the sum of these
/// allocations, and for each node whether it rises with the level.
fn rising_at_level(
    total: u128,
    siblings: &[usize],
    subtrees: &[Subtree],
    allocation: &mut [u128],
) -> (u128, Vec<bool>) {
    // A node starts to rise where its floor is under water, and stops at its cap. Without a floor it rises
    // from the start. A break is the level as bytes and weight, whether the node starts, and its place.
    let mut breaks: Vec<(u128, u128, bool, usize)> = Vec::with_capacity(siblings.len());
    let mut rising = vec![false; siblings.len()];
    let mut rising_weight: u128 = 0;
    let mut fixed: u128 = 0;
    for (at, &i) in siblings.iter().enumerate() {
        let Subtree { weight, floor, cap } = subtrees[i];
        allocation[i] = floor;
        fixed += floor;
        if weight == 0 {
            continue;
        }
        if floor == 0 {
            rising[at] = true;
            rising_weight += weight;
        } else {
            breaks.push((floor, weight, true, at));
        }
        if cap < UNBOUNDED {
            breaks.push((cap, weight, false, at));
        }
    }
    breaks.sort_unstable_by(|a, b| {
        let level = (a.0 * b.1).cmp(&(b.0 * a.1));
        level.then(b.2.cmp(&a.2)).then(a.3.cmp(&b.3))
    });

    for (bytes, weight, starts, at) in breaks {
        // Allocated at the level bytes / weight: fixed + rising_weight * level.
        if fixed * weight + rising_weight * bytes >= total * weight {
            break;
        }
        let i = siblings[at];
        let Subtree { floor, cap, .. } = subtrees[i];
        rising[at] = starts;
        if starts {
            rising_weight += weight;
            fixed -= floor;
        } else {
            rising_weight -= weight;
            fixed += cap;
            allocation[i] = cap;
        }
    }
    (fixed, rising)
}

/// Splits `total` in the ratio of the parts; what does not divide evenly goes to the largest
/// remainders, the earlier first among equals.
fn split(total: u128, parts: &[(usize, u128)], allocation: &mut [u128]) {
    let whole: u128 = parts.iter().map(|part| part.1).sum();
    if whole == 0 {
        return;
    }
    let mut left = total;
    let mut remainders: Vec<(u128, usize)> = Vec::with_capacity(parts.len());
    for &(i, part) in parts {
        let share = total * part / whole;
        allocation[i] = share;
        left -= share;
        remainders.push((total * part - share * whole, i));
    }
    // Fewer than there are parts.
    let left = left as usize;
    if left > 0 {
        let larger = |a: &(u128, usize), b: &(u128, usize)| b.0.cmp(&a.0).then(a.1.cmp(&b.1));
        remainders.select_nth_unstable_by(left, larger);
        for &(_, i) in &remainders[..left] {
            allocation[i] += 1;
        }
    }
}

#[cfg(test)]
mod tests;
