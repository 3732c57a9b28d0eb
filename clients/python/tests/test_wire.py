import json
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from mutirao_worker import wire  # noqa: E402
from mutirao_worker.enrolment import Enrolment  # noqa: E402
from mutirao_worker.mqtt import packet, text  # noqa: E402


class Wire(unittest.TestCase):
    def test_names_that_would_misroute_are_refused(self):
        self.assertEqual(wire.action_urn("lab", "a.b"), "urn:lab:Action:a.b")
        for bad in ("a/b", "a..b", "", "a#", "a b", "x" * 101):
            with self.assertRaises(ValueError, msg=bad):
                wire.action_urn("lab", bad)
        for bad in ("a.b", "a/b", "", "x" * 65):
            with self.assertRaises(ValueError, msg=bad):
                wire.node_id(bad)
        with self.assertRaises(ValueError):
            wire.layer("sky")

    def test_a_message_is_read_and_a_result_is_exact(self):
        asked = {"actionTo": "urn:m:Action:a", "requestID": 7, "messageData": '{"x": 1}', "more": True}
        self.assertEqual(wire.read_message(json.dumps(asked).encode()), ("urn:m:Action:a", "7", {"x": 1}))
        said = json.loads(wire.result("urn:m:Action:a", "7", {"y": [1]}))
        self.assertEqual(said, {"actionTo": "urn:m:Action:a", "requestID": "7", "messageData": '{"y": [1]}'})
        failed = json.loads(wire.failure("a", "7", "two\nlines"))
        self.assertEqual(json.loads(failed["messageData"]), {"error": "two lines"})
        long = json.loads(wire.result("a", "7", "x" * 300_000))
        self.assertIn("too long", long["messageData"])
        for bad in (b"[]", b"{}", b"nothing", b'{"actionTo": "a"}'):
            with self.assertRaises(ValueError, msg=bad):
                wire.read_message(bad)

    def test_lengths_are_written_as_the_standard_says(self):
        self.assertEqual(packet(3, 2, b"x" * 127)[:2], b"\x32\x7f")
        self.assertEqual(packet(3, 0, b"x" * 128)[:3], b"\x30\x80\x01")
        self.assertEqual(packet(3, 0, b"x" * 16384)[:4], b"\x30\x80\x80\x01")
        self.assertEqual(text("né"), b"\x00\x03n\xc3\xa9")


class Registration(unittest.TestCase):
    def test_it_asks_when_connected_then_patiently_and_on_forced_beats(self):
        one = Enrolment("n")
        self.assertFalse(one.beat({"ts": 1}, 0))
        self.assertTrue(one.connected(0))
        self.assertFalse(one.tick(9))
        self.assertTrue(one.tick(10))
        one.acknowledged({"nodeId": "other"})
        self.assertFalse(one.registered)
        one.acknowledged({"nodeId": "n"})
        self.assertFalse(one.beat({"ts": 2}, 21))
        self.assertTrue(one.beat({"ts": 3, "forceRegister": True}, 22))
        self.assertFalse(one.beat({"ts": 3, "forceRegister": True}, 40), "the same beat by another way")
        self.assertTrue(one.registered)
        self.assertTrue(one.tick(60), "half a minute of silence")
        one.disconnected()
        self.assertFalse(one.tick(200))


if __name__ == "__main__":
    unittest.main()
