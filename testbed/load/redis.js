// The load with telemetry through Redis: one line per request is appended to a string there.
import redis from 'k6/experimental/redis';
import { begin, mintRunId, pause, send, telemetryFailed } from './common.js';

export { handleSummary, options } from './common.js';

const client = new redis.Client(__ENV.LOAD_REDIS_URL);

export async function setup() {
  await client.sendCommand('RPUSH', 'load:waiting', '1');
  for (;;) {
    try {
      if (await client.sendCommand('BLPOP', 'load:go', 1)) break;
    } catch (error) {
      // An empty answer after a second is reported as an error; so is a Redis that is gone,
      // and then this is not where it is found out.
    }
  }
  const data = begin(mintRunId());
  await client.sendCommand('SET', 'run:id', data.run_id);
  await client.sendCommand('RPUSH', 'load:started', JSON.stringify(data));
  return data;
}

export default async function () {
  // The request's line travels while the virtual user sleeps: the pace is the spec's.
  const appended = client.sendCommand('APPEND', 'load:telemetry', `${send()}\n`);
  pause();
  try {
    await appended;
  } catch (error) {
    telemetryFailed();
  }
}
