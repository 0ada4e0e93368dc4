//! The `justitia` command: wires arguments to commands.
fn main() {}
