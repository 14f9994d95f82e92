"""The console: what its pages show, and how they are rendered. `http_api/console.py` serves them."""
