//! Memory reserved over the socket: for which group, how much, until when. The policy frees it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use justitia_policy::snapshot::Reservation;
use justitia_policy::units::Bytes;

/// A request over the socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Path of the group; it need not exist yet.
    pub path: String,
    /// Amount to keep free; zero cancels the reservation.
    pub bytes: Bytes,
    /// Lifetime of the reservation.
    pub time: Duration,
}

/// The reservations in force.
#[derive(Debug, Default)]
pub struct Reservations {
    held: BTreeMap<String, (Bytes, Instant)>,
}

impl Reservations {
    /// Takes in a request. It replaces the previous one for the same group.
    pub fn take_in(&mut self, asked: Asked, now: Instant) {
        if asked.bytes == Bytes::ZERO {
            self.held.remove(&asked.path);
        } else {
            self.held
                .insert(asked.path, (asked.bytes, now + asked.time));
        }
    }

    /// The reservations in force, ordered by path.
    pub fn holding(&mut self, now: Instant) -> Vec<Reservation> {
        self.held.retain(|_, (_, until)| *until > now);
        let each = self.held.iter().map(|(path, &(bytes, until))| Reservation {
            path: path.clone(),
            bytes,
            left_s: (until - now).as_secs_f64(),
        });
        each.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(path: &str, mib: u64, seconds: u64) -> Asked {
        Asked {
            path: path.into(),
            bytes: Bytes::mib(mib),
            time: Duration::from_secs(seconds),
        }
    }

    #[test]
    fn a_reservation_expires_is_replaced_and_taken_back() {
        let (mut held, now) = (Reservations::default(), Instant::now());
        held.take_in(asked("/a", 10, 5), now);
        held.take_in(asked("/b", 10, 60), now);
        held.take_in(asked("/b", 30, 60), now);
        let paths = |held: Vec<Reservation>| -> Vec<(String, Bytes)> {
            held.into_iter().map(|r| (r.path, r.bytes)).collect()
        };
        let both = [("/a".into(), Bytes::mib(10)), ("/b".into(), Bytes::mib(30))];
        assert_eq!(paths(held.holding(now)), both);
        let later = now + Duration::from_secs(6);
        assert_eq!(paths(held.holding(later)), [both[1].clone()]);
        held.take_in(asked("/b", 0, 60), later);
        assert!(held.holding(later).is_empty());
    }
}
