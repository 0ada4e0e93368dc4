//! Checks the invariants of `ARCHITECTURE.md` from the source tree.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("the workspace")
}

/// Every file below `dir` with this suffix, with its text.
fn files(dir: &str, ending: &str) -> Vec<(String, String)> {
    let root = root();
    let mut found = Vec::new();
    let mut todo = vec![root.join(dir)];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display())) {
            let path = entry.expect("an entry").path();
            let name = path
                .strip_prefix(&root)
                .expect("below the root")
                .display()
                .to_string();
            if path.is_dir() {
                if !["target", "out", "corpus"]
                    .iter()
                    .any(|skip| name.ends_with(skip))
                {
                    todo.push(path);
                }
            } else if name.ends_with(ending) {
                found.push((name, fs::read_to_string(&path).expect("a text file")));
            }
        }
    }
    assert!(
        !found.is_empty(),
        "no {ending} below {dir}: has the layout changed?"
    );
    found
}

/// The part of a source file before its inline tests.
fn code(text: &str) -> &str {
    let begins = ["mod tests {", "pub(crate) mod tests {"]
        .iter()
        .filter_map(|begin| text.find(&format!("#[cfg(test)]\n{begin}")))
        .min();
    begins.map_or(text, |at| &text[..at])
}

fn offenders(files: &[(String, String)], words: &[&str], allowed: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for (name, text) in files
        .iter()
        .filter(|(name, _)| !allowed.iter().any(|a| name.contains(a)))
    {
        for (number, line) in code(text).lines().enumerate() {
            let line = line.split("//").next().unwrap_or(line);
            for word in words.iter().filter(|word| line.contains(*word)) {
                found.push(format!("{name}:{}: {word}", number + 1));
            }
        }
    }
    found
}

fn dependencies(manifest: &str) -> Vec<String> {
    let path = root().join(manifest);
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let table: toml::Table = text.parse().expect("a manifest");
    table["dependencies"]
        .as_table()
        .expect("dependencies")
        .keys()
        .cloned()
        .collect()
}

/// The words of a text.
fn words_of(text: &'static str) -> Vec<&'static str> {
    text.split(' ').collect()
}

#[test]
fn policy_never_does_io_reads_a_clock_or_logs() {
    let words = words_of(
        "std::fs std::io std::net std::env std::process std::thread Instant SystemTime \
        println! eprintln! rustix libc",
    );
    // The policy of disk images lives in crates/vm and is just as pure.
    for place in ["crates/policy/src", "crates/vm/src/policy"] {
        let found = offenders(&files(place, ".rs"), &words, &[]);
        assert!(found.is_empty(), "{found:#?}");
    }
    assert_eq!(
        dependencies("crates/policy/Cargo.toml"),
        ["serde", "thiserror"]
    );
}

/// A module path below another.
fn join(module: &str, path: &str) -> String {
    let parts = [module, path].map(str::to_owned);
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join("::")
}

/// The paths that a `use` statement imports, each with the name that it gets.
fn imported(tree: &str) -> Vec<(String, String)> {
    let Some((before, rest)) = tree.split_once('{') else {
        let (path, name) = tree.split_once(" as ").unwrap_or((tree, ""));
        let name = Some(name).filter(|name| !name.is_empty());
        let name = name.or(path.rsplit("::").next()).unwrap_or(path);
        return vec![(path.trim().to_owned(), name.trim().to_owned())];
    };
    let mut depth = 0;
    let parts = rest.rsplit_once('}').map_or(rest, |(parts, _)| parts);
    let parts = parts.split(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    let below = parts.map(str::trim).flat_map(imported);
    let before = before.trim();
    let join = |(path, name): (String, String)| match path.as_str() {
        "self" => imported(before.trim_end_matches("::")).remove(0),
        _ => (format!("{before}{path}"), name),
    };
    below.map(join).collect()
}

/// One module of a crate.
#[derive(Default)]
struct Module {
    /// Its imports: path and name.
    imports: Vec<(String, String)>,
    /// All paths in its code.
    paths: BTreeSet<String>,
}

/// The modules of a crate by path: `share::water` for `src/share/water.rs`, nothing for `lib.rs` and `main.rs`.
type Modules = BTreeMap<String, Module>;

fn modules(src: &str) -> Modules {
    let mut sources = files(src, ".rs");
    sources.retain(|(name, _)| !name.contains("tests"));
    let mut modules = Modules::new();
    for (name, text) in sources {
        let path = name[src.len() + 1..].trim_end_matches(".rs");
        let path = path.trim_end_matches("/mod").replace('/', "::");
        let root = ["lib", "main"].contains(&path.as_str());
        let module = modules
            .entry(if root { String::new() } else { path })
            .or_default();
        let lines = code(&text).lines().map(|line| line.split("//").next());
        let text: Vec<&str> = lines.flatten().collect();
        let text = text.join(" \n");
        for (at, _) in text.match_indices("use ") {
            let before = text[..at].rsplit('\n').next().unwrap_or_default().trim();
            if before.is_empty() || before.starts_with("pub") {
                let tree = text[at + 4..].split(';').next().unwrap_or_default();
                module.imports.extend(imported(tree));
            }
        }
        let paths = text.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
        let paths = paths.filter(|path| path.contains("::"));
        module.paths.extend(paths.map(str::to_owned));
    }
    modules
}

/// A path in a module as one from the crate's root; `None`: it leads to another crate, or is local.
fn absolute(modules: &Modules, module: &str, path: &str) -> Option<String> {
    let parent = module.rsplit_once("::").map_or("", |(parent, _)| parent);
    match path.split_once("::").unwrap_or((path, "")) {
        ("crate", rest) => Some(rest.to_owned()),
        ("super", rest) => absolute(modules, parent, &join("self", rest)),
        ("self", rest) if rest.starts_with("super") => absolute(modules, module, rest),
        ("self", rest) => Some(join(module, rest)),
        (child, _) => {
            let child = modules.contains_key(&join(module, child));
            child.then(|| join(module, path))
        }
    }
}

/// The module that defines the item of a path, behind all re-exports.
fn definer<'a>(modules: &'a Modules, module: &str, path: &str) -> Option<&'a str> {
    let mut path = absolute(modules, module, path)?;
    // Imports that lead in a circle have no definer.
    for _ in 0..9 {
        let above = |m: &str| {
            let below = path.strip_prefix(m);
            m.is_empty() || below.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
        };
        let (file, found) = modules
            .iter()
            .filter(|(m, _)| above(m))
            .max_by_key(|(m, _)| m.len())?;
        let rest = path[file.len()..].trim_start_matches("::");
        let (item, more) = rest.split_once("::").unwrap_or((rest, ""));
        let import = found.imports.iter().find(|(_, name)| name == item);
        match import.and_then(|(import, _)| absolute(modules, file, import)) {
            Some(next) if join(&next, more) != path => path = join(&next, more),
            _ => return Some(file),
        }
    }
    None
}

/// Which module names an item of which other one.
fn arrows(modules: &Modules) -> Vec<(&str, &str)> {
    let mut arrows = Vec::new();
    for (name, module) in modules {
        let paths = module.paths.iter().map(|path| {
            let (first, rest) = path.split_once("::").unwrap_or((path, ""));
            let import = module.imports.iter().find(|(_, name)| name == first);
            import.map_or(path.clone(), |(import, _)| join(import, rest))
        });
        let imports = module.imports.iter().map(|(path, _)| path.clone());
        let found = imports
            .chain(paths)
            .filter_map(|path| definer(modules, name, &path));
        arrows.extend(found.map(|other| (name.as_str(), other)));
    }
    arrows.retain(|(from, to)| from != to);
    arrows
}

/// Edges that are part of a cycle, or lead to one.
fn circles<'a>(mut arrows: Vec<(&'a str, &'a str)>) -> Vec<(&'a str, &'a str)> {
    arrows.retain(|(from, to)| from != to);
    loop {
        let from: Vec<&str> = arrows.iter().map(|(from, _)| *from).collect();
        arrows.retain(|(_, to)| from.contains(to));
        if arrows.len() == from.len() {
            return arrows;
        }
    }
}

#[test]
fn no_two_files_of_a_crate_import_each_other_nor_folders_of_the_policy() {
    let crates = fs::read_dir(root().join("crates")).expect("the crates");
    let crates = crates.map(|entry| entry.expect("a crate").file_name());
    let crates = crates.map(|name| format!("crates/{}", name.display()));
    for path in crates.chain(["lab", "lab/machine", "fuzz"].map(str::to_owned)) {
        let modules = modules(&format!("{path}/src"));
        let mut arrows = arrows(&modules);
        if path == "crates/policy" {
            assert!(arrows.len() > modules.len(), "{arrows:?}");
            let folder = |module: &'_ str| module.split("::").next().map_or(0, str::len);
            let folders = arrows
                .iter()
                .map(|(a, b)| (&a[..folder(a)], &b[..folder(b)]));
            assert_eq!(circles(folders.collect()), [], "between folders");
        } else {
            // A folder's main file declares the folder's other files, and may use them.
            arrows.retain(|(from, to)| !from.is_empty() && !to.starts_with(&format!("{from}::")));
        }
        assert_eq!(circles(arrows), [], "between files of {path}");
    }
}

#[test]
fn includes_of_the_kernel_module_stay_in_its_directory_and_form_no_circle() {
    let mut sources = files("kmod", ".h");
    sources.extend(files("kmod", ".c"));
    sources.retain(|(name, _)| !name.contains("/tests/"));
    let mut arrows: Vec<(&str, &str)> = Vec::new();
    for (name, text) in &sources {
        let included = text
            .lines()
            .filter_map(|line| line.strip_prefix("#include \"")?.strip_suffix('"'));
        arrows.extend(included.map(|header| (name.trim_start_matches("kmod/"), header)));
    }
    assert!(arrows.len() > sources.len(), "{arrows:?}");
    for (from, to) in &arrows {
        let there = sources
            .iter()
            .any(|(name, _)| *name == format!("kmod/{to}"));
        assert!(there, "{from} includes {to}");
    }
    assert_eq!(circles(arrows), []);
}

#[test]
fn data_flows_one_way_through_the_crates() {
    let order = [
        "bpf", "quantity", "policy", "cgroup", "report", "record", "args", "observe", "discover",
        "nri", "vm", "doctor", "agent", "web", "probe", "cli",
    ];
    for (i, name) in order.iter().enumerate() {
        for dependency in dependencies(&format!("crates/{name}/Cargo.toml")) {
            let Some(other) = dependency.strip_prefix("justitia-") else {
                continue;
            };
            let place = order.iter().position(|o| *o == other);
            assert!(
                place.is_some_and(|p| p < i),
                "{name} must not depend on {other}"
            );
        }
    }
    let lab = dependencies("lab/Cargo.toml");
    let shared = words_of(
        "justitia-policy justitia-args justitia-bpf justitia-report justitia-machine \
        justitia-quantity",
    );
    assert!(
        lab.iter()
            .all(|d| !d.starts_with("justitia-") || shared.contains(&d.as_str())),
        "the lab looks at Justitia from outside: {lab:?}"
    );
    let machine = dependencies("lab/machine/Cargo.toml");
    assert!(
        machine.iter().all(|d| !d.starts_with("justitia-")),
        "the machine knows nothing of Justitia: {machine:?}"
    );
    for (name, foreign) in [("web", "agent"), ("cli", "web"), ("cli", "probe")] {
        let all = dependencies(&format!("crates/{name}/Cargo.toml"));
        assert!(
            !all.contains(&format!("justitia-{foreign}")),
            "{name} must not link {foreign}"
        );
    }
}

/// Names of the packages that are linked into a package's programs.
fn linked(package: &str) -> Vec<String> {
    let output = Command::new(env!("CARGO"))
        .current_dir(root())
        .args(["tree", "--package", package, "--edges", "normal"])
        .args([
            "--prefix",
            "none",
            "--format",
            "{p}",
            "--offline",
            "--locked",
        ])
        .output()
        .expect("cargo starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo tree: {errors}");
    let text = String::from_utf8(output.stdout).expect("names");
    let names = text.lines().filter_map(|line| line.split(' ').next());
    names.map(str::to_owned).collect()
}

#[test]
fn the_program_that_runs_as_root_links_no_server_client_runtime_or_lab() {
    let agent = linked("justitia-cli");
    assert!(agent.iter().any(|name| name == "justitia-agent"));
    let foreign = words_of(
        "justitia-lab justitia-probe justitia-web tokio tokio-postgres mysql_async \
        rustls ring redis ureq http httparse",
    );
    let found: Vec<&String> = agent
        .iter()
        .filter(|name| foreign.contains(&name.as_str()))
        .collect();
    assert!(found.is_empty(), "justitia links {found:?}");
}

#[test]
fn the_program_that_answers_the_network_links_no_agent_and_no_bpf_loader() {
    let web = linked("justitia-web");
    assert!(web.iter().any(|name| name == "httparse"));
    for foreign in [
        "justitia-agent",
        "justitia-observe",
        "justitia-lab",
        "libbpf-sys",
    ] {
        assert!(
            !web.iter().any(|name| name == foreign),
            "justitia-web links {foreign}"
        );
    }
}

#[test]
fn only_cgroup_names_the_kernels_files() {
    let words = [
        "\"memory.",
        "\"io.weight",
        "\"io.bfq",
        "\"io.stat",
        "\"io.pressure",
        "\"cgroup.",
        "\"/proc/",
        "\"/sys/",
    ];
    // The lab is a host's operator: it sets up groups and reads knobs back independently.
    // knob.rs names the knobs for people and for the writer.
    let allowed =
        words_of("crates/cgroup/ crates/policy/src/knob.rs lab/ /tests/ tests.rs /benches/");
    let mut sources = files("crates", ".rs");
    sources.retain(|(name, _)| !name.starts_with("crates/tidy/"));
    let found = offenders(&sources, &words, &allowed);
    assert!(found.is_empty(), "{found:#?}");
}

/// The table of knobs and their fields; a knob's file; its behavior in the fake. A fourth file decides when
/// the knob is written.
const A_KNOB_TOUCHES: [&str; 3] = [
    "crates/policy/src/knob.rs",
    "crates/cgroup/src/file.rs",
    "crates/cgroup/src/tests/fake/group.rs",
];

#[test]
fn a_knob_is_a_row_of_one_table_and_touches_four_files() {
    let mut sources = files("crates", ".rs");
    // A view or a check of one knob names that knob; no knob needs a view or a check. The example is sample
    // data.
    let aside = [
        "crates/tidy/",
        "crates/cli/",
        "crates/doctor/",
        "example",
        "test",
    ];
    sources.retain(|(name, _)| {
        let touched = A_KNOB_TOUCHES.contains(&name.as_str());
        touched || !aside.iter().any(|aside| name.contains(aside))
    });
    // One of each kind that holds a value.
    for (knob, decided) in [
        ("MemoryLow", "writes"),
        ("IoBfqWeight", "block"),
        ("BfqLowLatency", "writes"),
    ] {
        let words = [
            format!("Knob::{knob}"),
            format!("File::{knob}"),
            format!("{knob} = "),
        ];
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut touched: Vec<String> = offenders(&sources, &words, &[])
            .into_iter()
            .filter_map(|found| Some(found.split_once(':')?.0.to_owned()))
            .collect();
        touched.sort_unstable();
        touched.dedup();
        let mut goal = A_KNOB_TOUCHES.map(str::to_owned).to_vec();
        goal.push(format!("crates/policy/src/{decided}.rs"));
        goal.sort_unstable();
        assert_eq!(touched, goal, "{knob}");
    }
}

#[test]
fn only_apply_and_restore_write_to_the_host() {
    let everywhere = ["crates/cgroup/", "/tests/", "tests.rs", "benches/"];
    // Weights and colors belong to the user or the application: only the code that sets them on behalf of
    // these writes the attributes.
    let rules: [(&[&str], &[&str]); 3] = [
        // Only the agent's applier sends anything to the kernel module's gate.
        (
            &[".feed(", ".beat(", ".set_config("],
            &["agent/src/apply/gate.rs"],
        ),
        (
            &[".submit(", ".submit_over(", ".write_knob("],
            &["agent/src/apply", "agent/src/restore"],
        ),
        (
            &[".set_xattr(", ".remove_xattr("],
            &[
                "crates/cli/src/commands/weight.rs",
                "crates/cli/src/commands/color.rs",
                "crates/probe/src/declare.rs",
            ],
        ),
    ];
    let mut sources = files("crates", ".rs");
    sources.retain(|(name, _)| !name.starts_with("crates/tidy/"));
    for (words, writers) in rules {
        let allowed = [&everywhere[..], writers].concat();
        let found = offenders(&sources, words, &allowed);
        assert!(found.is_empty(), "{found:#?}");
    }
}

#[test]
fn images_of_machines_are_dropped_in_one_place_and_never_opened_for_writing() {
    let sources = files("crates/vm/src", ".rs");
    let found = offenders(&sources, &["fadvise(", "Advice::"], &["src/image.rs"]);
    assert!(found.is_empty(), "{found:#?}");
    let writes = words_of(".write(true) .append(true) File::create write_at set_len(");
    let found = offenders(&sources, &writes, &[]);
    assert!(found.is_empty(), "{found:#?}");
    let reopened = files("crates/cgroup/src/real", "processes.rs");
    let found = offenders(&reopened, &writes, &[]);
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn one_place_prints_and_one_logs() {
    let mut sources = files("crates", ".rs");
    sources.retain(|(name, _)| name.contains("/src/") && !name.contains("tests"));
    let words = words_of(
        "println!( print!( eprintln!( eprint!( dbg!( stdout().lock() stderr().lock() \
        write!(io::std write!(std::io::std",
    );
    // Build scripts talk to cargo on stdout.
    let allowed = words_of(
        "cli/src/output.rs report/src/log.rs report/src/say.rs crates/bpf/ \
        crates/tidy/",
    );
    let found = offenders(&sources, &words, &allowed);
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn every_unsafe_block_says_why_it_is_sound() {
    let mut bare = Vec::new();
    let mut sources = files("crates", ".rs");
    sources.extend(files("lab", ".rs"));
    sources.retain(|(name, _)| !name.starts_with("crates/tidy/"));
    for (name, text) in sources {
        let lines: Vec<&str> = text.lines().collect();
        for (i, line) in lines.iter().enumerate() {
            let starts = line.contains("unsafe {") || line.contains("unsafe impl");
            let said = lines[i.saturating_sub(8)..=i]
                .iter()
                .any(|l| l.contains("SAFETY:"));
            if starts && !said {
                bare.push(format!("{name}:{}", i + 1));
            }
        }
    }
    assert!(bare.is_empty(), "unsafe without SAFETY: {bare:#?}");
}

#[test]
fn every_dependency_is_listed_with_its_reason() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("Cargo.toml");
    let table: toml::Table = manifest.parse().expect("a manifest");
    let dependencies = table["workspace"]["dependencies"]
        .as_table()
        .expect("dependencies");
    for name in dependencies
        .keys()
        .filter(|name| !name.starts_with("justitia-"))
    {
        assert!(
            text.contains(&format!("| `{name}` |")),
            "{name} is not in ARCHITECTURE.md"
        );
    }
}
