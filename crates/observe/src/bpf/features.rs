//! Features of this kernel that BPF programs need, and the cost of their absence.
//!
//! The facts come from loading and attaching programs that do nothing, and from the kernel's BTF, never from
//! version comparisons. A fact that cannot be found out is [`Answer::Unknown`].

use std::collections::HashSet;
use std::ffi::OsStr;

use justitia_cgroup::{has_btf, module_has};
use libbpf_rs::btf::types::{Func, Typedef};
use libbpf_rs::{Btf, MapHandle, MapType, Object};

use super::points::{Kind, Point, POINTS};

/// The kernel's answer to the probe of one feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It was seen to work, or to be there.
    Yes,
    /// It is certainly not there.
    No,
    /// Could not be found out here.
    Unknown,
}

/// A kernel feature that the observer uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Feature {
    /// Its name: `btf`, `bpf`, `tracing`, `fentry`, or that of a function or tracepoint.
    pub name: &'static str,
    pub answer: Answer,
    /// The cost of its absence, in one line.
    pub needed_for: &'static str,
}

/// The answers of one probe.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Every feature, general ones first.
    pub features: Vec<Feature>,
}

impl Coverage {
    /// The answer for a feature; unknown if it was not probed.
    pub fn answer(&self, name: &str) -> Answer {
        let feature = self.features.iter().find(|feature| feature.name == name);
        feature.map_or(Answer::Unknown, |feature| feature.answer)
    }

    /// Notes that the kernel refused this program, so the place that it attaches to counts as absent. False if that
    /// is known already, or if no such program exists.
    pub(crate) fn lose(&mut self, program: &str) -> bool {
        let mut points = POINTS.iter();
        let Some(point) = points.find(|point| point.programs.contains(&program)) else {
            return false;
        };
        let mut features = self.features.iter_mut();
        let there =
            |feature: &&mut Feature| feature.name == point.target && feature.answer == Answer::Yes;
        features
            .find(there)
            .map(|feature| feature.answer = Answer::No)
            .is_some()
    }

    /// One line for each loss; none if nothing is missing. A missing feature with a working alternative is no
    /// loss. If a general feature is missing, only that one is listed.
    pub fn summary(&self) -> Vec<String> {
        let there = |cost: &str| {
            let mut others = self.features.iter();
            others.any(|other| other.needed_for == cost && other.answer == Answer::Yes)
        };
        let general = |feature: &&Feature| GENERAL.iter().any(|(name, _)| *name == feature.name);
        let missing: Vec<&Feature> = self
            .features
            .iter()
            .filter(|feature| feature.answer != Answer::Yes)
            .collect();
        if let Some(first) = missing.iter().find(|feature| general(feature)) {
            return vec![line(first)];
        }
        let mut lines: Vec<String> = Vec::new();
        let mut costs: Vec<&str> = Vec::new();
        for feature in missing {
            let alternative = ALTERNATIVES
                .iter()
                .any(|names| names.contains(&feature.name) && there(feature.needed_for));
            if !alternative && !costs.contains(&feature.needed_for) {
                costs.push(feature.needed_for);
                lines.push(line(feature));
            }
        }
        lines
    }
}

fn line(feature: &Feature) -> String {
    let what = match feature.answer {
        Answer::Unknown => "cannot tell whether there is",
        _ => "no",
    };
    format!("{what} {}: {}", feature.name, feature.needed_for)
}

/// The features that all others rest on, in this order, and what the absence of each costs.
const GENERAL: [(&str, &str); 4] = [
    (
        "btf",
        "BPF programs need the kernel's type information",
    ),
    (
        "bpf",
        "bpf(2) is not permitted (it needs CAP_BPF and CAP_PERFMON, and no lockdown)",
    ),
    ("tracing", "BPF programs cannot attach to tracepoints"),
    (
        "fentry",
        "bytes come from /proc; hits, misses, faults and memory.high sleep are not counted, and the \
         worth of page cache is not known",
    ),
];

/// Pairs of places of which one is enough.
const ALTERNATIVES: [[&str; 2]; 3] = [
    [
        "__mem_cgroup_handle_over_high",
        "mem_cgroup_handle_over_high",
    ],
    ["read_pages", "mm_filemap_add_to_page_cache"],
    [
        "__filemap_remove_folio",
        "mm_filemap_delete_from_page_cache",
    ],
];

/// Probes the kernel. Never fails: a failure is an answer.
pub fn probe() -> Coverage {
    justitia_bpf::forget_said();
    let yes = |found: bool| if found { Answer::Yes } else { Answer::No };
    let names = has_btf(None).then(Names::read).flatten();
    let permitted = may_use_bpf();
    let modules = may_search_modules();
    // Without BTF or permission an attempt would say nothing about the kernel.
    let [tracing, fentry] = if names.is_some() && permitted {
        let attached = attached();
        ["probe_tracepoint", "probe_function"].map(|name| yes(attached.contains(&name)))
    } else {
        [Answer::Unknown; 2]
    };
    let general = [yes(names.is_some()), yes(permitted), tracing, fentry];
    let general = GENERAL.iter().zip(general);
    let mut features: Vec<Feature> = general
        .map(|(&(name, needed_for), answer)| Feature {
            name,
            answer,
            needed_for,
        })
        .collect();
    features.extend(POINTS.iter().map(|point| {
        Feature {
            name: point.target,
            answer: names
                .as_ref()
                .map_or(Answer::Unknown, |names| yes(names.have(point, modules))),
            needed_for: point.cost,
        }
    }));
    justitia_bpf::forget_said();
    Coverage { features }
}

/// True if a map can be created: the smallest operation of bpf(2).
fn may_use_bpf() -> bool {
    let opts = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        ..libbpf_sys::bpf_map_create_opts::default()
    };
    MapHandle::create(MapType::Array, Some("probe"), 4, 8, 1, &opts).is_ok()
}

/// True if libbpf finds functions of modules. It walks the BTF of all modules by number, which takes `CAP_SYS_ADMIN`
/// (`kernel/bpf/syscall.c`, `bpf_obj_get_next_id`), and without it finds none.
fn may_search_modules() -> bool {
    let mut next = 0;
    // SAFETY: the kernel writes one number.
    let failed = unsafe { libbpf_sys::bpf_btf_get_next_id(0, &raw mut next) };
    failed == 0
}

/// The programs of `probe.bpf.c` that can be loaded and attached. Tries both at once first, because each load
/// searches the kernel's whole BTF.
fn attached() -> Vec<&'static str> {
    let both = ["probe_tracepoint", "probe_function"];
    let loaded = load_probe(&both).or_else(|| load_probe(&both[..1]));
    let Some(object) = loaded else {
        return Vec::new();
    };
    both.into_iter()
        .filter(|name| {
            let mut programs = object.progs_mut();
            let program = programs.find(|program| program.name() == *name);
            program.is_some_and(|program| program.attach().is_ok())
        })
        .collect()
}

fn load_probe(programs: &[&str]) -> Option<Object> {
    let wanted = |name: &str| programs.contains(&name);
    justitia_bpf::load("probe", justitia_bpf::object!("probe"), &wanted, &[]).ok()
}

/// The name in BTF of a function, an iterator's function or a tracepoint's type.
fn name_of(point: &Point) -> String {
    let target = point.target;
    match point.kind {
        Kind::Iterator => format!("bpf_iter_{target}"),
        Kind::Tracepoint => format!("btf_trace_{target}"),
        Kind::Function(_) => target.to_owned(),
    }
}

/// The names wanted by `POINTS` that the kernel has.
struct Names {
    functions: HashSet<String>,
    types: HashSet<String>,
}

impl Names {
    /// Reads the names from the kernel's BTF, and frees the BTF, which is large. Looks by kind, because the
    /// first type with a name need not be the function.
    fn read() -> Option<Names> {
        let btf = Btf::from_vmlinux().ok()?;
        let wanted: HashSet<String> = POINTS.iter().map(name_of).collect();
        let known = |name: Option<&OsStr>| {
            let name = name?.to_str()?;
            wanted.contains(name).then(|| name.to_owned())
        };
        Some(Names {
            functions: btf
                .type_by_kind::<Func<'_>>()
                .filter_map(|function| known(function.name()))
                .collect(),
            types: btf
                .type_by_kind::<Typedef<'_>>()
                .filter_map(|typedef| known(typedef.name()))
                .collect(),
        })
    }

    /// `modules`: functions of modules can be found.
    fn have(&self, point: &Point, modules: bool) -> bool {
        let in_module = |name| modules && has_btf(Some(name)) && module_has(name, point.target);
        let name = name_of(point);
        match point.kind {
            Kind::Tracepoint => self.types.contains(&name),
            Kind::Iterator => self.functions.contains(&name),
            Kind::Function(module) => {
                self.functions.contains(&name) || module.is_some_and(in_module)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coverage(missing: &[(&str, Answer)]) -> Coverage {
        let points = POINTS.iter().map(|point| (point.target, point.cost));
        let features = GENERAL.into_iter().chain(points);
        Coverage {
            features: features
                .map(|(name, needed_for)| Feature {
                    name,
                    answer: missing
                        .iter()
                        .find(|(other, _)| *other == name)
                        .map_or(Answer::Yes, |(_, answer)| *answer),
                    needed_for,
                })
                .collect(),
        }
    }

    #[test]
    fn a_kernel_with_every_feature_has_no_loss_to_report() {
        assert!(coverage(&[]).summary().is_empty());
    }

    #[test]
    fn either_name_of_a_function_is_enough() {
        let old = ("__mem_cgroup_handle_over_high", Answer::No);
        let new = ("mem_cgroup_handle_over_high", Answer::No);
        assert!(coverage(&[old]).summary().is_empty());
        assert!(coverage(&[new]).summary().is_empty());
        assert_eq!(coverage(&[old, new]).summary().len(), 1);
    }

    #[test]
    fn each_loss_is_one_line_with_its_cost() {
        let lines = coverage(&[
            ("filemap_splice_read", Answer::No),
            ("mm_vmscan_direct_reclaim_begin", Answer::No),
            ("mm_vmscan_direct_reclaim_end", Answer::No),
        ])
        .summary();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].starts_with("no filemap_splice_read: bytes read by sendfile"));
    }

    #[test]
    fn a_general_loss_hides_what_follows_from_it() {
        let lines = coverage(&[("fentry", Answer::No), ("filemap_read", Answer::No)]).summary();
        assert_eq!(lines.len(), 1);
        assert!(lines[0].starts_with("no fentry: bytes come from /proc"));
        let lines = coverage(&[("bpf", Answer::No), ("fentry", Answer::Unknown)]).summary();
        assert!(lines[0].starts_with("no bpf"), "{lines:?}");
    }

    #[test]
    fn a_feature_that_nobody_asked_for_is_unknown() {
        assert_eq!(Coverage::default().answer("btf"), Answer::Unknown);
    }
}
