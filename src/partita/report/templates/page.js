"use strict";
// Figures are drawn when they scroll into view, and all of them before the page is printed; the theme is that of the system until the
// button is pressed.
(() => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const plots = [...document.querySelectorAll(".plot")];
  const drawn = new Set();
  const SCALES = {
    sequential: { light: ["#ffffff", "#9ecae1", "#3182bd", "#08306b"], dark: ["#14171b", "#1f4e79", "#4a90c8", "#d6ecff"] },
    diverging: { light: ["#2166ac", "#92c5de", "#f7f7f7", "#f4a582", "#b2182b"], dark: ["#7db8ea", "#2f6da3", "#1c2026", "#a8433b", "#ff9a8d"] },
  };
  const PAPER = 660; // pixels across a printed page
  let printing = false;

  const theme = () => printing ? "light" : root.dataset.theme ?? (system.matches ? "dark" : "light");
  const scale = (name) => SCALES[name][theme()].map((color, i, all) => [i / (all.length - 1), color]);

  function themed(figure, size) {
    const ink = theme() === "dark" ? "#e6e8eb" : "#1b1f24";
    const axis = { gridcolor: "rgba(128,128,128,.22)", zerolinecolor: "rgba(128,128,128,.5)", linecolor: "rgba(128,128,128,.5)", automargin: true };
    const layout = {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: ink, size: 12, family: getComputedStyle(document.body).fontFamily },
      margin: { l: 50, r: 12, t: figure.layout.title ? 34 : 12, b: 42 }, hovermode: "closest", dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
      legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 }, xaxis: {}, yaxis: {}, autosize: true, ...figure.layout,
    };
    if (size) Object.assign(layout, size, { autosize: false });
    for (const name of Object.keys(layout).filter((key) => /^[xy]axis/.test(key))) layout[name] = { ...axis, ...layout[name] };
    const data = figure.data.map((trace) => {
      const named = typeof trace.colorscale === "string" ? { ...trace, colorscale: scale(trace.colorscale) } : { ...trace };
      for (const part of ["line", "marker", "textfont"]) if (named[part]?.color === "ink") named[part] = { ...named[part], color: ink };
      return named;
    });
    return [data, layout];
  }

  // A plane whose axes share one scale needs no more height than its width gives it.
  function fit(plot) {
    const { xaxis, yaxis } = plot.figure.layout;
    if (!yaxis?.scaleanchor) return;
    const ratio = (yaxis.range[1] - yaxis.range[0]) / (xaxis.range[1] - xaxis.range[0]);
    plot.style.height = `${Math.min(plot.clientHeight, 80 + ratio * (plot.clientWidth - 60))}px`;
  }

  function draw(plot, size) {
    if (!plot.figure) {
      const source = plot.querySelector("script");
      plot.figure = JSON.parse(source.textContent);
      source.remove();
      fit(plot);
    }
    const modebar = matchMedia("(pointer: fine)").matches ? "hover" : false;
    Plotly.react(plot, ...themed(plot.figure, size), { responsive: true, displaylogo: false, displayModeBar: modebar,
      modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d"] });
    plot.dataset.drawn = theme();
    drawn.add(plot);
  }

  const redraw = () => drawn.forEach((plot) => draw(plot));
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((entry) => entry.isIntersecting)) {
      seen.unobserve(entry.target);
      draw(entry.target);
    }
  }, { rootMargin: "300px" });
  plots.forEach((plot) => seen.observe(plot));

  document.getElementById("theme").addEventListener("click", () => {
    root.dataset.theme = theme() === "dark" ? "light" : "dark";
    redraw();
  });
  system.addEventListener("change", redraw);
  addEventListener("beforeprint", () => {
    printing = true;
    document.querySelectorAll("details:not([open])").forEach((part) => { part.open = part.dataset.opened = true; });
    plots.forEach((plot) => { seen.unobserve(plot); draw(plot, { width: Math.min(plot.clientWidth, PAPER), height: plot.clientHeight }); });
  });
  addEventListener("afterprint", () => {
    printing = false;
    document.querySelectorAll("details[data-opened]").forEach((part) => { part.open = false; delete part.dataset.opened; });
    redraw();
  });
})();
