"""What goes in and comes out, as pydantic models: the shapes that `/openapi.json` shows."""
