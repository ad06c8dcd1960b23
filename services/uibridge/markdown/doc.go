// Package markdown renders text from models, tools and users as HTML that is safe in a
// browser: Markdown in, a small set of elements out.
//
// It reads CommonMark with GitHub's tables, strikethrough, task lists and bare links.
// It does not support two things. Raw HTML is treated as text and shown as written.
// Link reference definitions ("[name]: https://…" somewhere else) are also kept as
// text: a text is rendered while it is being generated, and a definition at its end
// would change what is above it; it would also let a short text become a huge page.
//
// Two layers keep it safe. The renderer writes only elements and addresses that it
// knows: links to http, https and mailto, which open in a new window without access to
// the opener; and pictures that an agent made, below /v1/agents/. It turns a picture
// from elsewhere into a link, because its server would learn who reads what, and when.
// Then a policy (bluemonday) allows exactly those elements and attributes. It allows no
// style, id or name, and class only as language-… on code.
//
// Cost: rendering is linear in the text. Everything that could make it worse is
// bounded: the size of a text, the depth of lists and quotes, the number of characters
// in a paragraph that Markdown may have to scan again, the cells of a table. Text
// beyond a bound is shown as plain text; nothing is lost.
//
// A [Renderer] is safe for concurrent use; a [Stream] is not.
package markdown
