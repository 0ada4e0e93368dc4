//! Opens the embedded BPF objects, and keeps what libbpf says while they are loaded.

use std::sync::{Mutex, Once, PoisonError};

use libbpf_rs::{set_print, ObjectBuilder, OpenObject, PrintLevel};

/// An object file as libelf wants it: aligned.
#[repr(C, align(8))]
struct Aligned<const N: usize>([u8; N]);

static OBSERVE: &Aligned<{ include_bytes!(concat!(env!("OUT_DIR"), "/observe.o")).len() }> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/observe.o")));
static PROBE: &Aligned<{ include_bytes!(concat!(env!("OUT_DIR"), "/probe.o")).len() }> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/probe.o")));

pub(crate) fn observe_object() -> &'static [u8] {
    &OBSERVE.0
}

pub(crate) fn probe_object() -> &'static [u8] {
    &PROBE.0
}

/// Lines of libbpf's output that are kept for an error message.
const KEPT: usize = 400;

static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

// The signature is libbpf-rs's.
#[allow(clippy::needless_pass_by_value)]
fn keep(level: PrintLevel, text: String) {
    if matches!(level, PrintLevel::Debug) {
        return;
    }
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    said.extend(text.lines().map(str::to_owned));
    let excess = said.len().saturating_sub(KEPT);
    said.drain(..excess);
}

/// Keeps libbpf's messages off standard error.
fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        set_print(Some((PrintLevel::Info, keep)));
    });
}

/// Forgets what libbpf said so far.
pub(crate) fn forget_said() {
    listen();
    SAID.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

/// Messages of libbpf, including the verifier's log.
pub(crate) fn said() -> String {
    SAID.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .join("\n")
}

/// The line with the reason: the verifier's last one before its statistics, or else libbpf's first failure.
pub(crate) fn reason(said: &str) -> Option<String> {
    let lines: Vec<&str> = said.lines().map(str::trim).collect();
    let verdict = lines
        .iter()
        .position(|line| line.starts_with("processed "))
        .and_then(|at| lines.get(at.checked_sub(1)?));
    let failed = || lines.iter().find(|line| line.contains("failed"));
    let line = verdict.or_else(failed)?;
    Some(line.trim_start_matches("libbpf: ").to_owned())
}

pub(crate) fn open(name: &str, object: &[u8]) -> libbpf_rs::Result<OpenObject> {
    listen();
    let mut builder = ObjectBuilder::default();
    builder.name(name)?;
    builder.open_memory(object)
}

#[cfg(test)]
mod tests {
    use super::reason;

    #[test]
    fn the_verifiers_verdict_is_the_reason() {
        let said = "libbpf: prog 'a': BPF program load failed: -EACCES\n\
                    0: R1=ctx()\n\
                    R3 invalid mem access 'scalar'\n\
                    processed 12 insns (limit 1000000) max_states_per_insn 0\n\
                    libbpf: failed to load object 'justitia'";
        assert_eq!(reason(said).unwrap(), "R3 invalid mem access 'scalar'");
        let said = "libbpf: prog 'a': BPF program load failed: -EPERM\nlibbpf: and so on";
        assert_eq!(
            reason(said).unwrap(),
            "prog 'a': BPF program load failed: -EPERM"
        );
        assert_eq!(reason(""), None);
    }
}
