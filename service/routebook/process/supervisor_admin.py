"""The admin port of a service with several workers: all are asked, the answers become one.

As for one worker: `/livez` asks nobody; `/readyz` is about being able to answer, and one ready worker can,
since all accept from the same socket.
"""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from routebook.observability.exposition import Merging, Seen
from routebook.observability.metrics import CONTENT_TYPE, process_exposition
from routebook.process.children import Child
from routebook.process.stopping import Stop

_ASK_SECONDS = 2.0


class SupervisorAdmin:
    def __init__(self, children: Sequence[Child], stop: Stop) -> None:
        self._children = children
        self._stop = stop
        self._merging = Merging()
        self._one_at_a_time = asyncio.Lock()

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/livez", self._livez),
                Route("/readyz", self._readyz),
                Route("/metrics", self._metrics),
            ]
        )

    async def _livez(self, _: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def _readyz(self, _: Request) -> Response:
        answers = await self._ask_all("/readyz")
        ready = sum(answer is not None and answer.status_code == 200 for answer in answers)
        draining = self._stop.asked.is_set()
        body = {
            "status": "draining" if draining else "ok" if ready else "not ready",
            "ready_workers": ready,
            "workers": {str(child.seat.number): _said(answer) for child, answer in self._pairs(answers)},
        }
        return JSONResponse(body, status_code=200 if ready and not draining else 503)

    async def _metrics(self, _: Request) -> Response:
        generations = [child.restarts for child in self._children]
        answers = await self._ask_all("/metrics")
        seen = [
            Seen(str(child.seat.number), generation, answer.text)
            for (child, answer), generation in zip(self._pairs(answers), generations, strict=True)
            if answer is not None and answer.status_code == 200
        ]
        own = (
            "# HELP routebook_workers Worker processes that answer.\n# TYPE routebook_workers gauge\n"
            f"routebook_workers {len(seen)}\n"
            "# HELP routebook_workers_wanted Worker processes that there should be.\n"
            "# TYPE routebook_workers_wanted gauge\n"
            f"routebook_workers_wanted {len(self._children)}\n"
            "# HELP routebook_worker_restarts_total Worker processes started again after they died.\n"
            "# TYPE routebook_worker_restarts_total counter\n"
            f"routebook_worker_restarts_total {sum(child.restarts for child in self._children)}\n"
        )
        # This process takes memory, descriptors and time as well, and a limit is one for all.
        seen.append(Seen("supervisor", 0, process_exposition()))
        async with self._one_at_a_time:
            merged = await asyncio.to_thread(self._merging.merge, seen)
        return PlainTextResponse(merged + own, headers={"content-type": CONTENT_TYPE})

    def _pairs(self, answers: list[httpx.Response | None]) -> list[tuple[Child, httpx.Response | None]]:
        return list(zip(self._children, answers, strict=True))

    async def _ask_all(self, path: str) -> list[httpx.Response | None]:
        return await asyncio.gather(*(_ask(child.seat.admin_path, path) for child in self._children))


async def _ask(socket_path: Path, path: str) -> httpx.Response | None:
    transport = httpx.AsyncHTTPTransport(uds=str(socket_path))
    try:
        async with httpx.AsyncClient(transport=transport, timeout=_ASK_SECONDS) as client:
            return await client.get(f"http://worker{path}")
    except httpx.HTTPError:
        return None


def _said(answer: httpx.Response | None) -> object:
    if answer is None:
        return "no answer"
    try:
        return answer.json()
    except json.JSONDecodeError:
        return answer.text
