"""What requests of RocketMQ peers are answered: the switches of Apache's name server."""

from typing import Annotated

from pydantic import AfterValidator, Field

from routebook.settings.fields.about import About, Part, check_addresses_text


class RouteSettings(Part):
    support_acting_master: Annotated[
        bool,
        About(
            "A group without a master answers its lowest slave as acting master; off as in Apache's.",
            properties_name="supportActingMaster",
            at_run_time=True,
        ),
    ] = False
    delete_topic_with_broker_registration: Annotated[
        bool,
        About(
            "A registration removes the topics it does not name; off as in Apache's.",
            properties_name="deleteTopicWithBrokerRegistration",
            at_run_time=True,
        ),
    ] = False
    order_message_enable: Annotated[
        bool,
        About(
            "Routes carry the order configuration of the topic.",
            properties_name="orderMessageEnable",
            at_run_time=True,
        ),
    ] = False
    return_order_topic_config_to_broker: Annotated[
        bool,
        About(
            "A registration is answered with the order configuration of all topics.",
            properties_name="returnOrderTopicConfigToBroker",
            at_run_time=True,
        ),
    ] = True
    enable_topic_list: Annotated[
        bool,
        About(
            "Lists of topics by cluster and by kind (224, 311, 312, 313) are answered; on as in Apache's.",
            properties_name="enableTopicList",
            at_run_time=True,
        ),
    ] = True
    enable_all_topic_list: Annotated[
        bool,
        About(
            "The list of all topics (206) is answered; on as in Apache's.",
            properties_name="enableAllTopicList",
            at_run_time=True,
        ),
    ] = True
    notify_min_broker_id_changed: Annotated[
        bool,
        About(
            "Brokers of a group are told (905) when its lowest id changes, which acting masters live on; off as in "
            "Apache's.",
            properties_name="notifyMinBrokerIdChanged",
            at_run_time=True,
        ),
    ] = False
    need_wait_for_service: Annotated[
        bool,
        About(
            "Route lookups (105) are refused for wait_seconds_for_service after the start; off as in Apache's. A "
            "table in the store is complete at once, so only a store that starts empty gains by it.",
            properties_name="needWaitForService",
            at_run_time=True,
        ),
    ] = False
    wait_seconds_for_service: Annotated[
        Annotated[int, Field(ge=0, le=86_400)],
        About(
            "How long need_wait_for_service refuses: Apache's 45 s, one and a half registration periods.",
            properties_name="waitSecondsForService",
            at_run_time=True,
        ),
    ] = 45
    cluster_test: Annotated[
        bool,
        About(
            "A name server for tests: topics it does not know are asked of cluster_test_upstream; off as in Apache's.",
            properties_name="clusterTest",
        ),
    ] = False
    cluster_test_upstream: Annotated[
        str,
        AfterValidator(check_addresses_text),
        About(
            "The name servers that cluster_test asks. No default: a guess would answer routes of somebody else's "
            "fleet.",
            allowed="host:port;host:port, IPv6 in brackets",
        ),
    ] = ""
    remoting_config_updates: Annotated[
        bool,
        About(
            "Whether mqadmin may change the nine run-time properties over the remoting port (318). Off: nobody "
            "there proves who he is; HTTP with the token does the same."
        ),
    ] = False
    config_black_list: Annotated[
        str,
        About(
            "Properties that 318 must not name, besides Apache's fixed four; one of them refuses the whole request.",
            properties_name="configBlackList",
            allowed="names of properties, separated by semicolons",
        ),
    ] = "configBlackList;configStorePath;kvConfigPath"
