//! The registry of all experiments of `justitia lab run`.

use serde_json::{json, Value};

use crate::args::RunArgs;
use crate::experiment::{Experiment, Plan};
use crate::experiments::databases::scenario;
use crate::policy::by_name;
use justitia_machine::error::{LabError, Result};

/// In the order of the list.
pub fn all() -> impl Iterator<Item = &'static dyn Experiment> {
    let weighted = crate::experiments::ALL.into_iter();
    let databases = scenario::ALL.into_iter();
    let weighted = weighted.map(|one| one as &dyn Experiment);
    weighted.chain(databases.map(|one| one as &dyn Experiment))
}

/// The plan of a command line.
pub fn plan(args: &RunArgs, command: String) -> Result<Box<dyn Plan>> {
    let experiment = find(&args.experiment)?;
    options_fit(args, experiment)?;
    experiment.plan(args, command)
}

/// Rejects options that the experiment would silently ignore.
fn options_fit(args: &RunArgs, experiment: &dyn Experiment) -> Result<()> {
    let groups = [
        Ok(json!({
            "weights": args.weights,
            "containers": args.containers,
            "names": args.names,
            "mount-options": args.guest.mount_options,
        })),
        serde_json::to_value(&args.load),
        serde_json::to_value(&args.agent),
    ];
    let unset = [json!(null), json!([]), json!(""), json!(false)];
    let given = groups.iter().flatten().filter_map(Value::as_object);
    let named = given.flatten().filter(|(_, value)| !unset.contains(value));
    let mut ignored = named.filter(|(option, _)| {
        let option = option.as_str();
        !["agent-arg", "agent-config"].contains(&option) && !experiment.options().contains(&option)
    });
    let Some((option, _)) = ignored.next() else {
        return Ok(());
    };
    let has = |experiment: &&dyn Experiment| experiment.options().contains(&option.as_str());
    let names: Vec<&str> = all().filter(has).map(Experiment::name).collect();
    Err(LabError::usage(
        format!("{} has no option --{option}", experiment.name()),
        format!("leave it out; it belongs to {}", names.join(" and ")),
    ))
}

/// Finds an experiment. The error names the nearest existing experiment.
pub fn find(name: &str) -> Result<&'static dyn Experiment> {
    let cause = || format!("unknown experiment '{name}'");
    by_name(all(), |experiment| experiment.name(), name, cause)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Job;

    #[test]
    fn a_guest_reads_every_job_as_it_was_written() {
        for experiment in all() {
            let args = crate::tests::fixture::run_args(experiment.name());
            let boots = plan(&args, String::new()).unwrap().boots();
            assert_eq!(boots.len(), experiment.policies().len());
            for boot in boots {
                let text = serde_json::to_vec(&boot.job).unwrap();
                assert_eq!(serde_json::from_slice::<Job>(&text).unwrap(), boot.job);
            }
        }
    }
}
