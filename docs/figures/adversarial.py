"""Draw the pictures of the tutorial and of the attacks' page from digits and a LeNet-5 of the zoo.

Needs torch and matplotlib: ``python docs/figures/adversarial.py``.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import robustcmp as rc
from robustcmp.models.classifier import Classifier

HERE = Path(__file__).parent
DATA = rc.load_dataset("digits")
MODEL = rc.load_model("lenet5", framework="torch", dataset="digits")
FOOLED = "#b3261e"


def classes(images: np.ndarray) -> np.ndarray:
    """Return what the network takes images (N, H, W, C) for."""
    return rc.predict(MODEL, images)


CORRECT = np.flatnonzero(classes(DATA.images) == DATA.labels)


def show(axes: Axes, image: np.ndarray, title: str, color: str = "black", **how: object) -> None:
    """Show one image (H, W, 1) under a title."""
    axes.imshow(image[..., 0], **({"cmap": "gray", "vmin": 0, "vmax": 1} | how))
    axes.set_title(title, fontsize=9, color=color)
    axes.set_xticks([])
    axes.set_yticks([])


def save(figure: Figure, name: str) -> None:
    """Write a figure, the same bytes each time."""
    figure.savefig(HERE / f"{name}.svg", metadata={"Date": None})
    plt.close(figure)


def attacked(attack: rc.attacks.Attack, at: int) -> np.ndarray:
    """Return the adversarial image of one digit."""
    return attack.attack(MODEL, DATA.images[at : at + 1], DATA.labels[at : at + 1]).adversarials[0]


def smallest_fgsm() -> int:
    """Return the digit that falls to FGSM with a middling ε, so that the perturbation can be seen."""
    at = CORRECT[:200]
    result = rc.attacks.FGSM().attack(MODEL, DATA.images[at], DATA.labels[at])
    return int(at[np.argmin(np.abs(result.extras["smallest_epsilon"] - 0.06))])


def pixel_maps() -> tuple[np.ndarray, np.ndarray]:
    """Return the digits that one pixel can fool the network on, and which pixels do, (N, 28, 28)."""
    exact = rc.attacks.SinglePixel(max_pixels=100, exact=True)
    result = exact.attack(MODEL, DATA.images[CORRECT], DATA.labels[CORRECT])
    maps = np.unpackbits(result.extras["vulnerable_map"], axis=1, count=784).reshape(-1, 28, 28)
    found = maps.any(axis=(1, 2))
    return CORRECT[found], maps[found]


def draw_first() -> None:
    """A digit, what FGSM adds, and the sum, which the network takes for another digit."""
    at = smallest_fgsm()
    clean, adversarial = DATA.images[at], attacked(rc.attacks.FGSM(), at)
    figure, panels = plt.subplots(1, 3, figsize=(6.6, 2.5), layout="constrained")
    difference = adversarial - clean
    show(panels[0], clean, f"original: the network says {classes(clean[None])[0]}")
    show(panels[1], difference, f"perturbation, at most {abs(difference).max():.2f}", cmap="RdBu", vmin=-0.1, vmax=0.1)
    show(panels[2], adversarial, f"sum: the network says {classes(adversarial[None])[0]}", FOOLED)
    save(figure, "adversarial-example")


def draw_fgsm() -> None:
    """One digit with more and more of the same perturbation, and the margin of the true class meanwhile."""
    at = smallest_fgsm()
    clean, label = DATA.images[at], DATA.labels[at]
    adversarial = attacked(rc.attacks.FGSM(), at)
    signs = np.sign(adversarial - clean)
    sizes = np.linspace(0, 0.1, 101)
    stepped = np.stack([np.clip(clean + size * signs, 0, 1) for size in sizes])
    logits = Classifier(MODEL).logits(stepped.astype(np.float32))
    others = np.delete(logits, label, axis=1).max(axis=1)
    figure, panels = plt.subplots(1, 6, figsize=(9, 1.9), layout="constrained", width_ratios=[1, 1, 1, 1, 1, 2])
    for axes, size in zip(panels, (0, 25, 50, 75, 100), strict=False):
        says = logits[size].argmax()
        image = np.clip(clean + sizes[size] * signs, 0, 1)
        show(axes, image, f"ε = {sizes[size]:.3f}: {says}", "black" if says == label else FOOLED)
    panels[-1].plot(sizes, logits[:, label] - others, color="#1a5fb4")
    panels[-1].axhline(0, color="black", linewidth=0.8)
    panels[-1].set_title("margin of the true class", fontsize=9)
    panels[-1].set_xlabel("ε", fontsize=8)
    panels[-1].tick_params(labelsize=8)
    save(figure, "fgsm-steps")


def draw_pixel(digits: np.ndarray, maps: np.ndarray) -> None:
    """The digits that a single pixel fools the network on, with the pixels that do, and one of the images."""
    most = np.argsort(-maps.sum(axis=(1, 2)), kind="stable")[:3]
    figure, panels = plt.subplots(2, 3, figsize=(6.2, 4.2), layout="constrained")
    for (above, below), at, vulnerable in zip(panels.T, digits[most], maps[most], strict=True):
        clean = DATA.images[at]
        count = vulnerable.sum()
        show(above, clean, f"{DATA.labels[at]}: {count} of 784 pixels {'fools' if count == 1 else 'fool'}")
        rows, columns = np.nonzero(vulnerable)
        above.plot(columns, rows, "s", color="#ff7b00", markersize=2.6)
        adversarial = attacked(rc.attacks.SinglePixel(max_pixels=784), at)
        show(below, adversarial, f"one pixel changed: {classes(adversarial[None])[0]}", FOOLED)
        (row,), (column,) = np.nonzero((adversarial != clean)[..., 0])
        below.plot(column, row, "o", markersize=11, markerfacecolor="none", markeredgecolor="#ff7b00")
    save(figure, "single-pixel")


def draw_boundary() -> None:
    """One digit's walk: after the start, the paper's 100 iterations, and many more."""
    at = smallest_fgsm()
    clean = DATA.images[at]
    figure, panels = plt.subplots(1, 5, figsize=(9, 2.35), layout="constrained")
    show(panels[0], clean, f"original: {DATA.labels[at]}")
    for axes, iterations in zip(panels[1:], (1, 100, 1000, 5000), strict=True):
        directions = 25 if iterations > 100 else 5
        image = attacked(rc.attacks.Boundary(iterations=iterations, max_directions=directions), at)
        distance = np.linalg.norm(image - clean)
        text = f"{iterations:,} step{'s' * (iterations > 1)}: {classes(image[None])[0]}\nL2 = {distance:.2f}"
        show(axes, image, text, FOOLED)
    save(figure, "boundary-walk")


def draw_curve() -> None:
    """The success of FGSM against its largest ε, on 200 digits."""
    at = CORRECT[:200]
    result = rc.attacks.FGSM().attack(MODEL, DATA.images[at], DATA.labels[at])
    sizes = np.linspace(0, 0.1, 101)
    rates = [(result.extras["smallest_epsilon"] <= size + 1e-9).mean() for size in sizes]
    figure, axes = plt.subplots(figsize=(5, 2.6), layout="constrained")
    axes.plot(sizes, 100 * np.array(rates), color="#1a5fb4")
    axes.set(xlabel="ε, the largest change of a pixel", ylabel="success rate, %", ylim=(0, None), xlim=(0, 0.1))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    save(figure, "success-curve")


if __name__ == "__main__":
    plt.rcParams["svg.hashsalt"] = "robustcmp"
    draw_first()
    draw_fgsm()
    draw_pixel(*pixel_maps())
    draw_boundary()
    draw_curve()
