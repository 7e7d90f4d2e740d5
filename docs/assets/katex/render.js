// Draws the formulas that pymdownx.arithmatex leaves in elements of its class.
for (const element of document.querySelectorAll(".arithmatex")) {
  renderMathInElement(element, {
    delimiters: [
      { left: "\\(", right: "\\)", display: false },
      { left: "\\[", right: "\\]", display: true },
    ],
  });
}
