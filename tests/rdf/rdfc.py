"""RDFC-1.0 written from the algorithm's steps, for tests: slow, of a few quads, and by no code that it is to judge."""

from __future__ import annotations

from hashlib import sha256
from itertools import permutations

Quad = tuple[str, str, str, str]
"""Subject, predicate, object, and the graph (empty: the default one), as N-Quads writes them."""


class Issuer:
    """The labels that were given, in their order."""

    def __init__(self, prefix: str, given: dict[str, str] | None = None) -> None:
        self.prefix = prefix
        self.given = given or {}

    def issue(self, node: str) -> str:
        return self.given.setdefault(node, f"_:{self.prefix}{len(self.given)}")

    def copy(self) -> Issuer:
        return Issuer(self.prefix, dict(self.given))


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def line(quad: Quad, names: dict[str, str]) -> str:
    return " ".join([*(names.get(term, term) for term in quad if term), ".\n"])


def is_blank(term: str) -> bool:
    return term.startswith("_:")


class Canonicaliser:
    """Gives the canonical form of a dataset."""

    def __init__(self, quads: set[Quad]) -> None:
        self.quads = quads
        self.canonical = Issuer("c14n")
        self.of: dict[str, list[Quad]] = {}
        for quad in sorted(quads):
            for term in {term for term in quad if is_blank(term)}:
                self.of.setdefault(term, []).append(quad)
        self.first = {node: self.first_degree(node) for node in self.of}

    def form(self) -> str:
        by_hash: dict[str, list[str]] = {}
        for node, found in self.first.items():
            by_hash.setdefault(found, []).append(node)
        for found in sorted(by_hash):
            if len(by_hash[found]) == 1:
                self.canonical.issue(by_hash.pop(found)[0])
        for found in sorted(by_hash):
            paths = []
            for node in by_hash[found]:
                if node not in self.canonical.given:
                    issuer = Issuer("b")
                    issuer.issue(node)
                    paths.append(self.n_degree(node, issuer))
            for _hash, issuer in sorted(paths, key=lambda one: one[0]):
                for node in issuer.given:
                    self.canonical.issue(node)
        return "".join(sorted(line(quad, self.canonical.given) for quad in self.quads))

    def first_degree(self, node: str) -> str:
        """Hash First Degree Quads."""
        names = {
            other: "_:a" if other == node else "_:z" for quad in self.of[node] for other in quad if is_blank(other)
        }
        return digest("".join(sorted(line(quad, names) for quad in self.of[node])))

    def related(self, node: str, quad: Quad, issuer: Issuer, position: str) -> str:
        """Hash Related Blank Node."""
        name = self.canonical.given.get(node) or issuer.given.get(node) or self.first[node]
        return digest(position + (quad[1] if position != "g" else "") + name)

    def n_degree(self, node: str, issuer: Issuer) -> tuple[str, Issuer]:
        """Hash N-Degree Quads."""
        groups: dict[str, list[str]] = {}
        for quad in self.of[node]:
            for position, term in (("s", quad[0]), ("o", quad[2]), ("g", quad[3])):
                if is_blank(term) and term != node:
                    groups.setdefault(self.related(term, quad, issuer, position), []).append(term)
        data = ""
        for found in sorted(groups):
            chosen: tuple[str, Issuer] | None = None
            for nodes in permutations(groups[found]):
                made = self.path(nodes, issuer.copy())
                if chosen is None or made[0] < chosen[0]:
                    chosen = made
            assert chosen is not None
            data += found + chosen[0]
            issuer = chosen[1]
        return digest(data), issuer

    def path(self, nodes: tuple[str, ...], issuer: Issuer) -> tuple[str, Issuer]:
        path, recursion = "", []
        for node in nodes:
            if node in self.canonical.given:
                path += self.canonical.given[node]
            else:
                if node not in issuer.given:
                    recursion.append(node)
                path += issuer.issue(node)
        for node in recursion:
            found, after = self.n_degree(node, issuer)
            path += f"{issuer.issue(node)}<{found}>"
            issuer = after
        return path, issuer


def canonical_form(quads: set[Quad]) -> bytes:
    return Canonicaliser(quads).form().encode()
