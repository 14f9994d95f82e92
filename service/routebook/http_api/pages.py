"""`/docs`: Swagger UI from our own files. No page of ours asks another host, and the browser is told to
enforce that.
"""

from pathlib import Path
from typing import Final

from fastapi import APIRouter, FastAPI, Response
from starlette.staticfiles import StaticFiles

_ASSETS: Final = Path(__file__).with_name("assets")

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}

_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Routebook HTTP API</title>
<link rel="icon" type="image/png" href="docs/assets/swagger-ui/favicon-32x32.png">
<link rel="stylesheet" href="docs/assets/swagger-ui/swagger-ui.css">
</head>
<body>
<div id="swagger-ui"></div>
<script src="docs/assets/swagger-ui/swagger-ui-bundle.js"></script>
<script src="docs/assets/start.js"></script>
</body>
</html>
"""

router = APIRouter(include_in_schema=False)


@router.get("/docs")
async def show_docs() -> Response:
    return Response(_PAGE, media_type="text/html", headers=_HEADERS)


def add_pages(app: FastAPI) -> None:
    app.include_router(router)
    app.mount("/docs/assets", StaticFiles(directory=_ASSETS))
