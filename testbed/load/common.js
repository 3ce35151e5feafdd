// What both telemetry variants of the load share: options, the virtual user, the summary.
import http from 'k6/http';
import exec from 'k6/execution';
import { Counter } from 'k6/metrics';
import { sleep } from 'k6';

const spec = JSON.parse(__ENV.LOAD_SPEC);

const http5xx = new Counter('http_5xx');
const transportErrors = new Counter('transport_errors');
const telemetryErrors = new Counter('telemetry_errors');

const milliseconds = (seconds) => `${Math.round(seconds * 1000)}ms`;

function scenario() {
  if (spec.profile === 'steady') {
    return {
      executor: 'constant-vus',
      vus: spec.vus,
      duration: milliseconds(spec.duration_s),
    };
  }
  return {
    executor: 'ramping-arrival-rate',
    startRate: Math.round(spec.start_rate_rps),
    timeUnit: '1s',
    preAllocatedVUs: spec.vus,
    maxVUs: spec.vus,
    stages: spec.stages.map(([seconds, rate]) => ({
      duration: milliseconds(seconds),
      target: Math.round(rate),
    })),
  };
}

export const options = {
  scenarios: { load: scenario() },
  // setup() waits for the word to go, however long that takes.
  setupTimeout: '24h',
  discardResponseBodies: true,
  systemTags: ['status'],
  summaryTrendStats: ['avg', 'min', 'med', 'max', 'p(90)', 'p(95)', 'p(99)', 'count'],
};

// mulberry32: small, fast, and good enough for arrival jitter.
function generator(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

// Seeds of neighbouring virtual users are spread over the whole range.
const random = generator(Math.imul(spec.seed, 0x9e3779b1) ^ Math.imul(__VU, 0x85ebca6b));

// Made in setup(): absent counters and counters at zero would look the same in the summary.
export function begin(runId) {
  http5xx.add(0);
  transportErrors.add(0);
  telemetryErrors.add(0);
  return { run_id: runId, started_at_ms: Date.now() };
}

// The run id is minted where the run begins.
export function mintRunId() {
  const suffix = Math.floor(Math.random() * 4294967296).toString(16).padStart(8, '0');
  return `${spec.run_id}-${Date.now()}-${suffix}`;
}

const micros = (ms) => Math.round((ms || 0) * 1000);

// One request. Returns its line of telemetry, in the order of the columns of requests.parquet.
export function send() {
  const vu = exec.vu.idInTest;
  const iteration = exec.vu.iterationInInstance;
  const sentAtMs = Date.now();
  const response = http.get(spec.url, {
    headers: { 'X-Request-Id': `${vu}-${iteration}` },
    timeout: milliseconds(spec.request_timeout_s),
  });
  const t = response.timings;
  if (response.status >= 500) http5xx.add(1);
  if (response.status === 0) transportErrors.add(1);
  return (
    `${sentAtMs}000,${vu},${iteration},${response.status},${micros(t.duration)},` +
    `${micros(t.looking_up)},${micros(t.connecting)},${micros(t.tls_handshaking)},` +
    `${micros(t.waiting)},${micros(t.receiving)}`
  );
}

export function pause() {
  sleep((spec.sleep_min_ms + (spec.sleep_max_ms - spec.sleep_min_ms) * random()) / 1000);
}

export function telemetryFailed() {
  telemetryErrors.add(1);
}

export function handleSummary(data) {
  const document = {
    schema_version: 1,
    run_id: data.setup_data.run_id,
    started_at_ms: data.setup_data.started_at_ms,
    ended_at_ms: Date.now(),
    metrics: data.metrics,
  };
  return { [__ENV.LOAD_SUMMARY]: JSON.stringify(document, null, 1) };
}
