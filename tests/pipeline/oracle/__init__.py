"""The twelve questions once more, in plain Python over lists of dicts: what the transforms are compared with.

Nothing here is fast and nothing is shared with the transforms but the columns (`schemas`, `shapes`), the window and the
thresholds (`history`) and the numbers of the kinds. Each module follows one question of docs/pipeline.md as literally
as it can; where the text leaves something open, the function that decides it says so.
"""
