//! Held against the words of workers out there. What stands here is never changed, only added to.

use proptest::prelude::*;

use super::places::{Kind, Places};
use super::*;

fn read<T: Word>(text: &str) -> Result<T, Rubbish> {
    T::read(text.as_bytes())
}

#[test]
fn every_word_is_written_as_workers_out_there_read_it() {
    let register = r#"{"endpoint":"http://192.168.1.20:8080","layer":"FOG","type":"PYTHON","nodeId":"python-worker-01","forceRegister":true,"actions":["urn:sapparchi:Action:actions.fetch_data"]}"#;
    assert_eq!(written(&read::<Register>(register).unwrap()), register);
    let beat = r#"{"available":true,"forceRegister":false,"ts":1700000000000,"schema":1}"#;
    assert_eq!(written(&read::<Heartbeat>(beat).unwrap()), beat);
    let ack = r#"{"token":"a1","nodeId":"esp32-01","actions":["urn:sapparchi:Action:actions.fetch_data"]}"#;
    assert_eq!(written(&read::<Ack>(ack).unwrap()), ack);
    let message = r#"{"actionTo":"urn:sapparchi:Action:actions.exemplo","requestID":"sreq.1700000000.123456","messageData":"{\"input\": \"dados\"}"}"#;
    assert_eq!(written(&read::<Message>(message).unwrap()), message);
    let task = r#"{"id":"streq-1234567890","task_id":"urn:sapparchi:Task:exemplo","target_actions":["urn:sapparchi:Action:actions.fetch_data","urn:sapparchi:Action:actions.fator_potencia"],"message_data":"{\"url\": \"http://sensor/data\"}","created_at":1700000000000,"processing_time":0}"#;
    assert_eq!(written(&read::<TaskRequest>(task).unwrap()), task);
    let info = r#"{"keyname":"urn:sapparchi:Action:actions.exemplo","life_state":"ACTIVE","parameters":{"timeout":5000,"retry":3}}"#;
    assert_eq!(written(&serde_json::from_str::<ActionInfo>(info).unwrap()), info);
    assert_eq!(Parameters::default(), Parameters { timeout: 30_000, retry: 3 });
}

#[test]
fn fields_may_come_in_any_order_with_others_between_and_small_slips_are_understood() {
    // As the microcontroller's code orders them.
    let message: Message =
        read("{\"requestID\":\"r\",\"actionTo\":\"a\",\"messageData\":\"{}\",\"reply_to\":\"q\",\"x\":[1]}\0").unwrap();
    assert_eq!((message.request.as_str(), message.action.as_str(), message.data.as_str()), ("r", "a", "{}"));
    let message: Message = read(r#"{"requestID":7,"actionTo":"a","messageData":{"v":[1,2]}}"#).unwrap();
    assert_eq!((message.request.as_str(), message.data.as_str()), ("7", r#"{"v":[1,2]}"#));
    let register: Register =
        read(r#"{"nodeId":"n","layer":"edge","forceRegister":"true","endpoint":null,"mac":"x"}"#).unwrap();
    assert_eq!((register.layer, register.force_register, register.endpoint.as_str()), (Layer::Edge, true, ""));
    let beat: Heartbeat = read(r#"{"ts":"17","forceRegister":1}"#).unwrap();
    assert_eq!(beat, Heartbeat { available: true, force_register: true, ts: 17, schema: 1 });
    let beat: Heartbeat = read(r#"{"ts":1.7e12}"#).unwrap();
    assert_eq!(beat.ts, 1_700_000_000_000);
    let task: TaskRequest = read(r#"{"id":"x","task_id":"t","target_actions":["a"],"message_data":{"a":1}}"#).unwrap();
    assert_eq!((task.message_data.as_str(), task.created_at), (r#"{"a":1}"#, None));
}

#[test]
fn an_action_may_be_told_with_what_it_declares() {
    let text = r#"{"endpoint":"","layer":"EDGE","type":"x","nodeId":"n","forceRegister":false,"actions":["urn:sapparchi:Action:a",{"keyname":"urn:sapparchi:Action:b","life_state":"ACTIVE","parameters":{"timeout":5000,"retry":1}}]}"#;
    let register: Register = read(text).unwrap();
    assert_eq!(register.actions, ["urn:sapparchi:Action:a", "urn:sapparchi:Action:b"]);
    let declared = Parameters { timeout: 5_000, retry: 1 };
    assert_eq!(register.parameters.iter().collect::<Vec<_>>(), [(&"urn:sapparchi:Action:b".to_owned(), &declared)]);
    assert_eq!(written(&register), text);
    let with = |action: &str| read::<Register>(&format!(r#"{{"nodeId":"n","layer":"EDGE","actions":[{action}]}}"#));
    let slips =
        with(r#"{"keyname":"k","parameters":{"timeout":"250"}},{"keyname":"gone","life_state":"INACTIVE"}"#).unwrap();
    assert_eq!((slips.actions.len(), slips.parameters["k"]), (1, Parameters { timeout: 250, retry: 3 }));
    for (wrong, why) in [
        (r#"{"keyname":"k","parameters":{"timeout":-1}}"#, "-1 is too small or too large"),
        (r#"{"keyname":"k","parameters":{"retry":99999999999}}"#, "is too small or too large"),
        (r#"{"name":"k"}"#, "missing field `keyname`"),
        ("7", "an action: "),
    ] {
        let said = with(wrong).unwrap_err().to_string();
        assert!(said.contains(why), "{wrong}: {said}");
    }
}

#[test]
fn rubbish_says_in_a_line_what_is_wrong() {
    let line = |result: Result<Register, Rubbish>| result.unwrap_err().to_string();
    assert_eq!(
        line(read(r#"{"nodeId":"n","layer":"MIST","actions":[]}"#)),
        "\"MIST\" is not a layer: write EDGE, FOG or CLOUD"
    );
    assert!(line(read(r#"{"nodeId":"a/#","layer":"FOG"}"#)).contains("is not a node's id"));
    assert!(line(read(r#"{"nodeId":"a","nodeId":"b","layer":"FOG"}"#)).contains("duplicate field `nodeId`"));
    assert!(line(read(r#"{"nodeId":"a","layer":"FOG","forceRegister":2}"#)).contains("2 is neither true nor false"));
    assert!(line(read("not json")).starts_with("a registration cannot be read: "));
    let many = format!(r#"{{"nodeId":"a","layer":"FOG","actions":[{}"x"]}}"#, r#""x","#.repeat(ACTIONS_MAX));
    assert!(line(read(&many)).contains("names 257 actions"));
    let long = format!(r#"{{"nodeId":"a","layer":"FOG","endpoint":"{}"}}"#, "x".repeat(301));
    assert!(line(read(&long)).contains("more than 300 characters"));
    let huge = " ".repeat(MESSAGE_BYTES_MAX + 1);
    assert!(matches!(read::<Message>(&huge), Err(Rubbish::Long { .. })));
    let empty = read::<TaskRequest>(r#"{"id":"x","task_id":"t","target_actions":[]}"#);
    assert!(empty.unwrap_err().to_string().contains("there is nothing to do"));
    assert!(read::<Message>(r#"{"actionTo":"a","requestID":""}"#).is_err(), "nobody could be answered");
}

#[test]
fn places_are_those_of_the_document_in_its_namespace() {
    let places = Places("sapparchi".parse().unwrap());
    let node: NodeId = "python-worker-01".parse().unwrap();
    assert_eq!(places.register(), "sapparchi.nodes.register");
    assert_eq!(places.ack(), "sapparchi.nodes.actions-list");
    assert_eq!(places.results(), "sapparchi.task.handler.saida");
    assert_eq!(places.results_misprinted(), "sapparchi.task.handler_saida");
    assert_eq!(places.results_group(), "sapparchi.task.handler.saida.sapparchi.manager");
    assert_eq!(places.requests(), "sapparchi.process.request.entrada");
    assert_eq!(places.finals(), "sapparchi.task.final.saida");
    assert_eq!(places.beats(), "sapparchi.manager.available");
    assert_eq!(places.beats_topic(), "sapparchi/manager/available");
    assert_eq!(places.unicast(), "sapparchi.node.unicast");
    assert_eq!(places.unicast_queue(&node), "sapparchi.node.unicast.python-worker-01");
    assert_eq!(places.device_topic(&node), "sapparchi/node/python-worker-01/in");
    assert_eq!(places.http_url("http://192.168.1.20:8080/").unwrap(), "http://192.168.1.20:8080/sapparchi/messages");
    assert!(places.http_url("192.168.1.20").is_err());
    assert_eq!(task_urn(&places.0, "x"), "urn:sapparchi:Task:x");
    assert_eq!(Places(Namespace::default()).register(), "mutirao.nodes.register");
}

#[test]
fn what_comes_with_dots_or_slashes_is_told_apart_and_what_is_not_ours_is_nobodys() {
    let places = Places("sapparchi".parse().unwrap());
    for (place, kind) in [
        ("sapparchi.nodes.register", Some(Kind::Register)),
        ("sapparchi/nodes/register", Some(Kind::Register)),
        ("sapparchi.task.handler_saida", Some(Kind::Result)),
        ("sapparchi.task.handler.saida", Some(Kind::Result)),
        ("sapparchi/manager/available", Some(Kind::Beat)),
        ("sapparchi.nodes.actions-list", Some(Kind::Ack)),
        ("sapparchi.task.final.saida", Some(Kind::Final)),
        ("sapparchi.process.request.entrada", Some(Kind::Request)),
        ("sapparchi/node/n1/in", Some(Kind::In("n1".parse().unwrap()))),
        ("sapparchi/node/a/b/in", None),
        ("sapparchi2.nodes.register", None),
        ("mutirao.nodes.register", None),
        ("sapparchi", None),
    ] {
        assert_eq!(places.kind_of(place), kind, "{place}");
    }
}

#[test]
fn a_devices_buffer_holds_the_whole_packet_or_it_is_not_sent() {
    let topic = "sapparchi/node/n1/in";
    let room = DEVICE_BYTES_MAX - 9 - topic.len();
    assert!(fits_device(topic, &"x".repeat(room)));
    assert!(!fits_device(topic, &"x".repeat(room + 1)));
}

proptest! {
    #[test]
    fn whatever_bytes_come_are_read_or_refused_and_what_was_read_reads_back(bytes in prop::collection::vec(any::<u8>(), 0..200), data: String) {
        let _ = Register::read(&bytes);
        let _ = Heartbeat::read(&bytes);
        let _ = TaskRequest::read(&bytes);
        let message = Message { action: "a".into(), request: "r".into(), data };
        prop_assert_eq!(Message::read(written(&message).as_bytes()), Ok(message));
    }
}
