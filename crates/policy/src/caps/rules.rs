//! Rebalancing: memory flows from satisfied groups to unsatisfied ones.
//!
//! These are the rules of MemOpLight (section IV, table II) as *caps* on page cache. The cap of a group that
//! gives starts at what the group holds and falls by a few percent each period. This module does not decide
//! how a cap is enforced, or who gets the freed memory. In mode `memoplight` a group gives by one reclaim
//! each period and has no cap in between.
//!
//! ```text
//! mode          groups that give                             while
//! memoplight    green; yellow too, if configured             a group is red (yellow gives only then),
//!                                                            or yellow (then only green gives)
//! proportional  green; yellow when no green can give more,   a group declares red and could take more
//!               if configured
//! ```
//!
//! In both modes, groups give only while memory is scarce. While there is free memory, no group needs that of
//! another, and free memory that no group takes ends the taking. Between scarce and plentiful nothing moves.
//! When there is no more reason to take, caps rise by the same percentage, so that the next taking begins
//! where the last one ended. A cap that no longer presses is dropped. A group that turns red, or no longer
//! declares a color, is free at once.
//!
//! Properties, each held by a test:
//! - *no red group gives*, nor, in mode `proportional`, a group that declared nothing;
//! - *slow*: no group gives more than its percentage in a period, whatever colors do;
//! - *no faster than it is filled* (mode `proportional`): all givers together give no more in a period than
//!   the asking groups bring into memory, as far as that is known, but at least a sixteenth of their
//!   percentages;
//! - *floors*: no cap falls below what must stay;
//! - *unknown moves nothing*: a cap does not move if its group cannot be read, and no cap falls if the host
//!   cannot be read.
//!
//! Units: bytes, percent, seconds.

use crate::color::Color;
use crate::config::ColorRule;
use crate::share::demand::growing;
use crate::share::supply::Supply;
use crate::units::Bytes;

/// If a group exceeds its cap by more than this part, the kernel has not followed it yet, and the cap does
/// not fall further.
const BEHIND: f64 = 0.1;
/// Giving is slowed to no less than this part of the percentage. Otherwise a group that alternates between
/// green and red would give next to nothing in between.
const SLOWEST: f64 = 1.0 / 16.0;
/// Caps rise by at least this much, so that small groups do not wait forever.
const LEAST_STEP: Bytes = Bytes::mib(1);

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Holder {
    /// The color that counts; `None`: it takes no part.
    pub color: Option<Color>,
    pub held: Option<Bytes>,
    /// Bytes that the percentage applies to.
    pub basis: Option<Bytes>,
    /// Page cache that must stay.
    pub least: Bytes,
    /// It could take more than it holds.
    pub wants: bool,
    /// Bytes that it brings into memory in a period: page cache from disks, and other memory. `None`:
    /// unknown.
    pub fills: Option<Bytes>,
    pub cap: Option<Bytes>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// There is no cap.
    Free,
    /// The cap falls.
    Gives,
    /// The cap stays.
    Stays,
    /// The cap rises.
    Recovers,
}

/// Returns true if a period is over, and the seconds of the next one that have passed. Steps that
/// come a little early or late do not skip one.
pub(crate) fn due(since_s: f64, elapsed_s: f64, period_s: f64) -> (bool, f64) {
    let since_s = since_s + elapsed_s;
    if since_s + elapsed_s.min(period_s) / 2.0 < period_s {
        return (false, since_s);
    }
    // A long pause is one period, not many.
    (true, (since_s - period_s).clamp(-period_s, period_s / 2.0))
}

/// The change of each holder's cap. In the fourth case of table II green and yellow groups both give; green
/// ones come first only in the order of one taking (section IV).
pub(crate) fn roles(
    rule: ColorRule,
    holders: &[Holder],
    supply: Supply,
    yellow_gives: bool,
) -> Vec<Role> {
    let any = |color| holders.iter().any(|holder| holder.color == Some(color));
    let green_can = || {
        let green = |holder: &&Holder| holder.color == Some(Color::Green);
        holders.iter().filter(green).any(Holder::can_give)
    };
    let when = |asked: bool| match (asked, supply) {
        (true, Supply::Scarce) => Role::Gives,
        (true, Supply::Between) => Role::Stays,
        _ => Role::Recovers,
    };
    let (green, yellow) = match rule {
        ColorRule::Unified => {
            let givers = when(holders.iter().any(Holder::asks));
            let waits = givers == Role::Gives && (!yellow_gives || green_can());
            (givers, if waits { Role::Stays } else { givers })
        }
        ColorRule::TableII => {
            let red = any(Color::Red);
            (when(red || any(Color::Yellow)), when(red && yellow_gives))
        }
    };
    let role = |holder: &Holder| match holder.color {
        None | Some(Color::Red) => Role::Free,
        Some(Color::Green) => green,
        Some(Color::Yellow) => yellow,
    };
    holders.iter().map(role).collect()
}

/// The part of their percentage, [`SLOWEST`] to 1, that givers give: as much as the asking groups can fill.
/// Memory that is taken sooner lies free for a while, and programs outside take it.
pub(crate) fn giving_rate(holders: &[Holder], roles: &[Role], percent: f64) -> f64 {
    let asking = holders.iter().filter(|holder| holder.asks());
    let Some(filled) = asking.map(|holder| holder.fills).sum::<Option<Bytes>>() else {
        return 1.0;
    };
    let giving = holders
        .iter()
        .zip(roles)
        .filter(|(_, &role)| role == Role::Gives);
    let given: Bytes = giving.filter_map(|(holder, _)| holder.step(percent)).sum();
    (filled.0 as f64 / given.0.max(1) as f64).clamp(SLOWEST, 1.0)
}

impl Holder {
    /// Memory is taken for it.
    fn asks(&self) -> bool {
        self.color == Some(Color::Red) && self.wants
    }

    fn step(&self, percent: f64) -> Option<Bytes> {
        Some(self.basis?.scale(percent / 100.0))
    }

    fn can_give(&self) -> bool {
        self.held
            .is_some_and(|held| self.cap.map_or(held, |cap| cap.min(held)) > self.least)
    }

    /// The cap after a step; `due`: a period is over.
    pub(crate) fn moved(&self, role: Role, due: bool, percent: f64) -> Option<Bytes> {
        if role == Role::Free {
            return None;
        }
        let (Some(held), Some(step)) = (self.held, self.step(percent)) else {
            return self.cap;
        };
        match role {
            Role::Gives if due => {
                let behind = |cap: Bytes| held > cap + cap.scale(BEHIND) + LEAST_STEP;
                match self.cap {
                    Some(cap) if behind(cap) => Some(cap.max(self.least)),
                    cap => {
                        let from = cap.map_or(held, |cap| cap.min(held));
                        Some((from - step).max(self.least))
                    }
                }
            }
            Role::Recovers if due => {
                let cap = self.cap? + step.max(LEAST_STEP);
                (cap < growing(held)).then_some(cap)
            }
            _ => self.cap.map(|cap| cap.max(self.least)),
        }
    }
}

#[cfg(test)]
mod tests;
