// The load with telemetry through a file: one line per request goes to the console's log.
import { begin, mintRunId, pause, send } from './common.js';

export { handleSummary, options } from './common.js';

export function setup() {
  const data = begin(mintRunId());
  console.log(`#${JSON.stringify(data)}`);
  return data;
}

export default function () {
  console.log(send());
  pause();
}
