"""Tree search in plain Python, one position at a time: what `ludus.policies.search` must agree with to the last visit.

A game is given by functions of its states: `moves(state)`, the legal actions; `after(state, action)`, (the next state, the reward of who
moved, whether the game is over); `judge(state)`, ({action: prior}, value of who moves). Two players in turn, zero-sum.
"""

import math
from dataclasses import dataclass, field

import numpy as np


@dataclass
class Node:
    state: object
    over: bool = False
    reward: float = 0.0  # of who moved here
    value: float = 0.0  # what was judged, for who moves here
    prior: dict = field(default_factory=dict)
    children: dict = field(default_factory=dict)
    visits: dict = field(default_factory=dict)
    total: dict = field(default_factory=dict)

    def q(self, action):
        return self.total[action] / self.visits[action]

    def mean(self):
        return (self.value + sum(self.total.values())) / (1 + sum(self.visits.values()))


class Search:
    def __init__(
        self, after, judge, *, init=1.25, base=19652.0, node=False, rescale=False, bounds=(math.inf, -math.inf)
    ):
        self.after, self.judge = after, judge
        self.init, self.base, self.node, self.rescale = init, base, node, rescale
        self.low, self.high = bounds

    def judged(self, node):
        node.prior, node.value = self.judge(node.state)
        node.visits, node.total = ({a: zero for a in node.prior} for zero in (0, 0.0))
        return node

    def root(self, state):
        return self.judged(Node(state))

    def best(self, node):
        n = 1 + sum(node.visits.values())
        c = self.init + math.log((1 + n + self.base) / self.base)

        def score(a):
            q = self.worth(node, a)
            return q + c * math.sqrt(n) * node.prior[a] / (1 + node.visits[a])

        return max(node.prior, key=score)

    def worth(self, node, a):
        if not node.visits[a] and not self.node:
            return 0.0
        q = node.q(a) if node.visits[a] else node.mean()
        return (q - self.low) / (self.high - self.low) if self.rescale and self.high > self.low else q

    def simulate(self, node, action=None):
        """What the node is worth to who moves there, after one more visit."""
        if node.over:
            return 0.0
        a = self.best(node) if action is None else action
        if a in node.children:
            child = node.children[a]
            v = self.simulate(child)
        else:
            state, reward, over = self.after(node.state, a)
            child = node.children[a] = Node(state, over, reward)
            v = 0.0 if over else self.judged(child).value
        back = child.reward + (0.0 if child.over else -v)
        node.visits[a] += 1
        node.total[a] += back
        self.low, self.high = min(self.low, node.q(a)), max(self.high, node.q(a))
        return back


class GumbelSearch(Search):
    """Danihelka et al. 2022, as mctx computes it."""

    visit, scale = 50.0, 0.1

    def completed(self, node):
        seen = [a for a in node.prior if node.visits[a]]
        value = node.value
        if seen:
            n, weight = sum(node.visits.values()), sum(node.prior[a] for a in seen)
            mixed = sum(node.prior[a] * node.q(a) for a in seen) / weight
            value = (node.value + n * mixed) / (1 + n)
        q = {a: node.q(a) if node.visits[a] else value for a in node.prior}
        low, high = min(q.values()), max(q.values())
        most = max(node.visits.values())
        sigma = {a: (self.visit + most) * self.scale * (q[a] - low) / max(high - low, 1e-8) for a in q}
        return {a: math.log(node.prior[a]) + sigma[a] for a in q}

    def improved(self, node):
        scores = self.completed(node)
        top = max(scores.values())
        total = sum(math.exp(s - top) for s in scores.values())
        return {a: math.exp(s - top) / total for a, s in scores.items()}

    def best(self, node):
        policy, n = self.improved(node), 1 + sum(node.visits.values())
        return max(policy, key=lambda a: policy[a] - node.visits[a] / n)

    def run(self, root, gumbel, considered, simulations):
        """Sequential halving, round by round: each visits the best so many of those that have no more visits than the round wants. (So
        does mctx; the paper fixes them when a phase begins.) Answers what is left."""

        def most_promising(visits):
            scores = self.completed(root)
            return max((a for a in root.prior if root.visits[a] == visits), key=lambda a: gumbel[a] + scores[a])

        left = min(considered, len(root.prior))
        phases, done, visits = math.ceil(math.log2(left)), 0, 0
        while done < simulations:
            for _ in range(max(1, simulations // (phases * left))):
                for _ in range(min(left, simulations - done)):
                    self.simulate(root, most_promising(visits))
                    done += 1
                visits += 1
            left = max(2, left // 2)
        return most_promising(max(root.visits.values()))


def losses(choose, rules):
    """Games that are lost as first and as second player, whatever the other does: every reply is tried. choose(observation, legal): moves
    of rows; rules: `ludus.envs.rules.Rules`."""
    out = []
    for first in (True, False):
        position, mine, lost = np.zeros((1, rules.width), np.int8), first, 0
        while len(position):
            legal = rules.legal(position)
            if mine:
                moved = rules.step(position, choose(rules.observe(position), legal))
            else:
                place, action = np.nonzero(legal)
                moved = rules.step(position[place], action.astype(np.int32))
                lost += int((moved.reward > 0).sum())
            position, mine = np.unique(moved.positions[moved.discount != 0], axis=0), not mine
        out.append(lost)
    return out
