// The filters of the galleries. Without scripts every image is shown, and there are no filters.
"use strict";
for (const gallery of document.querySelectorAll(".gallery")) {
  const form = gallery.querySelector("form");
  const tiles = [...gallery.querySelectorAll(".tile")];
  const shows = (wanted, value) => wanted === "" || wanted === value;
  const filter = () => {
    const wanted = Object.fromEntries(new FormData(form));
    for (const image of gallery.querySelectorAll(".image")) {
      const fits = shows(wanted.attack, image.dataset.attack) && shows(wanted.class, image.dataset.class);
      let some = false;
      for (const tile of image.querySelectorAll(".tile")) {
        tile.hidden = !(fits && shows(wanted.model, tile.dataset.model) && shows(wanted.outcome, tile.dataset.outcome));
        some ||= !tile.hidden;
      }
      image.hidden = !some;
    }
    const shown = tiles.filter((tile) => !tile.hidden).length;
    form.querySelector("output").textContent = `${shown} of ${tiles.length} outcomes`;
  };
  form.addEventListener("change", filter);
  form.querySelector("button").addEventListener("click", () => {
    form.reset();
    filter();
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;
  filter();
}
// A link to a folded section opens it.
const unfold = () => {
  const target = location.hash && document.getElementById(location.hash.slice(1));
  const details = target && target.querySelector("details.section");
  if (details) details.open = true;
};
addEventListener("hashchange", unfold);
unfold();
for (const link of document.querySelectorAll("nav a")) link.addEventListener("click", () => setTimeout(unfold));
// What is printed is open.
let closed = [];
addEventListener("beforeprint", () => {
  closed = [...document.querySelectorAll("details:not([open])")];
  for (const details of closed) details.open = true;
});
addEventListener("afterprint", () => {
  for (const details of closed) details.open = false;
});
