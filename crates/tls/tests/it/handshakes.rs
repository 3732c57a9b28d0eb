//! Who believes whom.

use std::path::Path;

use mutirao_core::{Clock, SystemClock};
use mutirao_testkit::certificates::{Authority, Good, Pair};
use mutirao_tls::{Believe, Fault, Serving, Trust, days_left};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio_rustls::TlsConnector;

const BUFFER_BYTES: usize = 16 << 10;

fn believing(ca: Option<&Path>, pin: Option<&Path>) -> Trust {
    let believe = Believe { ca: ca.map(Into::into), pin: pin.map(Into::into) };
    Trust::for_url("https://lab.example", &believe).unwrap()
}

/// Connects to `name`, says a word and hears it back; else why not.
async fn speak(pair: &Pair, trust: &Trust, name: &str) -> Result<(), Option<Fault>> {
    let (ours, theirs) = duplex(BUFFER_BYTES);
    let acceptor = Serving::load(&pair.cert, &pair.key).unwrap().acceptor();
    let echo = tokio::spawn(async move {
        let mut stream = acceptor.accept(theirs).await?;
        let mut word = [0; 5];
        stream.read_exact(&mut word).await?;
        stream.write_all(&word).await?;
        stream.flush().await
    });
    let connector = TlsConnector::from(trust.config().clone());
    let mut stream =
        connector.connect(name.to_owned().try_into().unwrap(), ours).await.map_err(|error| Fault::find(&error))?;
    stream.write_all(b"hello").await.unwrap();
    stream.flush().await.unwrap();
    let mut word = [0; 5];
    stream.read_exact(&mut word).await.unwrap();
    assert_eq!(&word, b"hello");
    echo.await.unwrap().unwrap();
    Ok(())
}

fn why(spoken: Result<(), Option<Fault>>) -> String {
    spoken.expect_err("it was believed").expect("it is a fault of TLS").to_string()
}

#[tokio::test]
async fn a_server_is_believed_by_those_who_know_its_authority_and_by_nobody_else() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let pair = ours.issue(&["lab.example", "127.0.0.1"], Good::ForLong);
    let trust = believing(Some(&ours.ca()), None);
    assert_eq!(trust.certificate_until(), None);
    speak(&pair, &trust, "lab.example").await.unwrap();
    speak(&pair, &trust, "127.0.0.1").await.unwrap();
    assert!(trust.certificate_until().is_some_and(|until| days_left(until, SystemClock.now()) > 365));

    assert!(why(speak(&pair, &believing(None, None), "lab.example").await).contains("no authority that we trust"));
    let wrong = believing(Some(&theirs.ca()), None);
    assert!(why(speak(&pair, &wrong, "lab.example").await).contains("no authority that we trust"));
    assert_eq!(wrong.certificate_until(), None);
}

#[tokio::test]
async fn a_certificate_is_for_its_names_and_its_time() {
    let authority = Authority::new();
    let trust = believing(Some(&authority.ca()), None);
    let pair = authority.issue(&["lab.example"], Good::ForLong);
    let other = why(speak(&pair, &trust, "other.example").await);
    assert!(other.contains("it is not for other.example, but for lab.example; reach"), "{other}");

    let old = authority.issue(&["lab.example"], Good::NoLonger);
    let expired = why(speak(&old, &trust, "lab.example").await);
    assert!(expired.contains("it expired on 2002-03-04T"), "{expired}");
}

#[tokio::test]
async fn a_pinned_certificate_is_believed_as_it_is_and_the_pin_is_read_each_time() {
    let authority = Authority::new();
    let old = authority.issue(&["lab.example"], Good::NoLonger);
    let folder = tempfile::tempdir().unwrap();
    let pin = folder.path().join("tls.pem");
    let trust = believing(None, Some(&pin));
    assert!(speak(&old, &trust, "127.0.0.1").await.is_err(), "there is no pin yet");
    std::fs::write(&pin, Serving::load(&old.cert, &old.key).unwrap().pem()).unwrap();
    speak(&old, &trust, "127.0.0.1").await.unwrap();

    let new = authority.issue(&["lab.example"], Good::ForLong);
    assert!(speak(&new, &trust, "127.0.0.1").await.is_err(), "another is pinned");
    std::fs::write(&pin, Serving::load(&new.cert, &new.key).unwrap().pem()).unwrap();
    speak(&new, &trust, "127.0.0.1").await.unwrap();
}

#[tokio::test]
async fn a_self_signed_certificate_can_be_its_own_authority() {
    let authority = Authority::new();
    let pair = authority.self_signed("lab.example");
    let trust = believing(Some(&pair.cert), None);
    speak(&pair, &trust, "lab.example").await.unwrap();
    assert!(why(speak(&pair, &trust, "other.example").await).contains("it is not for other.example"));
    let another = why(speak(&authority.self_signed("lab.example"), &trust, "lab.example").await);
    assert!(another.contains("not made for a server (") && another.contains("tls.ca"), "{another}");
}

#[tokio::test]
async fn what_does_not_speak_tls_is_told_so() {
    let (ours, mut theirs) = duplex(BUFFER_BYTES);
    tokio::spawn(async move {
        theirs.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        std::future::pending::<()>().await
    });
    let connector = TlsConnector::from(believing(None, None).config().clone());
    let error = connector.connect("lab.example".try_into().unwrap(), ours).await.unwrap_err();
    assert_eq!(Fault::find(&error), Some(Fault::NotTls));
}
