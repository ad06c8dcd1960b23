// Package webtest drives the page of the UI bridge in a real Chromium, against a whole
// Skandha system in this process: bus, core, the offline provider, tools, and the bridge.
//
// A test takes three steps:
//
//	r := webtest.Start(t, webtest.Options{})       // a system and a bridge; stopped by t.Cleanup
//	p := r.SignedIn(t, "kitchen")                  // a separate browser, in the session kitchen
//	p.Say("call math:evaluate {\"expression\": \"2+3\"}")
//	p.Wait(`text(".turn .prose").includes("5")`)   // JavaScript that becomes true
//	p.Shot("sum")                                  // a screenshot, kept if SKANDHA_SCREENSHOTS names a directory
//
// The model obeys package services/test/scripted, unless [Options.Model] is another: a
// message says exactly what the model does, and any other text is echoed. With
// [Options.Process] the bridge is a separate process, which [Rig.Kill] kills and
// [Rig.Restart] starts again on its port.
//
// Every [Page] fails its test when it writes an error to the console, throws, or breaks
// its content policy, unless [Page.Expect] named the text before. What a page waits for
// has a deadline and says what the page showed when it passed.
//
// In expressions, text(css) is the visible text of the first element, all(css) the
// elements, and one(css) the first of them; they are there on every page.
//
// Nothing but loopback is reached. Without Chromium tests are skipped, or fail if
// SKANDHA_REQUIRE is "all".
package webtest
