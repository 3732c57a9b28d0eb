//! Who held a data folder before, and whether it is certain that it is dead.
//!
//! The lock proves it, but only of the folder that is locked: a volume or an image that was cloned has the same path, the
//! same number and the same name in it, and whoever works on the original may live. So it must be the same folder of the
//! same file system under the same running kernel. After a reboot, or on another machine, that cannot be known; then
//! nobody is buried, and what the dead one owned is free when its lease has run out, as for everybody else.
//!
//! Not covered: a machine that was cloned while it ran, memory and all.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use mutirao_shards::MemberId;

/// New with every start of the kernel, and the same in all its containers.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A folder, such that no other is the same while this kernel runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spot {
    folder: u64,
    device: u64,
    /// None where the kernel does not say.
    boot: Option<String>,
}

impl Spot {
    pub fn of(data: &Path) -> io::Result<Self> {
        let about = std::fs::metadata(data)?;
        let boot = std::fs::read_to_string(BOOT_ID).ok().map(|id| id.trim().to_owned()).filter(|id| !id.is_empty());
        Ok(Self { folder: about.ino(), device: about.dev(), boot })
    }
}

/// Who held a data folder before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Before {
    pub member: MemberId,
    /// Older programs wrote less, which proves nothing.
    pub spot: Option<Spot>,
}

impl Before {
    pub fn read(file: &Path) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(file).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines().map(str::trim);
        let member = MemberId(lines.next()?.into());
        let mut next = || lines.next().filter(|line| !line.is_empty());
        let (folder, device, boot) = (next(), next(), next());
        let spot =
            || Some(Spot { folder: folder?.parse().ok()?, device: device?.parse().ok()?, boot: Some(boot?.into()) });
        Some(Self { member, spot: spot() })
    }

    pub fn written(&self) -> String {
        let spot = self.spot.as_ref().map(|Spot { folder, device, boot }| {
            format!("{folder}\n{device}\n{}\n", boot.as_deref().unwrap_or_default())
        });
        format!("{}\n{}", self.member, spot.unwrap_or_default())
    }

    /// Whether it is, as far as whoever now holds the lock of the folder at `here` can know.
    pub fn is_dead(&self, here: &Spot) -> bool {
        here.boot.is_some() && self.spot.as_ref() == Some(here)
    }

    /// The same member, if it would be called the same today.
    pub fn goes_on_as(self, name: &str) -> Option<MemberId> {
        let minted = self.member.0.strip_prefix(name).and_then(|rest| rest.strip_prefix('-'));
        let same = minted.is_some_and(|minted| minted.len() == 16 && minted.bytes().all(|b| b.is_ascii_hexdigit()));
        same.then_some(self.member)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn before(member: &str, spot: Option<Spot>) -> Before {
        Before { member: MemberId(member.into()), spot }
    }

    fn spot() -> Spot {
        Spot { folder: 7, device: 42, boot: Some("b-1".into()) }
    }

    #[test]
    fn only_the_same_folder_under_the_same_kernel_proves_a_death() {
        assert!(before("m", Some(spot())).is_dead(&spot()));
        for (other, what) in [
            (Spot { folder: 8, ..spot() }, "a copy of the folder"),
            (Spot { device: 43, ..spot() }, "a clone of the volume"),
            (Spot { boot: Some("b-2".into()), ..spot() }, "a clone of the machine, or after a reboot"),
            (Spot { boot: None, ..spot() }, "a kernel that does not say"),
        ] {
            assert!(!before("m", Some(spot())).is_dead(&other), "{what}");
            assert!(!before("m", Some(other)).is_dead(&spot()), "{what}");
        }
        let silent = Spot { boot: None, ..spot() };
        assert!(!before("m", Some(silent.clone())).is_dead(&silent), "two kernels that do not say are not the same");
        assert!(!before("m", None).is_dead(&spot()), "of an older program");
    }

    #[test]
    fn what_is_written_is_read_again_and_what_older_programs_wrote_proves_nothing() {
        let whole = before("ana@host-0123456789abcdef", Some(spot()));
        assert_eq!(Before::parse(&whole.written()), Some(whole));
        for old in ["m\n", "m\n7\n", "m\n7\n42\n", "m\nx\n42\nb-1\n", "m\n7\n42\n\n"] {
            assert_eq!(Before::parse(old), Some(before("m", None)), "{old:?}");
        }
        assert_eq!(Before::parse(""), None);
    }

    #[test]
    fn this_machine_tells_which_start_of_the_kernel_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let here = Spot::of(dir.path()).unwrap();
        assert!(before("m", Some(here.clone())).is_dead(&here));
    }

    #[test]
    fn another_host_or_user_is_another_member() {
        let before = |member: &str| before(member, None);
        assert!(before("ana@host-0123456789abcdef").goes_on_as("ana@host").is_some());
        for other in ["rui@host", "ana@host-2", "ana", "alone-host"] {
            assert_eq!(before("ana@host-0123456789abcdef").goes_on_as(other), None, "{other}");
        }
        assert_eq!(before("ana@host-1-0123456789abcdef").goes_on_as("ana@host"), None);
    }
}
