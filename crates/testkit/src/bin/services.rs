//! Starts PostgreSQL, RabbitMQ and Redis in one temporary folder, runs a command that finds them in its environment,
//! and clears everything away, also when interrupted: `services run [--keep] -- COMMAND…`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use mutirao_core::{Clock, SessionId, SystemClock};
use mutirao_testkit::launch::RUN_MARK;
use mutirao_testkit::services::{AMQP_MANAGEMENT_VARIABLE, AMQP_VARIABLE, POSTGRES_VARIABLE, REDIS_VARIABLE, Service};
use mutirao_testkit::sweep;
use rustix::process::{Pid, Signal as Ask, kill_process};
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal, SignalKind, signal};

const USAGE: &str = "usage: services run [--keep] -- COMMAND…";
const INTERRUPTED: u8 = 130;
/// What the command gets to end in after each hint, before a stronger one.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

const SWEPT_WITHIN: Duration = Duration::from_secs(2);

struct Order {
    /// Leave the folder, with its logs, behind.
    keep: bool,
    command: Vec<String>,
}

fn order() -> Option<Order> {
    let mut args = std::env::args().skip(1);
    let mut keep = false;
    if args.next()? != "run" {
        return None;
    }
    loop {
        match args.next()?.as_str() {
            "--keep" => keep = true,
            "--" => break,
            _ => return None,
        }
    }
    let command: Vec<String> = args.collect();
    (!command.is_empty()).then_some(Order { keep, command })
}

fn main() -> ExitCode {
    let Some(order) = order() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match marked().and_then(|mark| run(order, folder()?, &mark)) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("services: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Becomes this program again with a mark in the environment, which everything started from here on inherits. The mark
/// begins with our pid, which outlives that change: so one from a run around us is not taken for ours.
fn marked() -> anyhow::Result<String> {
    use std::os::unix::process::CommandExt;
    let own = format!("{}-", std::process::id());
    match std::env::var(RUN_MARK) {
        Ok(mark) if mark.starts_with(&own) => Ok(mark),
        _ => {
            let mut again = std::process::Command::new(std::env::current_exe()?);
            Err(again.args(std::env::args_os().skip(1)).env(RUN_MARK, own + &SessionId::random().0).exec().into())
        }
    }
}

/// Others may pass through but not look: PostgreSQL runs as another user.
fn folder() -> anyhow::Result<tempfile::TempDir> {
    use std::os::unix::fs::PermissionsExt;
    let passable = std::fs::Permissions::from_mode(0o711);
    Ok(tempfile::Builder::new().prefix("mutirao-services.").permissions(passable).tempdir()?)
}

#[tokio::main]
async fn run(order: Order, mut folder: tempfile::TempDir, mark: &str) -> anyhow::Result<u8> {
    let mut signals = Signals::new()?;
    let ended = with_services(&order, folder.path(), mark, &mut signals).await;
    // Whatever the command's children left behind, and whatever a failed start did.
    sweep_up(mark);
    if order.keep {
        folder.disable_cleanup(true);
        eprintln!("services: logs and data are kept in {}", folder.path().display());
    }
    ended
}

/// QUIT is what PostgreSQL stops at once on, without leaving shared memory behind; the others end on it too.
fn sweep_up(mark: &str) {
    sweep::end_all(Ask::QUIT, SWEPT_WITHIN, |process| sweep::is_marked(process.pid, RUN_MARK, mark));
}

async fn with_services(order: &Order, folder: &Path, mark: &str, signals: &mut Signals) -> anyhow::Result<u8> {
    let began = SystemClock.monotonic();
    let own = folder.to_path_buf();
    let mut starting = tokio::task::spawn_blocking(move || start_all(own));
    let services = tokio::select! {
        started = &mut starting => started??,
        code = signals.next() => {
            // The starts fail as their processes are taken from them.
            while !starting.is_finished() {
                sweep_up(mark);
                SystemClock.sleep(Duration::from_millis(50)).await;
            }
            return Ok(code);
        }
    };
    let took = SystemClock.monotonic().since(began);
    eprintln!("services: postgres, rabbitmq and redis are up after {:.1} s", took.as_secs_f64());

    let mut command = Command::new(&order.command[0]);
    command.args(&order.command[1..]);
    for (variable, service) in &services {
        command.env(variable, service.url());
        command.envs(service.management_url().map(|url| (AMQP_MANAGEMENT_VARIABLE, url)));
    }
    let mut child = command.spawn().with_context(|| format!("{} cannot be started", order.command[0]))?;
    let code = tokio::select! {
        status = child.wait() => code_of(status?),
        code = signals.next() => {
            // A terminal's Ctrl-C has reached the command as well; other signals were for us alone.
            let first = if code == INTERRUPTED { ENDS_WITHIN } else { Duration::ZERO };
            end(&mut child, first, signals).await;
            code
        }
    };
    drop(services);
    Ok(code)
}

type Started = Vec<(&'static str, Service)>;

/// All three at once, since RabbitMQ takes as long as the others together.
fn start_all(folder: PathBuf) -> anyhow::Result<Started> {
    let folder = folder.as_path();
    std::thread::scope(|scope| {
        let starts = [
            (POSTGRES_VARIABLE, scope.spawn(move || Service::postgres(folder))),
            (AMQP_VARIABLE, scope.spawn(move || Service::rabbitmq(folder))),
            (REDIS_VARIABLE, scope.spawn(move || Service::redis(folder))),
        ];
        let joined = starts.map(|(variable, start)| {
            let service = start.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a start panicked")))?;
            Ok((variable, service))
        });
        joined.into_iter().collect()
    })
}

/// By itself first, then asked, then made to.
async fn end(child: &mut Child, by_itself_within: Duration, signals: &mut Signals) {
    let pid = child.id().and_then(|pid| Pid::from_raw(pid as i32));
    for (patience, asking) in [(by_itself_within, Ask::TERM), (ENDS_WITHIN, Ask::KILL)] {
        tokio::select! {
            _ = child.wait() => return,
            () = SystemClock.sleep(patience) => {}
            // Somebody is in a hurry.
            _ = signals.next() => {}
        }
        if let Some(pid) = pid {
            let _ = kill_process(pid, asking);
        }
    }
    let _ = child.wait().await;
}

fn code_of(status: std::process::ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// The next one, as the exit code that tells of it.
    async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => INTERRUPTED,
            _ = self.terminate.recv() => 143,
            _ = self.hang_up.recv() => 129,
        }
    }
}
