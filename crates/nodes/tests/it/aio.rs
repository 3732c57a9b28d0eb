//! A worker as the document has one: a program in Python on aio-pika, which knows nothing of us.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use mutirao_core::Dice;
use mutirao_nodes::NodeId;
use mutirao_nodes::errand::{End, Errand, Reach};
use mutirao_nodes::preference::Protocol;
use mutirao_nodes::registry::Presence;
use mutirao_nodes::routing::Ended;
use mutirao_testkit::services::{AMQP_VARIABLE, shared};
use mutirao_testkit::wait::eventually;

use crate::house::LONG;
use crate::rabbit::Yard;

/// Ends with the test.
struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One that has aio-pika, which ./scripts/test installs where it can.
fn python() -> Option<&'static str> {
    let has_it = |python: &&str| {
        let asked = Command::new(python).args(["-B", "-c", "import aio_pika"]).stderr(Stdio::null()).status();
        asked.is_ok_and(|status| status.success())
    };
    let found = ["python3", "/usr/bin/python3"].into_iter().find(has_it);
    if found.is_none() {
        eprintln!("skipped: no Python here has aio-pika; it is in the package python3-aio-pika");
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_on_aio_pika_that_has_only_the_document_does_not_know_whom_it_talks_to() {
    let Some(server) = shared(AMQP_VARIABLE) else { return };
    let Some(python) = python() else { return };
    let namespace = format!("t{:x}", Dice::from_os().u64());
    let yard = Yard::at(&server, &namespace).await;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/aio_worker.py");
    let node: NodeId = "python-worker-01".parse().unwrap();
    let mut command = Command::new(python);
    command.arg("-B").arg(script).args([&server, &namespace, node.as_str()]).stdin(Stdio::null());
    let _worker = Worker(command.spawn().unwrap());
    let is_there = || yard.board.node(&node).is_some_and(|info| info.presence == Presence::Registered);
    eventually("it registers once it hears a beat", LONG, async || is_there()).await;

    for n in 0..5 {
        let request = format!("r{n}");
        let errand = Errand { data: format!("{{\"n\":{n}}}"), ..yard.errand(&request, "actions.double") };
        let gone = yard.board.send(errand).await.unwrap();
        assert_eq!((&gone.node, gone.over), (&node, Protocol::Amqp));
        eventually("it answers", LONG, async || yard.desk.returned.lock().len() == n + 1).await;
        let returned = yard.desk.returned.lock()[n].clone();
        assert_eq!((&returned.request, &returned.end), (&request, &End::Ok(format!("{{\"doubled\": {}}}", 2 * n))));
        assert_eq!(returned.node.as_ref(), Some(&node));
        yard.board.ended(&request, Ended::Well);
    }

    yard.board.forget(&node).await.unwrap();
    assert!(!is_there());
    eventually("it registers again when it is asked to", LONG, async || is_there()).await;
    yard.delete_queue(&yard.name("node.unicast.python-worker-01.python")).await;
    yard.close().await;
}
