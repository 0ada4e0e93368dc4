//! Step responses: how fast bandwidth follows a start, a newcomer, a changed weight and a departure, and how
//! far it overshoots.
//!
//! All containers run the fileserver load. The first one's weight changes, the second comes late, the third
//! leaves early. Times in seconds after the common start.

use serde::{Deserialize, Serialize};

use super::containers::ContainerSpec;
use super::{fileserver, At, Description, Event, Measure, Setup, Workload};
use crate::args::LoadArgs;
use crate::load::responses::Stay;
use crate::load::Load;
use crate::policy::Policy;
use crate::protocol::{Surroundings, TimedCommand, TimedWeight};
use justitia_machine::error::Result;

pub const DESCRIPTION: Description = Description {
    name: "responses",
    claim: "bandwidth follows the weights within seconds of a start, a newcomer, a new weight, a departure",
    method: "All containers run the fileserver load. All but the second start together, with equal page \
             cache (start). Then the second starts (newcomer), the first gets another weight by 'justitia \
             weight', or without an agent by its block weight (weight), and the third ends (departure).",
    expected: "Under proportional every group settles within 20 % of its ideal after each event. Under \
               conventional groups do not settle, because nothing moves bandwidth toward the weights.",
    question: "all groups settle near their ideals soon after each event",
    measure: Measure::Phases,
    weights: &[100, 400, 800, 200, 300, 500, 600, 700],
    policies: &[Policy::Conventional, Policy::Proportional],
    seconds: 240,
    memory_bytes: 768 << 20,
    disk_mb_per_s: 40,
    options: &[fileserver::OPTIONS],
    workload: |args, _| Ok(Workload::Responses(Parameters::from_args(args)?)),
};

/// Names of the first containers, by role.
const NAMES: [&str; 3] = ["reweighted", "newcomer", "leaver"];
const REWEIGHTED: usize = 0;
const NEWCOMER: usize = 1;
const LEAVER: usize = 2;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    pub fileserver: fileserver::Parameters,
    pub newcomer_at_s: u32,
    pub weight_at_s: u32,
    /// The first container's weight from then on.
    pub new_weight: u32,
    pub departure_at_s: u32,
}

impl Parameters {
    fn from_args(args: &LoadArgs) -> Result<Self> {
        Ok(Self {
            fileserver: fileserver::Parameters::from_args(args)?,
            newcomer_at_s: 60,
            weight_at_s: 120,
            new_weight: 800,
            departure_at_s: 180,
        })
    }

    fn comes_s(&self, place: usize) -> u32 {
        if place == NEWCOMER {
            self.newcomer_at_s
        } else {
            0
        }
    }

    fn leaves_s(&self, place: usize) -> Option<u32> {
        (place == LEAVER).then_some(self.departure_at_s)
    }

    fn weight(&self, place: usize, initial: u32, at_s: u32) -> u32 {
        if place == REWEIGHTED && at_s >= self.weight_at_s {
            self.new_weight
        } else {
            initial
        }
    }
}

impl Setup for Parameters {
    fn load(&self, at: &At) -> Load {
        let Load::Fileserver(load) = self.fileserver.load(at) else {
            unreachable!("the fileserver experiment runs the fileserver load");
        };
        Load::Responses(Stay {
            load,
            from_s: self.comes_s(at.place),
            until_s: self.leaves_s(at.place),
        })
    }

    fn bytes(&self, containers: u64) -> u64 {
        self.fileserver.bytes(containers)
    }

    fn table(&self) -> Vec<(&'static str, String)> {
        let mut rows = self.fileserver.table();
        rows.push(("the second comes at", format!("{} s", self.newcomer_at_s)));
        rows.push((
            "the first's weight changes",
            format!("to {} at {} s", self.new_weight, self.weight_at_s),
        ));
        rows.push(("the third leaves at", format!("{} s", self.departure_at_s)));
        rows
    }

    /// With an agent, the weight changes by the command; otherwise where the kernel reads it.
    fn surroundings(&self, containers: &[ContainerSpec], policy: Policy) -> Surroundings {
        let (at_s, weight) = (self.weight_at_s, self.new_weight);
        let group = format!("/app/{}", containers[REWEIGHTED].name);
        let mut surroundings = Surroundings::default();
        if policy.runs_agent() {
            let arguments = ["weight".to_owned(), group, weight.to_string()].into();
            surroundings.commands.push(TimedCommand { at_s, arguments });
        } else {
            surroundings.weights.push(TimedWeight {
                at_s,
                group,
                weight,
            });
        }
        surroundings
    }

    fn events(&self, containers: &[ContainerSpec]) -> Vec<Event> {
        let events = [
            ("start", 0),
            ("newcomer", self.newcomer_at_s),
            ("weight", self.weight_at_s),
            ("departure", self.departure_at_s),
        ];
        let event = |(name, at_s): (&'static str, u32)| Event {
            name,
            at_s: f64::from(at_s),
            weights: containers
                .iter()
                .enumerate()
                .map(|(place, container)| {
                    let left = self
                        .leaves_s(place)
                        .is_some_and(|leaves_s| at_s >= leaves_s);
                    let works = at_s >= self.comes_s(place) && !left;
                    works.then(|| self.weight(place, container.weight, at_s))
                })
                .collect(),
        };
        events.map(event).into()
    }

    fn settle(&self, containers: &mut [ContainerSpec], named: bool) {
        if !named {
            for (container, name) in containers.iter_mut().zip(NAMES) {
                name.clone_into(&mut container.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fixture;

    #[test]
    fn each_event_changes_one_container() {
        let settings = fixture::settings(DESCRIPTION.name);
        let events = settings.workload.events(&settings.containers);
        let seen = |i: usize| events[i].weights.clone();
        let rest = [200, 300, 500, 600, 700].map(Some);
        let with = |first: [Option<u32>; 3]| [&first[..], &rest[..]].concat();
        assert_eq!(seen(0), with([Some(100), None, Some(800)]));
        assert_eq!(seen(1), with([Some(100), Some(400), Some(800)]));
        assert_eq!(seen(2), with([Some(800), Some(400), Some(800)]));
        assert_eq!(seen(3), with([Some(800), Some(400), None]));
        let times: Vec<f64> = events.iter().map(|event| event.at_s).collect();
        assert_eq!(times, [0.0, 60.0, 120.0, 180.0]);
    }

    #[test]
    fn the_guest_makes_the_events_that_the_ideals_follow() {
        let settings = fixture::settings(DESCRIPTION.name);
        let job = settings.job(Policy::Proportional, 0);
        let stays = job
            .containers
            .iter()
            .map(|container| match &container.load {
                Load::Responses(stay) => (stay.from_s, stay.until_s),
                _ => panic!("another load"),
            });
        let stays: Vec<_> = stays.take(4).collect();
        assert_eq!(stays, [(0, None), (60, None), (0, Some(180)), (0, None)]);
        let command = &job.surroundings.commands[0];
        assert_eq!(command.arguments.join(" "), "weight /app/reweighted 800");
        assert_eq!((command.at_s, job.surroundings.weights.len()), (120, 0));
        let job = settings.job(Policy::Conventional, 0);
        assert!(job.surroundings.commands.is_empty());
        let change = &job.surroundings.weights[0];
        assert_eq!((change.at_s, change.weight), (120, 800));
    }
}
