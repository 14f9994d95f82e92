"""Helpers that several test packages share: stores, proxies that inject faults, peers, waiting. They start real
processes and use no mocks."""
