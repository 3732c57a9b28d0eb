//! Files that cannot be used are told apart, and those that should not be are warned about.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use mutirao_core::{Clock, SystemClock, Timestamp};
use mutirao_testkit::certificates::{Authority, Good};
use mutirao_tls::{Serving, TlsError};

#[test]
fn each_fault_of_the_files_has_its_own_line() {
    let authority = Authority::new();
    let (pair, other) =
        (authority.issue(&["lab.example"], Good::ForLong), authority.issue(&["lab.example"], Good::ForLong));
    let folder = tempfile::tempdir().unwrap();
    let rubbish = folder.path().join("rubbish");
    std::fs::write(&rubbish, "-----BEGIN NOTHING-----\n").unwrap();
    let torn = folder.path().join("torn");
    std::fs::write(&torn, "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n").unwrap();
    let load = |cert: &Path, key: &Path| Serving::load(cert, key).unwrap_err();

    let missing = folder.path().join("missing");
    assert!(matches!(load(&missing, &pair.key), TlsError::Missing { path } if path == missing));
    assert!(matches!(load(&pair.cert, &missing), TlsError::Missing { path } if path == missing));
    assert!(matches!(load(folder.path(), &pair.key), TlsError::Unreadable { .. }));
    assert!(matches!(load(&rubbish, &pair.key), TlsError::NoCertificate { .. }));
    assert!(matches!(load(&pair.key, &pair.key), TlsError::NoCertificate { .. }));
    assert!(matches!(load(&torn, &pair.key), TlsError::Unusable { .. }));
    assert!(matches!(load(&pair.cert, &rubbish), TlsError::NoKey { .. }));
    assert!(matches!(load(&pair.cert, &pair.cert), TlsError::NoKey { .. }));
    let mismatch = load(&pair.cert, &other.key);
    assert!(mismatch.to_string().contains("does not belong to the certificate"), "{mismatch}");
}

#[test]
fn a_sound_pair_gives_no_warnings_and_an_unsound_one_does() {
    let authority = Authority::new();
    let warnings = |pair: &mutirao_testkit::certificates::Pair, now: Timestamp| {
        Serving::load(&pair.cert, &pair.key).unwrap().warnings(now)
    };
    let now = SystemClock.now();
    let pair = authority.issue(&["lab.example"], Good::ForLong);
    assert_eq!(warnings(&pair, now), [""; 0]);

    let until = Serving::load(&pair.cert, &pair.key).unwrap().until();
    let soon = warnings(&pair, Timestamp(until.0 - 3 * 86_400_000));
    assert!(soon.len() == 1 && soon[0].contains("ends in 3 days"), "{soon:?}");
    let old = warnings(&authority.issue(&["lab.example"], Good::NoLonger), now);
    assert!(old.len() == 1 && old[0].contains("expired on 2002-03-04"), "{old:?}");
    let own = warnings(&authority.self_signed("lab.example"), now);
    assert!(own.len() == 1 && own[0].contains("tls.ca"), "{own:?}");

    std::fs::set_permissions(&pair.key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let open = warnings(&pair, now);
    assert!(open.len() == 1 && open[0].contains("open to others (644)"), "{open:?}");
}

#[test]
fn only_the_certificate_is_given_away() {
    let authority = Authority::new();
    let pair = authority.issue(&["lab.example"], Good::ForLong);
    let both = [&pair.key, &pair.cert].map(|file| std::fs::read_to_string(file).unwrap()).concat();
    let file = pair.cert.with_file_name("both.pem");
    std::fs::write(&file, both).unwrap();
    let pem = Serving::load(&file, &file).unwrap().pem();
    assert!(pem.contains("BEGIN CERTIFICATE") && !pem.contains("PRIVATE"), "{pem}");
}
