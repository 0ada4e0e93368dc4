//! The color of a container, judged by what its clients see.
//!
//! The rule is that of the paper's probe (section IV.A): GREEN when nothing waits, YELLOW when something
//! waits and the objective is met, RED when it is missed. A container whose offered load is below its
//! objective only has to serve that load.
//!
//! Satisfied time is counted with this color, second by second and under every policy. The agent does not see
//! it. It sees what the container's probe declares ([`super::probe`]), which observes only the server and
//! waits some seconds before it changes its mind.

use crate::protocol::databases::Color;

/// Fraction of the objective that counts as met: arrivals are random, and a second is short.
const TOLERANCE: f64 = 0.95;

/// The color of a container with this objective and this offered load, whose clients measured `tps` over the last
/// whole second, while `queue` transactions wait for a client thread. The queue is sampled at one instant
/// and arrivals come in bursts, so up to one waiting transaction per thread counts as none.
pub fn judge(objective_tps: u32, offered_tps: u32, threads: u32, tps: f64, queue: u64) -> Color {
    if queue <= u64::from(threads) {
        return Color::Green;
    }
    let asked = f64::from(objective_tps.min(offered_tps));
    if tps >= asked * TOLERANCE {
        Color::Yellow
    } else {
        Color::Red
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(objective: u32, offered: u32, tps: f64, queue: u64) -> Color {
        judge(objective, offered, 4, tps, queue)
    }

    #[test]
    fn a_container_for_which_nobody_waits_is_green_at_any_load() {
        assert_eq!(of(1000, 2000, 2000.0, 0), Color::Green);
        assert_eq!(of(1000, 20, 14.0, 0), Color::Green);
        assert_eq!(of(1000, 2000, 900.0, 4), Color::Green);
    }

    #[test]
    fn waiting_work_is_yellow_at_the_objective_and_red_below_it() {
        assert_eq!(of(1000, 2000, 960.0, 7), Color::Yellow);
        assert_eq!(of(1000, 2000, 940.0, 7), Color::Red);
    }

    #[test]
    fn nobody_has_to_serve_more_than_is_offered() {
        assert_eq!(of(1000, 200, 195.0, 5), Color::Yellow);
        assert_eq!(of(1000, 200, 100.0, 5), Color::Red);
    }
}
