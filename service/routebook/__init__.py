"""Routebook: the name service for RocketMQ fleets, scaled out on Redis."""

__version__ = "0.1.0"
