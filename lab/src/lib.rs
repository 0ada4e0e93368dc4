//! The lab.
pub mod args;
pub mod cache;
pub mod console;
pub mod error;
pub mod experiments;
pub mod fetch;
#[cfg(test)]
mod fixture;
pub mod guest;
pub mod host;
pub mod image;
pub mod kernels;
pub mod load;
pub mod machine;
pub mod mailbox;
pub mod modules;
pub mod overhead;
pub mod progress;
pub mod protocol;
pub mod qemu;
pub mod report;
pub mod run;
pub mod study;
pub mod table;
pub mod tools;
pub mod vm;
pub use run::main;
