"""The store: the only package that reads and writes Redis or Valkey."""
