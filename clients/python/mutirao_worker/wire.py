"""The words on the wire and where they travel, as docs/workers-for-devices.md says."""

import json
import re

LAYERS = ("EDGE", "FOG", "CLOUD")
MESSAGE_BYTES_MAX = 256 << 10
SLOTS_MAX = 256
_NODE = re.compile(r"[A-Za-z0-9:_-]{1,64}\Z")
_NAMESPACE = re.compile(r"[A-Za-z0-9_-]{1,32}\Z")
_ACTION = re.compile(r"urn:[A-Za-z0-9_-]{1,32}:Action:(?=.{1,100}\Z)[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\Z")


def node_id(text):
    if not _NODE.match(text):
        raise ValueError(f"{text!r} is not a node's id: write 1 to 64 letters, digits, -, _ and :")
    return text


def namespace(text):
    if not _NAMESPACE.match(text):
        raise ValueError(f"{text!r} is not a namespace: write 1 to 32 letters, digits, - and _")
    return text


def slots(many):
    if not 1 <= many <= SLOTS_MAX:
        raise ValueError(f"{many} slots are not between 1 and {SLOTS_MAX}")
    return many


def layer(text):
    if text.upper() not in LAYERS:
        raise ValueError(f"{text!r} is not a layer: write edge, fog or cloud")
    return text.upper()


def action_urn(space, name):
    """The whole name of an action, from a whole or a short one."""
    urn = name if name.startswith("urn:") else f"urn:{space}:Action:{name}"
    if not _ACTION.match(urn):
        raise ValueError(f"{name!r} is not an action: write letters, digits, ., - and _, and its version as version=2")
    return urn


def without_version(action):
    return action.split("@", 1)[0]


class Places:
    def __init__(self, space):
        self.register = f"{space}.nodes.register"
        self.ack = f"{space}.nodes.actions-list"
        self.results = f"{space}.task.handler.saida"
        self.beats = f"{space}.manager.available"
        self.beats_topic = f"{space}/manager/available"
        self.unicast = f"{space}.node.unicast"
        self._space = space

    def device_topic(self, node):
        return f"{self._space}/node/{node}/in"

    def unicast_queue(self, node):
        return f"{self._space}.node.unicast.{node}"


def register(node, layer_name, actions, labels, slots):
    said = {
        "endpoint": "",
        "layer": layer_name,
        "type": "python",
        "nodeId": node,
        "forceRegister": True,
        "actions": sorted(actions),
        "slots": slots,
    }
    if labels:
        said["labels"] = labels
    return json.dumps(said)


def read_message(payload):
    """(action, request, input) of a message; ValueError if it is none."""
    if len(payload) > MESSAGE_BYTES_MAX:
        raise ValueError("it is too long")
    said = json.loads(payload)
    if not isinstance(said, dict) or "actionTo" not in said:
        raise ValueError("it has no actionTo")
    request = said.get("requestID", said.get("requestId"))
    if request is None:
        raise ValueError("it has no requestID")
    data = said.get("messageData", "{}")
    if isinstance(data, str):
        try:
            data = json.loads(data)
        except ValueError:
            pass  # A text that is no JSON is given as it is.
    return str(said["actionTo"]), str(request), data


def result(action, request, output):
    # What JSON has no word for (NaN) would be taken for a text over there.
    data = json.dumps(output, allow_nan=False)
    said = json.dumps({"actionTo": action, "requestID": request, "messageData": data})
    if len(said) + 1024 > MESSAGE_BYTES_MAX:
        return failure(action, request, "its output is too long to be sent")
    return said


def failure(action, request, why):
    line = " ".join(str(why).split())[:300] or "it failed without a word"
    return json.dumps({"actionTo": action, "requestID": request, "messageData": json.dumps({"error": line})})
