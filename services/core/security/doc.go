// Package security decides who may do what: {principal, action, resource, context} →
// allow, deny or confirm, with a reason and with obligations. Core asks it
//
//   - about every tool call, before anything runs: after the before_act hooks, and with
//     the arguments that they returned;
//   - again when a call is assigned later than it was judged: after an approval, or
//     because its runner did not run it;
//   - about every answer to a confirmation request: whether its writer may answer.
//
// The package consumes and produces no subjects. Core records each decision as
// security.audited in the commit that results from it.
//
// # Rules
//
// Rules are evaluated in order and the last match wins, so put a narrow exception after
// the broad rule. All conditions of a rule must hold; an absent condition always holds.
// Without a matching rule, the tool's declaration decides: a high risk and the
// permissions network.*, fs.delete and schedule.create, webhook and watch require a confirmation; so does fs.read if
// the answer goes to the sender of an input from outside, and code that names packages after a text
// from outside was read. Without a rule about
// answers, any client that can write an answer may answer.
//
//	policy:
//	  - {permission: network.request, effect: confirm, reason: it contacts other machines}
//	  - {tool: "http:request", args: {method: GET, url: "https://docs.example.com/*"}, effect: allow,
//	     obligations: {max_duration: 10s, max_result_bytes: 65536, note: this text comes from outside}}
//	  - {principal: "mqtt-*", risk: high, effect: deny, reason: no sensor may ask for this}
//	  - {action: confirmation, principal: "mqtt-*", effect: deny, reason: sensors approve nothing}
//	  - {action: confirmation, principal: night-bot, effect: deny}
//	  - {action: confirmation, principal: night-bot, tool: "file_system:*", args: {path: "tmp/*"}, effect: allow}
//
// The principal of an answer is the writer in its subject, which is as trustworthy as
// the bus's permissions on that subject. The source of an answer is only a claim.
//
// Tools, principals and agents are matched with the patterns of path.Match, except that
// a star also matches slashes. Arguments are matched likewise, but with a bias to the
// safe side: see [Rule]. Rules cannot see which address a name resolves to, where a host
// redirects to, or a symbolic link below a path. Tools guard against these themselves:
// built-in tools accept no path through a link and follow no redirect to another host.
//
// # Denials, grants, obligations
//
// A denial is final: no grant, hook or approval can override it. If policy requires a
// confirmation, the person who approves a call may also grant later calls for the
// session; package grant documents what a grant covers. Obligations bind a call that may
// run, even after an approval: core limits its time, withholds a result that is too
// large, and adds a note for the model to the result.
//
// # Default confirmations
//
// People who are asked about everything learn to click yes. Of the built-in tools,
// therefore, only those whose effect cannot be undone, leaves the machine, or comes later
// without anybody asking for it require a confirmation:
//
//	tool                                      risk    asks  why
//	file_system:delete_file                   high    yes   deletion cannot be undone
//	http:request                              high    yes   leaves the machine; even a GET sends data in its URL
//	web:fetch                                 medium  yes   only reads, but its URL can carry data to any host
//	web:search                                low     yes   sends a query to the search engine of the configuration
//	schedule:create, webhook, watch           medium  yes   wakes the agent later, without a user
//	schedule:list, schedule:delete            low     no    the session's own schedules
//	file_system:write_file, append_file       medium  no    inside the agent's workspace
//	notes:add                                 low     no    adds to the agent's notes
//	python:execute, shell:execute             medium  no    inside the sandbox: no network, no host
//	sandbox_fs:write, edit, mkdir, move, …    medium  no    inside the sandbox
//	file_system:read_file, list, notes:search low     no    reads
//	sandbox_fs:read, list, stat, glob, …      low     no    reads
//	math:evaluate, time:now                   low     no    computes
//	plan:execute                              -       -     each step is judged by its tool
//	tools:find                                -       -     core searches the agent's tools
//
// python:execute fetches the packages that it must install first in a separate
// container, so their names reach the package index. To require a confirmation:
//
//	policy:
//	  - {tool: "python:execute", args: {dependencies: "*"}, effect: confirm, reason: it installs packages}
//	  - {tool: "python:execute", args: {requirements: "*"}, effect: confirm, reason: it installs packages}
//
// Overwriting or moving files in the agent's workspace needs no confirmation. A plugin
// declares the risk of its tools, and a rule may override it. A tool without a declared
// risk counts as low.
package security
