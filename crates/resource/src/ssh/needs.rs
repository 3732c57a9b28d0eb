//! What our program needs of a machine, read from the program's own file: the kind of processor, and the oldest glibc that has
//! all it asks for. And its digest, which is its name on hosts.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

use sha2::{Digest, Sha256};

/// An ELF program may name this much about the versions it needs, and some.
const SECTION_BYTES_MAX: u64 = 1 << 20;
const SECTIONS_MAX: u16 = 1_000;
const VERSIONS_NEEDED: u32 = 0x6fff_fffe;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needs {
    /// As `uname -m` says it.
    pub arch: String,
    /// None for a program that carries its own C library.
    pub glibc: Option<(u32, u32)>,
    pub bytes: u64,
    /// SHA-256, hexadecimal.
    pub digest: String,
}

/// Reads all of the program, so not on a runtime's thread.
pub fn read(program: &Path) -> std::io::Result<Needs> {
    let mut file = File::open(program)?;
    let (arch, glibc) = elf(&file).unwrap_or_else(|| (std::env::consts::ARCH.into(), None));
    let mut sha = Sha256::new();
    let mut piece = vec![0; 1 << 20];
    let mut bytes = 0;
    loop {
        match file.read(&mut piece)? {
            0 => break,
            n => {
                sha.update(&piece[..n]);
                bytes += n as u64;
            }
        }
    }
    let digest = sha.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Needs { arch, glibc, bytes, digest })
}

/// `2.36` as a pair, which compares as it should.
pub fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.trim().split('.');
    let number = |part: Option<&str>| part?.parse().ok();
    Some((number(parts.next())?, number(parts.next())?))
}

/// None for what is no 64-bit little-endian ELF.
fn elf(file: &File) -> Option<(String, Option<(u32, u32)>)> {
    let bytes = |at: u64, len: u64| {
        let mut piece = vec![0; usize::try_from(len.min(SECTION_BYTES_MAX)).ok()?];
        file.read_exact_at(&mut piece, at).ok()?;
        Some(piece)
    };
    let head = bytes(0, 64)?;
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let arch = match half(&head, 18)? {
        0x3e => "x86_64",
        0xb7 => "aarch64",
        0xf3 => "riscv64",
        _ => return None,
    };
    let (table, entry, count) = (long(&head, 40)?, u64::from(half(&head, 58)?), half(&head, 60)?);
    let section = |n: u64| bytes(table.checked_add(n.checked_mul(entry)?)?, 64);
    for n in 0..u64::from(count.min(SECTIONS_MAX)) {
        let own = section(n)?;
        if word(&own, 4)? == VERSIONS_NEEDED {
            let names = section(u64::from(word(&own, 40)?))?;
            let names = bytes(long(&names, 24)?, long(&names, 32)?)?;
            let needed = bytes(long(&own, 24)?, long(&own, 32)?)?;
            return Some((arch.into(), newest(&needed, &names)));
        }
    }
    Some((arch.into(), None))
}

/// The newest `GLIBC_…` of the list of versions that are needed.
fn newest(needed: &[u8], names: &[u8]) -> Option<(u32, u32)> {
    let mut found = None;
    let mut at = 0;
    loop {
        let mut aux = at + word(needed, at + 8)? as usize;
        for _ in 0..half(needed, at + 2)? {
            let name = names.get(word(needed, aux + 8)? as usize..)?;
            let name = name.split(|byte| *byte == 0).next()?;
            let version = std::str::from_utf8(name).ok()?.strip_prefix("GLIBC_").and_then(version);
            found = found.max(version);
            aux += word(needed, aux + 12)? as usize;
        }
        match word(needed, at + 12)? as usize {
            0 => return found,
            next => at += next,
        }
    }
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_says_itself_what_it_needs() {
        let needs = read(Path::new("/bin/sh")).unwrap();
        assert_eq!(needs.arch, std::env::consts::ARCH);
        assert!(needs.glibc.is_none_or(|version| ((2, 2)..(3, 0)).contains(&version)), "{needs:?}");
        assert_eq!((needs.digest.len(), needs.bytes > 1_000), (64, true));
        let dir = tempfile::tempdir().unwrap();
        let text = dir.path().join("text");
        std::fs::write(&text, "no program").unwrap();
        assert_eq!(read(&text).unwrap().glibc, None);
        assert!(version("2.9") < version("2.36") && version("musl").is_none());
    }
}
