//! Where this process's own control groups are mounted, read from `/proc`.

use std::path::{Path, PathBuf};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// A tree for each controller.
    One,
    /// One tree.
    Two,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Places {
    pub version: Version,
    pub memory: PathBuf,
    pub cpu: Option<PathBuf>,
}

impl Places {
    pub fn of_this_process() -> Option<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
        let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let places = Self::read(&mounts, &groups)?;
        if places.version == Version::Two {
            let controllers = std::fs::read_to_string(places.memory.join("cgroup.controllers")).ok()?;
            controllers.split_whitespace().find(|controller| *controller == "memory")?;
        }
        Some(places)
    }

    /// Version 1 is preferred where both are mounted, because a controller can only be in one of them, and then it is
    /// there.
    fn read(mounts: &str, groups: &str) -> Option<Self> {
        if let Some(memory) = own(mounts, groups, Some("memory")) {
            return Some(Self { version: Version::One, memory, cpu: own(mounts, groups, Some("cpu")) });
        }
        let base = own(mounts, groups, None)?;
        Some(Self { version: Version::Two, cpu: Some(base.clone()), memory: base })
    }
}

/// This process's own group in the tree of a controller, or in the one tree.
fn own(mounts: &str, groups: &str, controller: Option<&str>) -> Option<PathBuf> {
    let path = groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let is_it = controller.map_or(controllers.is_empty(), |wanted| controllers.split(',').any(|c| c == wanted));
        is_it.then_some(path)
    })?;
    let (root, mounted) = mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut after = after.split(' ');
        let (kind, options) = (after.next()?, after.nth(1)?);
        let is_it = match controller {
            Some(wanted) => kind == "cgroup" && options.split(',').any(|option| option == wanted),
            None => kind == "cgroup2",
        };
        let mut before = before.split(' ').skip(3);
        is_it.then_some((before.next()?, before.next()?))
    })?;
    // In a container the mount shows only a part of the tree, and the path may still be told from the top.
    let below = Path::new(path).strip_prefix(root).or_else(|_| Path::new(path).strip_prefix("/")).ok()?;
    Some(Path::new(mounted).join(below))
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "30 23 0:26 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                      31 23 0:27 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n\
                      32 23 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn version_one_has_a_place_for_each_controller() {
        let places = Places::read(V1, "4:memory:/a/b\n2:cpu,cpuacct:/\n0::/\n").unwrap();
        assert_eq!(places.version, Version::One);
        assert_eq!(places.memory, Path::new("/sys/fs/cgroup/memory/a/b"));
        assert_eq!(places.cpu.unwrap(), Path::new("/sys/fs/cgroup/cpu,cpuacct"));
    }

    #[test]
    fn version_two_has_one_place_also_inside_a_container() {
        let mounts = "40 30 0:28 /docker/x /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        let places = Places::read(mounts, "0::/docker/x/y\n").unwrap();
        assert_eq!(places.version, Version::Two);
        assert_eq!(places.memory, Path::new("/sys/fs/cgroup/y"));
    }

    #[test]
    fn a_system_without_control_groups_has_none() {
        assert_eq!(Places::read("22 1 8:1 / / rw - ext4 /dev/sda rw\n", "0::/\n"), None);
        assert_eq!(Places::read("rubbish", ""), None);
    }
}
