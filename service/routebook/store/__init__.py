"""The only package that talks to Redis: keys, scripts, one function a script, and what the replica reads."""
