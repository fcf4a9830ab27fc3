"""What the linker asks of graphs: components of calls and dominators of basic blocks. A graph is a dict from each node to those
behind it. (networkx answers both, but takes longer to import than most kernels to run.)
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import TypeVar

Node = TypeVar("Node", bound=Hashable)


def _postorder(graph: Mapping[Node, Iterable[Node]], start: Node, seen: set[Node]) -> Iterator[Node]:
    """Yield the nodes that a start reaches and that have not been seen, each after those behind it that were not seen before it."""
    seen.add(start)
    stack = [(start, iter(graph.get(start, ())))]
    while stack:
        node, behind = stack[-1]
        for other in behind:
            if other not in seen:
                seen.add(other)
                stack.append((other, iter(graph.get(other, ()))))
                break
        else:
            stack.pop()
            yield node


def reversed_graph(graph: Mapping[Node, Iterable[Node]]) -> dict[Node, list[Node]]:
    """Return the graph with every edge turned around."""
    found: dict[Node, list[Node]] = {node: [] for node in graph}
    for node, behind in graph.items():
        for other in behind:
            found.setdefault(other, []).append(node)
    return found


def components(graph: Mapping[Node, Iterable[Node]]) -> list[set[Node]]:
    """Return the strongly connected components of a graph, each behind all that it leads to (Kosaraju)."""
    seen: set[Node] = set()
    order = [node for start in graph if start not in seen for node in _postorder(graph, start, seen)]
    backwards, seen = reversed_graph(graph), set()
    found = [set(_postorder(backwards, start, seen)) for start in reversed(order) if start not in seen]
    return found[::-1]


def immediate_dominators(graph: Mapping[Node, Iterable[Node]], root: Node) -> dict[Node, Node]:
    """Return the node that comes last before each other node on every way from the root (Cooper, Harvey and Kennedy).

    The root and nodes that it does not reach are left out.
    """
    order = list(_postorder(graph, root, set()))
    number = {node: k for k, node in enumerate(order)}
    before = reversed_graph({node: graph.get(node, ()) for node in order})
    found = {root: root}
    changed = True
    while changed:
        changed = False
        for node in order[-2::-1]:
            known = [other for other in before[node] if other in found]
            common = known[0]
            for other in known[1:]:
                while common != other:
                    if number[common] < number[other]:
                        common = found[common]
                    else:
                        other = found[other]
            if found.get(node) != common:
                found[node], changed = common, True
    del found[root]
    return found
