"""Which handler answers which code."""

from collections.abc import Mapping

from routebook.registry.registry import Registry
from routebook.remoting_api.body_reader import BodyReader
from routebook.remoting_api.handlers.asking import Asking, Handler
from routebook.remoting_api.handlers.brokers import BrokerHandlers
from routebook.remoting_api.handlers.configuration import ConfigurationHandlers
from routebook.remoting_api.handlers.key_values import KeyValueHandlers
from routebook.remoting_api.handlers.lists import ListHandlers
from routebook.remoting_api.handlers.topics import TopicHandlers
from routebook.remoting_api.reply import Reply
from routebook.settings import LiveSettings
from routebook.wire.codes import RequestCode


def handlers_by_code(registry: Registry, live: LiveSettings, reader: BodyReader) -> Mapping[int, Handler]:
    """All but the lookup (105), which is answered without a turn in the queue."""
    brokers = BrokerHandlers(registry, live, reader)
    lists = ListHandlers(registry, live)
    topics = TopicHandlers(registry)
    key_values = KeyValueHandlers(registry)
    configuration = ConfigurationHandlers(registry, live)

    def writing(handle: Handler) -> Handler:
        """Each call to a store that is silent takes its whole time; with as many runners as there are, hundreds of
        brokers would wait for a minute to be refused.
        """

        async def handle_if_the_store_answers(asking: Asking) -> Reply | None:
            registry.check_store_answers()
            return await handle(asking)

        return handle_if_the_store_answers

    return {
        RequestCode.PUT_KV_CONFIG: writing(key_values.put),
        RequestCode.GET_KV_CONFIG: key_values.get,
        RequestCode.DELETE_KV_CONFIG: writing(key_values.delete),
        RequestCode.REGISTER_BROKER: brokers.register,
        RequestCode.UNREGISTER_BROKER: writing(brokers.unregister),
        RequestCode.GET_BROKER_CLUSTER_INFO: lists.cluster_info,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER: writing(topics.wipe_write_permission),
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: lists.all_topics,
        RequestCode.DELETE_TOPIC_IN_NAMESRV: writing(topics.delete),
        RequestCode.REGISTER_TOPIC_IN_NAMESRV: writing(topics.register),
        RequestCode.GET_KVLIST_BY_NAMESPACE: key_values.list,
        RequestCode.GET_TOPICS_BY_CLUSTER: lists.topics_of_cluster,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: lists.system_topics,
        RequestCode.GET_UNIT_TOPIC_LIST: lists.unit_topics,
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: lists.unit_subscription_topics,
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: lists.unit_subscription_topics_without_unit,
        RequestCode.UPDATE_NAMESRV_CONFIG: configuration.update,
        RequestCode.GET_NAMESRV_CONFIG: configuration.show,
        RequestCode.QUERY_DATA_VERSION: writing(brokers.query_data_version),
        RequestCode.ADD_WRITE_PERM_OF_BROKER: writing(topics.add_write_permission),
        RequestCode.GET_BROKER_MEMBER_GROUP: brokers.member_group,
        RequestCode.BROKER_HEARTBEAT: writing(brokers.heartbeat),
    }
