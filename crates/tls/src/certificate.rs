//! What we need to know of one certificate: until when it is good, and whether clients take it at all.
//!
//! Parsed by nobody but webpki, which checks and does not tell; but it says when a certificate ended if it is asked at
//! the end of time. That saves a second parser of certificates, in code that reads what strangers send.

use std::time::Duration;

use mutirao_core::Timestamp;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, Error, RootCertStore};

use crate::provider;

/// From here on people are told that a certificate ends soon.
pub const EXPIRES_SOON: Duration = Duration::from_secs(14 * 86_400);
const DAY_MS: i64 = 86_400_000;
/// The year 9999, the last that a certificate can name, and then some.
const END_OF_TIME: Duration = Duration::from_secs(1 << 38);

/// Whole days from `now` until `until`; negative when it is past.
pub fn days_left(until: Timestamp, now: Timestamp) -> i64 {
    until.0.saturating_sub(now.0).div_euclid(DAY_MS)
}

/// When it ends.
pub fn until(cert: &CertificateDer<'_>) -> Result<Timestamp, Error> {
    match judge(cert, UnixTime::since_unix_epoch(END_OF_TIME)) {
        Err(Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => Ok(stamp(not_after)),
        Err(error) => Err(error),
        Ok(()) => Err(Error::InvalidCertificate(CertificateError::BadEncoding)),
    }
}

/// Whether clients would take it as a server's, if only they knew its issuer. One that may sign others is not taken.
pub(crate) fn fits_a_server(cert: &CertificateDer<'_>) -> bool {
    let Ok(until) = until(cert) else { return false };
    let then = UnixTime::since_unix_epoch(Duration::from_millis(until.0.max(0) as u64));
    matches!(judge(cert, then), Err(Error::InvalidCertificate(CertificateError::UnknownIssuer)))
}

/// With no authority to believe in, so it is never good; the error says how far the checks came.
fn judge(cert: &CertificateDer<'_>, at: UnixTime) -> Result<(), Error> {
    let algorithms = provider().signature_verification_algorithms;
    let parsed = ParsedCertificate::try_from(cert)?;
    verify_server_cert_signed_by_trust_anchor(&parsed, &RootCertStore::empty(), &[], at, algorithms.all)
}

pub(crate) fn stamp(at: UnixTime) -> Timestamp {
    Timestamp(i64::try_from(at.as_secs().saturating_mul(1_000)).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_whole_and_a_past_end_is_negative() {
        let left = |ms| days_left(Timestamp(ms), Timestamp(DAY_MS));
        assert_eq!([left(DAY_MS * 3 - 1), left(DAY_MS * 3), left(DAY_MS - 1)], [1, 2, -1]);
    }

    #[test]
    fn rubbish_has_no_end() {
        assert!(until(&CertificateDer::from(vec![0x30, 0x03, 1, 2, 3])).is_err());
    }
}
