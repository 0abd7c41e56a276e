//! Limits on files, and whether a tree fits into them at all.

use super::{Error, Spec, Tree};

/// How large, how many and how many at once files may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileLimits {
    /// Files and folders that workspace, home and /tmp may hold together.
    pub inodes: u64,
    /// Bytes of the largest.
    pub size: u64,
    /// Files that one process may have open, and how far it may raise that.
    pub open: (u64, u64),
}

impl Default for FileLimits {
    fn default() -> Self {
        Self {
            inodes: 500_000,
            size: 4 << 30,
            open: (1024, 4096),
        }
    }
}

impl Spec {
    /// Refuses a tree that no sandbox of this spec could hold, before one is made for it.
    pub fn fits(&self, tree: &Tree) -> Result<(), Error> {
        let entries = tree.entries.values();
        let (mut bytes, mut largest) = (0_u64, 0_u64);
        for entry in entries {
            bytes = bytes.saturating_add(entry.size);
            largest = largest.max(entry.size);
        }
        let count = tree.entries.len() as u64;
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        let reason = if bytes > self.disk {
            let (bytes, disk) = (mib(bytes), self.disk >> 20);
            format!("its files have {bytes} MiB, more than sandbox.disk allows ({disk} MiB)")
        } else if count > self.files.inodes {
            let most = self.files.inodes;
            format!("it has {count} files, more than sandbox.inodes allows ({most})")
        } else if largest > self.files.size {
            let (largest, most) = (mib(largest), self.files.size >> 20);
            format!(
                "one of its files has {largest} MiB, more than sandbox.fsize allows ({most} MiB)"
            )
        } else {
            return Ok(());
        };
        Err(Error::Engine {
            operation: "fitting the workspace into its sandbox",
            reason,
        })
    }
}
