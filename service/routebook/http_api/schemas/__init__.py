"""Request and response bodies as pydantic models: the schemas in `/openapi.json`."""
