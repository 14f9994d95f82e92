"""A snapshot of the table. One step without a pause, so all of it is of one version; what it copies are references."""

from collections import defaultdict
from collections.abc import Callable, Mapping

from routebook.model.broker import BrokerGroup, Instance
from routebook.model.snapshot import GroupSnapshot, MemberSnapshot, Snapshot, Taken
from routebook.replica.table import Table


def take_snapshot(table: Table, taken: Taken, *, masked: Callable[[str, str], str]) -> Snapshot:
    """`masked`: what may be shown of a setting's value; one of which that is not all of it is left out."""
    secrets = [key for key, value in sorted(table.settings.items()) if masked(key, value) != value]
    instances: dict[str, list[Instance]] = defaultdict(list)
    for instance in table.instances.values():
        instances[instance.broker].append(instance)
    return Snapshot(
        taken=taken,
        groups=tuple(_group(table, table.groups[name], instances[name]) for name in sorted(table.groups)),
        key_values={namespace: dict(sorted(values.items())) for namespace, values in sorted(table.kv.items())},
        settings={key: value for key, value in sorted(table.settings.items()) if key not in secrets},
        left_out=(*_left_out(table, instances), *(f"setting {key}: a secret" for key in secrets)),
    )


def _group(table: Table, group: BrokerGroup, instances: list[Instance]) -> GroupSnapshot:
    seated = [one for one in instances if group.addresses.get(one.broker_id) == one.address]
    told = {one.broker_id for one in seated if one.cluster == group.cluster}
    members = [
        MemberSnapshot(
            one.broker_id, one.address, one.cluster, one.ha_address, one.timeout_ms, one.data_version, one.filters
        )
        for one in seated
    ]
    # Its live entry may be another group's: two that name one address share it.
    members += [
        MemberSnapshot(broker_id, address, group.cluster)
        for broker_id, address in group.addresses.items()
        if broker_id not in told
    ]
    return GroupSnapshot(
        name=group.name,
        cluster=group.cluster,
        zone=group.zone,
        acting_master=group.acting_master,
        members=tuple(sorted(members, key=lambda one: (one.cluster != group.cluster, one.cluster, one.broker_id))),
        queues=dict(table.queues_of(group.name)),
        mappings=dict(table.mappings_of_broker(group.name)),
    )


def _left_out(table: Table, instances: Mapping[str, list[Instance]]) -> list[str]:
    seatless = [
        f"{one.cluster}/{one.address} of {name}: an address without a seat"
        for name, found in sorted(instances.items())
        for one in found
        if name not in table.groups or table.groups[name].addresses.get(one.broker_id) != one.address
    ]
    gone = [
        f"{name}: {len(table.mappings_of_broker(name))} static mappings of a group that is gone"
        for name in sorted(table.names() - table.groups.keys())
        if table.mappings_of_broker(name)
    ]
    return seatless + gone
