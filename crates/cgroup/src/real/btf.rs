//! Which BPF type information the kernel shows: `/sys/kernel/btf`, one file for the kernel and one
//! for each loaded module that has any.

use std::path::Path;

/// Whether the kernel (`None`) or a module of it describes its types. `false` also for a module
/// that is not loaded or is part of the kernel itself.
pub fn has_btf(module: Option<&str>) -> bool {
    Path::new("/sys/kernel/btf")
        .join(module.unwrap_or("vmlinux"))
        .exists()
}

#[cfg(test)]
mod tests {
    use super::has_btf;

    #[test]
    fn a_module_that_there_is_not_has_no_types() {
        assert!(!has_btf(Some("justitia_no_such_module")));
    }
}
