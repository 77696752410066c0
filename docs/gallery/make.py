"""The figures of the gallery, drawn by plotly in headless Chromium: ``python
docs/gallery/make.py``, or ``... make.py filters`` for one.
"""

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from plotly import graph_objects
from plotly.subplots import make_subplots

import partita
from partita.cli import lab_memory, lab_no_free_lunch
from partita.datasets import load
from partita.datasets.toys import checkerboard, eight_gaussians
from partita.estimators import DirichletProcessMixture, FlowDensity, RBMDensity
from partita.evaluators import AIS, Enumeration, Sandwich
from partita.gradients.laboratory import all_estimators, bits, measure
from partita.models import RBM, Ising, torus
from partita.models.energy.kaufman import torus_energy
from partita.objectives import PCD
from partita.probes.memory import memory as probe
from partita.probes.no_free_lunch import no_free_lunch as enumerate_targets
from partita.samplers import Gibbs

HERE = Path(__file__).parent
WIDTH, HEIGHT = 900, 420
BLUE, RED, GREEN, YELLOW, CYAN, PURPLE, GRAY = (
    "#4477AA",
    "#EE6677",
    "#228833",
    "#CCBB44",
    "#66CCEE",
    "#AA3377",
    "#999999",
)
COLORS = (BLUE, RED, GREEN, YELLOW, CYAN, PURPLE)
GRAYS = [[0, "#ffffff"], [1, "#22313f"]]


def annealing() -> Any:
    """log Z by forward annealing and by the sandwich, less the truth, as temperatures grow in
    number.
    """
    g = torch.Generator().manual_seed(0)
    model = RBM(64, 16, generator=g)
    partita.fit(
        model,
        load("digits").train,
        PCD(Gibbs(), chains=128, steps=1),
        epochs=100,
        learning_rate=0.5,
        batch_size=128,
        generator=g,
    )
    truth, numbers = Enumeration()(model, generator=g).value, [2, 4, 8, 16, 32, 64, 128, 256]
    figure = graph_objects.Figure()
    for name, color, evaluator, aside in (
        ("forward annealing alone", RED, AIS, 0.95),
        ("sandwich of both sides", BLUE, Sandwich, 1.05),
    ):
        found = [evaluator(temperatures=n, chains=100)(model, generator=g) for n in numbers]
        value = np.array([q.value for q in found])
        ends = {
            "array": [q.high for q in found] - value,
            "arrayminus": value - [q.low for q in found],
            "color": color,
        }
        marker = {"color": color, "size": 8}
        figure.add_scatter(
            x=[n * aside for n in numbers],
            y=value - truth,
            error_y=ends,
            name=name,
            marker=marker,
            mode="markers",
        )
    figure.add_hline(0, line={"color": GRAY, "dash": "dot"})
    figure.update_xaxes(type="log", title="temperatures", tickvals=numbers, ticktext=numbers)
    return figure.update_yaxes(title="log Z less the truth, nats").update_layout(
        legend={"x": 0.6, "y": 0.95}
    )


def filters() -> Any:
    """What the hidden units of an RBM on digits look for, and digits that it draws."""
    digits = load("digits").train.tensor().numpy()
    density = RBMDensity(32, epochs=150, validation_fraction=0, random_state=0).fit(digits)
    weights = density.model_.W.detach().numpy().T
    scale = float(np.abs(weights).max())
    figure = make_subplots(
        1, 2, subplot_titles=["weights of 32 hidden units", "32 draws"], horizontal_spacing=0.04
    )
    signed = {"colorscale": "RdBu", "zmid": 0, "zmin": -scale / 2, "zmax": scale / 2}
    figure.add_heatmap(z=tiles(weights), **signed, showscale=False, row=1, col=1)
    figure.add_heatmap(z=tiles(density.sample(32)), colorscale=GRAYS, showscale=False, row=1, col=2)
    return bare(figure).update_yaxes(autorange="reversed").update_layout(width=1000, height=275)


def gradients() -> Any:
    """Variance times cost of every gradient estimator on four bits; biased ones in red."""
    g = torch.Generator().manual_seed(0)
    problem = bits(4, generator=g)
    found = {
        name: measure(problem, estimator, 20_000, generator=g)
        for name, estimator in all_estimators(problem).items()
    }
    names = sorted(found, key=lambda name: -found[name].work)
    work = [found[name].work for name in names]
    look = {
        "marker": {"color": [BLUE if found[name].unbiased else RED for name in names]},
        "text": [f"{value:.2g}" for value in work],
    }
    figure = graph_objects.Figure(
        graph_objects.Bar(
            x=work, y=names, orientation="h", textposition="outside", cliponaxis=False, **look
        )
    )
    figure.update_xaxes(
        type="log", dtick=1, title="variance of an estimate x evaluations of f that it takes"
    )
    return figure.update_layout(width=800, height=420, margin={"l": 130})


def flows() -> Any:
    """Draws of two laws of the plane, and the densities that spline flows learned from them."""
    g = torch.Generator().manual_seed(0)
    figure = make_subplots(
        1, 4, subplot_titles=["data", "spline flow", "data", "spline flow"], horizontal_spacing=0.02
    )
    line = np.linspace(-4.5, 4.5, 220)
    grid = np.stack(np.meshgrid(line, line), -1).reshape(-1, 2).astype(np.float32)
    for column, draw in ((1, eight_gaussians), (3, checkerboard)):
        x = draw(20_000, generator=g).numpy()
        density = FlowDensity(8, "spline", n_hidden=64, epochs=40, random_state=0).fit(x)
        look = {
            "mode": "markers",
            "marker": {"size": 2, "color": BLUE, "opacity": 0.4},
            "showlegend": False,
        }
        figure.add_scatter(x=x[:3000, 0], y=x[:3000, 1], **look, row=1, col=column)
        heights = np.exp(density.score_samples(grid)).reshape(220, 220)
        figure.add_heatmap(
            x=line, y=line, z=heights, colorscale=GRAYS, showscale=False, row=1, col=column + 1
        )
    return (
        bare(figure)
        .update_yaxes(range=[-4.5, 4.5])
        .update_xaxes(range=[-4.5, 4.5])
        .update_layout(width=1100, height=310)
    )


def clusters() -> Any:
    """Points that a Dirichlet process mixture sorted, and what it believes of their number."""
    g = np.random.default_rng(0)
    centers = np.array([[-3, 0], [-1, 3], [2, 2.5], [3, -1], [0, -2.5]])
    x = np.concatenate(
        [
            c + g.normal(size=(n, 2)) @ g.normal(0, 0.5, (2, 2))
            for c, n in zip(centers, (150, 60, 90, 40, 15), strict=True)
        ]
    )
    found = DirichletProcessMixture(random_state=0).fit(x)
    titles = ["the partition nearest to all that were drawn", "number of clusters"]
    figure = make_subplots(1, 2, subplot_titles=titles, column_widths=[0.6, 0.4])
    for label in np.unique(found.labels_):
        part, look = x[found.labels_ == label], {"color": COLORS[label % len(COLORS)], "size": 6}
        figure.add_scatter(
            x=part[:, 0], y=part[:, 1], mode="markers", marker=look, showlegend=False, row=1, col=1
        )
    likely = found.cluster_count_probs_
    shown = slice(0, int(np.flatnonzero(likely > 1e-3).max()) + 2)
    figure.add_bar(
        x=np.arange(len(likely))[shown],
        y=likely[shown],
        marker_color=BLUE,
        showlegend=False,
        row=1,
        col=2,
    )
    return figure.update_yaxes(title="probability", row=1, col=2).update_xaxes(
        dtick=1, row=1, col=2
    )


def lattice() -> Any:
    """A torus of spins below, near and above its critical temperature, and the energy of chains on
    Kaufman's exact curve.
    """
    side, couplings, g = 96, (0.36, 0.4407, 0.5), torch.Generator().manual_seed(3)
    titles = [*(f"coupling {K:g}" for K in couplings), "energy of a spin"]
    figure = make_subplots(
        1, 4, subplot_titles=titles, horizontal_spacing=0.03, column_widths=[0.22, 0.22, 0.22, 0.34]
    )
    for column, K in enumerate(couplings, 1):
        spins = spun(side, K, 3000, 1, g)[0]
        figure.add_heatmap(
            z=spins.reshape(side, side), colorscale=GRAYS, showscale=False, row=1, col=column
        )
    bare(figure)
    line, points = np.linspace(0.1, 0.7, 61), np.linspace(0.15, 0.65, 11)
    exact = [torus_energy(32, 32, K) / (K * 32**2) for K in line]
    found = [spin_energy(32, K, g) for K in points]
    figure.add_scatter(x=line, y=exact, line={"color": GRAY}, name="Kaufman", row=1, col=4)
    figure.add_scatter(
        x=points,
        y=found,
        mode="markers",
        marker={"color": RED, "size": 8},
        name="64 chains",
        row=1,
        col=4,
    )
    figure.update_xaxes(visible=True, title="coupling", row=1, col=4).update_yaxes(
        visible=True, scaleanchor=None, row=1, col=4
    )
    return figure.update_layout(width=1150, height=320, legend={"x": 0.84, "y": 0.95})


def memory() -> Any:
    """How far back four kinds of layers look at their first weights: the slope of the output in the
    input, by distance.
    """
    g = torch.Generator().manual_seed(0)
    u = torch.randn(8, 512, 32, dtype=torch.float64, generator=g)
    figure = graph_objects.Figure()
    for (name, layer), color in zip(
        lab_memory.sequence_layers(32, g).items(), COLORS, strict=False
    ):
        m = probe(layer.double(), u)
        figure.add_scatter(
            y=m.size.where(m.size > m.tolerance, torch.nan).tolist(),
            name=name,
            line={"color": color},
        )
    figure.update_xaxes(title="distance, steps")
    return figure.update_yaxes(type="log", exponentformat="power", title="slope")


def no_free_lunch() -> Any:
    """Six learners on every target of a grid: errors differ target by target, and no average
    does.
    """
    domain = np.stack(np.meshgrid(np.arange(3), np.arange(3)), -1).reshape(-1, 2)
    lunch = enumerate_targets(lab_no_free_lunch.small_learners(), domain, [0, 2, 4, 7])
    return lab_no_free_lunch.lunch_figure(lunch).update_layout(height=640, margin={"l": 170})


def spun(
    side: int, coupling: float, sweeps: int, chains: int, generator: torch.Generator
) -> torch.Tensor:
    """Spins of a torus after some sweeps from an ordered start, ``(chains, side^2)``."""
    model = Ising(side * side, edges=torus(side, side), couplings=coupling, generator=generator)
    sampler = Gibbs(sweeps, "colors")
    state = sampler.init(model, torch.ones(chains, side * side), generator=generator)
    return sampler.step(model, state, generator=generator)[0].x


def spin_energy(side: int, coupling: float, generator: torch.Generator) -> float:
    """Mean of -s s' over the bonds, for each spin."""
    s = spun(side, coupling, 1000, 64, generator).view(-1, side, side)
    return -float((s * s.roll(1, 1) + s * s.roll(1, 2)).mean())


def tiles(rows: np.ndarray, across: int = 8) -> np.ndarray:
    """Rows of 64 numbers as pictures of 8 x 8, side by side with gaps."""
    pictures = np.pad(rows.reshape(-1, 8, 8), ((0, 0), (0, 1), (0, 1)), constant_values=np.nan)
    return pictures.reshape(-1, across, 9, 9).swapaxes(1, 2).reshape(-1, across * 9)


def bare(figure: Any) -> Any:
    """Pictures without axes, equal scales."""
    figure.update_xaxes(visible=False, constrain="domain")
    for number, axis in enumerate(figure.select_yaxes(), 1):
        axis.update(visible=False, scaleanchor=f"x{number}" if number > 1 else "x")
    return figure


def photograph(figure: Any, path: Path) -> None:
    """Draw in a browser at twice the density and take the picture."""
    from playwright.sync_api import sync_playwright

    size = {
        "width": int(figure.layout.width or WIDTH),
        "height": int(figure.layout.height or HEIGHT),
    }
    margin = {
        "l": figure.layout.margin.l or 60,
        "r": 30,
        "t": 40,
        "b": 50 if size["height"] > 300 else 5,
    }
    figure.update_layout(
        template="plotly_white", font={"family": "sans-serif"}, margin=margin, **size
    )
    chromium = next(
        found
        for name in ("chromium", "chromium-browser", "google-chrome")
        if (found := shutil.which(name))
    )
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        page_path = Path(folder) / "figure.html"
        figure.write_html(page_path, include_plotlyjs=True, config={"staticPlot": True})
        browser = driver.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport=size, device_scale_factor=1.5)
        page.goto(page_path.as_uri())
        page.locator(".main-svg").first.wait_for()
        page.locator(".js-plotly-plot").screenshot(path=path)
        browser.close()


DRAWN = (annealing, filters, gradients, flows, clusters, lattice, memory, no_free_lunch)
FIGURES: dict[str, Callable[[], Any]] = {made.__name__: made for made in DRAWN}

if __name__ == "__main__":
    for name in sys.argv[1:] or FIGURES:
        photograph(FIGURES[name](), HERE / f"{name}.png")
        print(f"docs/gallery/{name}.png")
