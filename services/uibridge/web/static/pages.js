// Lists that the bridge gives page by page.

// pages asks for the newest `many` of a list, at most `most` at a time; it is fewer if
// there are no more. `cursor` is the parameter that goes on after a page.
async function pages(rpc, method, params, { list, cursor, many, most }) {
  const rows = [];
  let next = '';
  do {
    const page = await rpc.call(method, { ...params, limit: Math.min(many - rows.length, most), ...(next && { [cursor]: next }) });
    rows.push(...(page[list] ?? []));
    next = page.next ?? '';
  } while (next && rows.length < many);
  return { rows, next };
}

// turns are the newest turns of a session.
export const turns = (rpc, session, many) => pages(rpc, 'listTurns', session, { list: 'turns', cursor: 'before', many, most: 100 });

// sessions are those that were used last. One that is used between two pages may stand
// on both.
export async function sessions(rpc, many) {
  const { rows, next } = await pages(rpc, 'listSessions', {}, { list: 'sessions', cursor: 'after', many, most: 200 });
  const once = new Map();
  for (const r of rows) if (!once.has(`${r.agent}/${r.session}`)) once.set(`${r.agent}/${r.session}`, r);
  return { rows: [...once.values()], next };
}
