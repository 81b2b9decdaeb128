"""Returns of rollouts: lambda-returns and the targets of V-trace."""

from __future__ import annotations

from typing import Any

from dqnspeed.execution.arrays import Array, Arrays


def lambda_returns(
    arrays: Arrays, rewards: Array, values: Array, terminated: Array, truncated: Array, gamma: float, lam: float
) -> Array:
    """λ-returns ``(N, T) float32`` (Sutton and Barto, equation 12.18).

    The difference of returns and values is the advantage of Schulman et al. (2016, equation 16).

    ``G[t] = r[t] + γ ((1 - λ) v[t+1] + λ G[t+1])``; nothing follows a terminated step, and only ``v[t+1]``, the value
    of the last observation, follows a truncated one.

    Args:
        rewards, terminated, truncated: ``(N, T)``.
        values: ``(N, T + 1)``, of each observation and of the observation after the last step.
    """
    xp, following = arrays.xp, values[:, 1:]
    known = xp.where(terminated, 0, xp.where(truncated, following, (1 - lam) * following))
    traces = xp.full_like(rewards, gamma * lam)
    found: Array = _accumulated(arrays, rewards + gamma * known, traces, terminated | truncated, values[:, -1])
    return found[:, :-1]


def vtrace(
    arrays: Arrays,
    rewards: Array,
    values: Array,
    terminated: Array,
    truncated: Array,
    log_ratios: Array,
    gamma: float,
    lam: float,
) -> tuple[Array, Array]:
    """Targets of the values, and advantages, of V-trace, each ``(N, T) float32``.

    Espeholt et al. 2018, section 4.1, equation 1, with the lambda of remark 2:

    ``v[t] = V[t] + δ[t] + γ c[t] (v[t+1] - V[t+1])`` with ``δ[t] = ρ[t] (r[t] + γ V[t+1] - V[t])``, ``ρ = min(1,
    ratio)`` and ``c = λρ``; the advantage is ``r[t] + γ v[t+1] - V[t]``. Nothing follows a terminated
    step, and only ``V[t+1]``, the value of the last observation, follows a truncated one.

    Args:
        log_ratios: ``(N, T)``, log-probability of each action now, less its log-probability when it was taken.
        values: ``(N, T + 1)``, by the present network; other arguments as of :func:`lambda_returns`.
    """
    xp, ended, before = arrays.xp, terminated | truncated, values[:, :-1]
    rho = xp.clip(xp.exp(log_ratios), None, 1.0)
    c = lam * rho
    following = xp.where(terminated, 0, values[:, 1:])
    errors = rho * (rewards + gamma * following - before)
    corrections = _accumulated(arrays, errors, gamma * c, ended, xp.zeros_like(values[:, -1]))  # v - V
    next_corrections = xp.where(ended, 0, corrections[:, 1:])
    return before + corrections[:, :-1], rewards + gamma * (following + next_corrections) - before


def _accumulated(arrays: Arrays, added: Array, factors: Array, ended: Array, last: Array) -> Any:
    """Sums ``x[t] = added[t] + factors[t] x[t+1]``, without the second term where ``ended``.

    Args:
        added, factors, ended: ``(N, T)``.
        last: ``(N,)``, the end of the result ``(N, T + 1)``.
    """
    xp, found = arrays.xp, [last]
    for t in range(added.shape[1] - 1, -1, -1):
        found.append(added[:, t] + xp.where(ended[:, t], 0, factors[:, t] * found[-1]))  # which may be NaN there
    return xp.stack(found[::-1], 1)
