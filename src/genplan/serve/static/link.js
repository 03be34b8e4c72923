// Everything that a link restores, as text behind the # of the address.

// Names of settings in links that were made by earlier versions.
const RENAMED = { other: "compare", candidates: "num-candidates", execute: "action-steps", chance: "sample-seed" };

export function toLink(content) {
  const bytes = new TextEncoder().encode(JSON.stringify(content));
  const text = btoa(String.fromCharCode(...bytes));
  return text.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

export function fromLink(text) {
  if (!text) return null;
  try {
    const bytes = Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
    const content = JSON.parse(new TextDecoder().decode(bytes));
    const rows = content?.maze?.rows;
    const complete = Array.isArray(rows) && rows.length > 2 && rows.every((row) => typeof row === "string" && row.length > 5 && row.length === rows[0].length);
    if (!complete || rows[0].length % 2) return null;
    const fields = Object.entries(content.fields ?? {}).map(([name, value]) => [RENAMED[name] ?? name, value]);
    return { ...content, fields: Object.fromEntries(fields) };
  } catch {
    return null;
  }
}
