//! Loads embedded BPF objects, and keeps libbpf's messages meanwhile.

use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use libbpf_rs::{set_print, Object, ObjectBuilder, OpenObject, PrintLevel};

/// An object file, aligned as libelf requires.
#[derive(Debug)]
#[repr(C, align(8))]
pub struct Aligned<const N: usize>(pub [u8; N]);

/// The object file that the build script made of `bpf/NAME.bpf.c`, as bytes.
#[macro_export]
macro_rules! object {
    ($name:literal) => {{
        static OBJECT: &$crate::Aligned<
            { include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".o")).len() },
        > = &$crate::Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".o")));
        &OBJECT.0
    }};
}

/// Lines of libbpf's output that are kept for an error message.
const KEPT: usize = 400;

static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn lines() -> MutexGuard<'static, Vec<String>> {
    SAID.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps libbpf's messages off standard error.
fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        set_print(Some((PrintLevel::Info, |level, text: String| {
            if matches!(level, PrintLevel::Debug) {
                return;
            }
            let mut said = lines();
            said.extend(text.lines().map(str::to_owned));
            let excess = said.len().saturating_sub(KEPT);
            said.drain(..excess);
        })));
    });
}

/// Forgets what libbpf said so far.
pub fn forget_said() {
    listen();
    lines().clear();
}

/// Messages of libbpf, including the verifier's log.
pub fn said() -> String {
    lines().join("\n")
}

/// The line of libbpf's messages with the reason: the verifier's last one before its statistics, or else
/// libbpf's first failure.
pub fn reason() -> Option<String> {
    reason_in(&said())
}

/// The first program that libbpf's messages say could not be loaded.
pub fn failed_program() -> Option<String> {
    failed_in(&said())
}

fn failed_in(said: &str) -> Option<String> {
    said.lines().find_map(|line| {
        let (name, message) = line.split_once("prog '")?.1.split_once("': ")?;
        message.contains("fail").then(|| name.to_owned())
    })
}

fn reason_in(said: &str) -> Option<String> {
    let lines: Vec<&str> = said.lines().map(str::trim).collect();
    let verdict = lines
        .iter()
        .position(|line| line.starts_with("processed "))
        .and_then(|at| lines.get(at.checked_sub(1)?));
    let failed = || lines.iter().find(|line| line.contains("failed"));
    let line = verdict.or_else(failed)?;
    Some(line.trim_start_matches("libbpf: ").to_owned())
}

/// Opens an object, and forgets what libbpf said before.
pub fn open(name: &str, object: &[u8]) -> libbpf_rs::Result<OpenObject> {
    forget_said();
    let mut builder = ObjectBuilder::default();
    builder.name(name)?;
    builder.open_memory(object)
}

/// Loads the programs of an object that `wanted` accepts. `settings` is the value of its constants
/// (`.rodata`), if it has any.
pub fn load(
    name: &str,
    object: &[u8],
    wanted: &dyn Fn(&str) -> bool,
    settings: &[u8],
) -> libbpf_rs::Result<Object> {
    let mut open = open(name, object)?;
    for mut program in open.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        program.set_autoload(wanted(&name));
    }
    for mut map in open.maps_mut() {
        if map.name().to_string_lossy().ends_with(".rodata") {
            map.set_initial_value(settings)?;
        }
    }
    open.load()
}

#[cfg(test)]
mod tests {
    use super::{failed_in, reason_in};

    #[test]
    fn the_verifiers_verdict_is_the_reason() {
        let said = "libbpf: prog 'a': BPF program load failed: -EACCES\n\
                    0: R1=ctx()\n\
                    R3 invalid mem access 'scalar'\n\
                    processed 12 insns (limit 1000000) max_states_per_insn 0\n\
                    libbpf: failed to load object 'justitia'";
        assert_eq!(reason_in(said).unwrap(), "R3 invalid mem access 'scalar'");
        let said = "libbpf: prog 'a': BPF program load failed: -EPERM\nlibbpf: and so on";
        assert_eq!(
            reason_in(said).unwrap(),
            "prog 'a': BPF program load failed: -EPERM"
        );
        assert_eq!(reason_in(""), None);
    }

    #[test]
    fn the_program_that_failed_is_named() {
        let said = "libbpf: prog 'a': relo #1: poisoned\n\
                    libbpf: prog 'b': failed to find kernel BTF type ID of 'b': -3\n\
                    libbpf: prog 'b': failed to load: -3\n\
                    libbpf: prog 'c': failed to load: -3";
        assert_eq!(failed_in(said).unwrap(), "b");
        assert_eq!(failed_in("libbpf: map 'm': failed to create: -12"), None);
    }
}
