// Readable texts for codes.

// STATES are the agent's states.
export const STATES = {
  waiting_for_input: 'Ready',
  sensing: 'Reading what you said',
  thinking: 'Thinking',
  awaiting_confirmation: 'Needs a decision',
  executing_tool: 'Running a tool',
  reflecting: 'Remembering',
  locked: 'Locked',
  paused: 'Paused',
};

// busy reports whether there is something to cancel in a state.
export function busy(state) {
  return Boolean(state) && state !== 'waiting_for_input' && state !== 'locked' && state !== 'paused';
}

const FAILURES = {
  malformed: 'This could not be read.',
  unknown_agent: 'Unknown agent.',
  unknown_cause: 'Core cannot handle this.',
  unknown_command: 'Unknown command.',
  duplicate_of: 'This was already sent; it counts once.',
  dropped: 'A hook dropped this.',
  denied: 'A hook refused this before anything ran.',
  session_locked: 'The session is locked.',
  cancelled: 'Cancelled.',
  interrupted: 'Interrupted by a later input.',
  reset: 'Ended by /reset.',
  queue_full: 'The queue is full. Send it again when the queue is shorter.',
  poison: 'Handling this failed repeatedly, so it was abandoned.',
  provider_failed: 'The language model gave no answer.',
  no_provider: 'No language model is available. Is a provider running?',
  no_guide: 'A guide that this agent requires is missing or wrong. Is its file right, or its plugin running?',
  limit_rounds: 'The turn reached its limit of rounds.',
  limit_tokens: 'The turn reached its limit of tokens.',
  limit_cost: 'The turn reached its limit of cost.',
  deadline: 'The turn reached its time limit.',
  circuit_open: 'Too many tool calls failed, so the session is locked for a while.',
  state_mismatch: 'The session’s log is damaged, so the session was locked. /repair continues with what was saved.',
};

// failure returns why a turn ended without an answer: [text, whether it is an error].
export function failure(code) {
  return [FAILURES[code] ?? `It ended: ${code}.`, !['cancelled', 'interrupted', 'reset', 'duplicate_of'].includes(code)];
}

const TOOL_ERRORS = {
  tool_failed: 'failed',
  invalid_arguments: 'invalid arguments; it did not run',
  unknown_tool: 'no such tool; it did not run',
  denied: 'not allowed; it did not run',
  confirmation_expired: 'no answer in time; it did not run',
  timeout: 'ran out of time',
  cancelled: 'cancelled; it did not run',
  not_run: 'no runner accepted it; it did not run',
  skipped: 'skipped, since an earlier step failed',
  outcome_unknown: 'it is unknown whether it ran',
  invalid_plan: 'the plan was refused',
  internal: 'internal error of the tool',
  result_too_large: 'its result was too large to keep',
};

// toolError returns why a call did not succeed.
export function toolError(code) {
  return TOOL_ERRORS[code] ?? code;
}

const REFUSALS = {
  unauthenticated: 'You are no longer signed in.',
  forbidden: 'Your token does not allow this.',
  rate_limited: 'Too many requests. Try again in a moment.',
  overloaded: 'Too many inputs in flight. Try again in a moment.',
  unavailable: 'The bridge cannot reach the bus right now.',
  timeout: 'The bridge did not answer in time.',
  unknown_method: 'This bridge does not offer that.',
  too_large: 'That is too large.',
  internal: 'Internal error; see the bridge’s log.',
};

// refusal returns the text of an RpcError: what is wrong, and the bridge's own message.
export function refusal(e) {
  const words = REFUSALS[e?.code];
  const own = e?.message && e.message !== e.code ? e.message : '';
  if (!words) return own || String(e);
  return own && e.code !== 'internal' && e.code !== 'unauthenticated' ? `${words} (${own})` : words;
}

// LEVELS are how serious a warning is.
export const LEVELS = {
  info: 'Note',
  warn: 'Caution',
  critical: 'Danger',
};
