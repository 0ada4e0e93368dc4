//! The colors declared for groups, and whether each declaration still counts.
//!
//! Two channels: the extended attribute `user.justitia.color` of a group's directory, read every tick, and
//! the agent's socket. A declaration is fresh for a time to live since it last *changed* on this host's
//! monotonic clock: no clock of a container is trusted, and an attribute that a dead probe left behind goes
//! stale although it is still there. A value that exists when the agent starts is fresh for one time to live.
//! The later of two fresh declarations wins.
//!
//! Invariants: whatever a container writes costs one short read a tick and at most
//! [`justitia_cgroup::parse::color::LONGEST`] bytes of memory; a malformed declaration counts as none and is
//! reported with the reason; a failed read does not renew the previous declaration.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use justitia_cgroup::parse::color::{declaration, NoColor};
use justitia_cgroup::{xattr, Attribute, Buffer, Group};
use justitia_policy::color::{Channel, Color, Declared, Standing};
use justitia_policy::snapshot::GroupId;

/// Lifetime of a declaration unless the configuration gives another one.
pub const TIME_TO_LIVE: Duration = Duration::from_secs(5);

/// A color declared for a group over the socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spoken {
    /// The color.
    pub color: Color,
    /// The reason, made harmless and short.
    pub reason: String,
    /// Its lifetime; `None`: that of all other declarations.
    pub time_to_live: Option<Duration>,
}

/// The declarations for each group.
#[derive(Debug)]
pub(crate) struct Colors {
    /// Counts for earlier declarations too when it changes.
    pub(crate) time_to_live: Duration,
    groups: HashMap<GroupId, Ways>,
}

/// The channels of one group.
#[derive(Debug, Default)]
struct Ways {
    xattr: Option<Said>,
    socket: Option<Said>,
}

/// The last declaration on one channel.
#[derive(Debug)]
struct Said {
    /// The text as it was read, if it was short enough.
    raw: Box<[u8]>,
    /// Never `Stale`: the clock decides that.
    standing: Standing,
    color: Option<Color>,
    reason: String,
    changed: Instant,
    time_to_live: Option<Duration>,
}

impl Colors {
    pub(crate) fn new(time_to_live: Duration) -> Colors {
        Colors {
            time_to_live,
            groups: HashMap::new(),
        }
    }

    /// Forgets groups that are gone.
    pub(crate) fn retain(&mut self, stays: impl Fn(GroupId) -> bool) {
        self.groups.retain(|&id, _| stays(id));
    }

    /// Takes in a declaration over the socket. `None` withdraws the earlier one.
    pub(crate) fn hear(&mut self, id: GroupId, spoken: Option<Spoken>, now: Instant) {
        let ways = self.groups.entry(id).or_default();
        ways.socket = spoken.map(|spoken| Said {
            raw: Box::default(),
            standing: Standing::Fresh,
            color: Some(spoken.color),
            reason: spoken.reason,
            changed: now,
            time_to_live: spoken.time_to_live,
        });
    }

    /// Whether a color was ever declared for a group.
    pub(crate) fn has_heard(&self, id: GroupId) -> bool {
        self.groups.contains_key(&id)
    }

    /// Reads a group's attribute and returns what is declared for the group now. If the group has no
    /// attribute, that of its `container` below counts.
    pub(crate) fn look(
        &mut self,
        group: &Group,
        container: Option<&Group>,
        buffer: &mut Buffer,
        now: Instant,
    ) -> Option<Declared> {
        let id = group.id();
        let mut read = group.read_xattr(xattr::COLOR, buffer);
        if let (Ok(Attribute::Unset), Some(container)) = (&read, container) {
            read = container.read_xattr(xattr::COLOR, buffer);
        }
        match read {
            Ok(Attribute::Set) => self.found(id, buffer.bytes(), now),
            // An attribute longer than the buffer is longer than allowed.
            Ok(Attribute::Longer) => self.replace(id, Standing::TooLong, &[], now),
            Ok(Attribute::Unset) => {
                if self.groups.get(&id).is_some_and(|w| w.xattr.is_some()) {
                    self.replace(id, Standing::Removed, &[], now);
                }
            }
            Err(_) => self.replace(id, Standing::Unreadable, &[], now),
        }
        self.declared(id, now)
    }

    fn found(&mut self, id: GroupId, text: &[u8], now: Instant) {
        let said = match declaration(text) {
            Ok(said) => said,
            Err(NoColor::TooLong) => return self.replace(id, Standing::TooLong, &[], now),
            Err(NoColor::Malformed) => return self.replace(id, Standing::Malformed, text, now),
        };
        let ways = self.groups.entry(id).or_default();
        let before = ways.xattr.as_ref();
        let same = before.filter(|before| {
            let kept = matches!(before.standing, Standing::Fresh | Standing::Unreadable);
            kept && *before.raw == *text
        });
        let changed = same.map_or(now, |before| before.changed);
        ways.xattr = Some(Said {
            raw: text.into(),
            standing: Standing::Fresh,
            color: Some(said.color),
            reason: said.reason,
            changed,
            time_to_live: None,
        });
    }

    /// Notes that the attribute has no valid declaration.
    fn replace(&mut self, id: GroupId, standing: Standing, raw: &[u8], now: Instant) {
        let ways = self.groups.entry(id).or_default();
        let before = ways.xattr.take();
        if standing == Standing::Unreadable {
            // The previous value may still be set. Reading it again does not renew it.
            ways.xattr = before.map(|before| Said { standing, ..before });
            return;
        }
        let same = before.as_ref().filter(|b| b.standing == standing);
        ways.xattr = Some(Said {
            raw: raw.into(),
            standing,
            changed: same.map_or(now, |before| before.changed),
            color: before.and_then(|before| before.color),
            reason: String::new(),
            time_to_live: None,
        });
    }

    /// The declaration that counts for a group: the latest fresh one, or else the latest.
    fn declared(&self, id: GroupId, now: Instant) -> Option<Declared> {
        let ways = self.groups.get(&id)?;
        let said = [
            (Channel::Xattr, ways.xattr.as_ref()),
            (Channel::Socket, ways.socket.as_ref()),
        ];
        let heard = said.into_iter().filter_map(|(channel, said)| {
            let said = said?;
            Some((channel, said, said.standing_at(now, self.time_to_live)))
        });
        let (channel, said, standing) =
            heard.max_by_key(|(_, said, standing)| (*standing == Standing::Fresh, said.changed))?;
        let unchanged = now.saturating_duration_since(said.changed);
        Some(Declared {
            standing,
            color: said.color,
            channel,
            unchanged_s: (unchanged.as_secs_f64() * 10.0).round() / 10.0,
            reason: said.reason.clone(),
        })
    }
}

impl Said {
    fn standing_at(&self, now: Instant, time_to_live: Duration) -> Standing {
        let lives = self.time_to_live.unwrap_or(time_to_live);
        let age = now.saturating_duration_since(self.changed);
        match self.standing {
            Standing::Fresh if age > lives => Standing::Stale,
            standing => standing,
        }
    }
}

#[cfg(test)]
mod tests;
