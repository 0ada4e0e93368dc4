//! Loads the embedded BPF object and captures libbpf's messages.

use std::sync::{Mutex, Once, PoisonError};

use libbpf_rs::{set_print, Object, ObjectBuilder, PrintLevel};

/// libelf requires an aligned object file.
#[repr(C, align(8))]
struct Aligned<const N: usize>([u8; N]);

static IMAGES: &Aligned<{ include_bytes!(concat!(env!("OUT_DIR"), "/images.o")).len() }> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/images.o")));

static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

// The signature is libbpf-rs's.
#[allow(clippy::needless_pass_by_value)]
fn keep(level: PrintLevel, text: String) {
    if !matches!(level, PrintLevel::Debug) {
        let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
        said.extend(text.lines().map(|line| line.trim().to_owned()));
    }
}

/// Loads the programs that `wanted` accepts. The error is the line of libbpf's messages that gives the
/// reason.
pub(super) fn load(wanted: &dyn Fn(&str) -> bool) -> Result<Object, String> {
    static ONCE: Once = Once::new();
    // Without this libbpf prints to standard error.
    ONCE.call_once(|| {
        set_print(Some((PrintLevel::Info, keep)));
    });
    SAID.lock().unwrap_or_else(PoisonError::into_inner).clear();
    let attempt = || -> libbpf_rs::Result<Object> {
        let mut builder = ObjectBuilder::default();
        builder.name("justitia_vm")?;
        let mut open = builder.open_memory(&IMAGES.0)?;
        for mut program in open.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            program.set_autoload(wanted(&name));
        }
        let page_shift = rustix::param::page_size().trailing_zeros();
        for mut map in open.maps_mut() {
            if map.name().to_string_lossy().ends_with(".rodata") {
                map.set_initial_value(&page_shift.to_ne_bytes())?;
            }
        }
        open.load()
    };
    attempt().map_err(|error| {
        let said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
        reason(&said).unwrap_or_else(|| error.to_string())
    })
}

/// The verifier's last line before its statistics, or else libbpf's first line that contains "failed".
fn reason(said: &[String]) -> Option<String> {
    let verdict = said.iter().position(|line| line.starts_with("processed "));
    let verdict = verdict.and_then(|at| said.get(at.checked_sub(1)?));
    let failed = || said.iter().find(|line| line.contains("failed"));
    let line = verdict.or_else(failed)?;
    Some(line.trim_start_matches("libbpf: ").to_owned())
}
