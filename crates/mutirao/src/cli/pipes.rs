//! Whether anybody still reads what we write. A write tells as well, but a command that follows something quiet may not
//! write for hours.

use std::os::fd::AsFd;
use std::time::Duration;

use mutirao_core::{Clock, SystemClock};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Between two looks. Being told, instead of looking, would take a registration that is not safe to make on a
/// descriptor we do not own.
const LOOK_EVERY: Duration = Duration::from_millis(250);
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Ends when the reader at the other end of this pipe has gone; never, for a file.
pub async fn reader_gone(writer: impl AsFd) {
    while !is_unread(&writer) {
        SystemClock.sleep(LOOK_EVERY).await;
    }
}

fn is_unread(writer: &impl AsFd) -> bool {
    // Nothing is asked for: an end that is gone is told in any case.
    let mut watched = [PollFd::new(writer, PollFlags::empty())];
    let looked = poll(&mut watched, Some(&AT_ONCE));
    looked.is_ok() && watched[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

#[cfg(test)]
mod tests {
    use mutirao_core::clock::ClockExt;

    use super::*;

    #[tokio::test]
    async fn a_reader_that_goes_is_noticed_without_a_write_and_one_that_stays_is_not() {
        let (reader, writer) = std::io::pipe().unwrap();
        let gone = reader_gone(writer);
        tokio::pin!(gone);
        assert!(SystemClock.timeout(Duration::from_millis(400), &mut gone).await.is_err());
        drop(reader);
        assert!(SystemClock.timeout(Duration::from_secs(10), gone).await.is_ok());
    }

    #[tokio::test]
    async fn a_file_has_no_reader_that_could_go() {
        let file = tempfile::tempfile().unwrap();
        assert!(SystemClock.timeout(Duration::from_millis(400), reader_gone(file)).await.is_err());
    }
}
