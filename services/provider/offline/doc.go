// Package offline answers without a language model, without a key and without a
// network. A set of rules in YAML turns the last user message into tool calls
// or text, and phrases the results of the tools. The same conversation always
// gets the same answer, which makes it the model for first conversations,
// tests and benchmarks.
//
// # Rules
//
// A rule file is one YAML document; an unknown field is an error.
//
//	strip:                      # regular expressions, removed from the message before matching
//	  - '^please\s+'
//	split:                      # where a message may be split into several requests
//	  - {match: '\s+and\s+'}              # both at once
//	  - {match: '\s+then\s+', order: true} # one after the other
//	rules:                      # the first match is used
//	  - name: calculate
//	    match: ['^what is (?P<expr>[-+*/().\d\s]+)\??$']
//	    calls:
//	      - {tool: 'math:evaluate', args: {expression: '{{.expr}}'}}
//	results:                    # by tool: how a result is phrased; "default" for the others
//	  'math:evaluate':
//	    success: '{{.args.expression}} = {{pick .data "result"}}'
//	    failure: '{{.error.message}}'
//	missing: 'For that I would need {{.tool}}.'   # a required tool is not offered
//	fallback: 'I did not understand that.'        # no rule matches
//
// Expressions are case-insensitive and see the message without surrounding
// space and without the annotations that hooks append. Named groups are the
// variables of the rule's templates ([text/template]), besides .message (the
// whole of it) and .tools (the names of the offered tools).
//
// A rule has text or calls. A call has a tool (a name, or a list of which the first
// offered one is used) and args: a mapping, each text in it a template, or one template
// of their JSON. The calls in else are made when one of the rule's calls has failed and
// their tools are offered; then only their results are in the answer.
//
// A message that a rule matches is not split, except if the rule has yields: true,
// because its expression may swallow another request ("… about tea and what is 2+2?"):
// it is used only if the message is not a list of requests.
//
// A phrase sees .tool, .ok, .text, .note (core's remark), .args, .data and, of a failure,
// .error with .code, .message and .details.
//
// A rule that needs a tool of which no alternative is offered is skipped
// in favour of a later one that matches; if there is none, the answer is
// missing.
package offline
