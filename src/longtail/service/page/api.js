// Requests to the service. Addresses are relative, so that the page also works below a path of a proxy.

let token = ""; // in the memory of this tab only
let askForToken = async () => "";

/** Set what asks the user for a token, if the service needs one; its argument is whether the last one was refused. */
export function onTokenNeeded(ask) {
  askForToken = ask;
}

/** What the service answered in place of a result. */
export class ServiceError extends Error {
  constructor(status, problem, retryAfter) {
    super(problem.detail || problem.title || `HTTP ${status}`);
    this.status = status;
    this.hint = problem.hint || "";
    this.retryAfter = retryAfter;
  }
}

async function request(path, options = {}) {
  const headers = { Accept: "application/json" };
  if (options.body) headers["Content-Type"] = "application/json";
  if (token) headers.Authorization = `Bearer ${token}`;
  const response = await fetch(`api/v1/${path}`, { ...options, headers });
  if (response.ok) return response.json();
  if (response.status === 401) {
    token = await askForToken(Boolean(token));
    return request(path, options);
  }
  const problem = await response.json().catch(() => ({}));
  const seconds = Number(response.headers.get("Retry-After") ?? 1);
  throw new ServiceError(response.status, problem, Number.isFinite(seconds) ? seconds : 1);
}

const post = (path, content, signal) => request(path, { method: "POST", body: JSON.stringify(content), signal });

export const getModels = () => request("models");
export const getModel = (name) => request(`models/${encodeURIComponent(name)}`);
export const predict = (content, signal) => post("predict", content, signal);
export const sendFeedback = (content) => post("feedback", content);
export const searchLabels = (query, signal) => request(`labels?${new URLSearchParams(query)}`, { signal });
export const listChildren = (query) => request(`labels/tree?${new URLSearchParams(query)}`);
