"use strict";

const SVG = "http://www.w3.org/2000/svg";
const ABSENT = "–";

// JSON has no infinity, which the PSNR of equal videos is.
const data = JSON.parse(document.getElementById("data").textContent, (_, value) =>
  value !== null && typeof value === "object" && "infinite" in value ? value.infinite * Infinity : value,
);

const byId = (id) => document.getElementById(id);

// Strings become text nodes, never markup.
const make = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);

const draw = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const format = (value, figure) => marked(plain(value, figure), figure);

// Seconds, speedups and joules of a run that other work disturbed.
const marked = (text, figure) => (figure.isDisturbed && text !== ABSENT ? `(${text}, disturbed)` : text);

// In a table or a list, where the name of the figure says "disturbed", so that no value breaks within its brackets.
const inTable = (value, figure) => inBrackets(plain(value, figure), figure);

const bracketed = (value, figure) => inBrackets(bare(value, figure), figure);

const inBrackets = (text, figure) => (figure.isDisturbed && text !== ABSENT ? `(${text})` : text);

const disturbedNote = (figure) => (figure.isDisturbed ? "disturbed" : "");

function plain(value, figure) {
  if (value === undefined || value === null) return ABSENT;
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "-∞";
  if (figure.unit === "%") return `${(100 * value).toFixed(figure.digits)} %`;
  return value.toFixed(figure.digits) + (figure.unit === "x" ? "x" : "");
}

// Seconds, speedups and joules of a run that other work disturbed.
const isRunDisturbed = data.figures.some((figure) => figure.isDisturbed);

// `plain` appends "x" and "%".
const hasUnit = (figure) => !["", "x", "%"].includes(figure.unit);

const bare = (value, figure) => plain(value, figure) + (hasUnit(figure) ? ` ${figure.unit}` : "");

const withUnit = (value, figure) => marked(bare(value, figure), figure);

const named = (figure) => [figure.title, disturbedNote(figure)].filter(Boolean).join(", ");

const heading = (figure) => figure.title + (hasUnit(figure) ? `, ${figure.unit}` : "");

const swatch = (variant) => make("span", { class: `swatch tone${variant % 8}`, "aria-hidden": "true" });

// The larger, the worse the value is.
function badness(value, figure) {
  if (figure.best !== null) return Math.abs(value - figure.best);
  return figure.higher_is_better ? -value : value;
}

// The worst of several values; undefined if all are.
function worstOf(values, figure) {
  const known = values.filter((value) => value !== undefined);
  if (!known.length) return undefined;
  return known.reduce((worst, value) => (badness(value, figure) > badness(worst, figure) ? value : worst));
}

// An absent value, such as that of a failed video, counts as the worst possible.
const orWorst = (value, figure) => value ?? (figure.higher_is_better ? -Infinity : Infinity);

function compare(a, b) {
  if (typeof a === "string") return a.localeCompare(b);
  return a === b ? 0 : a < b ? -1 : 1;
}
