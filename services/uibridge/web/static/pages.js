// Lists that the bridge returns page by page.

// pages returns the newest `many` entries of a list, or fewer if there are no more. It
// requests at most `most` at a time. `cursor` is the name of the parameter for the next
// page; with latest, a page has its newest entry last. The answer has the other fields of the last page, too.
export async function pages(rpc, method, params, { list, cursor, many, most, latest }) {
  const rows = [];
  let next = '';
  let page;
  do {
    page = await rpc.call(method, { ...params, limit: Math.min(many - rows.length, most), ...(next && { [cursor]: next }) });
    if (latest) rows.unshift(...(page[list] ?? []));
    else rows.push(...(page[list] ?? []));
    next = page.next ?? '';
  } while (next && rows.length < many);
  return { ...page, rows, next };
}

// turns returns the newest turns of a session.
export const turns = (rpc, session, many) => pages(rpc, 'listTurns', session, { list: 'turns', cursor: 'before', many, most: 100 });

// sessions returns the most recently used sessions. One that is used between two
// requests may be on both pages.
export async function sessions(rpc, many) {
  const { rows, next } = await pages(rpc, 'listSessions', {}, { list: 'sessions', cursor: 'after', many, most: 200 });
  const once = new Map();
  for (const r of rows) if (!once.has(`${r.agent}/${r.session}`)) once.set(`${r.agent}/${r.session}`, r);
  return { rows: [...once.values()], next };
}

// memories returns the newest memories of an agent.
export const memories = (rpc, about, many) => pages(rpc, 'listMemories', about, { list: 'memories', cursor: 'after', many, most: 100 });
