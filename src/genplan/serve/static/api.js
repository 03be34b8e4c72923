// Requests to the server, with its error messages.

export async function fetchApi(path, body) {
  const options = body === undefined ? {} : {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  };
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Error("the server does not respond; is genplan serve still running?");
  }
  if (!response.ok) {
    const problem = await response.json().catch(() => ({}));
    throw new Error(problem.detail ?? `the server responded with ${response.status}`);
  }
  return response.headers.get("Content-Type").startsWith("application/json") ? response.json() : response.blob();
}
