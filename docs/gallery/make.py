"""The figures of the gallery, drawn by plotly in headless Chromium: ``python docs/gallery/make.py``, or ``... make.py filters`` for one."""

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
from partita.data import load
from partita.estimators import RBMDensity
from partita.evaluators import AIS, Enumeration, Sandwich
from partita.gradients.laboratory import all_estimators, bits, measure
from partita.models import RBM
from partita.objectives import PCD
from partita.samplers import Gibbs

HERE = Path(__file__).parent
WIDTH, HEIGHT = 900, 420
BLUE, RED, GREY = "#4477AA", "#EE6677", "#999999"
GREYS = [[0, "#ffffff"], [1, "#22313f"]]


def annealing() -> Any:
    """log Z by forward annealing and by the sandwich, less the truth, as temperatures grow in number."""
    g = torch.Generator().manual_seed(0)
    model = RBM(64, 16, generator=g)
    partita.fit(model, load("digits").train, PCD(Gibbs(), chains=128, steps=1), epochs=100, learning_rate=0.5, batch_size=128, generator=g)
    truth, numbers = Enumeration()(model, generator=g).value, [2, 4, 8, 16, 32, 64, 128, 256]
    figure = graph_objects.Figure()
    for name, colour, evaluator, aside in (("forward annealing alone", RED, AIS, 0.95), ("sandwich of both sides", BLUE, Sandwich, 1.05)):
        found = [evaluator(temperatures=n, chains=100)(model, generator=g) for n in numbers]
        value = np.array([q.value for q in found])
        ends = {"array": [q.high for q in found] - value, "arrayminus": value - [q.low for q in found], "color": colour}
        marker = {"color": colour, "size": 8}
        figure.add_scatter(x=[n * aside for n in numbers], y=value - truth, error_y=ends, name=name, marker=marker, mode="markers")
    figure.add_hline(0, line={"color": GREY, "dash": "dot"})
    figure.update_xaxes(type="log", title="temperatures", tickvals=numbers, ticktext=numbers)
    return figure.update_yaxes(title="log Z less the truth, nats").update_layout(legend={"x": 0.6, "y": 0.95})


def filters() -> Any:
    """What the hidden units of an RBM on digits look for, and digits that it draws."""
    digits = load("digits").train.tensor().numpy()
    density = RBMDensity(32, epochs=150, validation_fraction=0, random_state=0).fit(digits)
    weights = density.model_.W.detach().numpy().T
    scale = float(np.abs(weights).max())
    figure = make_subplots(1, 2, subplot_titles=["weights of 32 hidden units", "32 draws"], horizontal_spacing=0.04)
    signed = {"colorscale": "RdBu", "zmid": 0, "zmin": -scale / 2, "zmax": scale / 2}
    figure.add_heatmap(z=tiles(weights), **signed, showscale=False, row=1, col=1)
    figure.add_heatmap(z=tiles(density.sample(32)), colorscale=GREYS, showscale=False, row=1, col=2)
    return bare(figure).update_yaxes(autorange="reversed").update_layout(width=1000, height=275)


def gradients() -> Any:
    """Variance times cost of every gradient estimator on four bits; biased ones in red."""
    g = torch.Generator().manual_seed(0)
    problem = bits(4, generator=g)
    found = {name: measure(problem, estimator, 20_000, generator=g) for name, estimator in all_estimators(problem).items()}
    names = sorted(found, key=lambda name: -found[name].work)
    work = [found[name].work for name in names]
    look = {"marker": {"color": [BLUE if found[name].unbiased else RED for name in names]}, "text": [f"{value:.2g}" for value in work]}
    figure = graph_objects.Figure(graph_objects.Bar(x=work, y=names, orientation="h", textposition="outside", cliponaxis=False, **look))
    figure.update_xaxes(type="log", dtick=1, title="variance of an estimate x evaluations of f that it takes")
    return figure.update_layout(width=800, height=420, margin={"l": 130})


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

    size = {"width": int(figure.layout.width or WIDTH), "height": int(figure.layout.height or HEIGHT)}
    margin = {"l": figure.layout.margin.l or 60, "r": 30, "t": 40, "b": 50 if size["height"] > 300 else 5}
    figure.update_layout(template="plotly_white", font={"family": "sans-serif"}, margin=margin, **size)
    chromium = next(found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name)))
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        page_path = Path(folder) / "figure.html"
        figure.write_html(page_path, include_plotlyjs=True, config={"staticPlot": True})
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport=size, device_scale_factor=1.5)
        page.goto(page_path.as_uri())
        page.locator(".main-svg").first.wait_for()
        page.locator(".js-plotly-plot").screenshot(path=path)
        browser.close()


FIGURES: dict[str, Callable[[], Any]] = {made.__name__: made for made in (annealing, filters, gradients)}

if __name__ == "__main__":
    for name in sys.argv[1:] or FIGURES:
        photograph(FIGURES[name](), HERE / f"{name}.png")
        print(f"docs/gallery/{name}.png")
