//! What is done about one host beside the listings: connecting, looking, copying, starting. Each step can be done again, and finds
//! what a former one left.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mutirao_core::Clock;

use super::{CA, Host, PIN};
use crate::local::wire::{self, Answer, Request};
use crate::ssh::line::Line;
use crate::ssh::means::Reach;
use crate::ssh::needs::{self, Needs};
use crate::ssh::script::{self, Facts};
use crate::ssh::spec::HostSpec;

/// Scripts that look and start, and the program on its way.
const SCRIPT_MAX: Duration = Duration::from_secs(40);
const COPY_MAX: Duration = Duration::from_secs(900);
/// Tries with the port that workers know, before another is taken.
const PORT_TRIES: u32 = 5;

/// Why a host is not as it should be.
pub(super) enum Trouble {
    /// It is there, and does not fit.
    Refused(String),
    /// It, or the way to it, failed.
    Failed(String),
}

impl From<String> for Trouble {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

/// How a piece of work went.
pub(super) enum Done {
    /// It is free.
    Free(Facts),
    /// Its agent answers.
    Up(Facts, Option<u16>),
}

impl Host {
    /// Brings it to what it should be: looks, and has an agent there if it is held.
    pub(super) async fn work(&self) -> Result<Done, Trouble> {
        let (means, spec) = (&*self.means, &self.spec);
        let needs = means.needs().await?;
        if !self.line.is_open().await {
            self.line.open(&script::hold(spec, &means.owner)).await?;
        }
        let worked = self.work_over(needs).await;
        if !matches!(worked, Ok(Done::Up(..))) {
            self.line.close().await;
        }
        worked
    }

    async fn work_over(&self, needs: &Needs) -> Result<Done, Trouble> {
        let (means, spec) = (&*self.means, &self.spec);
        let said = self.line.run(&script::look(spec, &means.owner, &needs.digest), SCRIPT_MAX).await?;
        let facts = script::judge(&said, spec, needs).map_err(Trouble::Refused)?;
        let (wanted, failures) = {
            let state = self.state.lock();
            (state.held && !state.leaving, state.failures)
        };
        if !facts.alive && !wanted {
            return Ok(Done::Free(facts));
        }
        if !facts.program && !facts.alive {
            let take = script::take_program(spec, &means.owner, &needs.digest);
            self.line.send(&take, &means.program, COPY_MAX).await.map_err(|why| format!("copying: {why}"))?;
            tracing::info!(host = %spec.name, "the program is copied");
        }
        for (file, name) in [(Some(&means.pin), PIN), (means.ca.as_ref(), CA)] {
            if let Some(file) = file.filter(|file| file.exists()) {
                self.line.send(&script::take_file(spec, &means.owner, name), file, SCRIPT_MAX).await?;
            }
        }
        let port = match &means.reach {
            Reach::Line { address, .. } => Some(self.lend(address, facts.port, failures).await?),
            Reach::Url(_) => None,
        };
        if !facts.alive {
            let start = script::start(spec, &means.owner, &needs.digest, &facts.capacity);
            self.line.run(&start, SCRIPT_MAX).await.map_err(|why| format!("starting: {why}"))?;
        }
        self.line.bring_socket(wire::SOCKET, &format!("{}/{}", facts.folder, wire::SOCKET)).await?;
        match self.ask(Request::List, None).await? {
            Answer::Have { .. } => Ok(Done::Up(facts, port)),
            Answer::Done | Answer::Failed { .. } => Err(Trouble::Failed("its agent says something else".into())),
        }
    }

    /// At the port that workers there know, if there are any.
    async fn lend(&self, address: &str, known: Option<u16>, failures: u32) -> Result<u16, String> {
        let known = known.filter(|_| failures < PORT_TRIES);
        let port =
            self.line.lend_address(known, address).await.map_err(|why| format!("a way to the manager: {why}"))?;
        if known != Some(port) {
            self.line.run(&script::keep_port(&self.spec, &self.means.owner, port), SCRIPT_MAX).await?;
        }
        Ok(port)
    }
}

/// Looks at a host once, for people: what it gives, or why it cannot be used. Changes nothing but for the folders it makes there.
pub async fn inspect(spec: &HostSpec, program: &Path, dir: &Path, clock: Arc<dyn Clock>) -> Result<String, String> {
    let program = program.to_owned();
    let needs = tokio::task::spawn_blocking(move || needs::read(&program)).await.map_err(|error| error.to_string())?;
    let needs = needs.map_err(|error| error.to_string())?;
    let line = Line::new(dir.join(&spec.name), spec.clone(), clock);
    // Whose node is there does not matter for whether it could be used.
    line.open("echo up; sleep 60").await?;
    let said = line.run(&script::look(spec, "", &needs.digest), SCRIPT_MAX).await;
    line.close().await;
    let said = said?.replace("ours=", "") + "ours=yes\n";
    let facts = script::judge(&said, spec, &needs)?;
    Ok(format!("{} cpus, {}", facts.capacity.cpus, facts.capacity.memory))
}
