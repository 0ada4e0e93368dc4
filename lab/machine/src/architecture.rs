//! The processors that a guest can have, and the name of each in Debian, QEMU and the kernel.

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Architecture {
    #[default]
    Amd64,
    /// Always emulated: the lab's hosts are amd64.
    Arm64,
}

impl Architecture {
    fn of<T>(self, amd64: T, arm64: T) -> T {
        match self {
            Self::Amd64 => amd64,
            Self::Arm64 => arm64,
        }
    }

    pub fn debian(self) -> &'static str {
        self.of("amd64", "arm64")
    }

    pub fn qemu(self) -> &'static str {
        self.of("qemu-system-x86_64", "qemu-system-aarch64")
    }

    /// Prefix of the names of Debian's compilers for it.
    pub(crate) fn compiler_prefix(self) -> &'static str {
        self.of("x86_64-linux-gnu-", "aarch64-linux-gnu-")
    }

    /// QEMU's board: it has PCI Express, which the disks need.
    pub(crate) fn board(self) -> &'static str {
        self.of("q35", "virt")
    }

    /// The kernel's name for the board's first serial port.
    pub(crate) fn console(self) -> &'static str {
        self.of("ttyS0", "ttyAMA0")
    }

    /// The name of a cached artifact; for amd64 it has no suffix.
    pub(crate) fn name(self, of: &str) -> String {
        match self {
            Self::Amd64 => of.to_owned(),
            Self::Arm64 => format!("{of}-{}", self.debian()),
        }
    }
}
