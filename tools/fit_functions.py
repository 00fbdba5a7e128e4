#!/usr/bin/env python3
"""Fits the polynomials of src/ops/math_functions.cpp and src/ops/complex_scalar.cpp (minimax) and prints them.

Needs mpmath and numpy. Coefficients are rounded to the target type one after another, lowest power first; after each the others are
fitted again, so that they make up for the rounding.
"""

import struct

import mpmath as mp
import numpy as np

mp.mp.prec = 160


def to_float(x, kind):
    code = {"f32": "f", "f64": "d"}[kind]
    return mp.mpf(struct.unpack(code, struct.pack(code, float(x)))[0])


def chebyshev_points(low, high, count):
    return [(low + high) / 2 + (high - low) / 2 * mp.cos(mp.pi * (2 * k + 1) / (2 * count)) for k in range(count)]


def solve_exchange(target, weight, powers, points):
    """Coefficients and levelled error e with sum c x^p + (-1)^k e / w(x) = target at each point."""
    n = len(powers)
    a = mp.matrix(n + 1, n + 1)
    b = mp.matrix(n + 1, 1)
    for row, x in enumerate(points):
        for col, p in enumerate(powers):
            a[row, col] = x**p
        a[row, n] = (-1) ** row / weight(x)
        b[row] = target(x)
    s = mp.lu_solve(a, b)
    return [s[k] for k in range(n)], s[n]


def remez(target, weight, powers, low, high, rounds=12, grid=600):
    """Minimax fit of weight * (target - sum of c_p x^p); returns ({p: c}, largest weighted error)."""
    points = sorted(chebyshev_points(low, high, len(powers) + 1))
    xs = [low + (high - low) * mp.mpf(k) / grid for k in range(grid + 1)]
    ts, ws = [target(x) for x in xs], [weight(x) for x in xs]
    for _ in range(rounds):
        c, level = solve_exchange(target, weight, powers, points)
        errors = [w * (t - sum(ck * x**p for ck, p in zip(c, powers))) for x, t, w in zip(xs, ts, ws)]
        # One extremum in each run of equal sign.
        picks = [0]
        for k in range(1, len(xs)):
            if (errors[k] > 0) == (errors[picks[-1]] > 0):
                if abs(errors[k]) > abs(errors[picks[-1]]):
                    picks[-1] = k
            else:
                picks.append(k)
        while len(picks) > len(powers) + 1:
            picks.pop(0 if abs(errors[picks[0]]) < abs(errors[picks[-1]]) else -1)
        worst = max(abs(e) for e in errors)
        if len(picks) < len(powers) + 1 or worst < abs(level) * mp.mpf("1.001"):
            break
        points = [xs[k] for k in picks]
    return dict(zip(powers, c)), worst


def lawson(target, weight, powers, xs, rounds=80):
    """Nearly minimax fit on the points xs by reweighted least squares (Lawson 1961); all numpy, float64."""
    basis = weight[:, None] * xs[:, None] ** np.array(powers)[None, :]
    wanted = weight * target
    lawson_weight = np.ones(len(xs))
    best, best_worst = None, np.inf
    for _ in range(rounds):
        root = np.sqrt(lawson_weight)
        c, *_ = np.linalg.lstsq(basis * root[:, None], wanted * root, rcond=None)
        errors = np.abs(wanted - basis @ c)
        if errors.max() < best_worst:
            best, best_worst = c, errors.max()
        lawson_weight *= errors + 1e-3 * errors.max()
        lawson_weight /= lawson_weight.sum()
    return best


def fit_rounded(target, weight, powers, low, high, kind):
    """Coefficients of type `kind`, rounded one after another, and the largest weighted error."""
    points = [low + (high - low) * (1 - mp.cos(mp.pi * mp.mpf(k) / 400)) / 2 for k in range(401)]
    weights = np.array([float(weight(x)) for x in points])
    xs = np.array([float(x) for x in points])
    done, left = {}, list(powers)
    residual = [target(x) for x in points]
    while left:
        c = lawson(np.array([float(r) for r in residual]), weights, left, xs)
        power = left.pop(0)
        done[power] = to_float(c[0], kind)
        residual = [r - done[power] * x**power for r, x in zip(residual, points)]
    worst = max(abs(w * r) for w, r in zip(weights, residual))
    return done, worst


def show(name, fit, kind, suffix):
    coefficients, worst = fit
    print(f"{name}: largest weighted error 2^{float(mp.log(worst, 2)):.1f}")
    for p in sorted(coefficients):
        print(f"  x^{p}: {float(coefficients[p]).hex()}{suffix}  // {float(coefficients[p]):.9g}")


def divided(f, limit):
    """f with its value at 0 given."""
    return lambda x: mp.mpf(limit) if x == 0 else f(x)


def main():
    # exp(r) = 1 + r p(r); relative error.
    ln2 = mp.log(2) * mp.mpf("1.0003")
    p = divided(lambda r: (mp.exp(r) - 1) / r, 1)
    show("exp p, 7 terms", fit_rounded(p, lambda r: abs(r) / mp.exp(r), list(range(7)), -ln2, ln2, "f32"), "f32", "f")
    # 2^r = 1 + r p(r)
    p = divided(lambda r: (mp.mpf(2) ** r - 1) / r, mp.log(2))
    for n in (5, 6):
        show(
            f"exp2 p, {n} terms",
            fit_rounded(
                p, lambda r: abs(r) / mp.mpf(2) ** r, list(range(n)), mp.mpf("-0.5005"), mp.mpf("0.5005"), "f32"
            ),
            "f32",
            "f",
        )
    # expm1(2 v) / 2 = v + v^2 q(v), |v| <= ln(2) / 4; relative error.
    quarter = mp.log(2) / 4 * mp.mpf("1.0005")
    q = divided(lambda v: (mp.expm1(2 * v) / 2 - v) / v**2, 1)
    show(
        "tanh q, 5 terms",
        fit_rounded(
            q,
            lambda v: abs(v * v / (mp.expm1(2 * v) / 2)) if v else mp.mpf(0),
            list(range(5)),
            -quarter,
            quarter,
            "f32",
        ),
        "f32",
        "f",
    )
    # log(1 + f) = f - f^2 / 2 + f^3 p(f); relative error.
    low, high = mp.sqrt(0.5) - 1, mp.sqrt(2) - 1
    p = divided(lambda f: (mp.log(1 + f) - f + f**2 / 2) / f**3, mp.mpf(1) / 3)
    for n in (7, 8):
        show(
            f"log p, {n} terms",
            fit_rounded(p, lambda f: abs(f**3 / mp.log(1 + f)) if f else mp.mpf(0), list(range(n)), low, high, "f32"),
            "f32",
            "f",
        )
    # erf(x) = x + x p(x^2), |x| < bound
    for bound, n in ((0.85, 6), (0.9, 6), (1.0, 7)):
        p = divided(lambda t: mp.erf(mp.sqrt(t)) / mp.sqrt(t) - 1, 2 / mp.sqrt(mp.pi) - 1)
        show(
            f"erf p(x^2), |x| < {bound}, {n} terms",
            fit_rounded(
                p,
                lambda t: mp.sqrt(t) / mp.erf(mp.sqrt(t)) if t else mp.sqrt(mp.pi) / 2,
                list(range(n)),
                mp.mpf(0),
                mp.mpf(bound) ** 2,
                "f32",
            ),
            "f32",
            "f",
        )
    # 1 - erf(a) = 2^(a p(a)) on [bound, 3.95]: absolute error of erf.
    for bound, n in ((0.85, 6), (0.9, 6), (0.9, 7)):
        p = lambda a: mp.log(mp.erfc(a), 2) / a
        show(
            f"erf tail p, from {bound}, {n} terms",
            fit_rounded(p, lambda a: a * mp.erfc(a) * mp.log(2), list(range(n)), mp.mpf(bound), mp.mpf("3.95"), "f32"),
            "f32",
            "f",
        )
    # log2(1 + f) = f p(f); relative error.
    p = divided(lambda f: mp.log(1 + f, 2) / f, 1 / mp.log(2))
    for n in (12, 13, 14):
        c, worst = remez(p, lambda f: 1 / p(f), list(range(n)), low, high)
        show(f"log2 p, {n} terms", ({k: to_float(v, "f64") for k, v in c.items()}, worst), "f64", "")
    # atan(t) = t + t^3 p(t^2), |t| <= tan(pi / 8)
    p = divided(lambda t: (mp.atan(mp.sqrt(t)) - mp.sqrt(t)) / mp.sqrt(t) ** 3, mp.mpf(-1) / 3)
    for n in (11, 12):
        c, worst = remez(
            p,
            lambda t: t * mp.sqrt(t) / mp.atan(mp.sqrt(t)) if t else mp.mpf(10) ** -9,
            list(range(n)),
            mp.mpf(0),
            mp.tan(mp.pi / 8) ** 2 * mp.mpf("1.0001"),
        )
        show(f"atan p(t^2), {n} terms", ({k: to_float(v, "f64") for k, v in c.items()}, worst), "f64", "")


if __name__ == "__main__":
    main()
