/* Colours of the heat map on a log scale of the ratio to the limit. Within the limit they are blue; beyond it
   the hue turns to orange while the lightness goes on, so that any eye tells the two apart. Mixed in OKLab
   (B. Ottosson, 2020), where equal steps look equal. */
const RAMP = {
  light: { within: ["#eaf0f6", "#7ea6cd"], over: ["#f5b541", "#d4511c", "#64101f"], exact: "#e2ebe4" },
  dark: { within: ["#222b34", "#41709f"], over: ["#cf6a17", "#ffb545", "#fff3cf"], exact: "#1d2b24" },
};
const STEPS = 64, LOWEST = 3, HIGHEST = 2; /* decades below and above the limit */

const isDark = () => {
  const chosen = document.documentElement.dataset.theme;
  if (matchMedia("print").matches) return false;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};

function toLab(hex) {
  const [r, g, b] = [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16) / 255)
    .map(v => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
  const m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
  const s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  return [
    0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s,
    1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
    0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s,
  ];
}

function toHex([L, a, b]) {
  const l = (L + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (L - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (L - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const rgb = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  const gamma = v => (v <= 0.0031308 ? 12.92 * v : 1.055 * v ** (1 / 2.4) - 0.055);
  return "#" + rgb.map(v => Math.round(255 * Math.min(1, Math.max(0, gamma(v)))).toString(16).padStart(2, "0")).join("");
}

function mix(stops) {
  const labs = stops.map(toLab);
  return Array.from({ length: STEPS }, (_, i) => {
    const at = (i / (STEPS - 1)) * (labs.length - 1), k = Math.min(Math.floor(at), labs.length - 2);
    return toHex(labs[k].map((v, j) => v + (labs[k + 1][j] - v) * (at - k)));
  });
}

/* ratio -> colour, of the theme in use. */
function ramp() {
  const stops = RAMP[isDark() ? "dark" : "light"], within = mix(stops.within), over = mix(stops.over);
  const step = share => Math.min(STEPS - 1, Math.max(0, Math.round((STEPS - 1) * share)));
  return v => {
    if (v === 0) return stops.exact;
    return v <= 1 ? within[step(1 + Math.log10(v) / LOWEST)] : over[step(Math.log10(v) / HIGHEST)];
  };
}
