//! One file per command.

pub(crate) mod color;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod gate;
pub(crate) mod generate;
pub(crate) mod plan;
pub(crate) mod record;
pub(crate) mod replay;
pub(crate) mod reserve;
pub(crate) mod restore;
pub(crate) mod run;
pub(crate) mod status;
pub(crate) mod top;
pub(crate) mod trial;
pub(crate) mod vm;
pub(crate) mod warm;
pub(crate) mod weight;
pub(crate) mod worth;
