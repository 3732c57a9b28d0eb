//! A small disk of its own, for tests that fill one.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A tmpfs mounted on a fresh folder; unmounted and removed on drop.
#[derive(Debug)]
pub struct SmallDisk {
    folder: Option<tempfile::TempDir>,
    path: PathBuf,
}

impl SmallDisk {
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Mounts one of `size` as `mount` spells it (`8m`). `None`, with a notice, where we may not mount: the test then has
/// nothing to stand on and returns.
pub fn tmpfs(size: &str) -> Option<SmallDisk> {
    let folder = tempfile::Builder::new().prefix("mutirao-disk.").tempdir().ok()?;
    let path = folder.path().to_path_buf();
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o"]).arg(format!("size={size}")).arg("tmpfs").arg(&path);
    match mount.output() {
        Ok(output) if output.status.success() => Some(SmallDisk { folder: Some(folder), path }),
        Ok(output) => {
            eprintln!("skipped: no tmpfs can be mounted here: {}", String::from_utf8_lossy(&output.stderr).trim());
            None
        }
        Err(error) => {
            eprintln!("skipped: no tmpfs can be mounted here: {error}");
            None
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily, since a process of the test may still be on its way out.
        let _ = Command::new("umount").arg("--lazy").arg(&self.path).status();
        self.folder.take();
    }
}
