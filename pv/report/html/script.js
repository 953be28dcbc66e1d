"use strict";
const box = document.getElementById("search");
const count = document.getElementById("count");
const items = [...document.querySelectorAll("[data-search]")].map((node) => ({ node, text: "" }));
const folds = [...document.querySelectorAll("details")];
const opened = new Map(folds.map((fold) => [fold, fold.open]));
let hits = [];
let at = -1;

function search() {
  const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
  hits = [];
  at = -1;
  for (const item of items) {
    item.text ||= item.node.textContent.toLowerCase();
    const found = words.every((word) => item.text.includes(word));
    item.node.hidden = !found;
    if (found && words.length) hits.push(item.node);
  }
  for (const fold of folds) fold.open = words.length ? hits.some((hit) => fold.contains(hit)) : opened.get(fold);
  count.textContent = words.length ? `${hits.length} of ${items.length} match` : "";
}

function next(step) {
  if (!hits.length) return;
  at = (at + step + hits.length) % hits.length;
  const hit = hits[at];
  hit.tabIndex = -1;
  hit.focus({ preventScroll: true });
  hit.scrollIntoView({ block: "center" });
}

box.addEventListener("input", search);
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && event.target !== box) {
    event.preventDefault();
    box.focus();
  } else if (event.key === "Escape") {
    box.value = "";
    search();
    box.focus();
  } else if (event.key === "Enter" && (event.target === box || hits.includes(event.target))) {
    event.preventDefault();
    next(event.shiftKey ? -1 : 1);
  }
});
addEventListener("beforeprint", () => folds.forEach((fold) => (fold.open = true)));
addEventListener("afterprint", () => folds.forEach((fold) => (fold.open = opened.get(fold))));
