"""FM-NES, after Nomura and Ono, "Natural Evolution Strategy for Unconstrained and Implicitly Constrained
Problems with Ridge Structure".

Transcribes Algorithm 2 line by line ("line n" below); Algorithm 1 (DX-NES-IC) and Methods A, B and C of the
ablation are settings:

    DX-NES-IC   rank_one="never", reset=False
    Method A    rank_one="always"
    Method B    reset=False
    Method C    rank_one="always", reset=False

It departs from the printed text where the paper's tables need it:

1. c_σ is the printed value divided by √d; path_rate="printed" gives the printed value.
2. α, which the paper leaves to the DX-NES-IC paper, has λ_F and not λ under its first root.

Corrections 3 (the Cigar problem has 1000 for 100) and 4 (CMA-ES has its 2006 parameters) are not about this
algorithm. Adaptive FM-NES (docs/algorithm.md) departs from it in four places, each marked "adaptive" below.

Besides, line 28 reads τ_i > 1e-9 for τ_i > 0 (without a feasible point η_B is 0 and τ_i rounding
noise), and the eigenvectors of line 21, arbitrary at B = I, are then the coordinate axes.
"""

import math

import numpy as np


def rank_weights(lam, parents_of=None):
    """ŵ^rank, w^rank and μ_eff: Eqs. (6)-(8). Adaptive: with λ/2 the half of so many points."""
    half = (lam if parents_of is None else parents_of) / 2
    w_hat = np.array([max(0.0, math.log(half + 1) - math.log(i)) for i in range(1, lam + 1)])
    w = w_hat / sum(w_hat) - 1 / lam
    mu_eff = 1 / sum((w_i + 1 / lam) ** 2 for w_i in w)
    return w_hat, w, mu_eff


def distance_weights(w_hat_rank, z, alpha):
    """w^dist: Eqs. (9)-(10), for z in order of preference."""
    w_hat_dist = np.array([math.exp(alpha * np.linalg.norm(z_i)) for z_i in z])
    return w_hat_rank * w_hat_dist / sum(w_hat_rank * w_hat_dist) - 1 / len(z)


def expected_norm(d):
    """Υ = E‖N(0, I)‖, approximately."""
    return math.sqrt(d) * (1 - 1 / (4 * d) + 1 / (21 * d**2))


def h_inverse(d):
    """The root a > 0 of (1 + a²) exp(a²/2) / 0.24 - 10 - d = 0, by bisection."""
    low, high = 0.0, 10.0
    for _ in range(200):
        a = (low + high) / 2
        if (1 + a**2) * math.exp(a**2 / 2) / 0.24 - 10 - d > 0:
            high = a
        else:
            low = a
    return (low + high) / 2


def mirror(z):
    """Line 4: each draw followed by its mirror image."""
    return np.array([z_i for z_k in z for z_i in (z_k, -z_k)])


def preference_order(z_half, f):
    """Line 7: indices of the λ samples by Eq. (3); ties by index.

    ‖z‖ is computed once per pair, so that the halves of an infeasible pair tie exactly.
    """
    norm = [np.linalg.norm(z_k) for z_k in z_half]
    return sorted(range(len(f)), key=lambda i: (0, f[i]) if math.isfinite(f[i]) else (1, norm[i // 2]))


def exp_symmetric(M):
    """The matrix exponential of a symmetric matrix."""
    eigenvalues, E = np.linalg.eigh(M)
    return E @ np.diag(np.exp(eigenvalues)) @ E.T


class FMNES:
    """B0 is to have determinant 1 and is taken as it is."""

    def __init__(
        self,
        m,
        sigma,
        B0=None,
        *,
        rank_one="on-ridge",
        reset=True,
        beta=1.2,
        path_rate="tables",
        adaptive=(),
    ) -> None:
        if rank_one not in ("on-ridge", "always", "never") or path_rate not in ("tables", "printed"):
            raise ValueError(f"unknown setting: {rank_one!r}, {path_rate!r}")
        self.m = np.array(m, dtype=float)
        self.sigma = float(sigma)
        self.d = len(self.m)
        self.B0 = np.eye(self.d) if B0 is None else np.array(B0, dtype=float)
        self.rank_one, self.reset, self.beta, self.path_rate = rank_one, reset, beta, path_rate
        # line 1
        self.B = self.B0.copy()
        self.gamma = 1.0
        self.p_sigma = np.zeros(self.d)
        self.p_c = np.zeros(self.d)
        self.h_unconst = True
        self.phase = None  # known after the first step
        # adaptive
        self.adaptive = adaptive
        self.share = 1.0
        self.p_step = np.zeros(self.d)

    def points(self, z) -> np.ndarray:
        """Lines 3-6."""
        return np.array([self.m + self.sigma * self.B @ z_i for z_i in mirror(z)])

    def step(self, z, f) -> None:
        """Lines 7-37, with f of shape (λ,) in the order of points(z); non-finite is infeasible."""
        d, lam = self.d, len(f)
        I = np.eye(d)  # noqa: E741

        # line 7
        order = preference_order(z, f)
        z = mirror(z)[order]
        lam_F = sum(math.isfinite(f_i) for f_i in f)

        # lines 8-11, Eq. (27)
        if self.h_unconst and lam_F < lam:
            if self.reset:
                self.B = self.B0.copy()
                self.p_sigma = np.zeros(d)
                self.p_c = np.zeros(d)
                self.p_step = np.zeros(d)
                self.gamma = 1.0
            self.h_unconst = False
        self.share = 0.9 * self.share + 0.1 * lam_F / lam

        # constants
        parents_of = lam
        if "selection" in self.adaptive and 2 <= lam_F < lam:
            parents_of = min(max(lam_F, d), lam)
        w_hat_rank, w_rank, mu_eff = rank_weights(lam, parents_of)
        upsilon = expected_norm(d)
        c_sigma = (mu_eff + 2) / (d + mu_eff + 5)  # Eq. (5)
        if self.path_rate == "tables":
            c_sigma = c_sigma / math.sqrt(d)  # correction 1
        alpha = h_inverse(d) * min(1, math.sqrt(lam_F / d)) * math.sqrt(lam_F / lam)  # correction 2
        eta_m = 1
        eta_sigma_move = 1
        eta_sigma_stag = math.tanh((0.024 * lam_F + 0.7 * d + 20) / (d + 12))
        eta_sigma_conv = 2 * math.tanh((0.025 * lam_F + 0.75 * d + 10) / (d + 4))
        c_1 = 2 / ((d + 1.3) ** 2 + mu_eff)
        b = 120 * d * math.tanh(0.02 * lam_F) / (47 * d**2 + 6400)
        if "shape_rate" in self.adaptive:
            b = min(9.5 / d**1.5 * math.tanh(0.02 * lam_F), 0.3)
            c_1 = 2 / ((d + 4) ** 2 + mu_eff)
        eta_B_move, eta_B_stag, eta_B_conv = 1.5 * b, 1.4 * b, 0.1 * b
        c_c = (4 + mu_eff / d) / (d + 4 + 2 * mu_eff / d)  # after Eq. (22)

        B_g, sigma_g = self.B, self.sigma

        # line 12, Eq. (4)
        self.p_sigma = (1 - c_sigma) * self.p_sigma + math.sqrt(c_sigma * (2 - c_sigma) * mu_eff) * sum(
            w_rank[i] * z[i] for i in range(lam)
        )
        norm_p_sigma = np.linalg.norm(self.p_sigma)

        # lines 13-14, Steps 5-7
        if norm_p_sigma >= upsilon:
            self.phase = "movement"
            w = distance_weights(w_hat_rank, z, alpha)
            eta_sigma, eta_B = eta_sigma_move, eta_B_move
        elif norm_p_sigma >= 0.1 * upsilon:
            self.phase = "stagnation"
            w = w_rank
            eta_sigma, eta_B = eta_sigma_stag, eta_B_stag
        else:
            self.phase = "convergence"
            w = w_rank
            eta_sigma, eta_B = eta_sigma_conv, eta_B_conv

        # lines 15-16, Eq. (11)
        G_delta = sum(w[i] * z[i] for i in range(lam))
        G_M = sum(w[i] * (np.outer(z[i], z[i]) - I) for i in range(lam))
        G_sigma = np.trace(G_M) / d
        G_B = G_M - G_sigma * I

        # lines 17-19, Eqs. (12)-(14)
        self.m = self.m + eta_m * sigma_g * B_g @ G_delta
        log_change = eta_sigma / 2 * G_sigma
        if "step_size" in self.adaptive:
            c = (mu_eff + 2) / (d + mu_eff + 5)
            damping = 1 + 2 * max(0, math.sqrt((mu_eff - 1) / (d + 1)) - 1) + c
            self.p_step = (1 - c) * self.p_step + math.sqrt(c * (2 - c) * mu_eff) * sum(
                w_rank[i] * z[i] for i in range(lam)
            )
            by_path = c / damping * (np.linalg.norm(self.p_step) / upsilon - 1)
            trust = 1 - self.share
            log_change = (1 - trust) * log_change + trust * by_path
        sigma = sigma_g * math.exp(log_change)
        B = B_g @ exp_symmetric(eta_B * G_B / 2)

        # line 20, Eq. (22)
        self.p_c = (1 - c_c) * self.p_c + math.sqrt(c_c * (2 - c_c) * mu_eff) * B_g @ G_delta

        if d == 1:  # B = 1: nothing to expand, no ridge, R_B = 0
            self.sigma = sigma
            return

        # line 21
        e = I if np.array_equal(B_g, I) else np.linalg.eigh(B_g @ B_g.T)[1]
        # lines 22-24, Eq. (19)
        tau = np.zeros(d)
        for i in range(d):
            e_i = e[:, i]
            tau[i] = (e_i @ B @ B.T @ e_i) / (e_i @ B_g @ B_g.T @ e_i) - 1
        # lines 25-26, Eqs. (20)-(21)
        c_gamma = 1 / (3 * (d - 1))
        d_gamma = min(1, d / lam)
        self.gamma = max((1 - c_gamma) * self.gamma + c_gamma * math.sqrt(1 + d_gamma * max(tau)), 1.0)
        # lines 27-31, Eqs. (15)-(17)
        if norm_p_sigma >= upsilon:
            Q = (self.gamma - 1) * sum((tau[i] > 1e-9) * np.outer(e[:, i], e[:, i]) for i in range(d)) + I
            det_Q = np.linalg.det(Q)
            sigma = det_Q ** (1 / d) * sigma
            B = Q @ B / det_Q ** (1 / d)

        # lines 32-36, Eqs. (26), (23)-(25)
        if self.rank_one == "on-ridge":
            lambda_2, lambda_1 = np.linalg.eigvalsh(B @ B.T)[-2:]
            update = self.h_unconst or math.sqrt(lambda_1 / lambda_2) > self.beta
        else:
            update = self.rank_one == "always"
        if update:
            v = np.linalg.solve(B_g, self.p_c)
            R = np.outer(v, v) - I
            R_B = R - np.trace(R) / d * I
            B = B @ exp_symmetric(c_1 * R_B / 2)

        # line 37
        self.sigma, self.B = float(sigma), B

    def next_population_size(self, first) -> int:
        """Adaptive: λ of the next generation, from λ₀."""
        axes = np.sqrt(np.linalg.eigvalsh(self.B @ self.B.T))
        exponent = min(1, math.log(axes[-1] / axes[0]) / 2)
        growth = min(4, (1 / self.share) ** exponent)
        return 2 * math.floor(first * growth / 2 + 0.5)
