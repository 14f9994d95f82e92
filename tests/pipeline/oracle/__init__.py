"""A second implementation of the thirteen questions, in plain Python over lists of dicts, which tests compare with.

It is not fast, and it shares only the columns (`schemas`), windows and thresholds (`history`) and the numbers of the
kinds with the transforms. Each module follows the text of docs/pipeline.md as literally as possible. Where the text
leaves something open, the function that decides it says so.
"""
