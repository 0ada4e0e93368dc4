//! The lab.
pub mod guest;
pub mod load;
pub mod protocol;
pub mod args;
pub mod experiments;
pub mod study;
#[cfg(test)]
mod fixture;
pub mod error;
pub mod cache;
pub mod console;
pub mod fetch;
pub mod image;
pub mod kernels;
pub mod mailbox;
pub mod modules;
pub mod qemu;
pub mod tools;
pub mod vm;
pub mod host;
pub mod machine;
pub mod progress;
pub mod report;
pub mod run;
pub mod table;
pub use run::main;
