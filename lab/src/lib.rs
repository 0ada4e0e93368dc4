//! The lab: runs experiments in guests, from arguments to a page.

pub mod analysis;
pub mod choices;
pub mod comparison;
pub mod experiment;
pub mod experiments;
pub mod gate_module;
pub mod guest;
pub mod load;
pub mod machine;
pub mod policy;
pub mod progress;
pub mod protocol;
pub mod registry;
pub mod report;
pub mod run;
#[cfg(test)]
mod tests;

pub use justitia_args::lab as args;
pub use run::main;
