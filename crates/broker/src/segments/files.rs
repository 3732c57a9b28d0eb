//! Open files of all logs together: a log that rests keeps none, and a thousand logs keep no more than a bound.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

/// Files that stay open; the one that was not used for longest makes way.
const OPEN_MAX: usize = 256;

#[derive(Default)]
pub(super) struct Files(Mutex<Open>);

#[derive(Default)]
struct Open {
    /// By the number of its segment, with when it was used last.
    files: HashMap<u64, (u64, Arc<File>)>,
    uses: u64,
    segments: u64,
}

impl Files {
    /// A number that no other segment has.
    pub fn number(&self) -> u64 {
        let mut open = self.0.lock();
        open.segments += 1;
        open.segments
    }

    pub fn get(&self, segment: u64, path: &Path) -> io::Result<Arc<File>> {
        {
            let mut open = self.0.lock();
            let open = &mut *open;
            if let Some((used, file)) = open.files.get_mut(&segment) {
                open.uses += 1;
                *used = open.uses;
                return Ok(file.clone());
            }
        }
        let file = Arc::new(OpenOptions::new().read(true).write(true).open(path)?);
        self.keep(segment, file.clone());
        Ok(file)
    }

    pub fn keep(&self, segment: u64, file: Arc<File>) {
        let mut open = self.0.lock();
        if open.files.len() >= OPEN_MAX
            && let Some(oldest) = open.files.iter().map(|(number, (used, _))| (*used, *number)).min()
        {
            open.files.remove(&oldest.1);
        }
        open.uses += 1;
        let used = open.uses;
        open.files.insert(segment, (used, file));
    }

    /// The file is removed: whoever kept it open would keep its bytes.
    pub fn forget(&self, segment: u64) {
        self.0.lock().files.remove(&segment);
    }
}
