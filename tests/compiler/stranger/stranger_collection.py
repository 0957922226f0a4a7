"""All programs of the collection."""

from tests.compiler.stranger import (
    ads_and_games,
    chat_texts,
    clickstreams,
    fleet_tracking,
    iot_sensors,
    log_parsing,
    market_data,
    network_flows,
    payment_rules,
    pipelines,
    shop_orders,
)

MODULES = [
    payment_rules,
    iot_sensors,
    clickstreams,
    log_parsing,
    market_data,
    ads_and_games,
    fleet_tracking,
    chat_texts,
    network_flows,
    shop_orders,
    pipelines,
]
ALL = [entry for module in MODULES for entry in module.ENTRIES]
