"""A registry in plain Python that follows RocketMQ's rules to the letter: the scripts must agree with it."""
