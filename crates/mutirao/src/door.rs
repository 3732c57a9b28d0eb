//! Where a manager listens: at an address of its own, or at one that it shares with other managers of its installation on this
//! machine, so that the system deals connections out to them.
//!
//! The system lets every program of the same user share an address that is shared at all. So before a manager joins others
//! there, it asks who they are: two installations at one address would answer each other's clients.

use std::net::SocketAddr;
use std::time::Duration;

use mutirao_client::{Client, ClientError, Credentials, Trust};
use mutirao_core::clock::ClockExt;
use mutirao_core::{InstallationId, SystemClock};
use tokio::net::{TcpListener, TcpSocket};

use crate::config::{Port, Settings};
use crate::failure::Failure;

/// Connections that may wait to be taken up. Hundreds of clients that come at the same moment, each with a new one for each
/// request, are kept in this line; whom it has no room for asks again after a whole second. The system has a bound of its
/// own (`net.core.somaxconn`).
const WAITING_AT_THE_DOOR: u32 = 4_096;
/// How long whoever is there may take to say who it is.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Whose the address is, by the settings.
pub fn port(settings: &Settings) -> Port {
    if settings.api_managers.0.is_some() { Port::Shared } else { settings.api_port }
}

/// At an address that is nobody else's. Port 0 takes any free one.
pub async fn own(listen: SocketAddr) -> Result<TcpListener, Failure> {
    listener(listen, Port::Own).map_err(|error| refused(listen, &error))
}

/// At an address where others of this installation may be. `address`: as clients of this machine reach it.
pub async fn shared(
    listen: SocketAddr,
    address: &str,
    trust: &Trust,
    own: &InstallationId,
) -> Result<TcpListener, Failure> {
    match listener(listen, Port::Own) {
        // Nobody is there. It is given up and taken again, to be shared from now on.
        Ok(alone) => drop(alone),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
            let taken = |why: String| Failure::failed(format!("{listen} is taken by another program, and {why}"));
            match who(address, trust).await {
                Ok(Some(theirs)) if theirs == own.0 => {}
                Ok(_) => {
                    let why = "it is not a manager of this installation; choose another with --listen";
                    return Err(taken(why.into()));
                }
                Err(why) => {
                    return Err(taken(format!("it does not say whose it is ({why}); choose another with --listen")));
                }
            }
        }
        Err(error) => return Err(refused(listen, &error)),
    }
    listener(listen, Port::Shared).map_err(|error| refused(listen, &error))
}

/// The installation of whoever answers there.
async fn who(address: &str, trust: &Trust) -> Result<Option<String>, String> {
    let asked = async {
        let client = Client::trusting(address, Credentials::None, trust)?;
        Ok::<_, ClientError>(client.health().await?.installation)
    };
    match SystemClock.timeout(ANSWER_WITHIN, asked).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {} s", ANSWER_WITHIN.as_secs())),
    }
}

fn listener(listen: SocketAddr, port: Port) -> std::io::Result<TcpListener> {
    let socket = if listen.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // What the last one here left open does not keep the next from listening.
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(port == Port::Shared)?;
    socket.bind(listen)?;
    socket.listen(WAITING_AT_THE_DOOR)
}

fn refused(listen: SocketAddr, error: &std::io::Error) -> Failure {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => Failure::failed(format!(
            "{listen} is taken by another program; choose another with --listen ({}:0 takes any free port)",
            listen.ip()
        )),
        std::io::ErrorKind::PermissionDenied => {
            Failure::failed(format!("you may not listen on {listen}; choose a port above 1023 with --listen"))
        }
        std::io::ErrorKind::AddrNotAvailable => {
            Failure::failed(format!("{listen} is not an address of this machine; choose another with --listen"))
        }
        _ => Failure::failed(format!("cannot listen on {listen}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_that_is_taken_is_one_line_with_a_remedy() {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let Err(Failure::Said { code, line }) = own(taken.local_addr().unwrap()).await else { panic!("bound twice") };
        assert!(code == 1 && line.contains("--listen") && line.contains("is taken"), "{line}");
    }

    #[tokio::test]
    async fn hundreds_who_come_at_the_same_moment_need_not_ask_again() {
        let door = own("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = door.local_addr().unwrap();
        // Nobody is taken up. Whoever finds no room in the line asks again after a second.
        let all = futures_util::future::join_all((0..300).map(|_| tokio::net::TcpStream::connect(address)));
        let waiting = SystemClock.timeout(Duration::from_millis(900), all).await.expect("somebody was sent away");
        assert!(waiting.iter().all(Result::is_ok));
    }

    /// Answers every request as a manager of that installation would.
    async fn answers_as(listener: TcpListener, installation: &'static str) {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut head = [0; 2_048];
            let _ = socket.read(&mut head).await;
            let body = format!(r#"{{"version":"0","installation":"{installation}"}}"#);
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n{body}"
            );
            let _ = socket.write_all(answer.as_bytes()).await;
        }
    }

    #[tokio::test]
    async fn an_address_is_shared_with_ones_own_and_with_nobody_else() {
        let ours = InstallationId("ours".into());
        let first = listener("127.0.0.1:0".parse().unwrap(), Port::Shared).unwrap();
        let listen = first.local_addr().unwrap();
        let address = format!("http://{listen}");
        let trust = Trust::nobody();
        let there = tokio::spawn(answers_as(first, "ours"));
        let second = shared(listen, &address, &trust, &ours).await.unwrap();
        assert_eq!(second.local_addr().unwrap(), listen);
        drop(second);
        let Err(Failure::Said { line, .. }) = shared(listen, &address, &trust, &InstallationId("theirs".into())).await
        else {
            panic!("joined strangers")
        };
        assert!(line.contains("not a manager of this installation") && line.contains("--listen"), "{line}");
        there.abort();
    }
}
