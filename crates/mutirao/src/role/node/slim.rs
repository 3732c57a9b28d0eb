//! A node on a small machine keeps little of the program in memory. Its start goes once through much of it (arguments, settings,
//! certificates, definitions), and the kernel leaves all of that mapped until memory is scarce, which on a small machine is when
//! somebody else is short of it. So a while after the start those pages are let go: they are the program's own text and
//! constants, which nobody writes and which are in its file. What is in use comes back by itself.

use std::time::Duration;

use mutirao_core::Clock;

/// By then it has connected and registered, or will not soon.
const STARTED: Duration = Duration::from_secs(10);

pub async fn once_started(clock: &dyn Clock) {
    clock.sleep(STARTED).await;
    if let Ok(maps) = std::fs::read_to_string("/proc/self/maps")
        && let Ok(own) = std::env::current_exe()
    {
        let parts = own_pages(&maps, &own.to_string_lossy()).iter().filter(|pages| let_go(pages)).count();
        tracing::debug!(parts, "what only the start needed is let go of");
    }
}

/// Addresses from and up to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pages {
    from: usize,
    to: usize,
}

/// What is run, and the constants at the beginning of the file. What was relocated when the program was loaded differs from
/// its file and is none of them: it stands further on.
fn own_pages(maps: &str, own: &str) -> Vec<Pages> {
    let read = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (place, rights, offset) = (words.next()?, words.next()?, words.next()?);
        let is_constant = rights == "r--p" && offset.bytes().all(|digit| digit == b'0');
        if words.nth(2)? != own || !(rights == "r-xp" || is_constant) {
            return None;
        }
        let (from, to) = place.split_once('-')?;
        let hex = |text| usize::from_str_radix(text, 16).ok();
        Some(Pages { from: hex(from)?, to: hex(to)? })
    };
    maps.lines().filter_map(read).collect()
}

#[allow(unsafe_code, reason = "no safe interface lets go of pages of a file")]
fn let_go(pages: &Pages) -> bool {
    let (from, bytes) = (pages.from as *mut libc::c_void, pages.to - pages.from);
    // SAFETY: the kernel named these as a mapping of our own file that may not be written. Nothing in it differs from the file,
    // so whoever reads it next reads what was there.
    unsafe { libc::madvise(from, bytes, libc::MADV_DONTNEED) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_writes_of_the_program_itself_is_let_go() {
        let maps = "5000-6000 r--p 00000000 fe:01 7 /opt/mutirao\n\
                    6000-8000 r-xp 00001000 fe:01 7 /opt/mutirao\n\
                    8000-9000 r--p 00003000 fe:01 7 /opt/mutirao\n\
                    9000-a000 rw-p 00004000 fe:01 7 /opt/mutirao\n\
                    b000-c000 r-xp 00000000 fe:01 8 /lib/libc.so.6\n\
                    d000-e000 rw-p 00000000 00:00 0 [heap]\n\
                    e000-f000 r-xp 00000000 00:00 0\n";
        let expected = [Pages { from: 0x5000, to: 0x6000 }, Pages { from: 0x6000, to: 0x8000 }];
        assert_eq!(own_pages(maps, "/opt/mutirao"), expected);
    }

    /// Everything that was let go is there when it is needed.
    #[test]
    fn the_program_goes_on() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let own = std::env::current_exe().unwrap();
        let pages = own_pages(&maps, &own.to_string_lossy());
        assert!(!pages.is_empty() && pages.iter().all(let_go));
        assert!(format!("{:?}", pages[0]).contains("Pages"));
    }
}
