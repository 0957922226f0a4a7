"""Builds the nodes of one generation of a flow, and the links between them.

From the end to the front, so that everybody knows whom to send to:

    last region    channels ──► one merger ──► the next flow, or the sink
    any other      every channel ──► a merger before every channel of the region behind it (a shuffle)
    first          splitter ──► every channel
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anabranch.papers.machine.links import Link
from anabranch.papers.machine.machine_hosts import place
from anabranch.papers.machine.nodes import ChannelNode, MergerNode, SplitterNode
from anabranch.papers.merging.merger import make_merger
from anabranch.papers.streaming.channel import Channel
from anabranch.papers.streaming.splitter import ShuffleSplitter, Splitter

if TYPE_CHECKING:
    from anabranch.papers.machine.flows import MachineFlow


def wire(flow: MachineFlow) -> tuple[SplitterNode, list[MergerNode]]:
    """Give every region of the flow its nodes; return what stands before and between them."""
    mergers: list[MergerNode] = []
    inputs: list[Link] = []  # of the channels of the region behind the one that is being built
    for position in range(len(flow.regions) - 1, -1, -1):
        if position == len(flow.regions) - 1:
            outs = _into_merger(flow, position, mergers)
        else:
            outs = _into_shuffle(flow, position, inputs, mergers)
        inputs = _build_channels(flow, position, outs)
    first, strategy = flow.regions[0], flow.joints[0].strategy
    pulse_every = first.description.pulse_every if strategy.is_pulsed else None
    splitter = Splitter(strategy, first.channels, route=first.route(), pulse_every=pulse_every)
    return SplitterNode(flow, splitter, inputs), mergers


def _into_merger(flow: MachineFlow, position: int, mergers: list[MergerNode]) -> list[list[Link]]:
    region, joint = flow.regions[position], flow.joints[position]
    links = [_link(flow, "merge", position, channel) for channel in range(region.channels)]
    capacity = region.description.merger_capacity
    merger = make_merger(joint.strategy, region.channels, depth=joint.depth, capacity=capacity)
    cost_s = region.description.merge_cost_s
    mergers.append(MergerNode(flow, merger, links, flow.output, cost_s, capacity is not None).is_last())
    return [[link] for link in links]


def _into_shuffle(flow: MachineFlow, position: int, inputs: list[Link], mergers: list[MergerNode]) -> list[list[Link]]:
    left, joint = flow.regions[position], flow.joints[position]
    outs = [
        [_link(flow, "shuffle", position, channel, other) for other in range(len(inputs))]
        for channel in range(left.channels)
    ]
    for other, into in enumerate(inputs):
        merger = make_merger(joint.strategy, left.channels, depth=joint.depth, in_shuffle=True)
        links = [of_channel[other] for of_channel in outs]
        mergers.append(MergerNode(flow, merger, links, into, left.description.merge_cost_s, False))
    return outs


def _build_channels(flow: MachineFlow, position: int, outs: list[list[Link]]) -> list[Link]:
    """The channels of a region, and the links that lead to them."""
    world = flow.world
    region, joint = flow.regions[position], flow.joints[position]
    before = sum(other.channels for one in world.flows[: flow.number] for other in one.regions)
    before += sum(other.channels for other in flow.regions[:position])
    hosts = place(world.description.cluster, world.hosts, region.channels, before)
    region.nodes = []
    inputs = []
    for channel in range(region.channels):
        shuffle = None
        if position + 1 < len(flow.regions):
            shuffle = _shuffle_splitter(flow, position + 1)
        runner = Channel(region.process(channel), joint.strategy, depth=joint.depth)
        costs = region.costs(world.description.seed, flow.generation, channel)
        is_numbered = joint.strategy.is_numbered
        node = ChannelNode(region, channel, hosts[channel], runner, is_numbered, costs, outs[channel], shuffle)
        # Behind a shuffle the merger runs where its channel does.
        link = _link(flow, "queue", position, channel, is_local=position > 0)
        node.read_from(link)
        inputs.append(link)
        region.nodes.append(node)
    return inputs


def _shuffle_splitter(flow: MachineFlow, right: int) -> ShuffleSplitter:
    region = flow.regions[right]
    channels = region.channels
    return ShuffleSplitter(channels, region.route() or (lambda value: value[0] % channels))


def _link(flow: MachineFlow, *name: Any, is_local: bool = False) -> Link:
    world = flow.world
    position, channel = name[1], name[2]
    capacity = flow.regions[position].description.queue
    delays = None if is_local else world.delays
    full_name = (flow.number, flow.generation, *name)
    return Link(full_name, capacity, world.clock, world.schedule, delays, world.watch, channel)
