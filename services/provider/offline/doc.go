// Package offline answers without a language model: no key, no network, no
// surprise. A set of rules in YAML turns the last user message into tool calls
// or text, and phrases the results of the tools. The same conversation always
// gets the same answer, which makes it the model of first conversations, of
// tests and of measurements.
//
// # Rules
//
// A rule file is one YAML document; an unknown field is an error.
//
//	strip:                      # taken off the message before matching, each a regular expression
//	  - '^please\s+'
//	split:                      # where a message may be cut into several requests
//	  - {match: '\s+and\s+'}              # both at once
//	  - {match: '\s+then\s+', order: true} # one after the other
//	tables:                     # for {{lookup "zone" .place}}
//	  zone: {vienna: Europe/Vienna}
//	rules:                      # the first that matches counts
//	  - name: calculate
//	    match: ['^what is (?P<expr>[-+*/().\d\s]+)\??$']
//	    calls:
//	      - {tool: 'math:evaluate', args: {expression: '{{.expr}}'}}
//	results:                    # by tool, how a result is told; "default" for the others
//	  'math:evaluate':
//	    success: '{{.args.expression}} = {{pick .data "result"}}'
//	    failure: '{{.error.message}}'
//	missing: 'For that I would need {{.tool}}.'   # a tool is needed that is not offered
//	fallback: 'I did not understand that.'        # no rule matches
//
// Expressions are case-insensitive and see the message without surrounding
// space and without the annotations that hooks append. Named groups are the
// variables of the rule's templates ([text/template]), besides .message (the
// whole of it) and .tools (the names of the offered tools).
//
// A rule has text, or calls, or calls with text as commentary. A call has a tool (a name, or a list of which
// the first offered one is taken), args (each string in it a template) or
// args_json (a template of the whole), an optional id and depends_on. Further
// rounds stand under then: lists of calls that are made when all results of the
// round before were successes; their templates also see .results. Calls under else
// are made instead when the first round had a failure and their tools are offered;
// only their results are told then. A rule's
// answer, if it has one, replaces the phrases of the results; it sees .results,
// each with .tool, .ok, .data, .text, .args, .error and .note.
//
// A message that a rule matches is not cut, except by a rule with yields: true,
// whose expression may swallow another request ("… about tea and what is 2+2?"):
// it counts only if the message is no list of requests.
//
// A rule all of whose alternatives for some tool are not offered is passed over
// in favour of a later one that matches; if there is none, missing is the
// answer. With offered_only: false nothing of that is looked at.
//
// For tests a rule may also misbehave: delay_ms, hang, endless, empty, loop,
// words, repeat, error and usage; see [TestRules].
package offline
