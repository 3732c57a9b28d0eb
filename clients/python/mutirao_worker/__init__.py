"""Workers for Mutirão: actions over MQTT or AMQP, in ten lines."""

from .worker import Failed, Worker

__all__ = ["Failed", "Worker"]
