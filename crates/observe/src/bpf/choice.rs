//! Chooses the programs to run from what the kernel offers. Pure.

use super::features::{Answer, Coverage};
use super::points::{Kind, Point, POINTS};
use super::Error;

/// The part of the traffic that is counted in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// Everything, at the entry and exit of functions.
    Fentry,
    /// Only what has tracepoints; bytes come from `/proc`.
    Tracepoints,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) tier: Tier,
    pub(crate) programs: Vec<&'static str>,
}

/// Decides from what the probe found.
pub(crate) fn choose(coverage: &Coverage) -> Result<Choice, Error> {
    for (name, what) in [
        ("btf", "this kernel has no BTF (/sys/kernel/btf/vmlinux)"),
        ("bpf", "this process may not use bpf(2)"),
        ("tracing", "this kernel runs no BPF tracing programs"),
    ] {
        if coverage.answer(name) != Answer::Yes {
            return Err(Error::Missing(what.to_owned()));
        }
    }
    let there = |point: &&Point| coverage.answer(point.target) == Answer::Yes;
    let fentry = coverage.answer("fentry") == Answer::Yes
        && POINTS.iter().all(|point| !point.required || there(&point));
    let tier = if fentry {
        Tier::Fentry
    } else {
        Tier::Tracepoints
    };
    let points: Vec<&Point> = POINTS
        .iter()
        .filter(|point| tier == Tier::Fentry || !matches!(point.kind, Kind::Function(_)))
        .filter(there)
        .filter(|point| {
            let cheaper = |name| tier == Tier::Fentry && coverage.answer(name) == Answer::Yes;
            !point.cheaper.is_some_and(cheaper)
        })
        .collect();
    if !points.iter().any(|point| point.kind == Kind::Tracepoint) {
        return Err(Error::Missing(
            "this kernel has none of the tracepoints that the observer uses".to_owned(),
        ));
    }
    let programs = points.iter().flat_map(|point| point.programs);
    Ok(Choice {
        tier,
        programs: programs.copied().collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::features::Feature;
    use super::*;

    /// A kernel that has everything except these.
    fn all_but(missing: &[&str]) -> Coverage {
        let general = ["btf", "bpf", "tracing", "fentry"];
        let names = general.into_iter().chain(POINTS.iter().map(|p| p.target));
        Coverage {
            features: names
                .map(|name| Feature {
                    name,
                    answer: if missing.contains(&name) {
                        Answer::No
                    } else {
                        Answer::Yes
                    },
                    needed_for: "",
                })
                .collect(),
        }
    }

    #[test]
    fn a_full_kernel_gets_every_program() {
        let choice = choose(&all_but(&[])).unwrap();
        assert_eq!(choice.tier, Tier::Fentry);
        let used = POINTS.iter().filter(|point| point.cheaper.is_none());
        let all: usize = used.map(|point| point.programs.len()).sum();
        assert_eq!(choice.programs.len(), all);
        let choice = choose(&all_but(&["read_pages"])).unwrap();
        assert!(choice.programs.contains(&"page_added"));
    }

    #[test]
    fn without_fentry_only_tracepoints_are_used() {
        let choice = choose(&all_but(&["fentry"])).unwrap();
        assert_eq!(choice.tier, Tier::Tracepoints);
        assert!(choice.programs.contains(&"page_added"));
        assert!(choice.programs.contains(&"page_removed"));
        assert!(!choice.programs.contains(&"filemap_read"));
    }

    #[test]
    fn a_function_that_the_first_tier_needs_decides_the_tier() {
        let choice = choose(&all_but(&["page_cache_sync_ra"])).unwrap();
        assert_eq!(choice.tier, Tier::Tracepoints);
        let choice = choose(&all_but(&["filemap_splice_read"])).unwrap();
        assert_eq!(choice.tier, Tier::Fentry);
        assert!(!choice.programs.contains(&"filemap_splice_read"));
    }

    #[test]
    fn a_missing_feature_that_every_tier_needs_is_an_error() {
        for name in ["btf", "bpf", "tracing"] {
            assert!(choose(&all_but(&[name])).is_err(), "{name}");
        }
    }
}
