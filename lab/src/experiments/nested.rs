//! Nested: containers at different depths in groups of unequal sums, one of which has its own weight.
//!
//! A disk's scheduler compares siblings only, so inner groups need weights, which code for a flat hierarchy
//! does not write.

use serde::{Deserialize, Serialize};

use super::containers::ContainerSpec;
use super::{fileserver, readmix, At, Description, Measure, Setup, Workload};
use crate::args::LoadArgs;
use crate::load::Load;
use crate::policy::Policy;
use justitia_machine::error::Result;

const METHOD: &str = "One tenant has one container, another has five, the containers of a third \
    lie in nested groups, four levels deep. None of these groups has a weight. A fourth tenant has a weight, and \
    its two containers state a quarter of what that weight gives them. The agent finds the containers itself.";
const EXPECTED: &str =
    "Every container gets its share by weight, whatever tree it lies in. The conventional \
    kernel serves groups without a weight alike, whatever is inside.";
const POLICIES: &[Policy] = &[Policy::Conventional, Policy::Proportional];

pub const WRITERS: Description = Description {
    name: "nested",
    claim: "buffered writers get their shares by weight in any tree of groups",
    method: METHOD,
    expected: EXPECTED,
    question: "writers get their shares whatever groups they lie in",
    measure: Measure::Window,
    weights: &WEIGHTS,
    policies: POLICIES,
    seconds: 120,
    memory_bytes: 768 << 20,
    disk_mb_per_s: 40,
    options: fileserver::DESCRIPTION.options,
    workload: |args, _| Ok(Workload::Nested(Parameters::writers(args)?)),
};

/// Readers of uncached data.
pub const READERS: Description = Description {
    name: "nested-readers",
    claim: "readers of what is not cached get their shares by weight in any tree of groups",
    question: "readers get their shares whatever groups they lie in",
    memory_bytes: 384 << 20,
    options: readmix::DESCRIPTION.options,
    workload: |args, _| Ok(Workload::Nested(Parameters::readers(args)?)),
    ..WRITERS
};

const NAMES: &str = "one/a five/a five/b five/c five/d five/e deep/a deep/x/y/b vip/a vip/b";
const WEIGHTS: [u32; 10] = [400, 100, 100, 200, 200, 200, 100, 300, 400, 200];
/// The group with its own weight.
const WEIGHED: &str = "vip";
/// Factor by which the containers in [`WEIGHED`] understate their weights.
const UNDERSTATED: u32 = 4;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Parameters {
    /// See [`fileserver`].
    Writers(fileserver::Parameters),
    /// See [`readmix`]: random reads without skew, no writes.
    Readers(readmix::Parameters),
}

impl Parameters {
    fn writers(args: &LoadArgs) -> Result<Self> {
        let mut args = args.clone();
        args.threads.get_or_insert(2);
        fileserver::Parameters::from_args(&args).map(Self::Writers)
    }

    fn readers(args: &LoadArgs) -> Result<Self> {
        let readers = readmix::Parameters::from_args(args)?;
        Ok(Self::Readers(readmix::Parameters {
            file_bytes: args.file_size.unwrap_or(128 << 20),
            write_percent: args.write_percent.unwrap_or(0),
            zipf_theta: args.zipf.unwrap_or(0.0),
            ..readers
        }))
    }

    fn inner(&self) -> &dyn Setup {
        match self {
            Self::Writers(parameters) => parameters,
            Self::Readers(parameters) => parameters,
        }
    }
}

impl Setup for Parameters {
    fn load(&self, at: &At) -> Load {
        self.inner().load(at)
    }

    fn bytes(&self, containers: u64) -> u64 {
        self.inner().bytes(containers)
    }

    fn table(&self) -> Vec<(&'static str, String)> {
        self.inner().table()
    }

    fn has_direct(&self) -> bool {
        self.inner().has_direct()
    }

    fn stated(&self, container: &ContainerSpec) -> u32 {
        let weighed = is_weighed(container);
        (container.weight / if weighed { UNDERSTATED } else { 1 }).max(1)
    }

    /// The sum of the entitled weights in the weighed group.
    fn group_weights(&self, containers: &[ContainerSpec]) -> Option<Vec<(String, u32)>> {
        let inside = containers.iter().filter(|c| is_weighed(c));
        let weight: u32 = inside.map(|container| container.weight).sum();
        let weighed = (weight > 0).then(|| (WEIGHED.to_owned(), weight));
        Some(weighed.into_iter().collect())
    }

    /// Moves the containers into their groups, unless the command line names them.
    fn settle(&self, containers: &mut [ContainerSpec], named: bool) {
        if !named {
            for (container, name) in containers.iter_mut().zip(NAMES.split(' ')) {
                name.clone_into(&mut container.name);
            }
        }
    }
}

fn is_weighed(container: &ContainerSpec) -> bool {
    container.name.split('/').next() == Some(WEIGHED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fixture;

    #[test]
    fn containers_of_the_weighed_group_state_a_quarter_of_what_its_weight_makes_them_worth() {
        for experiment in [WRITERS.name, READERS.name] {
            let settings = fixture::settings(experiment);
            let job = settings.job(Policy::Proportional, 0);
            assert_eq!(job.group_weights, Some(vec![("vip".to_owned(), 600)]));
            let stated = job.containers.iter().map(|c| c.weight);
            let stated: Vec<u32> = stated.collect();
            assert_eq!(stated, [400, 100, 100, 200, 200, 200, 100, 300, 100, 50]);
            assert_eq!(job.containers[7].name, "deep/x/y/b");
        }
    }
}
