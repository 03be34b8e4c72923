// Everything that a link restores, as text behind the # of the address.

export function toLink(state) {
  const bytes = new TextEncoder().encode(JSON.stringify(state));
  const text = btoa(String.fromCharCode(...bytes));
  return text.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

export function fromLink(text) {
  if (!text) return null;
  try {
    const bytes = Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
    const state = JSON.parse(new TextDecoder().decode(bytes));
    const rows = state?.maze?.rows;
    const whole = Array.isArray(rows) && rows.length > 2 && rows.every((row) => typeof row === "string" && row.length > 5 && row.length === rows[0].length);
    return whole && rows[0].length % 2 === 0 ? state : null;
  } catch {
    return null;
  }
}
