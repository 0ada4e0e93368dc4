//! The processors that a guest can have, and what each is called.

/// A Debian architecture.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Architecture {
    /// 64-bit x86.
    #[default]
    Amd64,
    /// 64-bit Arm. Always emulated: the lab's hosts are amd64.
    Arm64,
}

impl Architecture {
    /// Debian's name.
    pub fn debian(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// QEMU's program.
    pub fn qemu(self) -> &'static str {
        match self {
            Self::Amd64 => "qemu-system-x86_64",
            Self::Arm64 => "qemu-system-aarch64",
        }
    }

    /// QEMU's board: one with PCI Express, which the disks need.
    pub(crate) fn board(self) -> &'static str {
        match self {
            Self::Amd64 => "q35",
            Self::Arm64 => "virt",
        }
    }

    /// The kernel's name for the board's first serial port.
    pub(crate) fn console(self) -> &'static str {
        match self {
            Self::Amd64 => "ttyS0",
            Self::Arm64 => "ttyAMA0",
        }
    }

    /// The name of what is cached: of amd64 without a suffix.
    pub(crate) fn name(self, of: &str) -> String {
        match self {
            Self::Amd64 => of.to_owned(),
            Self::Arm64 => format!("{of}-{}", self.debian()),
        }
    }
}
