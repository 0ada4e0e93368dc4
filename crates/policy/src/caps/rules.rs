//! Rebalancing: memory flows from groups that are well to groups that are not.
//!
//! The rules of MemOpLight (section IV, table II) as *caps* on page cache: a group that gives has a
//! cap that starts at what it holds and comes down by a few percent each period. What enforces a
//! cap, and who gets what is freed, is not decided here. In mode `memoplight` a group gives by one reclaim
//! each period, and has no cap in between.
//!
//! ```text
//! mode          who gives                                    while
//! memoplight    green; yellow too, if it says so             somebody is red (yellow gives only then),
//!                                                            or yellow (then only green gives)
//! proportional  green; yellow when no green can give more,   somebody declares red and could take more
//!               if the configuration says so
//! ```
//!
//! In both, only while memory is scarce: as long as there is free memory nobody needs another's, and
//! free memory that nobody takes ends the taking. In between nothing moves. When there is no more
//! reason to take, caps come up again by the same percentage, so that the next taking begins where
//! the last one ended; a cap that no longer presses is dropped, and who turns red, or declares
//! nothing any more, is free at once.
//!
//! Properties, each held by a test:
//! - *nobody gives who is red*, or, in mode `proportional`, who declared nothing;
//! - *slow*: no group gives more than its percentage in a period, whatever colors do;
//! - *no faster than it is filled* (mode `proportional`): all together give no more in a period than
//!   those who ask bring into memory, as far as that is known, or a sixteenth of their percentages;
//! - *floors*: no cap falls below what must stay;
//! - *unknown moves nothing*: neither a cap whose group cannot be read nor, if the host cannot be
//!   read, any.
//!
//! Units: bytes, percent, seconds.

use crate::color::Color;
use crate::config::ColorRule;
use crate::share::demand::growing;
use crate::share::supply::Supply;
use crate::units::Bytes;

/// The kernel has not followed a cap that is exceeded by more than this part: it comes down no
/// further until it has.
const BEHIND: f64 = 0.1;
/// Those who give are slowed to no less than this part of their percentage: who says green and red in turn
/// would give next to nothing in between.
const SLOWEST: f64 = 1.0 / 16.0;
/// Caps come up by at least this much, so that small groups do not wait for ever.
const LEAST_STEP: Bytes = Bytes::mib(1);

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Holder {
    /// The color that counts; `None`: it takes no part.
    pub color: Option<Color>,
    pub held: Option<Bytes>,
    /// What the percentage is of.
    pub basis: Option<Bytes>,
    /// Page cache that must stay.
    pub least: Bytes,
    /// It could take more than it holds.
    pub wants: bool,
    /// What it brings into memory in a period: page cache from disks, and other memory. `None`: not known.
    pub fills: Option<Bytes>,
    pub cap: Option<Bytes>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// It has none.
    Free,
    /// It comes down.
    Gives,
    /// It stays as it is.
    Stays,
    /// It comes up.
    Recovers,
}

/// Whether a period is over, and how much of the next one has passed. Steps that come a little
/// early or late do not skip one.
pub(crate) fn due(since_s: f64, elapsed_s: f64, period_s: f64) -> (bool, f64) {
    let since_s = since_s + elapsed_s;
    if since_s + elapsed_s.min(period_s) / 2.0 < period_s {
        return (false, since_s);
    }
    // A long pause is one period, not many.
    (true, (since_s - period_s).clamp(-period_s, period_s / 2.0))
}

/// What happens to each holder's cap. In the fourth case of table II both give, green ones first only
/// in the order of one taking (section IV).
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

/// The part of their percentage, [`SLOWEST`] to 1, that those who give are to give: what those who ask
/// can fill. Memory that is taken sooner is nobody's for a while, and the programs outside take it.
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
