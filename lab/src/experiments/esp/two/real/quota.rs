//! A control group with a share of a core, for a host and all that it starts. Either generation of the interface; made at the top
//! of the tree, so it takes an administrator.

use std::path::{Path, PathBuf};

use anyhow::Context;

const ROOT: &str = "/sys/fs/cgroup";
/// Short, so that whoever has used up its share waits a few milliseconds and not a tenth of a second.
const PERIOD_US: u64 = 20_000;
const MEMORY_BYTES: u64 = 512 << 20;

pub struct Quota(Vec<PathBuf>);

impl Quota {
    pub fn make(number: usize, share: f64) -> anyhow::Result<Self> {
        let name = format!("mutirao-lab-{}-{number}", std::process::id());
        let quota_us = ((PERIOD_US as f64 * share) as u64).max(1_000);
        let root = Path::new(ROOT);
        let is_one_tree = root.join("cgroup.controllers").exists();
        let controllers: &[&str] = if is_one_tree { &[""] } else { &["cpu", "cpuacct", "memory", "blkio"] };
        let made = Self(controllers.iter().map(|controller| root.join(controller).join(&name)).collect());
        for folder in &made.0 {
            let made = std::fs::create_dir(folder).or_else(|error| match error.kind() {
                std::io::ErrorKind::AlreadyExists => Ok(()),
                _ => Err(error),
            });
            made.with_context(|| format!("{}: no control group can be made; be root", folder.display()))?;
        }
        let set = |folder: &Path, file: &str, text: String| {
            std::fs::write(folder.join(file), text).with_context(|| format!("{}/{file}", folder.display()))
        };
        if is_one_tree {
            std::fs::write(root.join("cgroup.subtree_control"), "+cpu +memory +io").context("controllers")?;
            set(&made.0[0], "cpu.max", format!("{quota_us} {PERIOD_US}"))?;
            set(&made.0[0], "memory.max", MEMORY_BYTES.to_string())?;
        } else {
            set(&made.0[0], "cpu.cfs_period_us", PERIOD_US.to_string())?;
            set(&made.0[0], "cpu.cfs_quota_us", quota_us.to_string())?;
            set(&made.0[2], "memory.limit_in_bytes", MEMORY_BYTES.to_string())?;
        }
        Ok(made)
    }

    pub fn folders(&self) -> &[PathBuf] {
        &self.0
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        for folder in &self.0 {
            let _ = std::fs::remove_dir(folder);
        }
    }
}
