//! The policies that experiments compare: one row for each.

use serde::{Deserialize, Serialize};

use justitia_machine::error::{LabError, Result};

/// The policy in force while a load is measured. Reports list them in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    Conventional,
    Memcg,
    Max,
    Soft,
    Direct,
    Justitia,
    Memoplight,
    Proportional,
    FirstTouch,
    Strict,
    Observe,
    Guarded,
    Hostile,
    GateFifo,
    GateAging,
    GateInsert,
    GateStride,
    GateLoop,
}

struct Row {
    policy: Policy,
    /// Name on the command line and in result.json.
    name: &'static str,
    meaning: &'static str,
    /// Mode of the agent; `None`: no agent runs.
    mode: Option<&'static str>,
    /// The agent's configuration file; empty for none.
    config: &'static str,
}

const fn row(policy: Policy, name: &'static str, meaning: &'static str) -> Row {
    Row {
        policy,
        name,
        meaning,
        mode: None,
        config: "",
    }
}

const fn agent(
    policy: Policy,
    name: &'static str,
    meaning: &'static str,
    mode: &'static str,
    config: &'static str,
) -> Row {
    Row {
        mode: Some(mode),
        config,
        ..row(policy, name, meaning)
    }
}

const FIFO: &str = "[gate]\nenabled = true\norder = \"fifo\"\n";
const AGING: &str = "[gate]\nenabled = true\norder = \"aging\"\n";
const STRIDE: &str = "[gate]\nenabled = true\norder = \"stride\"\n";

#[rustfmt::skip]
const ROWS: [Row; 18] = [
    row(Policy::Conventional, "conventional", "weights set on the containers, nothing else"),
    row(Policy::Memcg, "memcg", "static memory.max in the ratio of the weights"),
    row(Policy::Max, "max", "static memory.max in the ratio of the paper's limits"),
    row(Policy::Soft, "soft", "static memory.low in the ratio of the paper's limits"),
    row(Policy::Direct, "direct", "the load bypasses the page cache (O_DIRECT)"),
    agent(Policy::Justitia, "justitia",
        "agent: page-cache thresholds by weight, no feedback", "justitia", ""),
    agent(Policy::Memoplight, "memoplight",
        "agent: green groups are reclaimed, with the memory.low of soft", "memoplight", ""),
    agent(Policy::Proportional, "proportional",
        "agent: thresholds, allocation and feedback, objective fair", "proportional", ""),
    agent(Policy::FirstTouch, "first-touch",
        "agent: the same without eBPF, so that a shared page belongs to the group that touched it first",
        "proportional", ""),
    agent(Policy::Strict, "strict",
        "agent: the same with objective strict, PV at any cost",
        "proportional", "objective = \"strict\"\n"),
    agent(Policy::Observe, "observe", "agent that measures and writes nothing", "observe", ""),
    agent(Policy::Guarded, "guarded",
        "agent: proportional with the guard, and what an operator asks of it",
        "proportional", "[guard]\nenabled = true\n"),
    agent(Policy::Hostile, "hostile",
        "agent: proportional, and the tenant attacks it", "proportional", ""),
    agent(Policy::GateFifo, "gate-fifo",
        "agent: thresholds, and the kernel module's gate without order", "justitia", FIFO),
    agent(Policy::GateAging, "gate-aging",
        "agent: thresholds and the gate in the paper's order, aging", "justitia", AGING),
    agent(Policy::GateInsert, "gate-insert",
        "agent: the same where the paper has it, one insertion into the page cache at a time",
        "justitia", AGING),
    agent(Policy::GateStride, "gate-stride",
        "agent: thresholds and the gate with exact shares, stride", "justitia", STRIDE),
    agent(Policy::GateLoop, "gate-loop",
        "agent: proportional with the gate, order stride", "proportional", STRIDE),
];

impl Policy {
    /// In the order of the reports.
    pub fn all() -> impl Iterator<Item = Self> {
        ROWS.iter().map(|row| row.policy)
    }

    fn row(self) -> &'static Row {
        &ROWS[self as usize]
    }

    pub fn name(self) -> &'static str {
        self.row().name
    }

    pub fn meaning(self) -> &'static str {
        self.row().meaning
    }

    pub fn agent_mode(self) -> Option<&'static str> {
        self.row().mode
    }

    pub fn agent_config(self) -> &'static str {
        self.row().config
    }

    pub fn runs_agent(self) -> bool {
        self.agent_mode().is_some()
    }

    pub fn has_gate(self) -> bool {
        self.agent_config().starts_with("[gate]")
    }
}

/// The policies that a command line names, or `default`. `possible`: those of the experiment. The error names
/// the nearest policy that the experiment has.
pub fn chosen(
    experiment: &str,
    names: &[String],
    possible: &[Policy],
    default: &[Policy],
) -> Result<Vec<Policy>> {
    if names.is_empty() {
        return Ok(default.to_vec());
    }
    let mut policies = Vec::new();
    for name in names {
        let cause = || format!("{experiment} has no policy '{name}'");
        let &policy = by_name(possible, |policy| policy.name(), name, cause)?;
        if policies.contains(&policy) {
            return Err(LabError::usage(
                format!("policy '{name}' is named twice"),
                "name it once",
            ));
        }
        policies.push(policy);
    }
    Ok(policies)
}

/// The item that has this name. The error is `cause`, with the nearest name that an item has.
pub fn by_name<T>(
    items: impl IntoIterator<Item = T>,
    name_of: impl Fn(&T) -> &str,
    name: &str,
    cause: impl FnOnce() -> String,
) -> Result<T> {
    let mut items: Vec<T> = items.into_iter().collect();
    if let Some(place) = items.iter().position(|item| name_of(item) == name) {
        return Ok(items.swap_remove(place));
    }
    let names: Vec<&str> = items.iter().map(name_of).collect();
    Err(LabError::usage(cause(), did_you_mean(name, &names)))
}

/// "did you mean 'x'?" if a valid name is near, otherwise the whole list.
fn did_you_mean(wrong: &str, valid: &[&str]) -> String {
    let list = format!("use one of: {}", valid.join(", "));
    valid
        .iter()
        .map(|name| (strsim::jaro_winkler(wrong, name), name))
        .filter(|(likeness, _)| *likeness > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map_or(list.clone(), |(_, name)| {
            format!("did you mean '{name}'? {list}")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_policy_has_its_own_row_and_the_name_of_the_protocol() {
        for policy in Policy::all() {
            assert_eq!(policy.row().policy, policy);
            let json = serde_json::to_string(&policy).unwrap();
            assert_eq!(json, format!("\"{}\"", policy.name()));
        }
    }

    #[test]
    fn a_wrong_name_is_answered_with_the_nearest_valid_one() {
        let possible = [Policy::Conventional, Policy::Memcg];
        let remedy = |name: &str| {
            let refusal = chosen("x", &[name.to_owned()], &possible, &possible).unwrap_err();
            refusal.remedy().to_owned()
        };
        assert!(remedy("conventinal").contains("'conventional'"));
        assert!(remedy("xyzzy").starts_with("use one of"));
    }
}
