//! How full a machine's memory is, from the text of the kernel's `meminfo`. Reading the file is for whoever needs it.

/// What can be had without swapping counts as free.
///
/// ```
/// let text = "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    400 kB\n";
/// assert_eq!(mutirao_core::meminfo::used_percent(text), Some(60.0));
/// assert_eq!(mutirao_core::meminfo::used_percent("MemTotal: 1 kB"), None);
/// ```
pub fn used_percent(meminfo: &str) -> Option<f64> {
    let kilobytes = |name: &str| -> Option<u64> {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse().ok()
    };
    let (all, free) = (kilobytes("MemTotal")?, kilobytes("MemAvailable")?);
    (all > 0).then(|| all.saturating_sub(free) as f64 * 100.0 / all as f64)
}
