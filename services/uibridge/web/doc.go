// Package web serves the web page of the UI bridge: the conversation with an agent, the
// decisions it asks for, and views of its events, timelines, tools and plugins.
//
// The page is in static/, exactly as it is served: HTML, style sheets and ES modules.
// There is no build step, no framework and no third-party code. app.js documents the
// interface between its parts.
//
// [Handler] serves / and /assets/. The path of the assets, /assets/<version>/, contains
// a hash of their content, so browsers may cache them for ever. Browsers revalidate /
// on every load, by ETag, so that a new bridge serves its new page at once. The package
// does not use the bus. It reads only embedded files and cannot fail while running.
//
// # What keeps the page safe
//
// [Policy] allows only scripts and resources from the bridge itself. Server-rendered
// HTML enters the page in one function of html.js, which the policy allows by the name
// of its Trusted Type; everything else is set as text. The HTML itself contains no
// script, style or event handler.
package web
