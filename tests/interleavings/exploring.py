"""Runs a scenario in all orders of its actors' steps, or in a sample of them."""

import asyncio
import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from routebook.store.connection.client import StoreClient
from routebook.store.keys import Keys
from routebook.store.namespace import Namespace, ScriptSet
from tests.interleavings.world import BrokenInvariantError, Step, World

CONCURRENT = 24
"""Orders that run at the same time, each in a namespace of its own, so that the store is never idle."""
Actors = Sequence[Sequence[Step]]


@dataclass
class Explored:
    orders: int = 0
    removals: int = 0
    kept: int = 0
    """Orders at whose end the broker was in the table and alive."""


def number_of_orders(actors: Actors) -> int:
    total = math.factorial(sum(map(len, actors)))
    return total // math.prod(math.factorial(len(steps)) for steps in actors)


def all_orders(lengths: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Each order as the numbers of the actors that take a step."""
    if not any(lengths):
        yield ()
    for actor, left in enumerate(lengths):
        if left:
            rest = [count - (number == actor) for number, count in enumerate(lengths)]
            yield from ((actor, *order) for order in all_orders(rest))


def sampled_orders(lengths: Sequence[int], count: int, seed: int) -> Iterator[tuple[int, ...]]:
    """Distinct ones, if there are that many."""
    rng = random.Random(seed)
    turns = [actor for actor, length in enumerate(lengths) for _ in range(length)]
    seen: set[tuple[int, ...]] = set()
    while len(seen) < count:
        order = tuple(rng.sample(turns, len(turns)))
        if order not in seen:
            seen.add(order)
            yield order


async def explore(
    client: StoreClient,
    actors: Actors,
    *,
    at_most: int | None = None,
    seed: int = 1,
    scripts: ScriptSet | None = None,
) -> Explored:
    """Fails with the first order that breaks an invariant, step by step."""
    lengths = [len(steps) for steps in actors]
    total = number_of_orders(actors)
    orders = all_orders(lengths) if at_most is None or at_most >= total else sampled_orders(lengths, at_most, seed)
    script_set, explored, numbers = scripts or ScriptSet.load(), Explored(), itertools.count()

    async def run_orders() -> None:
        for order in orders:
            await _run_order(client, script_set, f"i-{next(numbers)}", actors, order, explored)

    async with asyncio.TaskGroup() as runners:
        for _ in range(CONCURRENT):
            runners.create_task(run_orders())
    return explored


async def _run_order(
    client: StoreClient, scripts: ScriptSet, name: str, actors: Actors, order: Sequence[int], explored: Explored
) -> None:
    world = World(Namespace(client, Keys(name), scripts))
    await world.begin()
    remaining, taken = [iter(steps) for steps in actors], []
    for actor in order:
        step = next(remaining[actor])
        taken.append(step.__name__)
        try:
            await step(world)
            await world.check()
        except BrokenInvariantError as broken:
            raise BrokenInvariantError(f"{broken}, after: {' · '.join(taken)}") from None
    explored.orders += 1
    explored.removals += world.removals > 0
    explored.kept += world.broker.acknowledged
    await client.call("DEL", *await client.call("KEYS", Keys(name).table("*")))
