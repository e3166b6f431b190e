"""CR-FM-NES, after Nomura and Ono, "Fast Moving Natural Evolution Strategy for High-Dimensional Problems"
(2022).

The covariance is σ² D (I + v vᵀ) D with D diagonal, here the vector of its diagonal. Weights, path, phases,
η_σ, c_c and the order of the samples are those of FM-NES, with the printed c_σ (no correction 1) and with λ
under the first root of α (no correction 2). Transcribed over all λ samples and the sample of p_c. There is no
expansion, no ridge test and no reset.
"""

import math

import numpy as np

from .fm_nes import distance_weights, expected_norm, h_inverse, mirror, preference_order, rank_weights


class CRFMNES:
    def __init__(self, m, sigma, v) -> None:
        self.m = np.array(m, dtype=float)
        self.sigma = float(sigma)
        self.d = len(self.m)
        self.v = np.array(v, dtype=float)
        self.D = np.ones(self.d)
        self.p_sigma = np.zeros(self.d)
        self.p_c = np.zeros(self.d)
        self.phase = None  # known after the first step

    def _y(self, z_i):
        """y = (I + v vᵀ)^{1/2} z."""
        norm_v = np.linalg.norm(self.v)
        v_bar = self.v / norm_v
        return z_i + (math.sqrt(1 + norm_v**2) - 1) * v_bar * (v_bar @ z_i)

    def points(self, z) -> np.ndarray:
        """Row 2k is m + σ D y_k, row 2k+1 is m - σ D y_k, with z of shape (λ/2, d)."""
        return np.array([self.m + self.sigma * self.D * self._y(z_i) for z_i in mirror(z)])

    def _natural_gradient(self, y):
        """s (for D) and t (for v) of one sample."""
        norm_v = np.linalg.norm(self.v)
        v_bar = self.v / norm_v
        g = 1 + norm_v**2
        q = v_bar * v_bar
        u = v_bar @ y
        a = min(1, math.sqrt(norm_v**4 + (2 * g - math.sqrt(g)) / max(q)) / (2 + norm_v**2))
        t = u * y - (u**2 + g) * v_bar / 2
        b = -(1 - a**2) * norm_v**4 / g + 2 * a**2
        H = 2 - (b + 2 * a**2) * q
        s_1 = y * y - norm_v**2 / g * u * (y * v_bar) - 1
        s_2 = s_1 - a / g * ((2 + norm_v**2) * (v_bar * t) - norm_v**2 * (v_bar @ t) * q)
        s = s_2 / H - b / (1 + b * (q @ (q / H))) * ((q / H) @ s_2) * (q / H)
        t = t - a * ((2 + norm_v**2) * (v_bar * s) - (q @ s) * v_bar)
        return s, t

    def step(self, z, f) -> None:
        """One generation, with f of shape (λ,) in the order of points(z); non-finite is infeasible."""
        d, lam = self.d, len(f)
        order = preference_order(z, f)
        z = mirror(z)[order]
        lam_F = sum(math.isfinite(f_i) for f_i in f)

        # constants
        w_hat_rank, w_rank, mu_eff = rank_weights(lam)
        upsilon = expected_norm(d)
        c_sigma = (mu_eff + 2) / (d + mu_eff + 5)
        alpha = h_inverse(d) * min(1, math.sqrt(lam / d)) * math.sqrt(lam_F / lam)
        eta_sigma_move = 1
        eta_sigma_stag = math.tanh((0.024 * lam_F + 0.7 * d + 20) / (d + 12))
        eta_sigma_conv = 2 * math.tanh((0.025 * lam_F + 0.75 * d + 10) / (d + 4))
        c_c = (4 + mu_eff / d) / (d + 4 + 2 * mu_eff / d)
        c_1 = 2 / ((d + 1.3) ** 2 + mu_eff) * max(0, d - 5) / 6 * lam_F / lam
        eta_B = math.tanh((min(0.02 * lam_F, 3 * math.log(d)) + 5) / (0.23 * d + 25))

        # path and phase
        self.p_sigma = (1 - c_sigma) * self.p_sigma + math.sqrt(c_sigma * (2 - c_sigma) * mu_eff) * sum(
            w_rank[i] * z[i] for i in range(lam)
        )
        norm_p_sigma = np.linalg.norm(self.p_sigma)
        if norm_p_sigma >= upsilon:
            self.phase, w, eta_sigma = "movement", distance_weights(w_hat_rank, z, alpha), eta_sigma_move
        elif norm_p_sigma >= 0.1 * upsilon:
            self.phase, w, eta_sigma = "stagnation", w_rank, eta_sigma_stag
        else:
            self.phase, w, eta_sigma = "convergence", w_rank, eta_sigma_conv

        # p_c and m; σ D y stands for x - m, which rounding spoils where σ is small beside m
        y = np.array([self._y(z_i) for z_i in z])
        G_x = sum(w[i] * self.D * y[i] for i in range(lam))  # Σ w_i (x_i - m) / σ
        self.p_c = (1 - c_c) * self.p_c + math.sqrt(c_c * (2 - c_c) * mu_eff) * G_x
        self.m = self.m + self.sigma * G_x

        # s and t of every sample and of the new p_c over the old D
        s_sum, t_sum = np.zeros(d), np.zeros(d)
        for i in range(lam):
            s, t = self._natural_gradient(y[i])
            s_sum = s_sum + w[i] * s
            t_sum = t_sum + w[i] * t
        s_pc, t_pc = self._natural_gradient(self.p_c / self.D)

        # v, D and σ
        norm_v = np.linalg.norm(self.v)
        self.v = self.v + (eta_B * t_sum + c_1 * t_pc) / norm_v
        factor = 1 + eta_B * s_sum + c_1 * s_pc
        D = self.D * np.maximum(factor, 0.1)  # keeps D positive
        self.D = D / math.exp(sum(np.log(D)) / d + math.log(1 + np.linalg.norm(self.v) ** 2) / (2 * d))
        G_sigma = sum(w[i] * (z[i] @ z[i] - d) for i in range(lam)) / d
        self.sigma = float(self.sigma * math.exp(eta_sigma / 2 * G_sigma))
