//! What the control group of this process may use, and has used: in a container the machine's figures are those of others. Both
//! generations of the interface. Only this process's own group is looked at, not those above it.

use std::path::{Path, PathBuf};

/// The folder of each controller; in version 2 they are the same.
#[derive(Debug, Default)]
pub struct Group {
    cpu: Option<PathBuf>,
    account: Option<PathBuf>,
    memory: Option<PathBuf>,
    disk: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// Cores that it may use.
    pub cores: f64,
    /// Microseconds of cores that it used.
    pub cpu_us: u64,
    /// Used, and all that it may, where that is less than everything.
    pub memory: Option<(u64, u64)>,
    pub disk_bytes: Option<u64>,
}

impl Group {
    pub fn of_this_process() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        Self::find(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"))
    }

    fn find(mounts: &str, groups: &str) -> Self {
        let of = |controller| place(mounts, groups, Some(controller)).or_else(|| place(mounts, groups, None));
        Self { cpu: of("cpu"), account: of("cpuacct"), memory: of("memory"), disk: of("blkio") }
    }

    /// None where it may use all cores, or none can be told.
    pub fn look(&self) -> Option<Seen> {
        let read = |base: &Option<PathBuf>, name: &str| std::fs::read_to_string(base.as_ref()?.join(name)).ok();
        let cores = read(&self.cpu, "cpu.max").and_then(|text| quota(&text)).or_else(|| {
            let [quota_us, period_us] = ["cpu.cfs_quota_us", "cpu.cfs_period_us"].map(|name| read(&self.cpu, name));
            quota(&format!("{} {}", quota_us?.trim(), period_us?.trim()))
        })?;
        let cpu_us = read(&self.account, "cpu.stat")
            .and_then(|text| field(&text, "usage_usec"))
            .or_else(|| Some(read(&self.account, "cpuacct.usage")?.trim().parse::<u64>().ok()? / 1_000))?;
        let number = |name| read(&self.memory, name)?.trim().parse::<u64>().ok();
        let limit =
            number("memory.max").or_else(|| number("memory.limit_in_bytes")).filter(|limit| *limit < u64::MAX / 4);
        let used = number("memory.current").or_else(|| number("memory.usage_in_bytes"));
        // What is read from files and can be dropped at once is free.
        let cached = read(&self.memory, "memory.stat")
            .and_then(|text| field(&text, "total_inactive_file").or_else(|| field(&text, "inactive_file")));
        let memory = used.zip(limit).map(|(used, limit)| (used.saturating_sub(cached.unwrap_or(0)), limit));
        let disk_bytes = read(&self.disk, "io.stat")
            .map(|text| written_and_read(&text))
            .or_else(|| field(&read(&self.disk, "blkio.throttle.io_service_bytes")?, "Total"));
        Some(Seen { cores, cpu_us, memory, disk_bytes })
    }
}

/// `20000 100000`: microseconds of cores in so many of time. No limit is `max` or a negative figure.
fn quota(text: &str) -> Option<f64> {
    let mut words = text.split_whitespace().map(|word| word.parse::<f64>().ok().filter(|figure| *figure > 0.0));
    Some(words.next()?? / words.next()??)
}

fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

/// `8:0 rbytes=1 wbytes=2 rios=…`, a line for each disk.
fn written_and_read(text: &str) -> u64 {
    let of = |word: &str| word.strip_prefix("rbytes=").or(word.strip_prefix("wbytes="))?.parse::<u64>().ok();
    text.split_whitespace().filter_map(of).sum()
}

/// This process's own group in the tree of a controller, or in the one tree of version 2.
fn place(mounts: &str, groups: &str, controller: Option<&str>) -> Option<PathBuf> {
    let is_of = |list: &str| controller.map_or(list.is_empty(), |wanted| list.split(',').any(|one| one == wanted));
    let path = groups.lines().find_map(|line| {
        let mut words = line.splitn(3, ':').skip(1);
        let (controllers, path) = (words.next()?, words.next()?);
        is_of(controllers).then_some(path)
    })?;
    let (root, mounted) = mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut after = after.split(' ');
        let (kind, options) = (after.next()?, after.nth(1)?);
        let is_it = controller.map_or(kind == "cgroup2", |_| kind == "cgroup" && is_of(options));
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

    const V1: &str = "30 23 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      31 23 0:27 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct\n\
                      32 23 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn each_controller_is_found_where_it_is() {
        let group = Group::find(V1, "2:cpu:/a\n3:cpuacct:/a/b\n0::/c\n");
        assert_eq!(group.cpu.unwrap(), Path::new("/sys/fs/cgroup/cpu/a"));
        assert_eq!(group.account.unwrap(), Path::new("/sys/fs/cgroup/cpuacct/a/b"));
        assert_eq!(
            group.memory.unwrap(),
            Path::new("/sys/fs/cgroup/unified/c"),
            "version 1 has none, so version 2 may"
        );
        let one_tree = Group::find("40 30 0:28 /docker/x /sys/fs/cgroup ro - cgroup2 cgroup rw\n", "0::/docker/x/y\n");
        assert_eq!(one_tree.cpu.unwrap(), Path::new("/sys/fs/cgroup/y"));
        assert_eq!(Group::find("rubbish", "").look(), None);
    }

    /// A folder as the kernel has it.
    fn look(files: &[(&str, &str)]) -> Option<Seen> {
        let folder = tempfile::tempdir().unwrap();
        files.iter().for_each(|(name, text)| std::fs::write(folder.path().join(name), text).unwrap());
        let own = || Some(folder.path().to_path_buf());
        Group { cpu: own(), account: own(), memory: own(), disk: own() }.look()
    }

    #[test]
    fn a_group_with_a_limit_says_what_it_used_in_both_versions() {
        let seen = Seen { cores: 0.2, cpu_us: 7, memory: Some((60, 500)), disk_bytes: Some(30) };
        let two = [
            ("cpu.max", "20000 100000\n"),
            ("cpu.stat", "usage_usec 7\nuser_usec 5\n"),
            ("memory.max", "500\n"),
            ("memory.current", "100\n"),
            ("memory.stat", "anon 1\ninactive_file 40\n"),
            ("io.stat", "8:0 rbytes=10 wbytes=15 rios=1\n8:16 rbytes=5 wbytes=0 rios=1\n"),
        ];
        assert_eq!(look(&two), Some(seen));
        let one = [
            ("cpu.cfs_quota_us", "2000\n"),
            ("cpu.cfs_period_us", "10000\n"),
            ("cpuacct.usage", "7999\n"),
            ("memory.limit_in_bytes", "500\n"),
            ("memory.usage_in_bytes", "100\n"),
            ("memory.stat", "inactive_file 1\ntotal_inactive_file 40\n"),
            ("blkio.throttle.io_service_bytes", "8:0 Read 10\n8:0 Write 20\nTotal 30\n"),
        ];
        assert_eq!(look(&one), Some(seen));
    }

    #[test]
    fn a_group_without_a_limit_is_none() {
        assert_eq!(look(&[("cpu.max", "max 100000\n"), ("cpu.stat", "usage_usec 7\n")]), None);
        assert_eq!(look(&[("cpu.cfs_quota_us", "-1\n"), ("cpu.cfs_period_us", "100000\n")]), None);
        let unlimited =
            [("cpu.max", "1 2"), ("cpu.stat", "usage_usec 7\n"), ("memory.max", "max"), ("memory.current", "9")];
        assert_eq!(look(&unlimited).unwrap().memory, None);
    }
}
