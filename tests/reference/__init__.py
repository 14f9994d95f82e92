"""A registry in plain Python with RocketMQ's rules, with which the scripts are compared."""
