"""When a broker is taken for gone, and when nobody may be."""

from typing import Annotated

from pydantic import Field

from routebook.settings.fields.about import About, Duration, Interval, Part


class ExpirySettings(Part):
    broker_timeout_ms: Annotated[
        Annotated[int, Field(ge=1_000, le=86_400_000)],
        About(
            "A broker that named no timeout of its own leaves after this silence; Apache's two minutes.",
            at_run_time=True,
        ),
    ] = 120_000
    scan_not_active_broker_interval_ms: Annotated[
        Interval,
        About(
            "How often the leader looks for silent brokers; Apache's five seconds.",
            properties_name="scanNotActiveBrokerInterval",
        ),
    ] = 5_000
    lease_ms: Annotated[
        Annotated[int, Field(ge=200, le=600_000)],
        About(
            "Life of the leader's lease: a dead leader is followed after it. Shorter follows sooner, and "
            "changes leader at a shorter pause of the store."
        ),
    ] = 10_000
    hold_percent: Annotated[
        Annotated[int, Field(ge=0, le=100)],
        About(
            "More than this share of all instances due in one scan or within hold_window_ms (and hold_minimum of "
            "them) is held for an operator: that many do not die together, a network does.",
            at_run_time=True,
        ),
    ] = 30
    hold_window_ms: Annotated[
        Annotated[int, Field(ge=0, le=3_600_000)],
        About(
            "Expiries this close to each other count together: brokers that fall silent at once fall due spread over "
            "their registration period (30 s; two of them by default). 0: each scan by itself.",
            at_run_time=True,
        ),
    ] = 60_000
    hold_minimum: Annotated[
        Annotated[int, Field(ge=1, le=1_000_000)],
        About(
            "Fewer instances than this are never held: in a small fleet two dead ones are a large share.",
            at_run_time=True,
        ),
    ] = 5
    recovery_window_ms: Annotated[
        Duration,
        About("After the store lost its data, how long the old table is answered; five registration periods."),
    ] = 150_000
    warm_up_ms: Annotated[
        Duration,
        About("A cold worker on a young, empty store says `not ready` for `not found` this long. 0: not at all."),
    ] = 0
    connection_grace_ms: Annotated[
        Annotated[int, Field(ge=0, le=600_000)],
        About(
            "A broker whose last connection ended is dialled once and removed after this, if it is still the same "
            "stay: time enough to come back through another worker. 0: at once, as Apache's does.",
            at_run_time=True,
        ),
    ] = 3_000
    mass_disconnect_percent: Annotated[
        Annotated[int, Field(ge=0, le=100)],
        About(
            "When this share of all sessions (and mass_disconnect_minimum of them) ended within one grace, it is a "
            "mass disconnect: brokers that do not answer then keep their deadlines.",
            at_run_time=True,
        ),
    ] = 20
    mass_disconnect_minimum: Annotated[
        Annotated[int, Field(ge=1, le=1_000_000)],
        About(
            "Fewer lost sessions than this never mean an ill network: one of two is half of a small fleet.",
            at_run_time=True,
        ),
    ] = 3
    unregister_broker_queue_capacity: Annotated[
        Annotated[int, Field(ge=1, le=1_000_000)],
        About(
            "Departures (unregistrations, lost connections) that wait for the store; beyond it they are refused and "
            "the broker's deadline decides. Apache's number.",
            properties_name="unRegisterBrokerQueueCapacity",
        ),
    ] = 3_000
