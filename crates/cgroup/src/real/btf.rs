//! Facts about the kernel that the BPF programs depend on. Type information: `/sys/kernel/btf`, one file for
//! the kernel and one for each loaded module that has any. Functions of modules: `/proc/kallsyms`. CPUs that
//! are not to be interrupted: `/sys/devices/system/cpu/nohz_full`.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::Path;

/// True if the kernel (`None`) or one of its modules has BTF. `false` also for a module that is not loaded or
/// is built into the kernel.
pub fn has_btf(module: Option<&str>) -> bool {
    Path::new("/sys/kernel/btf")
        .join(module.unwrap_or("vmlinux"))
        .exists()
}

/// True if a loaded module has this function.
pub fn module_has(module: &str, function: &str) -> bool {
    let Ok(symbols) = File::open("/proc/kallsyms") else {
        return false;
    };
    let module = format!("[{module}]");
    let mut lines = BufReader::new(symbols).lines().map_while(Result::ok);
    lines.any(|line| {
        let mut words = line.split_ascii_whitespace().skip(2);
        words.next() == Some(function) && words.next() == Some(&module)
    })
}

/// True if the kernel has `nohz_full` CPUs.
pub fn has_nohz_full() -> bool {
    fs::read_to_string("/sys/devices/system/cpu/nohz_full")
        .is_ok_and(|list| list.starts_with(|first: char| first.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::{has_btf, module_has};

    #[test]
    fn a_module_that_there_is_not_has_no_types() {
        assert!(!has_btf(Some("justitia_no_such_module")));
        assert!(!module_has("justitia_no_such_module", "schedule"));
    }
}
