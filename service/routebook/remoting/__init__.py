"""RocketMQ's own port: brokers, clients and tools speak to it as to Apache's name server."""
