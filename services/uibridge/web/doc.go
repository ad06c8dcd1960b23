// Package web is the page of the UI bridge: the conversation with an agent, the
// decisions it asks for, and what happens inside, in a browser.
//
// The page is in static/, as it is served: HTML, style sheets and ES modules that the
// browser takes as they are. There is no build step, no framework and nothing of a third
// party. app.js says what its parts get from each other.
//
// [Handler] serves / and /assets/. The assets lie below a name made of their content,
// /assets/<version>/, and may be kept for ever; / itself is asked for each time, by
// ETag, so that a new bridge has its new page at once. It produces and consumes nothing
// on the bus; it reads nothing but what is compiled in, and cannot fail while running.
//
// # What keeps the page safe
//
// [Policy] lets nothing run, and nothing be loaded, but what lies beside the page. HTML
// that the server has rendered goes into the page in one function of html.js, which the
// policy knows by the name of its Trusted Type; all else is set as text. There is no
// script, style or handler in the HTML itself.
package web
