//! Memory reserved over the socket: for which group, how much, until when. The policy frees it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use justitia_policy::snapshot::Reservation;
use justitia_policy::units::Bytes;

/// The reservations in force.
#[derive(Debug, Default)]
pub struct Reservations {
    held: BTreeMap<String, (Bytes, Instant)>,
}

impl Reservations {
    /// Takes in a request. It replaces the previous one for the same group; zero bytes cancel that one.
    pub fn take_in(&mut self, asked: Reservation, now: Instant) {
        if asked.bytes == Bytes::ZERO {
            self.held.remove(&asked.path);
        } else {
            let time = Duration::try_from_secs_f64(asked.left_s).unwrap_or_default();
            self.held.insert(asked.path, (asked.bytes, now + time));
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

/// A request, in words for the log.
pub(crate) fn words(asked: &Reservation) -> String {
    let Reservation {
        path,
        bytes,
        left_s,
    } = asked;
    if *bytes == Bytes::ZERO {
        format!("the reservation for {path} is canceled")
    } else {
        format!("{bytes} reserved for {path} for {left_s} s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(path: &str, mib: u64, left_s: f64) -> Reservation {
        Reservation {
            path: path.into(),
            bytes: Bytes::mib(mib),
            left_s,
        }
    }

    #[test]
    fn a_reservation_expires_is_replaced_and_taken_back() {
        let (mut held, now) = (Reservations::default(), Instant::now());
        held.take_in(asked("/a", 10, 5.0), now);
        held.take_in(asked("/b", 10, 60.0), now);
        held.take_in(asked("/b", 30, 60.0), now);
        let paths = |held: Vec<Reservation>| -> Vec<(String, Bytes)> {
            held.into_iter().map(|r| (r.path, r.bytes)).collect()
        };
        let both = [("/a".into(), Bytes::mib(10)), ("/b".into(), Bytes::mib(30))];
        assert_eq!(paths(held.holding(now)), both);
        let later = now + Duration::from_secs(6);
        assert_eq!(paths(held.holding(later)), [both[1].clone()]);
        held.take_in(asked("/b", 0, 60.0), later);
        assert!(held.holding(later).is_empty());
    }

    #[test]
    fn a_canceled_reservation_is_not_called_one_of_no_bytes() {
        let said = words(&asked("/a", 0, 60.0));
        assert_eq!(said, "the reservation for /a is canceled");
        let said = words(&asked("/a", 10, 1.5));
        assert_eq!(said, "10.0 MiB reserved for /a for 1.5 s");
    }
}
