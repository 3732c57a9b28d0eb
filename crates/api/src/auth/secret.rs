//! Secrets as texts, and what is kept of them. A secret is 256 bits from the operating system, so a plain SHA-256 of it
//! is enough: there is nothing to guess that a slow hash would make slower.

use mutirao_core::dice::os_random;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;

const ID_BYTES: usize = 6;
const SECRET_BYTES: usize = 32;
/// Longer than any of ours: nobody makes us hash a megabyte.
const SECRET_CHARS_MAX: usize = 200;

/// The SHA-256 of a secret.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    pub fn of(secret: &str) -> Self {
        Self(Sha256::digest(secret.as_bytes()).into())
    }

    /// Takes as long when the first byte differs as when the last does.
    pub fn matches(&self, other: &Digest) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl std::fmt::Debug for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Digest(…)")
    }
}

/// A new token: `mut_<id>_<secret>`.
pub struct Minted {
    pub id: String,
    pub text: String,
    pub digest: Digest,
}

pub fn mint_token() -> Minted {
    let (id, secret) = (random_hex::<ID_BYTES>(), random_hex::<SECRET_BYTES>());
    Minted { text: format!("mut_{id}_{secret}"), digest: Digest::of(&secret), id }
}

/// The id and the digest in a token's text; none when it does not have the form of one.
pub fn read_token(text: &str) -> Option<(&str, Digest)> {
    if text.len() > SECRET_CHARS_MAX {
        return None;
    }
    let (id, secret) = text.strip_prefix("mut_")?.split_once('_')?;
    let fits = |part: &str, bytes: usize| part.len() == 2 * bytes && part.bytes().all(|b| b.is_ascii_hexdigit());
    (fits(id, ID_BYTES) && fits(secret, SECRET_BYTES)).then(|| (id, Digest::of(secret)))
}

/// A one-time token for a worker: `enr_<secret>`.
pub fn mint_enrolment() -> (String, Digest) {
    let text = format!("enr_{}", random_hex::<SECRET_BYTES>());
    let digest = Digest::of(&text);
    (text, digest)
}

pub fn read_enrolment(text: &str) -> Option<Digest> {
    (text.len() <= SECRET_CHARS_MAX && text.starts_with("enr_")).then(|| Digest::of(text))
}

/// A one-time token for a resource manager: `ela_<secret>`.
pub fn mint_elastic_enrolment() -> (String, Digest) {
    let text = format!("ela_{}", random_hex::<SECRET_BYTES>());
    let digest = Digest::of(&text);
    (text, digest)
}

pub fn read_elastic_enrolment(text: &str) -> Option<Digest> {
    (text.len() <= SECRET_CHARS_MAX && text.starts_with("ela_")).then(|| Digest::of(text))
}

/// Of a resource manager's key; no worker's id begins like this.
pub fn mint_elastic_key_id() -> String {
    format!("e{}", random_hex::<ID_BYTES>())
}

pub fn is_elastic_key_id(id: &str) -> bool {
    id.starts_with('e')
}

pub fn mint_worker_id() -> String {
    format!("w{}", random_hex::<ID_BYTES>())
}

/// Of a worker that a resource manager is to start: given out before it exists. `x` is no hexadecimal digit, so nobody whom
/// people let in has one like it.
pub fn mint_given_out_id() -> String {
    format!("wx{}", random_hex::<ID_BYTES>())
}

pub fn is_given_out(id: &str) -> bool {
    id.starts_with("wx")
}

fn random_hex<const N: usize>() -> String {
    let mut bytes = [0u8; N];
    os_random(&mut bytes);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minted_token_reads_back_and_no_other_text_does() {
        let minted = mint_token();
        let (id, digest) = read_token(&minted.text).unwrap();
        assert!(id == minted.id && digest.matches(&minted.digest));
        let cut = &minted.text[..minted.text.len() - 1];
        for bad in ["", "mut_", "mut_a_b", cut, &"mut_".repeat(100), &minted.text.replace("mut_", "tok_")] {
            assert!(read_token(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn no_two_are_alike_and_none_is_printed() {
        let (a, b) = (mint_token(), mint_token());
        assert!(a.text != b.text && !a.digest.matches(&b.digest));
        assert_eq!(format!("{:?}", a.digest), "Digest(…)");
    }
}
