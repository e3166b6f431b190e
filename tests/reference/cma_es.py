"""CMA-ES with two sets of parameters.

"2016": Hansen, "The CMA Evolution Strategy: A Tutorial" (2016), equation numbers below, with the negative
weights. "2006": the default parameters of the 2006 tutorial, without negative weights, which the tables of
the FM-NES paper need (correction 4). In both the factor of σ is at most e a generation.

Eigenvectors have arbitrary signs, so x = m + σ B D z is not determined by C. The symmetric root takes the
place of B D: x = m + σ C^{1/2} z, and C^{-1/2} in the path is symmetric too. Another root M, M Mᵀ = C, can be
given.

Infeasible values are +∞ and tie in the order of sampling.
"""

import math

import numpy as np


def parameters_2006(d, lam):
    """w, μ_eff, c_σ, d_σ, c_c, c_1, c_μ."""
    mu = lam // 2
    w = np.array([math.log(mu + 1) - math.log(i) for i in range(1, mu + 1)])
    w = w / sum(w)
    mu_eff = 1 / sum(w**2)
    w = np.concatenate([w, np.zeros(lam - mu)])
    c_c = 4 / (d + 4)
    c_sigma = (mu_eff + 2) / (d + mu_eff + 3)
    d_sigma = 1 + 2 * max(0, math.sqrt((mu_eff - 1) / (d + 1)) - 1) + c_sigma
    mu_cov = mu_eff
    c_cov = (1 / mu_cov) * 2 / (d + math.sqrt(2)) ** 2 + (1 - 1 / mu_cov) * min(
        1, (2 * mu_eff - 1) / ((d + 2) ** 2 + mu_eff)
    )
    c_1 = c_cov / mu_cov
    c_mu = c_cov * (1 - 1 / mu_cov)
    return w, mu_eff, c_sigma, d_sigma, c_c, c_1, c_mu


def parameters_2016(d, lam):
    """w, μ_eff, c_σ, d_σ, c_c, c_1, c_μ: Table 1."""
    mu = lam // 2
    w_prime = np.array([math.log((lam + 1) / 2) - math.log(i) for i in range(1, lam + 1)])  # (49)
    mu_eff = sum(w_prime[:mu]) ** 2 / sum(w_prime[:mu] ** 2)
    mu_eff_minus = sum(w_prime[mu:]) ** 2 / sum(w_prime[mu:] ** 2)
    c_sigma = (mu_eff + 2) / (d + mu_eff + 5)  # (55)
    d_sigma = 1 + 2 * max(0, math.sqrt((mu_eff - 1) / (d + 1)) - 1) + c_sigma  # (55)
    c_c = (4 + mu_eff / d) / (d + 4 + 2 * mu_eff / d)  # (56)
    alpha_cov = 2
    c_1 = alpha_cov / ((d + 1.3) ** 2 + mu_eff)  # (57)
    c_mu = min(
        1 - c_1, alpha_cov * (mu_eff - 2 + 1 / mu_eff) / ((d + 2) ** 2 + alpha_cov * mu_eff / 2)
    )  # (58)
    alpha_mu_minus = 1 + c_1 / c_mu if c_mu > 0 else math.inf  # (50); c_μ = 0 at μ = 1
    alpha_mu_eff_minus = 1 + 2 * mu_eff_minus / (mu_eff + 2)  # (51)
    alpha_posdef_minus = (1 - c_1 - c_mu) / (d * c_mu) if c_mu > 0 else math.inf  # (52)
    sum_plus = sum(w_i for w_i in w_prime if w_i > 0)
    sum_minus = -sum(w_i for w_i in w_prime if w_i < 0)
    w = np.zeros(lam)
    for i in range(lam):  # (53)
        if w_prime[i] >= 0:
            w[i] = w_prime[i] / sum_plus
        else:
            w[i] = w_prime[i] / sum_minus * min(alpha_mu_minus, alpha_mu_eff_minus, alpha_posdef_minus)
    return w, mu_eff, c_sigma, d_sigma, c_c, c_1, c_mu


class CMAES:
    def __init__(self, m, sigma, *, parameters="2016") -> None:
        if parameters not in ("2006", "2016"):
            raise ValueError(f"unknown setting: {parameters!r}")
        self.m = np.array(m, dtype=float)
        self.sigma = float(sigma)
        self.d = len(self.m)
        self.parameters = parameters_2006 if parameters == "2006" else parameters_2016
        self.C = np.eye(self.d)
        self.p_sigma = np.zeros(self.d)
        self.p_c = np.zeros(self.d)
        self.g = 0

    def _power(self, exponent):
        """C^exponent, symmetric."""
        eigenvalues, B = np.linalg.eigh(self.C)
        return B @ np.diag(eigenvalues**exponent) @ B.T

    def points(self, z, root=None) -> np.ndarray:
        """(38)-(40), with z of shape (λ, d)."""
        M = self._power(0.5) if root is None else root
        return np.array([self.m + self.sigma * M @ z_i for z_i in z])

    def step(self, z, f, root=None) -> None:
        """(41)-(47), with f of shape (λ,) and the root used for the points; non-finite is infeasible."""
        d, lam = self.d, len(f)
        w, mu_eff, c_sigma, d_sigma, c_c, c_1, c_mu = self.parameters(d, lam)
        c_m = 1
        mu = lam // 2
        upsilon = math.sqrt(d) * (1 - 1 / (4 * d) + 1 / (21 * d**2))
        M = self._power(0.5) if root is None else root
        C_inverse_root = self._power(-0.5)
        order = sorted(range(lam), key=lambda i: f[i] if math.isfinite(f[i]) else math.inf)
        y = np.array([M @ z[i] for i in order])
        self.g += 1

        y_w = sum(w[i] * y[i] for i in range(mu))  # (41)
        self.m = self.m + c_m * self.sigma * y_w  # (42)

        self.p_sigma = (1 - c_sigma) * self.p_sigma + math.sqrt(
            c_sigma * (2 - c_sigma) * mu_eff
        ) * C_inverse_root @ y_w  # (43)
        norm_p_sigma = np.linalg.norm(self.p_sigma)
        exponent = c_sigma / d_sigma * (norm_p_sigma / upsilon - 1)  # (44)
        self.sigma = float(self.sigma * math.exp(min(1, exponent)))

        length = norm_p_sigma / math.sqrt(1 - (1 - c_sigma) ** (2 * self.g))
        h_sigma = 1 if length / upsilon < 1.4 + 2 / (d + 1) else 0
        self.p_c = (1 - c_c) * self.p_c + h_sigma * math.sqrt(c_c * (2 - c_c) * mu_eff) * y_w  # (45)

        w_circ = np.zeros(lam)
        for i in range(lam):  # (46)
            w_circ[i] = w[i] if w[i] >= 0 else w[i] * d / np.linalg.norm(C_inverse_root @ y[i]) ** 2
        delta = (1 - h_sigma) * c_c * (2 - c_c)
        self.C = (
            (1 + c_1 * delta - c_1 - c_mu * sum(w)) * self.C
            + c_1 * np.outer(self.p_c, self.p_c)
            + c_mu * sum(w_circ[i] * np.outer(y[i], y[i]) for i in range(lam))
        )  # (47)
