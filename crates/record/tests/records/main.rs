//! Records as files, and their replay. One program, because each one compiles the format anew.

mod fixtures;
mod format;
mod replay;
mod simulated;
