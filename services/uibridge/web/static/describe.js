// Describes commits in plain sentences: one row for each hook's verdict and each event,
// in the order in which they happened. Nothing here touches the page.

import { duration } from './fmt.js';
import { oneLine } from './reveal.js';

// LANES are the phases of the loop, in order: [name, label, what it shows].
export const LANES = [
  ['sense', 'Sense', 'What came in'],
  ['plan', 'Plan', 'The model is asked, and answers'],
  ['confirm', 'Policy', 'What the security layer decides, and what people answer'],
  ['act', 'Act', 'Tools run'],
  ['hook', 'Hook', 'What plugins answered, and how long they took'],
  ['reflect', 'Reflect', 'How turns end'],
  ['ui', 'Shown', 'Messages and states that UIs show'],
];

export const LANE_LABEL = Object.fromEntries(LANES.map(([name, label]) => [name, label]));

// Describer remembers the tool of each call, so that later events can name it.
export class Describer {
  #tools = new Map();
  #reasons = new Map();

  // rows returns the rows of a commit (the contract's onCommit): {lane, tone, text, turn, name,
  // verdict | event, hooks, index}. tone is '', ok, warn or bad.
  rows(commit) {
    const events = commit.events ?? [];
    const hooks = commit.hooks ?? [];
    const before = events.map(() => []);
    const after = [];
    const rows = [];
    for (const v of hooks) {
      const at = this.#place(v, events);
      if (at >= 0) before[at].push(v);
      else after.push(v);
    }
    events.forEach((e, index) => {
      for (const v of before[index]) rows.push(this.#verdict(v, e.turn || commit.turn));
      const described = this.#event(e);
      rows.push({ tone: '', ...described, turn: e.turn || '', name: short(e.type), event: e, hooks: before[index], index });
    });
    for (const v of after) rows.push(this.#verdict(v, commit.turn));
    return rows;
  }

  // trigger describes why core decided.
  trigger(t) {
    switch (t?.kind) {
      case 'cause': return { input: `an input by ${t.writer}`, confirmation: `an answer by ${t.writer}`, cancel: `a cancel by ${t.writer}`, command: `a command by ${t.writer}`, timer: 'a timer' }[t.cause] ?? `a ${t.cause} by ${t.writer}`;
      case 'reply': return t.call.split('-').length > 2 ? `the reply about ${this.#tool(t.call)}` : 'the model’s reply';
      case 'progress': return 'an executor that started or stopped, or a timeout';
      case 'poison': return 'a cause that cannot be handled';
    }
    return t?.kind ?? 'an unknown trigger';
  }

  forget() {
    this.#tools.clear();
    this.#reasons.clear();
  }

  // place returns the index of the event that a verdict precedes; -1 if it follows all of
  // them.
  #place(v, events) {
    const last = (type) => events.findLastIndex((e) => short(e.type) === type);
    const first = (...types) => events.findIndex((e) => types.includes(short(e.type)));
    const of = (fit) => events.findIndex((e) => (e.data?.call ?? e.data?.confirmation_id) === v.step && fit(short(e.type)));
    switch (v.point) {
      case 'before_sense': case 'after_sense': return events.length ? 0 : -1;
      case 'before_plan': return last('plan.requested') >= 0 ? last('plan.requested') : first('turn.failed');
      case 'after_plan': return first('plan.completed', 'plan.requested', 'turn.failed');
      case 'before_act': return of((t) => t !== 'act.confirmed');
      case 'after_act': return of((t) => t === 'act.completed');
      case 'before_reflect': return first('reflect.recorded');
      case 'on_error': return first('turn.failed');
    }
    return -1;
  }

  #verdict(v, turn) {
    const about = v.step ? ` of ${this.#tool(v.step)}` : '';
    const took = `after ${duration(v.latency_us / 1000)}`;
    const where = `at ${v.point}${about}`;
    const why = v.reason ? `: ${oneLine(v.reason, 300)}` : '';
    let tone = '';
    let text = {
      continue: `Plugin ${v.plugin} allowed it ${where} ${took}.`,
      replace: `Plugin ${v.plugin} changed what it was given ${where} ${took}${why}.`,
      stop: `Plugin ${v.plugin} ended the chain ${where} ${took}${why}.`,
      deny: `Plugin ${v.plugin} denied ${where} ${took}${why}.`,
      confirm: `Plugin ${v.plugin} requires approval ${where} ${took}${why}.`,
      answer: `Plugin ${v.plugin} answered instead of the tool ${where} ${took}${why}.`,
    }[v.verb] ?? `Plugin ${v.plugin} said ${v.verb} ${where} ${took}${why}.`;
    if (v.verb === 'deny') tone = 'bad';
    if (v.verb === 'confirm') tone = 'warn';
    if (v.error) {
      text = `Plugin ${v.plugin} returned no usable answer ${where} ${took} (${oneLine(v.error, 300)}), which counts as ${v.verb}.`;
      tone = v.verb === 'deny' ? 'bad' : 'warn';
    }
    return { lane: 'hook', tone, text, turn: turn ?? '', name: `${v.plugin} ${v.point} ${v.verb}`, verdict: v, hooks: [v] };
  }

  #tool(call) { return this.#tools.get(call) ?? `call ${call}`; }

  #event({ type, data: d }) {
    const describe = DESCRIBE[short(type)];
    if (!describe) return { lane: 'ui', text: `${short(type)}.` };
    return describe(d ?? {}, { tool: (call) => this.#tool(call), knows: (call, tool) => keep(this.#tools, call, tool), because: (call, reason) => keep(this.#reasons, call, reason), why: (call) => this.#reasons.get(call) });
  }
}

// keep stores a value for a call, and drops those of very old calls.
function keep(map, call, value) {
  if (map.size > 5000) map.delete(map.keys().next().value);
  map.set(call, value);
}

// short returns an event's type without the common prefix and version: plan.requested.
export function short(type) {
  return String(type).replace(/^skandha\./, '').replace(/\.v1$/, '');
}

const quote = (text, most = 140) => `“${oneLine(text ?? '', most)}”`;
const source = (s) => ({ web: 'in the browser', terminal: 'in the terminal', chat: 'in the terminal', browser: 'in the browser' }[s] ?? (s ? `in ${s}` : ''));
const spaced = (...words) => words.filter(Boolean).join(' ');
const ends = (text) => (/[.!?…”]$/.test(text) ? text.replace(/([.!?])\.+$/, '$1') : `${text}.`);
const args = (a) => (a && Object.keys(a).length ? ` with ${oneLine(JSON.stringify(a), 160)}` : ' without arguments');
const tokens = (u) => {
  const n = u ? (u.input_tokens ?? 0) + (u.output_tokens ?? 0) : 0;
  return n ? `, ${n} tokens` : '';
};

// brief returns an instance's name without most of its random suffix, and the beginning of one that is a public key.
export function brief(instance) {
  return String(instance ?? '').replace(/(-[0-9a-f]{4})[0-9a-f]{8,}$/, '$1').replace(/^(U[A-Z2-7]{7})[A-Z2-7]{48}$/, '$1…');
}


// grantText describes what was approved for the rest of the session.
export function grantText(g) {
  if (!g) return '';
  const patterns = Object.entries(g.args ?? {}).map(([name, p]) => `${name} = ${p}`).join(', ');
  if (patterns) return `${g.tool} with ${patterns}`;
  return g.hash ? `exactly this call of ${g.tool}` : `every call of ${g.tool}`;
}

const RULES = {
  risk: 'by the tool’s risk', default: 'by default: no rule matches', before_act: 'because a plugin requires it', skill: 'because a loaded skill allows only other tools', breaker: 'because too many calls failed', grant: 'by what was approved for the session',
};

// ruleText describes which rule decided: policy[2] is the third rule of the configuration.
export function ruleText(rule) {
  if (!rule) return '';
  return RULES[rule] ?? `by the rule ${rule}`;
}

// about replaces the subject of a reason with "It" if the sentence has already named it.
function about(reason, name) {
  return reason.startsWith(`${name} `) ? `It ${reason.slice(name.length + 1)}` : reason;
}

const DESCRIBE = {
  'sense.perceived': (d) => {
    const who = spaced(d.writer, source(d.source));
    switch (d.disposition) {
      case 'queued': return { lane: 'sense', tone: 'warn', text: `${who} said ${quote(d.text)}. It waits for the previous turn.` };
      case 'joined': return { lane: 'sense', text: `The queued input by ${d.writer} becomes part of this turn.` };
      case 'from_queue': return { lane: 'sense', text: `The queued input by ${d.writer} begins its turn.` };
      case 'ended': return { lane: 'sense', text: d.text ? `${who} said ${quote(d.text)}. That was answered at once.` : `A command by ${d.writer} was answered at once.` };
    }
    return { lane: 'sense', text: `${who} said ${quote(d.text)}. Its turn begins.` };
  },
  'plan.recalled': (d) => ({
    lane: 'plan', tone: d.trouble ? 'warn' : undefined,
    text: ends(`${d.memories.length === 1 ? 'One memory comes' : `${d.memories.length} memories come`} to the agent's mind${d.trouble ? `, but not everything was searched: ${oneLine(d.trouble, 200)}` : ''}`),
  }),
  'plan.requested': (d) => (d.question
    ? { lane: 'plan', text: `Core asks the model for a ${d.question.purpose}, round ${d.round}. Provider ${d.use || brief(d.provider)}.` }
    : d.attempts > 1
    ? { lane: 'plan', tone: 'warn', text: ends(`Attempt ${d.attempts} asks ${d.use || 'the model again'}: the previous one gave no usable answer${d.failed ? `, ${oneLine(d.failed, 200)}` : ''}`) }
    : { lane: 'plan', text: `The model is asked, round ${d.round}, with ${d.tools?.length ?? 0} tools to choose from. Provider ${d.use || brief(d.provider)}.` }),
  'plan.completed': (d, { knows }) => {
    for (const s of d.steps ?? []) knows(s.call, s.tool);
    if (d.error) return { lane: 'plan', tone: 'bad', text: ends(`The model gave no answer: ${d.error.code}: ${oneLine(d.error.message, 200)}`) };
    if (d.purpose) return { lane: 'plan', tone: 'ok', text: `The model answered core's question, for a ${d.purpose}.` };
    const took = d.duration_ms ? ` after ${duration(d.duration_ms)}` : '';
    const says = d.response?.text_content ? ` It says ${quote(d.response.text_content)}.` : '';
    if (!d.steps?.length) return { lane: 'plan', tone: 'ok', text: `The model answered${took}${tokens(d.response?.usage)}.${says}` };
    const calls = d.steps.filter((s) => !s.parent);
    const names = calls.slice(0, 4).map((s) => s.tool).join(', ') + (calls.length > 4 ? ` and ${calls.length - 4} more` : '');
    const inside = d.steps.length > calls.length ? `, with ${d.steps.length - calls.length} steps inside` : '';
    return { lane: 'plan', text: `The model wants to use ${names}${inside}${took}.${says}` };
  },
  'security.audited': (d, { because }) => {
    const why = d.reason ? `: ${oneLine(d.reason, 300)}` : '';
    if (d.action === 'confirmation') {
      return { lane: 'confirm', tone: 'bad', text: ends(`An answer by ${d.principal} does not count${why}`) };
    }
    because(d.call, d.reason);
    const said = d.reason ? ` ${ends(about(oneLine(d.reason, 300), d.resource).replace(/^./, (c) => c.toUpperCase()))}` : '';
    const by = d.rule ? `, ${ruleText(d.rule)}` : '';
    switch (d.effect) {
      case 'deny': return { lane: 'confirm', tone: 'bad', text: `Policy denies ${d.resource}${by}.${said}` };
      case 'confirm': return { lane: 'confirm', tone: 'warn', text: `Policy requires approval for ${d.resource}${by}.${said}` };
    }
    if (d.grant) return { lane: 'confirm', tone: 'ok', text: `Policy allows ${d.resource}: a person approved ${grantText(d.grant)} for this session.` };
    return { lane: 'confirm', text: `Policy allows ${d.resource}${by}.${said}` };
  },
  'ui.tool_call_request': (d, { knows, why }) => {
    knows(d.confirmation_id, d.tool_name);
    const said = why(d.confirmation_id); // the previous row shows policy's reason
    const w = d.security_warning?.message === said ? '' : d.security_warning?.message;
    return { lane: 'confirm', tone: 'warn', text: `Approval requested: may ${d.tool_name} run${args(d.args)}?${w ? ` ${ends(oneLine(w, 200))}` : ''} No answer until ${clock(d.expires_at)} means no.` };
  },
  'act.approved': (d) => ({ lane: 'confirm', tone: 'ok', text: ends(`Approved by ${d.person}${d.for ? ` for ${d.for}` : ''}; ${d.left === 1 ? 'one more person' : `${d.left} more people`} must approve`) }),
  'act.confirmed': (d, { tool }) => {
    const where = spaced(d.by, { approved: 'approved', denied: 'refused' }[d.outcome], tool(d.call), source(d.source));
    const own = (d.reason ?? '').replace(new RegExp(`^refused by ${d.by}(: )?`), '');
    const why = own ? `: ${oneLine(own, 300)}` : '';
    if (d.outcome === 'expired') return { lane: 'confirm', tone: 'bad', text: `No answer in time, which means no: ${tool(d.call)} does not run.` };
    if (d.outcome === 'denied') return { lane: 'confirm', tone: 'bad', text: ends(`${where}${why}`) };
    const always = d.always ? `, and ${grantText(d.always)} from now on in this session` : '';
    return { lane: 'confirm', tone: 'ok', text: ends(`${where}${always}${why}`) };
  },
  'act.requested': (d, { knows }) => {
    knows(d.call, d.tool);
    const by = d.approved_by ? `, as ${d.approved_by} approved it` : '';
    const again = d.uncertain ? ' The previous attempt may have run; the tool is idempotent.' : '';
    return { lane: 'act', tone: d.attempts > 1 ? 'warn' : '', text: `${d.tool} is sent to runner ${brief(d.runner)}, attempt ${d.attempts}${by}.${again}` };
  },
  'act.completed': (d) => {
    const r = d.result ?? {};
    const took = d.duration_ms ? ` after ${duration(d.duration_ms)}` : '';
    const note = d.note ? ` Note to the model: ${ends(oneLine(d.note, 200))}` : '';
    if (r.success) return { lane: 'act', tone: 'ok', text: `${d.tool} succeeded${took}.${note}` };
    const code = r.error?.code ?? 'failed';
    const why = ends(oneLine(r.error?.message ?? 'no reason given', 300)).replace(/^./, (c) => c.toUpperCase());
    const what = {
      denied: 'did not run', confirmation_expired: 'did not run', cancelled: 'did not run', not_run: 'did not run', skipped: 'was skipped',
      unknown_tool: 'did not run', invalid_arguments: 'did not run', invalid_plan: 'was refused', timeout: `ran out of time${took}`,
      outcome_unknown: 'may or may not have run: its outcome is unknown', result_too_large: 'ran, but its result is too large',
    }[code] ?? `failed${took}`;
    return { lane: 'act', tone: code === 'skipped' || code === 'cancelled' ? 'warn' : 'bad', text: `${d.tool} ${what}. ${why}${note}` };
  },
  'reflect.recorded': (d) => {
    if (d.command) return { lane: 'reflect', tone: 'ok', text: `/${d.command} was answered.` };
    const calls = d.actions?.length ? `, ${d.actions.length} tool ${d.actions.length === 1 ? 'call' : 'calls'}` : '';
    return { lane: 'reflect', tone: 'ok', text: `The turn ended with an answer after ${duration(d.duration_ms)}: ${d.rounds} ${d.rounds === 1 ? 'question' : 'questions'} to the model${calls}${tokens(d.usage)}.` };
  },
  'turn.failed': (d) => ({ lane: 'reflect', tone: ['cancelled', 'interrupted', 'reset', 'duplicate_of'].includes(d.code) ? 'warn' : 'bad', text: ends(`The turn ended without an answer (${d.code}): ${oneLine(d.reason, 300)}`) }),
  'session.paused': (d) => ({ lane: 'reflect', text: d.paused ? `${d.by} paused the session: nothing new starts until /resume.` : `${d.by} resumed the session.` }),
  'session.locked': (d) => ({ lane: 'reflect', tone: 'bad', text: ends(d.deleted ? oneLine(d.reason, 300) : `The session is locked until ${d.until ?? '/reset'}: ${oneLine(d.reason, 300)}`) }),
  'session.reset': (d) => ({ lane: 'reflect', tone: 'warn', text: `${d.by} reset the conversation.` }),
  'session.checkpoint': () => ({ lane: 'reflect', text: 'A checkpoint of the session was written; it continues from there.' }),
  'session.summarized': (d) => ({ lane: 'reflect', text: `A summary replaces ${d.turns === 1 ? 'one turn' : `${d.turns} turns`} of the conversation. The model no longer sees the words themselves.` }),
  'ui.message': (d) => ({ lane: 'ui', text: `A message to the users: ${quote(d.content)}.` }),
  'ui.state': (d) => ({ lane: 'ui', text: `The agent is ${STATES[d.state] ?? d.state}.` }),
  'ui.ready': () => ({ lane: 'ui', text: 'The agent is ready for the next input.' }),
};

// particulars returns an event's main facts, as [name, text]: who decided what, by
// which rule, and why. Its JSON has the rest.
export function particulars({ type, data: d = {} }) {
  const who = (name, s) => spaced(name, source(s));
  const rule = d.rule && `${ruleText(d.rule)} (${d.rule})`;
  switch (short(type)) {
    case 'sense.perceived': return [['Said by', who(d.writer, d.source)]];
    case 'plan.requested': return [['Provider', d.use], ['Model', d.model], ['Process', d.provider], ['Round', d.round], ['Tools it could call', d.tools?.length], ['Project notes', d.project && (d.project.path ? `${d.project.path}, ${d.project.size} bytes` : 'none any more')]];
    case 'plan.completed': return [['Provider', d.provider], ['Model', d.response?.model], ['Took', d.duration_ms && duration(d.duration_ms)], ['Calls', d.steps?.length]];
    case 'security.audited':
      return [
        ['Asked for by', d.principal], ['To do', d.resource], ['Decision', d.effect], ['Decided', rule], ['Because', d.reason], ['Approved for the session', grantText(d.grant)],
        ['Obligations', d.obligations && JSON.stringify(d.obligations)], ['Hash of the call', d.hash],
      ];
    case 'ui.tool_call_request': return [['To do', d.tool_name], ['Warning', d.security_warning && `${d.security_warning.level}: ${d.security_warning.message}`], ['Expires', clock(d.expires_at)], ['Hash of the call', d.hash]];
    case 'act.approved': return [['Approved by', d.person], ['For', d.for], ['Still needed', d.left], ['With a passkey', d.passkey && 'yes'], ['Approved for the session', grantText(d.always)], ['Hash of the call', d.hash]];
    case 'act.confirmed': return [['Answered by', d.person ?? who(d.by, d.source)], ['Approved before by', (d.others ?? []).join(', ')], ['For', d.for], ['With a passkey', d.passkey && 'yes'], ['Answer', d.outcome], ['Because', d.reason], ['Approved for the session', grantText(d.always)], ['Hash of the call', d.hash]];
    case 'act.requested': return [['Runner', d.runner], ['Attempt', d.attempts], ['Approved by', d.approved_by], ['Hash of the call', d.hash]];
    case 'act.completed': return [['Runner', d.runner], ['Took', d.duration_ms && duration(d.duration_ms)], ['Error', d.result?.error && `${d.result.error.code}: ${d.result.error.message}`]];
  }
  return [];
}

const STATES = {
  waiting_for_input: 'waiting for an input', sensing: 'reading', thinking: 'thinking', awaiting_confirmation: 'waiting for a person',
  executing_tool: 'running a tool', reflecting: 'reflecting', locked: 'locked', paused: 'paused',
};

function clock(t) {
  const d = new Date(t);
  return Number.isNaN(d.getTime()) ? 'it expires' : d.toLocaleTimeString(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit' });
}
