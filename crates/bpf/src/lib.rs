//! BPF programs: compiles them in build scripts (feature `build`), and loads them. `include/` has the kernel
//! types that several programs read.

#[cfg(feature = "build")]
mod compile;
mod load;
mod mapping;

#[cfg(feature = "build")]
pub use compile::build;
pub use load::{failed_program, forget_said, load, open, reason, said, Aligned};
pub use mapping::Mapping;
