"""Components and dominators of random graphs, against networkx."""

import random

import networkx as nx
import pytest

from h100sim.graphs import components, immediate_dominators


def graph_of(seed: int) -> dict[int, list[int]]:
    draw = random.Random(seed)
    n = draw.randrange(1, 14)
    edges = draw.randrange(0, 3 * n)
    graph: dict[int, list[int]] = {k: [] for k in range(n)}
    for _ in range(edges):
        graph[draw.randrange(n)].append(draw.randrange(n))
    return graph


@pytest.mark.parametrize("seed", range(60))
def test_components_come_behind_what_they_lead_to(seed):
    graph = graph_of(seed)
    found = components(graph)
    peer = nx.strongly_connected_components(nx.DiGraph(graph))
    assert sorted(map(sorted, found)) == sorted(map(sorted, peer))
    place = {node: k for k, nodes in enumerate(found) for node in nodes}
    assert all(place[b] <= place[a] for a, behind in graph.items() for b in behind)


@pytest.mark.parametrize("seed", range(60))
def test_dominators_of_what_the_root_reaches(seed):
    graph = graph_of(seed)
    peer = nx.immediate_dominators(nx.DiGraph(graph), 0)
    assert immediate_dominators(graph, 0) == {k: v for k, v in peer.items() if k != 0}


def test_a_long_chain_needs_no_stack():
    graph = {k: [k + 1] for k in range(5000)}
    assert len(components(graph)) == 5001
    assert immediate_dominators(graph, 0)[5000] == 4999
