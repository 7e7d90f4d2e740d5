"use strict";
// Shows the point that is picked: by a click, by the
// radio buttons of the table, or step by step along the best trade-offs.
(function () {
  const root = document.documentElement;
  const front = JSON.parse(document.getElementById("front-data").textContent);
  const figure = document.getElementById("front");
  const steps = { fairer: -1, sharper: 1 };
  let picked = front.picked;

  const svgs = [...figure.querySelectorAll("svg")];
  const tip = document.getElementById("tip");

  // The marks of a picture: the number of the point and where it is drawn.
  function marks(svg) {
    return [...svg.querySelectorAll("[id*=-pick]")].flatMap((part) => {
      const use = part.querySelector("use");
      if (!use) return [];
      const number = Number(part.id.split("-pick")[1]);
      return [{ number, x: Number(use.getAttribute("x")), y: Number(use.getAttribute("y")) }];
    });
  }

  // The point nearest to a place on the screen, if a finger could mean it.
  function nearest(svg, event) {
    const matrix = svg.getScreenCTM();
    const away = ({ x, y }) => {
      const at = new DOMPoint(x, y).matrixTransform(matrix);
      return Math.hypot(at.x - event.clientX, at.y - event.clientY);
    };
    const [first] = marks(svg).sort((a, b) => away(a) - away(b));
    return first && away(first) < 24 ? first.number : null;
  }

  function hover(svg, event) {
    const number = nearest(svg, event);
    svg.style.cursor = number === null ? "" : "pointer";
    tip.hidden = number === null;
    if (number === null) return;
    tip.replaceChildren(...front.texts[number].map((text) => {
      const line = document.createElement("div");
      line.textContent = text;
      return line;
    }));
    const box = figure.getBoundingClientRect();
    const x = event.clientX - box.left;
    tip.style.left = `${Math.max(0, Math.min(x + 14, box.width - tip.offsetWidth))}px`;
    tip.style.top = `${event.clientY - box.top + 14}px`;
  }

  function draw() {
    for (const svg of svgs) {
      svg.querySelectorAll(".ring").forEach((ring) => ring.remove());
      for (const { x, y } of marks(svg).filter((mark) => mark.number === picked)) {
        const ring = document.createElementNS("http://www.w3.org/2000/svg", "circle");
        for (const [name, value] of Object.entries({ class: "ring", cx: x, cy: y, r: 8 })) {
          ring.setAttribute(name, value);
        }
        svg.append(ring);
      }
    }
  }

  function show() {
    document.querySelectorAll("[data-point]").forEach((part) => {
      part.hidden = Number(part.dataset.point) !== picked;
    });
    document.querySelectorAll("input[name=point]").forEach((button) => {
      button.checked = Number(button.value) === picked;
      button.closest("tr").classList.toggle("picked", button.checked);
    });
    const here = place();
    for (const [name, step] of Object.entries(steps)) {
      const next = here + step;
      document.getElementById(name).disabled = next < 0 || next >= front.front.length;
    }
  }

  // Where the picked point stands on the front; the nearest of it if it is not there.
  function place() {
    const at = front.front.indexOf(picked);
    if (at >= 0) return at;
    const violation = front.violations[picked];
    const distance = (k) => Math.abs(front.violations[k] - violation);
    const nearest = [...front.front].sort((a, b) => distance(a) - distance(b))[0];
    return front.front.indexOf(nearest);
  }

  function pick(number) {
    picked = number;
    show();
    draw();
  }

  root.classList.add("scripted");
  draw();
  show();
  for (const svg of svgs) {
    svg.addEventListener("click", (event) => {
      const number = nearest(svg, event);
      if (number !== null) pick(number);
    });
    svg.addEventListener("pointermove", (event) => hover(svg, event));
    svg.addEventListener("pointerleave", () => { tip.hidden = true; });
  }
  document.querySelectorAll("input[name=point]").forEach((button) => {
    button.addEventListener("change", () => pick(Number(button.value)));
  });
  for (const [name, step] of Object.entries(steps)) {
    document.getElementById(name).addEventListener("click", () => {
      const next = front.front[place() + step];
      if (next !== undefined) pick(next);
    });
  }
})();
