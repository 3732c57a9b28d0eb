//! The small disk is small.

use mutirao_testkit::disk;

#[test]
fn a_small_disk_fills_up_and_goes_away() {
    let Some(small) = disk::tmpfs("1m") else { return };
    let path = small.path().to_path_buf();
    std::fs::write(path.join("fits"), vec![0; 512 << 10]).unwrap();
    let error = std::fs::write(path.join("does-not"), vec![0; 1 << 20]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    drop(small);
    assert!(!path.exists());
}
