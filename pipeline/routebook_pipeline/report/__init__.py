"""The report: one self-contained HTML page with all answers."""
