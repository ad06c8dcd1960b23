// Package security decides who may do what: {principal, action, resource,
// context} → allow, deny or confirm, with a reason and with obligations. Core asks
// it about every tool call, after the before_act hooks and with the arguments that
// they left, before anything runs; again when a call is given out later than it was
// judged, approved meanwhile or because its runner did not run it; and about every
// answer to a confirmation request, whether its writer may answer. It consumes and
// produces no subject; what it decides stands as security.audited in the commit that
// follows from it.
//
// # Rules
//
// Rules are read in order and the last match wins, so a narrow rule follows the
// broad one it is an exception of. Every condition of a rule must hold; one that is
// absent always does. Without a matching rule the tool itself decides: a person is
// asked about a high risk, and about the permissions network.* and fs.delete.
// Whoever can write answers may answer.
//
//	policy:
//	  - {permission: network.request, effect: confirm, reason: it talks to strangers}
//	  - {tool: "http:request", args: {method: GET, url: "https://docs.example.com/*"}, effect: allow,
//	     obligations: {max_duration: 10s, max_result_bytes: 65536, note: this text comes from outside}}
//	  - {principal: "mqtt-*", risk: high, effect: deny, reason: no sensor may ask for this}
//	  - {action: confirmation, principal: "mqtt-*", effect: deny, reason: sensors approve nothing}
//	  - {action: confirmation, principal: night-bot, effect: deny}
//	  - {action: confirmation, principal: night-bot, tool: "file_system:*", args: {path: "tmp/*"}, effect: allow}
//
// The principal of an answer is the writer in its subject, which is worth as much as
// the bus's rights on that subject; what it calls its source is only told.
//
// The name of a tool, a principal and an agent are matched by patterns as of
// path.Match whose stars stand for slashes too. So are arguments, but with a bias
// to the safe side: see [Rule]. What a rule cannot see: to which address a name
// resolves, where a host redirects to, and a symbolic link below a path. Tools guard
// these themselves: built-in ones take no path through a link and follow no redirect.
//
// # Denials, grants, obligations
//
// A denial is final: no grant, hook or approval comes after it. What policy wants a
// person to be asked about may be granted for the session by that person; package
// grant says what such a grant covers. Obligations bind a call that may run, also
// once a person has approved it: core caps its time, withholds a result that is too
// large, and tells the model a note beside it.
//
// # What asks by default
//
// People who are asked about everything learn to click yes. So of the tools that
// come with Skandha only those ask whose effect cannot be undone or leaves the
// machine:
//
//	tool                                      risk    asks  why
//	file_system:delete_file                   high    yes   what is deleted is gone
//	http:request                              high    yes   leaves the machine, a GET too: its URL says something
//	file_system:write_file, append_file       medium  no    inside the agent's own workspace
//	notes:add                                 low     no    adds to the agent's own notes
//	python:execute, shell:execute             medium  no    inside the sandbox: no network, no host
//	sandbox_fs:write, edit, mkdir, move, …    medium  no    inside the sandbox
//	file_system:read_file, list, notes:search low     no    reads
//	sandbox_fs:read, list, stat, glob, …      low     no    reads
//	math:evaluate, time:now                   low     no    computes
//	plan:execute                              -       -     each of its steps is judged by its own tool
//
// The packages that python:execute is told to install first are fetched in a
// container apart, so their names reach the package index. Who wants to be asked:
//
//	policy:
//	  - {tool: "python:execute", args: {dependencies: "*"}, effect: confirm, reason: it installs packages}
//	  - {tool: "python:execute", args: {requirements: "*"}, effect: confirm, reason: it installs packages}
//
// Overwriting or moving what the agent has in its own workspace asks nobody. A tool
// of a plugin says its own risk; a rule may say otherwise. A tool that does not
// declare a risk counts as low.
package security
