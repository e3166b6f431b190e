"""Literal, slow transcriptions of the models of the surrogate.

Leave-one-out refits without the point, the support vectors of the squared hinge are found by trying all sets,
the posterior of a Gaussian process is that of the multivariate normal distribution.
"""

import math
from itertools import product
from statistics import NormalDist

import numpy as np

# -- kernels ----------------------------------------------------------------------------------------------


def matern(a, b):
    r = math.sqrt(sum((s - t) ** 2 for s, t in zip(a, b, strict=True)))
    return (1 + math.sqrt(5) * r + 5 / 3 * r**2) * math.exp(-math.sqrt(5) * r)


def kernel(a, b, quadratic, factor, length):
    dot = sum(s * t for s, t in zip(a, b, strict=True))
    return 1 + dot + quadratic * dot**2 + factor * matern(a / length, b / length)


def matrix(points, others, *parts):
    return np.array([[kernel(a, b, *parts) for b in others] for a in points])


def unit(z):
    """z divided by √(d · the mean of its squares)."""
    return z / math.sqrt(z.shape[1] * np.mean(z**2))


# -- values -----------------------------------------------------------------------------------------------

KERNELS = [
    # quadratic, Matérn, length, ridge
    (0, 0, 1, 1e-2),
    (1, 0, 1, 1e-8),
    (1, 0, 1, 1e-2),
    (1, 0.1, 1, 1e-8),
    (0.1, 1, 1, 1e-6),
    (1, 1, 0.5, 1e-4),
]


def transforms(f):
    """Raw, log and rank, with mean 0 and variance 1."""
    n = len(f)
    above = sorted(v - min(f) for v in f)
    offset = next(v for v in above[max(1, n // 5) :] if v > 0)
    ranks = [sum(w < v for w in f) + (sum(w == v for w in f) - 1) / 2 for v in f]
    scores = [NormalDist().inv_cdf((i + 0.5) / n) for i in range(n)]
    all_three = [
        list(f),
        [math.log(v - min(f) + offset) for v in f],
        [(scores[math.floor(r)] + scores[math.ceil(r)]) / 2 for r in ranks],
    ]
    return [(np.array(y) - np.mean(y)) / np.std(y) for y in all_three]


def kendall(f, predicted):
    agree = pairs = 0
    for i in range(len(f)):
        for j in range(i):
            if f[i] != f[j]:
                pairs += 1
                agree += np.sign(f[i] - f[j]) * np.sign(predicted[i] - predicted[j])
    return agree / max(1, pairs)


def value_candidates(z, f, n_check):
    """For each kernel and transform: score, τ, leave-one-out predictions, and a function that predicts."""
    u = unit(z)
    n, d = u.shape
    found = []
    for h in KERNELS:
        if h[0] and n < d + 2:
            continue
        k = matrix(u, u, *h[:3])
        k += np.eye(n) * h[3] * max(1, np.trace(k) / n)
        for y in transforms(f):
            loo = np.empty(n)
            for i in range(n):
                rest = [j for j in range(n) if j != i]
                loo[i] = k[i, rest] @ np.linalg.solve(k[np.ix_(rest, rest)], y[rest])
            tau = kendall(f[:n_check], loo[:n_check])
            mse = np.mean((loo - y)[:n_check] ** 2) / np.var(y[:n_check])
            score = tau + 0.02 * min(8, max(-1, -math.log10(mse)))

            def predict(new, h=h, k=k, y=y):
                scale = math.sqrt(d * np.mean(z**2))
                return matrix(new / scale, u, *h[:3]) @ np.linalg.solve(k, y)

            found.append((score, tau, loo, predict))
    return found


# -- edge -------------------------------------------------------------------------------------------------


def machine(k, y, ridge):
    """Weights and leave-one-out margins of the minimum of ½ aᵀKa + ½ Σ max(0, 1 − y f)²/ridge, f = Ka.

    Its support vectors are the only set whose own solution has it as its support vectors.
    """
    n = len(y)
    for chosen in product([True, False], repeat=n):
        s = np.flatnonzero(chosen)
        a = np.zeros(n)
        a[s] = np.linalg.solve(k[np.ix_(s, s)] + np.diag(ridge[s]), y[s])
        f = k @ a
        if np.array_equal(y * f < 1, np.array(chosen)):
            loo = f.copy()
            for i in s:
                rest = [j for j in s if j != i]
                fewer = np.linalg.solve(k[np.ix_(rest, rest)] + np.diag(ridge[rest]), y[rest])
                loo[i] = k[i, rest] @ fewer
            return a, f, loo
    raise AssertionError("no set of support vectors is its own solution")


def edge_loss(loo, worked):
    total = 0.0
    for m, ok in zip(loo, worked, strict=True):
        of_kind = sum(worked) if ok else len(worked) - sum(worked)
        total += 0.5 / of_kind * min(2, max(0, 1 - m if ok else 1 + m))
    return total


def edge_candidates(z, worked):
    """For linear, quadratic and Matérn kernels: loss, leave-one-out margins, and a function for margins."""
    u = unit(z)
    scale = math.sqrt(z.shape[1] * np.mean(z**2))
    y = np.where(worked, 1.0, -1.0)
    found = []
    for h in ((0, 0, 1), (0.1, 0, 1), (0, 1, 1)):
        k = matrix(u, u, *h)
        a, _, loo = machine(k, y, np.full(len(y), 1e-5 * np.mean(np.diag(k))))
        found.append((edge_loss(loo, worked), loo, lambda new, h=h, a=a: matrix(new / scale, u, *h) @ a))
    return found


def polyhedron(z, worked, most):
    """Loss, leave-one-out margins, and a function for margins."""
    u = unit(z)
    scale = math.sqrt(z.shape[1] * np.mean(z**2))
    k = matrix(u, u, 0, 0, 1)
    ridge = 1e-3 * np.mean(np.diag(k))
    good, bad = np.flatnonzero(worked), np.flatnonzero(~worked)

    def face(failures, weight):
        """The plane's margins of all points, leave-one-out margins of its own, and its weights."""
        s = np.concatenate([good, failures])
        y = np.where(worked[s], 1.0, -1.0)
        a, _, loo = machine(k[np.ix_(s, s)], y, np.where(worked[s], ridge, ridge / weight))
        margins = k[:, s] @ a
        own = margins.copy()
        own[s] = loo
        return margins, own, np.concatenate([[a.sum()], a @ u[s]])

    faces, left = [], bad
    while len(left) and len(faces) < most:
        behind = face(left, 1 / 300)[0][left]
        taken = left[behind < -0.5] if (behind < -0.5).any() else left[behind == behind.min()]
        faces.append(face(taken, 1))
        left = left[faces[-1][0][left] >= 0]
    before = None
    for _ in range(6):
        owner = [min(range(len(faces)), key=lambda j: faces[j][0][i]) for i in bad]
        if owner == before:
            break
        before = owner
        faces = [face(bad[np.array(owner) == j], 1) for j in sorted(set(owner))]
    loo = np.min([own for _, own, _ in faces], axis=0)

    def margin(new):
        return np.min([w[0] + new / scale @ w[1:] for _, _, w in faces], axis=0)

    return edge_loss(loo, worked), loo, margin


# -- Gaussian process -------------------------------------------------------------------------------------


def covariance(a, b, theta):
    lengths, signal = np.exp(theta[:-2]), math.exp(theta[-2])
    return np.array([[signal * matern(s / lengths, t / lengths) for t in b] for s in a])


def negative_log_posterior(x, y, theta, length_prior):
    """Without the constants of the normal densities."""
    n, d = x.shape
    k = covariance(x, x, theta) + (math.exp(theta[-1]) + 1e-8) * np.eye(n)
    value = 0.5 * y @ np.linalg.inv(k) @ y + 0.5 * np.linalg.slogdet(k)[1]
    for length in theta[:d]:
        value += 0.5 * ((length - length_prior[0] - 0.5 * math.log(d)) / length_prior[1]) ** 2
    value += 0.5 * (theta[d] / 1.5) ** 2
    return value + 0.5 * ((theta[d + 1] - math.log(1e-4)) / 2.5) ** 2


def conditional(x, y, theta, new):
    """Mean and standard deviation at new points given the values y."""
    k = covariance(x, x, theta) + (math.exp(theta[-1]) + 1e-8) * np.eye(len(x))
    between = covariance(new, x, theta)
    mean = between @ np.linalg.solve(k, y)
    return mean, np.sqrt(np.diag(covariance(new, new, theta) - between @ np.linalg.solve(k, between.T)))


def pattern_search(f, x, lower, upper):
    """The local minimum of f between bounds, slowly."""
    x, step, best = np.array(x), 1.0, f(x)
    while step > 1e-4:
        for i in range(len(x)):
            for sign in (1, -1):
                new = x.copy()
                new[i] = min(upper[i], max(lower[i], x[i] + sign * step))
                if (value := f(new)) < best:
                    x, best = new, value
                    break
            else:
                continue
            break
        else:
            step /= 2
    return x, best


def expected_improvement(mean, sd, best):
    """By the trapezoidal rule."""
    f = np.linspace(mean - 12 * sd, best, 200_001)
    density = np.exp(-0.5 * ((f - mean) / sd) ** 2) / sd / math.sqrt(2 * math.pi)
    return float(np.trapezoid((best - f) * density, f))


def warp(f):
    half = float(np.median(f)) - min(f)
    return [math.asinh((v - min(f)) / (0.2 * half)) for v in f]


# -- quasi-random points ----------------------------------------------------------------------------------


def halton(index, base, permutations):
    """Element of the Halton sequence with a permutation of each digit, and half of the last digit."""
    value, unit_of_digit = 0.0, 1.0
    for permutation in permutations:
        index, digit = divmod(index, base)
        unit_of_digit /= base
        value += permutation[digit] * unit_of_digit
    return value + unit_of_digit / 2
